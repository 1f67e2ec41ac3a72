// SPDX-License-Identifier: GPL-2.0-only

//! Everything known about every task, in memory that is taken once.
//!
//! A record outlives its task's stay in a queue, because what was learned about the task is worth
//! keeping while it sleeps. Each record is on exactly one list: *waiting* (it has a ticket that
//! was not answered yet, oldest first), *resting* (nothing to decide, least recently seen first)
//! or *free*. When a new task comes and no record is free, the task that has rested longest is
//! forgotten: it starts afresh if it ever comes back. When all records wait, there is
//! [no room](TaskTable::has_room), and the engine leaves messages in the kernel's ring until a
//! dispatch makes some.

use crate::index::Index;
use crate::runqueue::Slot;
use crate::task::{Arrival, Pid, Request, Ticket};
use crate::time::{Span, Stamp};
use alloc::vec;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// Which list a record is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Resting,
    Waiting,
}

#[derive(Clone)]
struct Record<T> {
    state: State,
    prev: u32,
    next: u32,
    pid: Pid,
    /// What its newest message asks for; `None` for a task remembered from before a restart.
    request: Option<Request>,
    /// When it began to wait. Kept when a newer ticket replaces an older one: the task has waited
    /// all the time.
    since: Stamp,
    data: T,
}

/// A doubly linked list through the records.
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

/// What an arrival met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// A task never seen, or forgotten: its data is `T::default()`.
    New(Slot),
    /// A task that is known and was not waiting.
    Known(Slot),
    /// A task that waits already: the newer ticket takes the older one's place. Its data is as it
    /// was, even if the ticket says that the pid has been used again: a queue may depend on it.
    Replaced(Slot),
}

/// Records of up to a fixed number of tasks; `T` is what the policy keeps about each.
pub struct TaskTable<T> {
    records: Vec<Record<T>>,
    index: PidIndex,
    free: List,
    resting: List,
    waiting: List,
    nr_waiting: usize,
    /// The slot that left last and the one that stood behind it, until anybody else comes or goes.
    left: Option<(u32, u32)>,
}

impl<T: Clone + Default> TaskTable<T> {
    /// A table for up to `capacity` tasks, which must be between 1 and 2^30.
    pub fn new(capacity: u32) -> Self {
        assert!((1..=1 << 30).contains(&capacity), "capacity is a number of tasks");
        let vacant = Record {
            state: State::Free,
            prev: NONE,
            next: NONE,
            pid: Pid::default(),
            request: None,
            since: Stamp::default(),
            data: T::default(),
        };
        let mut table = TaskTable {
            records: vec![vacant; capacity as usize],
            index: PidIndex::new(capacity),
            free: List::EMPTY,
            resting: List::EMPTY,
            waiting: List::EMPTY,
            nr_waiting: 0,
            left: None,
        };
        for slot in 0..capacity {
            table.free.push_back(&mut table.records, slot);
        }
        table
    }

    /// How many tasks wait for a decision.
    pub fn nr_waiting(&self) -> usize {
        self.nr_waiting
    }

    /// Whether one more arrival can be taken in, whoever it is.
    pub fn has_room(&self) -> bool {
        self.nr_waiting < self.records.len()
    }

    /// How long the longest waiting task has waited.
    pub fn oldest_wait(&self, now: Stamp) -> Span {
        match self.waiting.head {
            NONE => Span::ZERO,
            head => now.since(self.records[head as usize].since),
        }
    }

    /// The longest waiting task.
    pub fn oldest(&self) -> Option<Slot> {
        (self.waiting.head != NONE).then_some(Slot(self.waiting.head))
    }

    /// Takes in an arrival. There must be [room](Self::has_room).
    pub fn enter(&mut self, now: Stamp, arrival: Arrival) -> Entered {
        self.left = None;
        match self.index.find(&self.records, arrival.pid) {
            Some(slot) => {
                let reborn = self.was_reborn(slot, &arrival);
                let record = &mut self.records[slot as usize];
                if record.state == State::Waiting {
                    record.request = Some(arrival.request());
                    return Entered::Replaced(Slot(slot));
                }
                if reborn {
                    record.data = T::default();
                }
                self.resting.unlink(&mut self.records, slot);
                self.wait(now, slot, arrival);
                if reborn { Entered::New(Slot(slot)) } else { Entered::Known(Slot(slot)) }
            }
            None => {
                let slot = self.allot(arrival.pid);
                self.wait(now, slot, arrival);
                Entered::New(Slot(slot))
            }
        }
    }

    /// The task was dispatched: it rests until it comes back. What it waited for is returned.
    pub fn leave(&mut self, slot: Slot) -> Request {
        let record = &self.records[slot.0 as usize];
        assert!(record.state == State::Waiting, "only a waiting task leaves");
        let request = record.request.expect("a waiting task has arrived");
        self.left = Some((slot.0, record.next));
        self.waiting.unlink(&mut self.records, slot.0);
        self.nr_waiting -= 1;
        self.rest(slot.0);
        request
    }

    /// The dispatch of `pid`, who [left](Self::leave) just now, was refused: it waits again, since
    /// when it has waited all along and in the place it had. Had anybody come or gone in between,
    /// that place would be lost and the task would be the last to be found the oldest.
    pub fn come_back(&mut self, pid: Pid) -> Option<Slot> {
        let slot = self.index.find(&self.records, pid)?;
        if self.records[slot as usize].state != State::Resting {
            return None;
        }
        self.resting.unlink(&mut self.records, slot);
        let behind = match self.left.take() {
            Some((left, behind)) if left == slot => behind,
            _ => NONE,
        };
        self.waiting.insert_before(&mut self.records, behind, slot);
        self.records[slot as usize].state = State::Waiting;
        self.nr_waiting += 1;
        Some(Slot(slot))
    }

    /// The task is gone: its record is free again. Returns its slot if it was waiting, so that
    /// the caller takes it out of its queue.
    pub fn forget(&mut self, pid: Pid) -> Option<Slot> {
        self.left = None;
        let slot = self.index.find(&self.records, pid)?;
        let was_waiting = self.records[slot as usize].state == State::Waiting;
        if was_waiting {
            self.waiting.unlink(&mut self.records, slot);
            self.nr_waiting -= 1;
        } else {
            self.resting.unlink(&mut self.records, slot);
        }
        self.vacate(slot);
        was_waiting.then_some(Slot(slot))
    }

    /// Adds what was known of a task before a restart, unless the table is full or knows better.
    pub fn remember(&mut self, pid: Pid, data: T) {
        if self.free.head == NONE || self.index.find(&self.records, pid).is_some() {
            return;
        }
        let slot = self.allot(pid);
        self.records[slot as usize].data = data;
        self.rest(slot);
    }

    /// How long the task has waited.
    pub fn waited(&self, slot: Slot, now: Stamp) -> Span {
        now.since(self.records[slot.0 as usize].since)
    }

    /// What the policy keeps about the task.
    pub fn data(&self, slot: Slot) -> &T {
        &self.records[slot.0 as usize].data
    }

    /// What the policy keeps about the task.
    pub fn data_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.records[slot.0 as usize].data
    }

    /// Every known task, in the order of their slots.
    pub fn known(&self) -> impl Iterator<Item = (Pid, &T)> {
        let used = self.records.iter().filter(|record| record.state != State::Free);
        used.map(|record| (record.pid, &record.data))
    }

    /// A first ticket for a task that had tickets before means that the pid was used again. A
    /// task remembered from before a restart had none: its first ticket is our restart's doing.
    fn was_reborn(&self, slot: u32, arrival: &Arrival) -> bool {
        arrival.ticket == Ticket::FIRST && self.records[slot as usize].request.is_some()
    }

    fn wait(&mut self, now: Stamp, slot: u32, arrival: Arrival) {
        let record = &mut self.records[slot as usize];
        record.state = State::Waiting;
        record.request = Some(arrival.request());
        record.since = now;
        self.waiting.push_back(&mut self.records, slot);
        self.nr_waiting += 1;
    }

    fn rest(&mut self, slot: u32) {
        self.records[slot as usize].state = State::Resting;
        self.resting.push_back(&mut self.records, slot);
    }

    /// A record for a new task, on no list yet.
    fn allot(&mut self, pid: Pid) -> u32 {
        if self.free.head == NONE {
            let forgotten = self.resting.head;
            assert!(forgotten != NONE, "the caller made sure that there is room");
            self.resting.unlink(&mut self.records, forgotten);
            self.vacate(forgotten);
        }
        let slot = self.free.head;
        self.free.unlink(&mut self.records, slot);
        self.records[slot as usize].pid = pid;
        self.index.insert(&self.records, slot);
        slot
    }

    /// Empties a record that is on no list and puts it on the free one.
    fn vacate(&mut self, slot: u32) {
        self.index.remove(&self.records, slot);
        let record = &mut self.records[slot as usize];
        record.state = State::Free;
        record.request = None;
        record.data = T::default();
        self.free.push_back(&mut self.records, slot);
    }
}

impl List {
    const EMPTY: List = List { head: NONE, tail: NONE };

    fn push_back<T>(&mut self, records: &mut [Record<T>], slot: u32) {
        self.insert_before(records, NONE, slot);
    }

    /// Inserts `slot` before `behind`, or at the end when `behind` is [`NONE`].
    fn insert_before<T>(&mut self, records: &mut [Record<T>], behind: u32, slot: u32) {
        let prev = if behind == NONE { self.tail } else { records[behind as usize].prev };
        records[slot as usize].prev = prev;
        records[slot as usize].next = behind;
        match prev {
            NONE => self.head = slot,
            prev => records[prev as usize].next = slot,
        }
        match behind {
            NONE => self.tail = slot,
            behind => records[behind as usize].prev = slot,
        }
    }

    fn unlink<T>(&mut self, records: &mut [Record<T>], slot: u32) {
        let (prev, next) = (records[slot as usize].prev, records[slot as usize].next);
        match prev {
            NONE => self.head = next,
            prev => records[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => records[next as usize].prev = prev,
        }
    }
}

/// Finds a record by pid.
struct PidIndex(Index);

impl PidIndex {
    fn new(capacity: u32) -> Self {
        PidIndex(Index::new(capacity))
    }

    fn find<T>(&self, records: &[Record<T>], pid: Pid) -> Option<u32> {
        self.0.find(hash(pid), |slot| records[slot as usize].pid == pid)
    }

    fn insert<T>(&mut self, records: &[Record<T>], slot: u32) {
        self.0.insert(hash(records[slot as usize].pid), slot);
    }

    fn remove<T>(&mut self, records: &[Record<T>], slot: u32) {
        self.0.remove(slot, |slot| hash(records[slot as usize].pid));
    }
}

/// A pid is its own hash: the index spreads neighbouring numbers.
fn hash(pid: Pid) -> u64 {
    pid.as_raw() as u64
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::task::RawArrival;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn at(ns: u64) -> Stamp {
        Stamp::from_nanos(ns)
    }

    fn arrival(pid: i32, ticket: u64) -> Arrival {
        RawArrival { pid, enq_cnt: ticket, weight: 100, ..Default::default() }.decode().unwrap()
    }

    #[test]
    fn the_oldest_waits_longest_and_a_newer_ticket_keeps_the_age() {
        let mut table = TaskTable::<u32>::new(4);
        table.enter(at(100), arrival(1, 1));
        table.enter(at(200), arrival(2, 1));
        let Entered::Replaced(slot) = table.enter(at(900), arrival(1, 2)) else { panic!() };
        assert_eq!(table.oldest_wait(at(1000)), Span::from_nanos(900));
        assert_eq!(table.nr_waiting(), 2);
        assert_eq!(table.leave(slot).ticket, Ticket(2));
        assert_eq!(table.oldest_wait(at(1000)), Span::from_nanos(800));
    }

    /// Those who came at the same moment keep their order as well, or a refusal would decide who
    /// is rescued first.
    #[test]
    fn a_refused_task_gets_its_age_and_its_place_back() {
        let mut table = TaskTable::<u32>::new(4);
        for (pid, came) in [(1, 100), (2, 200), (3, 200)] {
            table.enter(at(came), arrival(pid, 1));
        }
        for (pid, waited) in [(3, 800), (2, 800), (1, 900)] {
            let pid = Pid::new(pid).unwrap();
            let slot = table.index.find(&table.records, pid).map(Slot).unwrap();
            table.leave(slot);
            assert_eq!(table.come_back(pid), Some(slot));
            assert_eq!(table.waited(slot, at(1000)), Span::from_nanos(waited));
        }
        let ages: std::vec::Vec<i32> =
            core::iter::from_fn(|| table.oldest().map(|slot| table.leave(slot).pid.as_raw()))
                .collect();
        assert_eq!(ages, [1, 2, 3]);
    }

    #[test]
    fn a_full_table_forgets_who_rested_longest() {
        let mut table = TaskTable::<u32>::new(2);
        for pid in [1, 2] {
            let Entered::New(slot) = table.enter(at(0), arrival(pid, 1)) else { panic!() };
            *table.data_mut(slot) = pid as u32 * 10;
            table.leave(slot);
        }
        assert!(matches!(table.enter(at(1), arrival(3, 1)), Entered::New(_)));
        assert!(matches!(table.enter(at(1), arrival(2, 2)), Entered::Known(_)));
        assert!(!table.has_room());
        let mut known: std::vec::Vec<_> = table.known().map(|(p, &d)| (p.as_raw(), d)).collect();
        known.sort();
        assert_eq!(known, [(2, 20), (3, 0)]);
    }

    #[test]
    fn a_pid_used_again_starts_afresh_but_a_restart_is_no_rebirth() {
        let mut table = TaskTable::<u32>::new(4);
        table.remember(Pid::new(1).unwrap(), 77);
        let Entered::Known(slot) = table.enter(at(0), arrival(1, 1)) else { panic!() };
        assert_eq!(*table.data(slot), 77);
        table.leave(slot);
        let Entered::New(slot) = table.enter(at(1), arrival(1, 1)) else { panic!() };
        assert_eq!(*table.data(slot), 0);
    }

    proptest! {
        /// Against a map: whatever comes and goes, every waiting task is found with its newest
        /// ticket and the age of its first, and the oldest is the oldest.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((1i32..40, 0u8..5), 0..400)) {
            let mut table = TaskTable::<u32>::new(24);
            let mut waiting: BTreeMap<i32, (u64, u64)> = BTreeMap::new();
            for (number, (pid, action)) in steps.into_iter().enumerate() {
                let (now, ticket) = (number as u64 + 10, number as u64 + 2);
                let raw_pid = Pid::new(pid).unwrap();
                match action {
                    0 => {
                        let was = table.forget(raw_pid).is_some();
                        prop_assert_eq!(was, waiting.remove(&pid).is_some());
                    }
                    1 => if let Some(slot) = table.oldest() {
                        let gone = table.leave(slot);
                        let (&oldest, &(newest, _)) = waiting.iter().min_by_key(|w| w.1.1).unwrap();
                        prop_assert_eq!((gone.pid.as_raw(), gone.ticket.0), (oldest, newest));
                        waiting.remove(&oldest);
                    },
                    _ => if waiting.contains_key(&pid) || table.has_room() {
                        table.enter(at(now), arrival(pid, ticket));
                        waiting.entry(pid).or_insert((0, now)).0 = ticket;
                    },
                }
                prop_assert_eq!(table.nr_waiting(), waiting.len());
                let oldest = waiting.values().map(|w| w.1).min();
                let expected = oldest.map_or(0, |since| 100_000 - since);
                prop_assert_eq!(table.oldest_wait(at(100_000)).as_nanos(), expected);
            }
        }
    }
}
