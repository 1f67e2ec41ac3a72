// SPDX-License-Identifier: GPL-2.0-only

//! A runqueue ordered by virtual time, from which any task can be removed.
//!
//! An implicit four-ary heap of (key, insertion number, slot), and an array with the heap position
//! of every slot. An entry has 16 bytes, so the four children of a node are one cache line, and a
//! heap of 100,000 tasks is at most nine lines deep. Equal keys leave in the order of insertion,
//! so the order never depends on the shape of the heap. [`Runqueue::new`] allocates all memory.

use crate::time::Vtime;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Children of a heap node.
const ARITY: usize = 4;
/// Most tasks that [`Runqueue::front`] returns.
pub const FRONT_MAX: usize = 5;
/// Heap position of a slot that is not queued here.
const NOWHERE: u32 = u32::MAX;

/// Index of a task's record in its [`TaskTable`](crate::table::TaskTable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u32);

#[derive(Clone, Copy, Default)]
struct Entry {
    key: Vtime,
    /// Insertion number, which breaks ties: earlier insertions first. The numbers wrap around, and
    /// two are compared by their signed difference. That is safe because no task waits while 2^30
    /// others are inserted: this takes 18 minutes at a million a second, and the kernel's watchdog
    /// waits for 5 s.
    seq: u32,
    slot: Slot,
}

impl Entry {
    fn before(&self, other: &Entry) -> bool {
        match self.key.cmp(&other.key) {
            Ordering::Less => true,
            Ordering::Equal => (self.seq.wrapping_sub(other.seq) as i32) < 0,
            Ordering::Greater => false,
        }
    }
}

/// The four children of a node.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([Entry; ARITY]);

/// Tasks ordered by virtual time, smallest first. The module doc describes the heap.
pub struct Runqueue {
    /// Position 0. It is stored apart, so that the other positions begin at a cache line and each
    /// node's children share one.
    root: Entry,
    lines: Vec<Line>,
    len: usize,
    place: Vec<u32>,
    inserted: u32,
    /// What was removed last, for [`Runqueue::put_back`].
    removed: Option<Entry>,
}

impl Runqueue {
    /// A queue that can hold all slots `0..capacity` at once.
    pub fn new(capacity: u32) -> Self {
        let lines = (capacity.saturating_sub(1) as usize).div_ceil(ARITY);
        Runqueue {
            root: Entry::default(),
            lines: vec![Line::default(); lines],
            len: 0,
            place: vec![NOWHERE; capacity as usize],
            inserted: 0,
            removed: None,
        }
    }

    /// The number of queued tasks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no task is queued.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `slot` behind all tasks of the same key. A slot that is queued already keeps its
    /// place.
    pub fn insert(&mut self, slot: Slot, key: Vtime) {
        self.inserted = self.inserted.wrapping_add(1);
        self.insert_entry(Entry { key, seq: self.inserted, slot });
    }

    /// Undoes the last [`pop`](Self::pop) or [`remove`](Self::remove) if it removed `slot`: the
    /// task has its key and its place among equal keys again, and the queue is as before.
    /// Otherwise the task is added behind all tasks of the same key.
    pub fn put_back(&mut self, slot: Slot, key: Vtime) {
        match self.removed {
            Some(removed) if (removed.slot, removed.key) == (slot, key) => {
                self.insert_entry(removed);
            }
            _ => self.insert(slot, key),
        }
    }

    /// The task with the smallest key, and that key.
    pub fn peek(&self) -> Option<(Slot, Vtime)> {
        let first = (self.len > 0).then_some(&self.root)?;
        Some((first.slot, first.key))
    }

    /// Up to [`FRONT_MAX`] tasks, in the order in which they would leave.
    pub fn front(&self) -> impl Iterator<Item = (Slot, Vtime)> + '_ {
        let len = usize::from(self.len > 0);
        Front { queue: self, found: [0; FOUND_MAX], len }.take(FRONT_MAX)
    }

    /// Removes the task with the smallest key.
    pub fn pop(&mut self) -> Option<(Slot, Vtime)> {
        let (slot, key) = self.peek()?;
        self.remove(slot);
        Some((slot, key))
    }

    /// Removes `slot` from any position and returns its key; `None` if it is not queued.
    pub fn remove(&mut self, slot: Slot) -> Option<Vtime> {
        let at = core::mem::replace(&mut self.place[slot.0 as usize], NOWHERE);
        if at == NOWHERE {
            return None;
        }
        let at = at as usize;
        let removed = *self.at(at);
        self.removed = Some(removed);
        self.len -= 1;
        if at < self.len {
            // Move the last entry into the gap, or to its right position above or below it.
            let last = *self.at(self.len);
            let gap = self.sift_up(at, &last);
            let gap = if gap == at { self.sift_down(gap, &last) } else { gap };
            self.put(gap, last);
        }
        Some(removed.key)
    }

    fn insert_entry(&mut self, entry: Entry) {
        if self.place[entry.slot.0 as usize] != NOWHERE {
            return;
        }
        self.len += 1;
        let gap = self.sift_up(self.len - 1, &entry);
        self.put(gap, entry);
    }

    /// Moves the gap at `at` up as far as `entry` has to go.
    fn sift_up(&mut self, mut at: usize, entry: &Entry) -> usize {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !entry.before(self.at(parent)) {
                break;
            }
            self.put(at, *self.at(parent));
            at = parent;
        }
        at
    }

    /// Moves the gap at `at` down as far as `entry` has to go.
    fn sift_down(&mut self, mut at: usize, entry: &Entry) -> usize {
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.len);
            let earlier = |a, b| if self.at(b).before(self.at(a)) { b } else { a };
            let Some(child) = children.reduce(earlier) else { return at };
            if !self.at(child).before(entry) {
                return at;
            }
            self.put(at, *self.at(child));
            at = child;
        }
    }

    fn at(&self, position: usize) -> &Entry {
        match position.checked_sub(1) {
            Some(below) => &self.lines[below / ARITY].0[below % ARITY],
            None => &self.root,
        }
    }

    fn put(&mut self, position: usize, entry: Entry) {
        match position.checked_sub(1) {
            Some(below) => self.lines[below / ARITY].0[below % ARITY] = entry,
            None => self.root = entry,
        }
        self.place[entry.slot.0 as usize] = position as u32;
    }
}

/// Most positions that [`Front`] has to compare: each task that leaves is replaced by its children.
const FOUND_MAX: usize = 1 + FRONT_MAX * (ARITY - 1);

/// The tasks of a heap in order, the first [`FRONT_MAX`] of them.
struct Front<'a> {
    queue: &'a Runqueue,
    /// The children of the tasks returned so far, as heap positions. The next task is one of them.
    found: [u32; FOUND_MAX],
    len: usize,
}

impl Iterator for Front<'_> {
    type Item = (Slot, Vtime);

    fn next(&mut self) -> Option<(Slot, Vtime)> {
        let entry = |place: usize| self.queue.at(self.found[place] as usize);
        let earlier = |a, b| if entry(b).before(entry(a)) { b } else { a };
        let first = (0..self.len).reduce(earlier)?;
        let at = self.found[first] as usize;
        self.len -= 1;
        self.found[first] = self.found[self.len];
        let below = at * ARITY + 1;
        for child in below..(below + ARITY).min(self.queue.len) {
            self.found[self.len] = child as u32;
            self.len += 1;
        }
        let entry = self.queue.at(at);
        Some((entry.slot, entry.key))
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

    /// Empties the queue: the slots in the order in which they leave.
    fn drain(queue: &mut Runqueue) -> Vec<u32> {
        core::iter::from_fn(|| queue.pop()).map(|(slot, _)| slot.0).collect()
    }

    #[test]
    fn equal_keys_leave_in_order_of_insertion() {
        let mut queue = Runqueue::new(8);
        for slot in [3, 1, 2] {
            queue.insert(Slot(slot), key(7));
        }
        queue.insert(Slot(5), key(6));
        assert_eq!(drain(&mut queue), [5, 3, 1, 2]);
    }

    #[test]
    fn a_task_put_back_has_its_place_again() {
        for taken in [0, 1, 2] {
            let mut queue = Runqueue::new(8);
            for slot in [0, 1, 2] {
                queue.insert(Slot(slot), key(7));
            }
            let at = queue.remove(Slot(taken)).unwrap();
            queue.put_back(Slot(taken), at);
            assert_eq!(drain(&mut queue), [0, 1, 2], "{taken} was taken");
        }
    }

    #[test]
    fn order_of_insertion_survives_the_wrap_of_its_numbers() {
        let mut queue = Runqueue::new(8);
        queue.inserted = u32::MAX - 1;
        for slot in [3, 1, 2] {
            queue.insert(Slot(slot), key(7));
        }
        assert_eq!(drain(&mut queue), [3, 1, 2]);
    }

    #[test]
    fn four_children_are_one_cache_line() {
        assert_eq!(core::mem::size_of::<Line>(), 64);
        let queue = Runqueue::new(64);
        let at = |position| core::ptr::from_ref(queue.at(position)) as usize;
        for node in 0..15 {
            assert_eq!(at(4 * node + 1) % 64, 0);
            assert_eq!(at(4 * node + 1) / 64, at(4 * node + 4) / 64);
        }
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
        /// Any mix of insertions, removals and pops gives the same order as a sorted list.
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
                        let front = model.iter().take(FRONT_MAX);
                        let front: Vec<_> = front.map(|m| (Slot(m.2), key(m.0))).collect();
                        prop_assert_eq!(queue.front().collect::<Vec<_>>(), front);
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
