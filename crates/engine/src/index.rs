// SPDX-License-Identifier: GPL-2.0-only

//! A hash index from keys to slots: open addressing with linear probing, at most half full, so
//! that a look-up touches one or two neighbouring cells.
//!
//! The index stores slots and hashes but no keys, so one index type serves every kind of key: the
//! caller says whether the slot found has the right key. A look-up asks this only for a slot with
//! the same hash, which is nearly always the right slot, so it rarely reads the memory of another
//! slot.

use alloc::vec;
use alloc::vec::Vec;

/// A slot and its hash.
#[derive(Clone, Copy)]
struct Cell {
    hash: u32,
    slot: u32,
}

const EMPTY: Cell = Cell { hash: 0, slot: u32::MAX };

impl Cell {
    fn is_empty(self) -> bool {
        self.slot == EMPTY.slot
    }
}

/// An index over slots `0..capacity`.
pub struct Index {
    cells: Vec<Cell>,
    mask: usize,
}

impl Index {
    /// An index for `capacity` slots, between 1 and 2^30. Nothing is allocated afterwards.
    pub fn new(capacity: u32) -> Index {
        assert!((1..=1 << 30).contains(&capacity), "capacity is a number of slots");
        let size = (capacity as usize * 2).next_power_of_two();
        Index { cells: vec![EMPTY; size], mask: size - 1 }
    }

    /// The cell at which the search for a hash begins. Fibonacci hashing spreads consecutive
    /// numbers.
    fn home(&self, hash: u32) -> usize {
        (u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & self.mask
    }

    /// The slot with this hash for which `is` holds.
    pub fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        while !self.cells[at].is_empty() {
            let cell = self.cells[at];
            if cell.hash == hash && is(cell.slot) {
                return Some(cell.slot);
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    /// Adds a slot that is not in the index.
    pub fn insert(&mut self, hash: u32, slot: u32) {
        let mut at = self.home(hash);
        while !self.cells[at].is_empty() {
            at = (at + 1) & self.mask;
        }
        self.cells[at] = Cell { hash, slot };
    }

    /// Removes a slot that was added with `hash` and closes the gap, so that later searches do not
    /// end at it.
    pub fn remove(&mut self, hash: u32, slot: u32) {
        let mut gap = self.home(hash);
        while self.cells[gap].slot != slot {
            assert!(!self.cells[gap].is_empty(), "only a slot that was added is removed");
            gap = (gap + 1) & self.mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let cell = self.cells[at];
            if cell.is_empty() {
                break;
            }
            let distance_from_home = at.wrapping_sub(self.home(cell.hash)) & self.mask;
            let distance_from_gap = at.wrapping_sub(gap) & self.mask;
            if distance_from_home >= distance_from_gap {
                self.cells[gap] = cell;
                gap = at;
            }
        }
        self.cells[gap] = EMPTY;
    }

    /// The cell at which the search for `hash` begins, for tests of hash functions.
    #[cfg(test)]
    pub fn home_of(&self, hash: u32) -> usize {
        self.home(hash)
    }

    /// Removes every slot.
    pub fn clear(&mut self) {
        self.cells.fill(EMPTY);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// There are few hashes, so that every search passes other slots and every gap is inside
        /// a cluster.
        #[test]
        fn the_index_agrees_with_a_set(
            hashes in prop::collection::vec(0..5u32, 16),
            steps in prop::collection::vec((any::<bool>(), 0..16u32), 1..200),
        ) {
            let mut index = Index::new(16);
            let mut model = BTreeSet::new();
            for (add, slot) in steps {
                if add && model.insert(slot) {
                    index.insert(hashes[slot as usize], slot);
                } else if !add && model.remove(&slot) {
                    index.remove(hashes[slot as usize], slot);
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
