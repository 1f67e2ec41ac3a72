// SPDX-License-Identifier: GPL-2.0-only

//! Finds a slot by what is stored in it: open addressing with linear probing, at most half full,
//! so that a look-up touches one or two neighbouring cells.
//!
//! The index knows slots and hashes, never the keys: the owner of the slots says whether a slot
//! is the one that is looked for. So one index serves every kind of key.

use alloc::vec;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// An index over slots `0..capacity`.
pub struct Index {
    cells: Vec<u32>,
    mask: usize,
}

impl Index {
    /// Room for `capacity` slots, between 1 and 2^30. Nothing is allocated afterwards.
    pub fn new(capacity: u32) -> Index {
        assert!((1..=1 << 30).contains(&capacity), "capacity is a number of slots");
        let size = (capacity as usize * 2).next_power_of_two();
        Index { cells: vec![NONE; size], mask: size - 1 }
    }

    /// Where the search for a hash begins. Fibonacci hashing spreads neighbouring numbers; only
    /// the lower 44 bits of a hash take part with 4096 cells, so a wider key is folded first.
    fn home(&self, hash: u64) -> usize {
        (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & self.mask
    }

    /// The slot under `hash` for which `is` holds.
    pub fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        while self.cells[at] != NONE {
            if is(self.cells[at]) {
                return Some(self.cells[at]);
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    /// Adds a slot that is not in the index.
    pub fn insert(&mut self, hash: u64, slot: u32) {
        let mut at = self.home(hash);
        while self.cells[at] != NONE {
            at = (at + 1) & self.mask;
        }
        self.cells[at] = slot;
    }

    /// Removes `slot` and closes the gap, so that no search ends before what it looks for.
    /// `hash_of` gives the hash under which a slot was added.
    pub fn remove(&mut self, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let mut gap = self.home(hash_of(slot));
        while self.cells[gap] != slot {
            assert!(self.cells[gap] != NONE, "only a slot that was added is removed");
            gap = (gap + 1) & self.mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            if self.cells[at] == NONE {
                break;
            }
            let home = self.home(hash_of(self.cells[at]));
            let distance_from_home = at.wrapping_sub(home) & self.mask;
            let distance_from_gap = at.wrapping_sub(gap) & self.mask;
            if distance_from_home >= distance_from_gap {
                self.cells[gap] = self.cells[at];
                gap = at;
            }
        }
        self.cells[gap] = NONE;
    }

    /// Where a search for `hash` begins, for a test of how a hash spreads.
    #[cfg(test)]
    pub fn home_of(&self, hash: u64) -> usize {
        self.home(hash)
    }

    /// Removes every slot.
    pub fn clear(&mut self) {
        self.cells.fill(NONE);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Few hashes, so that every search meets others' slots and every gap lies in a cluster.
        #[test]
        fn the_index_agrees_with_a_set(
            hashes in prop::collection::vec(0..5u64, 16),
            steps in prop::collection::vec((any::<bool>(), 0..16u32), 1..200),
        ) {
            let mut index = Index::new(16);
            let mut model = BTreeSet::new();
            for (add, slot) in steps {
                if add && model.insert(slot) {
                    index.insert(hashes[slot as usize], slot);
                } else if !add && model.remove(&slot) {
                    index.remove(slot, |slot| hashes[slot as usize]);
                }
                for slot in 0..16 {
                    let found = index.find(hashes[slot as usize], |other| other == slot);
                    prop_assert_eq!(found, model.contains(&slot).then_some(slot));
                }
            }
            index.clear();
            prop_assert!((0..16).all(|slot| index.find(hashes[slot], |_| true).is_none()));
        }
    }
}
