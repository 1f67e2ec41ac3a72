// SPDX-License-Identifier: GPL-2.0-only

//! The profiles, found by name and user.
//!
//! Memory is allocated once. If the table is full, a new program evicts the profile with the oldest
//! day of observation; of equals the one with the fewest observations, then the first by name and
//! user. This order is total, so two databases with the same history evict the same profile.

use super::calendar;
use super::{Minute, Observation, Prediction, Profile, Program, Verdict};
use crate::index::Index;
use alloc::vec::Vec;

/// Default number of programs. Chosen: a busy desktop that also builds software has 300 to 600
/// names of threads and programs in a month, and 2048 profiles with their index take 150 KB.
pub const CAPACITY: u32 = 2_048;
/// Merging drops a name that was not seen for longer than this. Four weeks outlast a holiday and
/// keep programs that run once a month, such as a release build or a backup.
pub const RETENTION_DAYS: u32 = 28;

/// The size of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Programs with a profile.
    pub total: usize,
    /// Programs with a profile that predicts.
    pub confident: usize,
}

/// Profiles of up to a fixed number of names.
pub struct ProcDb {
    profiles: Vec<Profile>,
    index: Index,
    capacity: usize,
    /// The number of profiles that predict, kept up to date because counting visits all profiles.
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

    /// Learns from the behaviour of a task, and returns whether its prediction was right.
    ///
    /// This takes one look-up, 50 ns. A new name in a full database also visits all profiles to
    /// find the one to evict: 5 ns a profile, 10 us with [`CAPACITY`] names.
    pub fn learn(&mut self, when: Minute, seen: &Observation) -> Verdict {
        let slot = match self.find(&seen.program) {
            Some(slot) => slot,
            None => self.admit(seen.program),
        };
        let profile = &mut self.profiles[slot as usize];
        let confident_before = profile.prediction().is_some();
        let verdict = profile.learn(when, seen);
        self.confident -= usize::from(confident_before);
        self.confident += usize::from(profile.prediction().is_some());
        verdict
    }

    /// What the program predicts, if its profile has enough confidence. A user without a profile of
    /// that name gets the one that was learned without users, if there is one.
    pub fn predict(&self, program: &Program) -> Option<Prediction> {
        self.get(program).or_else(|| self.get(&program.of_unknown()))?.prediction()
    }

    /// The profile of the program.
    pub fn get(&self, program: &Program) -> Option<&Profile> {
        self.find(program).map(|slot| &self.profiles[slot as usize])
    }

    /// All profiles. Their order depends only on the history; after [`ProcDb::merge`] they are
    /// ordered by name.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// The size of the database.
    pub fn summary(&self) -> Summary {
        Summary { total: self.profiles.len(), confident: self.confident }
    }

    /// Adds the profiles of another database. Of two profiles of one program the [newer] is kept.
    /// Those not seen for more than [`RETENTION_DAYS`] are dropped, and beyond the capacity those
    /// least worth keeping.
    ///
    /// The result does not depend on which database is merged into the other, and merging the same
    /// profiles again changes nothing. Merging sorts and allocates, so it is for the start and for
    /// saving only.
    ///
    /// [newer]: Profile::newer
    pub fn merge(&mut self, when: Minute, others: impl IntoIterator<Item = Profile>) {
        let mut all = self.profiles.clone();
        all.extend(others);
        all.retain(|profile| when.days_since(profile.last_seen) <= RETENTION_DAYS);
        all.sort_unstable_by_key(|profile| profile.program);
        all.dedup_by(|later, kept| {
            let same = later.program == kept.program;
            if same {
                *kept = kept.newer(*later);
            }
            same
        });
        if all.len() > self.capacity {
            all.sort_unstable_by_key(|profile| core::cmp::Reverse(profile.worth()));
            all.truncate(self.capacity);
            all.sort_unstable_by_key(|profile| profile.program);
        }
        self.replace(&all);
    }

    /// The clock showed `before`, and now shows `now`. If it was set, ages stay as they are.
    pub fn clock_moved(&mut self, before: Minute, now: Minute) {
        calendar::clock_was_set(&mut self.profiles, before, now);
    }

    /// Replaces all profiles by `profiles`, which must fit and name each program once.
    fn replace(&mut self, profiles: &[Profile]) {
        self.profiles.clear();
        self.index.clear();
        self.confident = 0;
        for (slot, profile) in (0u32..).zip(profiles) {
            self.profiles.push(*profile);
            self.index.insert(hash(&profile.program), slot);
            self.confident += usize::from(profile.prediction().is_some());
        }
    }

    fn find(&self, program: &Program) -> Option<u32> {
        self.index.find(hash(program), |slot| self.profiles[slot as usize].program == *program)
    }

    /// Returns a slot for a new program. If the database is full, evicts the profile least worth
    /// keeping.
    fn admit(&mut self, program: Program) -> u32 {
        let slot = if self.profiles.len() < self.capacity {
            self.profiles.push(Profile::unseen(program));
            self.profiles.len() as u32 - 1
        } else {
            let slot = self.least_worth();
            let evicted = &mut self.profiles[slot as usize];
            self.index.remove(hash(&evicted.program), slot);
            self.confident -= usize::from(evicted.prediction().is_some());
            *evicted = Profile::unseen(program);
            slot
        };
        self.index.insert(hash(&program), slot);
        slot
    }

    fn least_worth(&self) -> u32 {
        let worth = |slot: &u32| self.profiles[*slot as usize].worth();
        let slots = 0..self.profiles.len() as u32;
        slots.min_by_key(worth).expect("a full database holds at least one profile")
    }
}

/// A hash of a program that depends on all letters of its name, and on its user.
fn hash(program: &Program) -> u32 {
    let [low, high] = program.comm.to_words();
    let low = low ^ u64::from(program.user.as_raw()).rotate_left(29);
    // Odd constants without a pattern: the fractions of the golden ratio and of the root of three.
    // The multiplication spreads every letter into the upper half; the last line folds that half
    // into the lower one.
    let mixed = low.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ high.wrapping_mul(0xBB67_AE85_84CA_A73B).rotate_left(32);
    (mixed ^ mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::task::{Comm, User};
    use std::collections::BTreeMap;
    use std::format;

    /// Typical names: numbered threads, long common prefixes, short names, long common suffixes.
    #[test]
    fn similar_names_spread_over_the_cells() {
        let numbered = (0..500).map(|i| format!("kworker/{i}:1"));
        let long = (0..500).map(|i| format!("ThreadPool-{i}"));
        let short = (0..500).map(|i| format!("{i}"));
        let last = (0..500).map(|i| format!("{i:03}-same-ending"));
        let index = Index::new(CAPACITY);
        let mut crowd = BTreeMap::new();
        for name in numbered.chain(long).chain(short).chain(last) {
            let program = Program { comm: Comm::from_text(&name), user: User::new(1_000) };
            *crowd.entry(index.home_of(hash(&program))).or_insert(0) += 1;
        }
        // If 2000 names fall into 4096 cells at random, at most six fall into one cell.
        let most = crowd.values().copied().max();
        assert!(most <= Some(6), "{most:?}");
    }

    #[test]
    fn one_name_of_many_users_spreads_over_the_cells() {
        let index = Index::new(CAPACITY);
        let mut crowd = BTreeMap::new();
        for user in (0..1_000).chain(60_000..61_000) {
            let program = Program { comm: Comm::from_text("bash"), user: User::new(user) };
            *crowd.entry(index.home_of(hash(&program))).or_insert(0) += 1;
        }
        let most = crowd.values().copied().max();
        assert!(most <= Some(6), "{most:?}");
    }
}
