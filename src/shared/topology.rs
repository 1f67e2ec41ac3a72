// SPDX-License-Identifier: GPL-2.0-only

//! The topology, from the supervisor to the worker, and the worker's word that CPUs have come or
//! gone.

use super::seqlock::Seqlock;
use pandemonium_engine::task::CPUS_MAX;
use pandemonium_engine::topology::{CpuPlace, Topology};
use std::sync::atomic::{AtomicU64, Ordering};

/// The newest topology. The worker takes up one that is being written a round later.
#[repr(C)]
pub struct TopologyCell {
    /// Written by the worker: its starts, and the times that it saw CPUs come or go.
    changes: AtomicU64,
    lock: Seqlock,
    nr_cpus: AtomicU64,
    places: [AtomicU64; CPUS_MAX as usize],
}

/// The topology that the worker knows, with room for the largest one, so that to take up another
/// one allocates nothing.
pub struct KnownTopology {
    seen: u64,
    topology: Topology,
    /// The one that is being read.
    next: Topology,
}

impl KnownTopology {
    /// The topology of the worker's start.
    pub fn of(topology: &Topology) -> KnownTopology {
        KnownTopology { seen: 0, topology: topology.with_room(), next: topology.with_room() }
    }
}

impl TopologyCell {
    /// The worker starts, or sees that CPUs have come or gone.
    pub fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How often the worker has noted a change.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Publishes a topology. There is one writer. Returns false if it is the same as before.
    pub fn publish(&self, topology: &Topology) -> bool {
        let places = topology.places();
        if self.read().eq(places.iter().copied()) {
            return false;
        }
        self.lock.write(|| {
            self.nr_cpus.store(places.len() as u64, Ordering::Relaxed);
            for (cell, place) in self.places.iter().zip(places) {
                cell.store(place.to_word(), Ordering::Relaxed);
            }
        });
        true
    }

    /// The newest topology, if it is another one than the worker knows. One load if none was
    /// published; allocates nothing.
    pub fn newer<'k>(&self, known: &'k mut KnownTopology) -> Option<&'k Topology> {
        self.lock.read_newer(&mut known.seen, || known.next.refill(self.read()))?;
        if known.next == known.topology {
            return None;
        }
        std::mem::swap(&mut known.next, &mut known.topology);
        Some(&known.topology)
    }

    fn read(&self) -> impl Iterator<Item = CpuPlace> {
        let nr_cpus = (self.nr_cpus.load(Ordering::Relaxed) as usize).min(self.places.len());
        let cells = self.places[..nr_cpus].iter();
        cells.map(|cell| CpuPlace::from_word(cell.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;

    #[test]
    fn the_worker_takes_up_each_topology_once_and_complete() {
        let shared = Shared::create().unwrap();
        let cell = &shared.topology;
        let mut known = KnownTopology::of(&Topology::flat(2));
        assert_eq!(cell.newer(&mut known), None, "nothing was published yet");
        assert!(cell.publish(&Topology::flat(2)) && !cell.publish(&Topology::flat(2)));
        assert_eq!(cell.newer(&mut known), None, "it is that of the start");
        assert!(cell.publish(&Topology::flat(CPUS_MAX)));
        assert_eq!(cell.newer(&mut known), Some(&Topology::flat(CPUS_MAX)));
        assert_eq!(cell.newer(&mut known), None);
        let pair = CpuPlace { core: 0, l2: 0, llc: 0, node: 0 };
        let smaller = Topology::new(vec![pair, pair, CpuPlace::UNKNOWN]);
        assert!(cell.publish(&smaller));
        cell.lock.write(|| assert_eq!(cell.newer(&mut known), None, "in the middle"));
        assert_eq!(cell.newer(&mut known), Some(&smaller));
        assert_eq!(cell.newer(&mut KnownTopology::of(&smaller)), None, "the next worker has it");
    }

    #[test]
    fn the_supervisor_sees_that_the_worker_has_noted_a_change() {
        let shared = Shared::create().unwrap();
        let before = shared.topology.changes();
        shared.topology.note_change();
        assert_eq!(shared.topology.changes(), before + 1);
    }
}
