// SPDX-License-Identifier: GPL-2.0-only

//! Converts a policy's setup to entries, and back.

use super::Entry;
use alloc::vec::Vec;
use pandemonium_engine::task::CPUS_MAX;
use pandemonium_engine::topology::{CpuPlace, Topology};
use pandemonium_engine::{NAMES_MAX, Setup};

/// Calls `tell` with each entry of `setup`. Allocates nothing.
pub fn told_at_start(setup: &Setup, mut tell: impl FnMut(Entry)) {
    tell(Entry::Started { cpus: setup.cpus });
    setup.topology.places().iter().for_each(|place| tell(Entry::Place(*place)));
    setup.names.iter().for_each(|(name, tier)| tell(Entry::Named(*name, *tier)));
    setup.domain.iter().for_each(|domain| tell(Entry::Preferred(*domain)));
}

/// Gathers the entries of a policy's setup.
#[derive(Clone, Debug, Default)]
pub struct Start {
    setup: Setup,
    places: Vec<CpuPlace>,
}

impl Start {
    /// An empty start for `cpus` CPUs; `None` if that is out of range.
    pub fn of(cpus: u32) -> Option<Start> {
        let sane = (1..=CPUS_MAX).contains(&cpus);
        sane.then(|| Start { setup: Setup { cpus, ..Setup::default() }, places: Vec::new() })
    }

    /// Adds an entry of a setup. Returns false for any other entry, and for one that exceeds a
    /// limit.
    pub fn take(&mut self, entry: &Entry) -> bool {
        match *entry {
            Entry::Place(place) if self.places.len() < CPUS_MAX as usize => {
                self.places.push(place);
            }
            Entry::Named(name, tier) if self.setup.names.len() < NAMES_MAX => {
                self.setup.names.push((name, tier));
            }
            Entry::Preferred(domain) if self.setup.domain.is_none() => {
                self.setup.domain = Some(domain);
            }
            _ => return false,
        }
        true
    }

    /// The gathered setup.
    pub fn finish(self) -> Setup {
        Setup { topology: Topology::new(self.places), ..self.setup }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::task::{Comm, Tier};
    use pandemonium_engine::topology::{CpuMask, Domain};

    #[test]
    fn a_setup_survives_the_round_trip_through_entries() {
        let place = |number| CpuPlace { core: number / 2, l2: number, llc: 1, node: 0 };
        let setup = Setup {
            cpus: 6,
            names: alloc::vec![(Comm::from_text("game"), Tier::Interactive)],
            topology: Topology::new((0..6).map(place).collect()),
            domain: Some(Domain { cpus: CpuMask::first(3), strict: true }),
        };
        let mut start = Start::of(6).expect("a machine may have six CPUs");
        let mut entries = 0;
        told_at_start(&setup, |entry| {
            entries += 1;
            let first = matches!(entry, Entry::Started { cpus: 6 });
            assert_ne!(start.take(&entry), first);
        });
        assert_eq!(entries, 9);
        let back = start.finish();
        assert_eq!((back.cpus, &back.names), (6, &setup.names));
        assert_eq!((back.topology, back.domain), (setup.topology, setup.domain));
    }

    #[test]
    fn a_setup_beyond_the_limits_is_refused() {
        assert!(Start::of(0).is_none() && Start::of(1025).is_none());
        let mut start = Start::of(1).expect("a machine may have one CPU");
        let place = Entry::Place(CpuPlace::default());
        assert!((0..1024).all(|_| start.take(&place)));
        assert!(!start.take(&place));
        let domain = Entry::Preferred(Domain { cpus: CpuMask::EMPTY, strict: false });
        assert_eq!((start.take(&domain), start.take(&domain)), (true, false));
        assert!(!start.take(&Entry::Dropped(1)));
    }
}
