// SPDX-License-Identifier: GPL-2.0-only

//! A queue ordered by virtual time, in which a task can also be found and taken out again.
//!
//! An implicit four-ary heap of (key, arrival number, slot), with the heap position of every slot
//! beside it. Four children a node halve the depth of a binary heap and lie next to each other in
//! memory. Equal keys leave in the order in which they came, so order never depends on the shape
//! of the heap. Memory is taken once, in [`Runqueue::new`].

use crate::time::Vtime;
use alloc::vec;
use alloc::vec::Vec;

/// Children of a heap node.
const ARITY: usize = 4;
/// Heap position of a slot that is not queued here.
const NOWHERE: u32 = u32::MAX;

/// Index of a task's record in its [`TaskTable`](crate::table::TaskTable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Vtime,
    /// Breaks ties: earlier insertions first.
    seq: u64,
    slot: Slot,
}

/// Tasks ordered by virtual time, smallest first. See the module for how.
pub struct Runqueue {
    heap: Vec<Entry>,
    place: Vec<u32>,
    inserted: u64,
}

impl Runqueue {
    /// A queue that can hold the slots `0..capacity`, all at once.
    pub fn new(capacity: u32) -> Self {
        Runqueue {
            heap: Vec::with_capacity(capacity as usize),
            place: vec![NOWHERE; capacity as usize],
            inserted: 0,
        }
    }

    /// How many tasks wait here.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nobody waits here.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Adds `slot`, behind everyone of the same key. A slot that is queued here already keeps the
    /// place it has.
    pub fn insert(&mut self, slot: Slot, key: Vtime) {
        self.inserted += 1;
        self.insert_entry(Entry { key, seq: self.inserted, slot });
    }

    /// Puts back what [`pop`](Self::pop) returned, ahead of everyone of the same key.
    pub fn put_back(&mut self, slot: Slot, key: Vtime) {
        self.insert_entry(Entry { key, seq: 0, slot });
    }

    /// The task with the smallest key, and that key.
    pub fn peek(&self) -> Option<(Slot, Vtime)> {
        self.heap.first().map(|entry| (entry.slot, entry.key))
    }

    /// Takes out the task with the smallest key.
    pub fn pop(&mut self) -> Option<(Slot, Vtime)> {
        let (slot, key) = self.peek()?;
        self.remove(slot);
        Some((slot, key))
    }

    /// Takes out `slot`, wherever it stands, and returns its key; `None` if it is not queued here.
    pub fn remove(&mut self, slot: Slot) -> Option<Vtime> {
        let at = self.place[slot.0 as usize];
        if at == NOWHERE {
            return None;
        }
        let at = at as usize;
        let removed = self.heap.swap_remove(at);
        self.place[slot.0 as usize] = NOWHERE;
        if at < self.heap.len() {
            // The last entry has moved into the gap and may belong above or below it.
            let at = self.sift_up(at);
            self.sift_down(at);
        }
        Some(removed.key)
    }

    fn insert_entry(&mut self, entry: Entry) {
        if self.place[entry.slot.0 as usize] != NOWHERE {
            return;
        }
        self.heap.push(entry);
        self.sift_up(self.heap.len() - 1);
    }

    /// Moves the entry at `at` up to where it belongs and returns that position.
    fn sift_up(&mut self, mut at: usize) -> usize {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
        at
    }

    fn sift_down(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child]) else { break };
            if entry <= self.heap[child] {
                break;
            }
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, entry);
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.place[entry.slot.0 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn key(raw: u64) -> Vtime {
        Vtime::from_raw(raw)
    }

    #[test]
    fn equal_keys_leave_in_order_of_arrival() {
        let mut queue = Runqueue::new(8);
        for slot in [3, 1, 2] {
            queue.insert(Slot(slot), key(7));
        }
        queue.insert(Slot(5), key(6));
        let order: Vec<u32> = core::iter::from_fn(|| queue.pop()).map(|(slot, _)| slot.0).collect();
        assert_eq!(order, [5, 3, 1, 2]);
    }

    #[test]
    fn what_is_put_back_is_first_again() {
        let mut queue = Runqueue::new(8);
        queue.insert(Slot(0), key(7));
        queue.insert(Slot(1), key(7));
        let (slot, at) = queue.pop().unwrap();
        queue.put_back(slot, at);
        assert_eq!(queue.pop(), Some((Slot(0), key(7))));
    }

    #[test]
    fn a_queued_slot_keeps_its_place() {
        let mut queue = Runqueue::new(8);
        queue.insert(Slot(0), key(7));
        queue.insert(Slot(0), key(1));
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.pop(), Some((Slot(0), key(7))));
        assert_eq!(queue.remove(Slot(0)), None);
    }

    proptest! {
        /// Against a sorted list: any mix of insertions, removals and pops gives the same order.
        #[test]
        fn behaves_like_a_sorted_list(
            steps in prop::collection::vec((0u32..64, 0u64..20, 0u8..4), 0..300),
        ) {
            let mut queue = Runqueue::new(64);
            let mut model: Vec<(u64, usize, u32)> = Vec::new();
            for (number, (slot, raw, action)) in steps.into_iter().enumerate() {
                match action {
                    0 => {
                        model.sort();
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        let expected = first.map(|(raw, _, slot)| (Slot(slot), key(raw)));
                        prop_assert_eq!(queue.pop(), expected);
                    }
                    1 => {
                        let at = model.iter().position(|m| m.2 == slot);
                        let expected = at.map(|at| key(model.remove(at).0));
                        prop_assert_eq!(queue.remove(Slot(slot)), expected);
                    }
                    _ => {
                        queue.insert(Slot(slot), key(raw));
                        if !model.iter().any(|m| m.2 == slot) {
                            model.push((raw, number, slot));
                        }
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
