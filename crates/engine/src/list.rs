// SPDX-License-Identifier: GPL-2.0-only

//! Doubly linked lists of slots. A slot is on at most one list.
//!
//! The links are stored apart from the records, eight bytes a slot, because adding or removing a
//! slot changes the links of its neighbours, and their records can be anywhere in memory. The links
//! of 100,000 tasks fit into a cache that their records do not fit into.

use crate::reserve::Reserve;
use crate::runqueue::Slot;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

/// The links of all slots, shared by all lists.
pub struct Links(Vec<Link>);

impl Links {
    /// Memory for the links of up to `capacity` slots. There is no slot yet.
    pub fn with_capacity(capacity: u32) -> Links {
        Links(Vec::with_capacity(capacity as usize))
    }

    /// Adds the next slot, which is on no list. Within the capacity it allocates nothing.
    pub fn add_slot(&mut self) {
        self.0.push(Link { prev: NONE, next: NONE });
    }

    /// The memory of the links.
    pub fn reserve(&self) -> Reserve {
        Reserve::of(&self.0)
    }
}

/// The two ends of a list.
#[derive(Clone, Copy)]
pub struct List {
    head: u32,
    tail: u32,
}

fn slot(raw: u32) -> Option<Slot> {
    (raw != NONE).then_some(Slot(raw))
}

impl List {
    /// The empty list.
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    /// The first slot.
    pub fn head(&self) -> Option<Slot> {
        slot(self.head)
    }

    /// The slot after `of`, which is on the list.
    pub fn behind(&self, links: &Links, Slot(of): Slot) -> Option<Slot> {
        slot(links.0[of as usize].next)
    }

    /// Adds a slot that is on no list at the end.
    pub fn push_back(&mut self, links: &mut Links, slot: Slot) {
        self.insert_before(links, None, slot);
    }

    /// Adds a slot that is on no list before `behind`, or at the end if `behind` is `None`.
    pub fn insert_before(&mut self, links: &mut Links, behind: Option<Slot>, Slot(slot): Slot) {
        let next = behind.map_or(NONE, |behind| behind.0);
        let prev = if next == NONE { self.tail } else { links.0[next as usize].prev };
        links.0[slot as usize] = Link { prev, next };
        self.set_next(links, prev, slot);
        self.set_prev(links, next, slot);
    }

    /// Removes a slot that is on this list.
    pub fn unlink(&mut self, links: &mut Links, Slot(slot): Slot) {
        let Link { prev, next } = links.0[slot as usize];
        self.set_next(links, prev, next);
        self.set_prev(links, next, prev);
    }

    /// Sets the slot after `slot`, or the head if `slot` is [`NONE`].
    fn set_next(&mut self, links: &mut Links, slot: u32, next: u32) {
        match slot {
            NONE => self.head = next,
            slot => links.0[slot as usize].next = next,
        }
    }

    /// Sets the slot before `slot`, or the tail if `slot` is [`NONE`].
    fn set_prev(&mut self, links: &mut Links, slot: u32, prev: u32) {
        match slot {
            NONE => self.tail = prev,
            slot => links.0[slot as usize].prev = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn four_slots() -> Links {
        let mut links = Links::with_capacity(4);
        (0..4).for_each(|_| links.add_slot());
        links
    }

    fn all(list: &List, links: &Links) -> Vec<u32> {
        core::iter::successors(list.head(), |&slot| list.behind(links, slot))
            .map(|slot| slot.0)
            .collect()
    }

    #[test]
    fn a_slot_can_be_removed_anywhere_and_put_back_in_place() {
        let mut links = four_slots();
        let mut list = List::EMPTY;
        assert_eq!(all(&list, &links), []);
        for slot in [2, 0, 3, 1] {
            list.push_back(&mut links, Slot(slot));
        }
        assert_eq!(all(&list, &links), [2, 0, 3, 1]);
        for (slot, behind, without) in
            [(2, Some(Slot(0)), [0, 3, 1]), (3, Some(Slot(1)), [2, 0, 1]), (1, None, [2, 0, 3])]
        {
            list.unlink(&mut links, Slot(slot));
            assert_eq!(all(&list, &links), without);
            list.insert_before(&mut links, behind, Slot(slot));
            assert_eq!(all(&list, &links), [2, 0, 3, 1]);
        }
    }

    #[test]
    fn two_lists_share_the_links() {
        let mut links = four_slots();
        let (mut even, mut odd) = (List::EMPTY, List::EMPTY);
        for slot in 0..4 {
            let list = if slot % 2 == 0 { &mut even } else { &mut odd };
            list.push_back(&mut links, Slot(slot));
        }
        even.unlink(&mut links, Slot(0));
        odd.push_back(&mut links, Slot(0));
        assert_eq!((all(&even, &links), all(&odd, &links)), ([2].into(), [1, 3, 0].into()));
    }
}
