// SPDX-License-Identifier: GPL-2.0-only

//! The profiles, and how one is found by its name.
//!
//! Memory is taken once. When all profiles are taken and a new name comes, the least worthy one
//! is evicted: of the day longest ago, then of the fewest observations, then by name. The order
//! is total, so two databases that saw the same evict the same.

use super::{Minute, Observation, Prediction, Profile, Verdict};
use crate::index::Index;
use crate::task::Comm;
use alloc::vec::Vec;

/// Names kept by default. Chosen: a busy desktop with a build going shows 300 to 600 names of
/// threads and programs in a month, and 2048 profiles with their index are 150 KB.
pub const CAPACITY: u32 = 2_048;
/// A name unseen for longer is dropped when databases are merged. Four weeks keep what runs once
/// a month, such as a release build or a backup, and outlast a holiday.
pub const RETENTION_DAYS: u32 = 28;

/// How much is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Names with a profile.
    pub total: usize,
    /// Those of them that predict.
    pub confident: usize,
}

/// Profiles of up to a fixed number of names.
pub struct ProcDb {
    profiles: Vec<Profile>,
    index: Index,
    capacity: usize,
    /// How many profiles predict, kept up to date because counting takes a walk over all.
    confident: usize,
}

impl ProcDb {
    /// An empty database for up to `capacity` names, between 1 and 2^20. [`ProcDb::learn`] and
    /// [`ProcDb::predict`] never allocate.
    pub fn new(capacity: u32) -> ProcDb {
        assert!((1..=1 << 20).contains(&capacity), "capacity is a number of names");
        ProcDb {
            profiles: Vec::with_capacity(capacity as usize),
            index: Index::new(capacity),
            capacity: capacity as usize,
            confident: 0,
        }
    }

    /// Takes in what a task turned out to be, and says what that means for its prediction.
    ///
    /// One look-up; for a new name in a full database also a walk over all profiles, to find the
    /// one to evict: 5 ns a profile, 10 us with [`CAPACITY`] names, against 50 ns otherwise.
    pub fn learn(&mut self, when: Minute, seen: &Observation) -> Verdict {
        let slot = match self.find(&seen.comm) {
            Some(slot) => slot,
            None => self.admit(seen.comm),
        };
        let profile = &mut self.profiles[slot as usize];
        let confident_before = profile.prediction().is_some();
        let verdict = profile.learn(when, seen);
        self.confident -= usize::from(confident_before);
        self.confident += usize::from(profile.prediction().is_some());
        verdict
    }

    /// What the name promises, if it is known well enough at this moment.
    pub fn predict(&self, comm: &Comm) -> Option<Prediction> {
        self.get(comm)?.prediction()
    }

    /// What is known of the name.
    pub fn get(&self, comm: &Comm) -> Option<&Profile> {
        self.find(comm).map(|slot| &self.profiles[slot as usize])
    }

    /// All profiles. Their order depends on the history alone; after [`ProcDb::merge`] it is that
    /// of the names.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// How much is known.
    pub fn summary(&self) -> Summary {
        Summary { total: self.profiles.len(), confident: self.confident }
    }

    /// Adds what another database knows: of two profiles of one name the [newer] stays, names
    /// unseen for more than [`RETENTION_DAYS`] are dropped, and beyond the capacity the least
    /// worthy ones.
    ///
    /// Which side is which makes no difference, and merging the same again changes nothing. This
    /// is for the start and for saving: it sorts, and it allocates.
    ///
    /// [newer]: Profile::newer
    pub fn merge(&mut self, when: Minute, others: impl IntoIterator<Item = Profile>) {
        let mut all = self.profiles.clone();
        all.extend(others);
        all.retain(|profile| when.days_since(profile.last_seen) <= RETENTION_DAYS);
        all.sort_unstable_by_key(|profile| profile.comm);
        all.dedup_by(|later, kept| {
            let same = later.comm == kept.comm;
            if same {
                *kept = kept.newer(*later);
            }
            same
        });
        if all.len() > self.capacity {
            all.sort_unstable_by_key(|profile| core::cmp::Reverse(profile.worth()));
            all.truncate(self.capacity);
            all.sort_unstable_by_key(|profile| profile.comm);
        }
        self.replace(&all);
    }

    /// Forgets everything and takes `profiles` instead: no more than fit, each name once.
    fn replace(&mut self, profiles: &[Profile]) {
        self.profiles.clear();
        self.index.clear();
        self.confident = 0;
        for (slot, profile) in (0u32..).zip(profiles) {
            self.profiles.push(*profile);
            self.index.insert(hash(&profile.comm), slot);
            self.confident += usize::from(profile.prediction().is_some());
        }
    }

    fn find(&self, comm: &Comm) -> Option<u32> {
        self.index.find(hash(comm), |slot| self.profiles[slot as usize].comm == *comm)
    }

    /// A slot for a new name, evicting the least worthy one when there is no room.
    fn admit(&mut self, comm: Comm) -> u32 {
        let slot = if self.profiles.len() < self.capacity {
            self.profiles.push(Profile::unseen(comm));
            self.profiles.len() as u32 - 1
        } else {
            let slot = self.least_worthy();
            let evicted = &mut self.profiles[slot as usize];
            self.index.remove(hash(&evicted.comm), slot);
            self.confident -= usize::from(evicted.prediction().is_some());
            *evicted = Profile::unseen(comm);
            slot
        };
        self.index.insert(hash(&comm), slot);
        slot
    }

    fn least_worthy(&self) -> u32 {
        let worth = |slot: &u32| self.profiles[*slot as usize].worth();
        let slots = 0..self.profiles.len() as u32;
        slots.min_by_key(worth).expect("a full database holds at least one profile")
    }
}

/// A name as a number that depends on all of its letters.
fn hash(comm: &Comm) -> u32 {
    let [low, high] = comm.to_words();
    // Odd constants without pattern (the fractions of the golden ratio and of the root of three);
    // multiplying carries every letter into the upper half, folding brings it down.
    let mixed = low.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ high.wrapping_mul(0xBB67_AE85_84CA_A73B).rotate_left(32);
    (mixed ^ mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeMap;
    use std::format;

    /// Names as machines have them: numbered threads, long common beginnings, single letters.
    #[test]
    fn names_that_look_alike_are_spread() {
        let numbered = (0..500).map(|i| format!("kworker/{i}:1"));
        let long = (0..500).map(|i| format!("ThreadPool-{i}"));
        let short = (0..500).map(|i| format!("{i}"));
        let last = (0..500).map(|i| format!("{i:03}-same-ending"));
        let index = Index::new(CAPACITY);
        let mut crowd = BTreeMap::new();
        for name in numbered.chain(long).chain(short).chain(last) {
            *crowd.entry(index.home_of(hash(&Comm::from_text(&name)))).or_insert(0) += 1;
        }
        // 2000 balls into 4096 cells: chance alone puts at most six into one.
        let most = crowd.values().copied().max();
        assert!(most <= Some(6), "{most:?}");
    }
}
