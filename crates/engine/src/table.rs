// SPDX-License-Identifier: GPL-2.0-only

//! Everything known about every task, in memory that is taken once.
//!
//! A record outlives its task's stay in a queue, because what was learned about the task is worth
//! keeping while it sleeps. Each record is on exactly one list: *waiting* (it has a ticket that
//! was not answered yet, oldest first, one list for each [`Class`] of tasks whose ages are
//! compared), *resting* (nothing to decide, least recently seen first) or *free*. When a new task
//! comes and no record is free, the task that has rested longest is forgotten: it starts afresh if
//! it ever comes back. When all records wait, there is [no room](TaskTable::has_room), and the
//! engine leaves messages in the kernel's ring until a dispatch makes some.

use crate::facts::CpuSet;
use crate::index::Index;
use crate::list::{Links, List};
use crate::runqueue::Slot;
use crate::task::{Arrival, CpuId, Pid, Request, Ticket};
use crate::time::{Span, Stamp};
use alloc::vec;
use alloc::vec::Vec;

/// Which list a record is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Resting,
    Waiting,
}

/// Tasks among which it is asked who has waited longest: a policy numbers them as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// How many classes there are.
    pub const COUNT: usize = 3;

    /// The class of this number, below [`Class::COUNT`].
    pub const fn new(number: u8) -> Class {
        assert!((number as usize) < Class::COUNT, "there are no more classes");
        Class(number)
    }
}

/// A task's stay in the table, apart from its record: eight bytes for what is asked of tasks that
/// are only passed by.
#[derive(Clone, Copy)]
struct Stay {
    pid: Pid,
    state: State,
    /// On which of the waiting lists it is, or was last.
    class: Class,
}

/// What is kept of a [`Request`], in 24 bytes instead of 40.
#[derive(Clone, Copy)]
struct Kept {
    ticket: Ticket,
    /// No CPU: not known.
    allowed: CpuSet,
    cpu: CpuId,
    /// There are at most 1,024 CPUs.
    cpus_allowed: u16,
    kicked: Option<CpuId>,
}

impl Kept {
    fn of(request: Request) -> Kept {
        Kept {
            ticket: request.ticket,
            allowed: request.allowed.unwrap_or_default(),
            cpu: request.cpu,
            cpus_allowed: request.cpus_allowed.min(u16::MAX.into()) as u16,
            kicked: request.kicked,
        }
    }

    fn request(&self, pid: Pid) -> Request {
        Request {
            pid,
            ticket: self.ticket,
            cpu: self.cpu,
            cpus_allowed: self.cpus_allowed.into(),
            allowed: (self.allowed != CpuSet::default()).then_some(self.allowed),
            kicked: self.kicked,
        }
    }
}

/// What is looked at when it is this task's turn to arrive or to be dispatched. With the data of
/// the `pandemonium` policy it is two cache lines long, and the allocator, which rounds up to a
/// power of two, wastes nothing.
#[derive(Clone)]
#[repr(align(64))]
struct Record<T> {
    /// What its newest message asks for; `None` for a task remembered from before a restart.
    kept: Option<Kept>,
    data: T,
}

/// What an arrival met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// A task never seen, or forgotten: its data is `T::default()`.
    New(Slot),
    /// A task that is known and was not waiting, and how long ago its message before came.
    Known(Slot, Span),
    /// A task that waits already: the newer ticket takes the older one's place. Its data is as it
    /// was, even if the ticket says that the pid has been used again: a queue may depend on it.
    Replaced(Slot),
}

/// Records of up to a fixed number of tasks; `T` is what the policy keeps about each.
pub struct TaskTable<T> {
    records: Vec<Record<T>>,
    stays: Vec<Stay>,
    /// When each began to wait. Kept when a newer ticket replaces an older one: the task has
    /// waited all the time.
    since: Vec<Stamp>,
    index: PidIndex,
    links: Links,
    free: List,
    resting: List,
    waiting: [List; Class::COUNT],
    nr_waiting: usize,
    /// Who left last and who stood behind it, until anybody else comes or goes.
    left: Option<(Slot, Option<Slot>)>,
}

impl<T: Clone + Default> TaskTable<T> {
    /// Bytes of what is kept about one task and looked at only when it is that task's turn.
    pub const RECORD_SIZE: usize = size_of::<Record<T>>();

    /// A table for up to `capacity` tasks, which must be between 1 and 2^30.
    pub fn new(capacity: u32) -> Self {
        assert!((1..=1 << 30).contains(&capacity), "capacity is a number of tasks");
        let all = capacity as usize;
        let nobody = Stay { pid: Pid::default(), state: State::Free, class: Class::default() };
        let mut table = TaskTable {
            records: vec![Record { kept: None, data: T::default() }; all],
            stays: vec![nobody; all],
            since: vec![Stamp::default(); all],
            index: PidIndex(Index::new(capacity)),
            links: Links::new(capacity),
            free: List::EMPTY,
            resting: List::EMPTY,
            waiting: [List::EMPTY; Class::COUNT],
            nr_waiting: 0,
            left: None,
        };
        for slot in 0..capacity {
            table.free.push_back(&mut table.links, Slot(slot));
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
        self.oldest().map_or(Span::ZERO, |slot| self.waited(slot, now))
    }

    /// The longest waiting task; of several, the one whose class has the lowest number.
    pub fn oldest(&self) -> Option<Slot> {
        let heads = self.waiting.iter().filter_map(List::head);
        heads.min_by_key(|head| self.since[head.0 as usize])
    }

    /// The longest waiting task of a class.
    pub fn oldest_of(&self, class: Class) -> Option<Slot> {
        self.waiting[class.0 as usize].head()
    }

    /// Sorts the task that has just [entered](Self::enter) into a class. Nobody may have entered
    /// since, or the class would no longer be in the order of age.
    pub fn classify(&mut self, slot: Slot, class: Class) {
        let stay = &mut self.stays[slot.0 as usize];
        let before = core::mem::replace(&mut stay.class, class);
        if stay.state == State::Waiting && before != class {
            self.waiting[before.0 as usize].unlink(&mut self.links, slot);
            self.waiting[class.0 as usize].push_back(&mut self.links, slot);
        }
    }

    /// Takes in an arrival. There must be [room](Self::has_room).
    pub fn enter(&mut self, now: Stamp, arrival: Arrival) -> Entered {
        self.left = None;
        let Some(slot) = self.index.find(&self.stays, arrival.pid) else {
            let slot = self.allot(arrival.pid);
            self.wait(now, slot, arrival);
            return Entered::New(slot);
        };
        if self.stays[slot.0 as usize].state == State::Waiting {
            self.records[slot.0 as usize].kept = Some(Kept::of(arrival.request()));
            return Entered::Replaced(slot);
        }
        let reborn = self.was_reborn(slot, &arrival);
        if reborn {
            self.records[slot.0 as usize].data = T::default();
        }
        self.resting.unlink(&mut self.links, slot);
        let since = self.waited(slot, now);
        self.wait(now, slot, arrival);
        if reborn { Entered::New(slot) } else { Entered::Known(slot, since) }
    }

    /// The task was dispatched: it rests until it comes back. What it waited for is returned.
    pub fn leave(&mut self, slot: Slot) -> Request {
        let Stay { pid, state, class } = self.stays[slot.0 as usize];
        assert!(state == State::Waiting, "only a waiting task leaves");
        let kept = self.records[slot.0 as usize].kept.expect("a waiting task has arrived");
        let class = &mut self.waiting[class.0 as usize];
        self.left = Some((slot, class.behind(&self.links, slot)));
        class.unlink(&mut self.links, slot);
        self.nr_waiting -= 1;
        self.rest(slot);
        kept.request(pid)
    }

    /// The dispatch of `pid`, who [left](Self::leave) just now, was refused: it waits again, since
    /// when it has waited all along and in the place it had. Had anybody come or gone in between,
    /// that place would be lost and the task would be the last to be found the oldest.
    pub fn come_back(&mut self, pid: Pid) -> Option<Slot> {
        let slot = self.index.find(&self.stays, pid)?;
        let stay = &mut self.stays[slot.0 as usize];
        if stay.state != State::Resting {
            return None;
        }
        stay.state = State::Waiting;
        self.resting.unlink(&mut self.links, slot);
        let behind = match self.left.take() {
            Some((left, behind)) if left == slot => behind,
            _ => None,
        };
        self.waiting[stay.class.0 as usize].insert_before(&mut self.links, behind, slot);
        self.nr_waiting += 1;
        Some(slot)
    }

    /// The task is gone: its record is free again. Returns its slot if it was waiting, so that
    /// the caller takes it out of its queue.
    pub fn forget(&mut self, pid: Pid) -> Option<Slot> {
        self.left = None;
        let slot = self.index.find(&self.stays, pid)?;
        let Stay { state, class, .. } = self.stays[slot.0 as usize];
        let was_waiting = state == State::Waiting;
        if was_waiting {
            self.waiting[class.0 as usize].unlink(&mut self.links, slot);
            self.nr_waiting -= 1;
        } else {
            self.resting.unlink(&mut self.links, slot);
        }
        self.vacate(slot);
        was_waiting.then_some(slot)
    }

    /// Adds what was known of a task before a restart, unless the table is full or knows better.
    pub fn remember(&mut self, pid: Pid, data: T) {
        if self.free.head().is_none() || self.index.find(&self.stays, pid).is_some() {
            return;
        }
        let slot = self.allot(pid);
        self.records[slot.0 as usize].data = data;
        self.rest(slot);
    }

    /// The slot of a task, if it is known.
    pub fn find(&self, pid: Pid) -> Option<Slot> {
        self.index.find(&self.stays, pid)
    }

    /// The slot of a task, if it waits.
    pub fn waiting(&self, pid: Pid) -> Option<Slot> {
        let slot = self.index.find(&self.stays, pid)?;
        (self.stays[slot.0 as usize].state == State::Waiting).then_some(slot)
    }

    /// What its newest message asks for, if it has ever sent one.
    pub fn request(&self, slot: Slot) -> Option<Request> {
        let kept = self.records[slot.0 as usize].kept.as_ref()?;
        Some(kept.request(self.stays[slot.0 as usize].pid))
    }

    /// How long the task has waited, or how long ago its last message came.
    pub fn waited(&self, slot: Slot, now: Stamp) -> Span {
        now.since(self.since[slot.0 as usize])
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
        let used = self.stays.iter().zip(&self.records);
        let used = used.filter(|(stay, _)| stay.state != State::Free);
        used.map(|(stay, record)| (stay.pid, &record.data))
    }

    /// A first ticket for a task that had tickets before means that the pid was used again. A
    /// task remembered from before a restart had none: its first ticket is our restart's doing.
    fn was_reborn(&self, slot: Slot, arrival: &Arrival) -> bool {
        arrival.ticket == Ticket::FIRST && self.records[slot.0 as usize].kept.is_some()
    }

    fn wait(&mut self, now: Stamp, slot: Slot, arrival: Arrival) {
        self.records[slot.0 as usize].kept = Some(Kept::of(arrival.request()));
        self.since[slot.0 as usize] = now;
        let stay = &mut self.stays[slot.0 as usize];
        stay.state = State::Waiting;
        self.waiting[stay.class.0 as usize].push_back(&mut self.links, slot);
        self.nr_waiting += 1;
    }

    fn rest(&mut self, slot: Slot) {
        self.stays[slot.0 as usize].state = State::Resting;
        self.resting.push_back(&mut self.links, slot);
    }

    /// A record for a new task, on no list yet.
    fn allot(&mut self, pid: Pid) -> Slot {
        if self.free.head().is_none() {
            let forgotten = self.resting.head().expect("the caller made sure that there is room");
            self.resting.unlink(&mut self.links, forgotten);
            self.vacate(forgotten);
        }
        let slot = self.free.head().expect("one was free, or has just become so");
        self.free.unlink(&mut self.links, slot);
        let stay = &mut self.stays[slot.0 as usize];
        (stay.pid, stay.class) = (pid, Class::default());
        self.index.insert(&self.stays, slot);
        slot
    }

    /// Empties a record that is on no list and puts it on the free one.
    fn vacate(&mut self, slot: Slot) {
        self.index.remove(&self.stays, slot);
        self.stays[slot.0 as usize].state = State::Free;
        self.records[slot.0 as usize] = Record { kept: None, data: T::default() };
        self.free.push_back(&mut self.links, slot);
    }
}

/// Finds a slot by pid.
struct PidIndex(Index);

impl PidIndex {
    fn find(&self, stays: &[Stay], pid: Pid) -> Option<Slot> {
        self.0.find(hash(pid), |slot| stays[slot as usize].pid == pid).map(Slot)
    }

    fn insert(&mut self, stays: &[Stay], slot: Slot) {
        self.0.insert(hash(stays[slot.0 as usize].pid), slot.0);
    }

    fn remove(&mut self, stays: &[Stay], slot: Slot) {
        self.0.remove(hash(stays[slot.0 as usize].pid), slot.0);
    }
}

/// A pid is its own hash: the index spreads neighbouring numbers.
fn hash(pid: Pid) -> u32 {
    pid.as_raw() as u32
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
            let slot = table.index.find(&table.stays, pid).unwrap();
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
        assert!(matches!(table.enter(at(1), arrival(2, 2)), Entered::Known(..)));
        assert!(!table.has_room());
        let mut known: std::vec::Vec<_> = table.known().map(|(p, &d)| (p.as_raw(), d)).collect();
        known.sort();
        assert_eq!(known, [(2, 20), (3, 0)]);
    }

    #[test]
    fn a_pid_used_again_starts_afresh_but_a_restart_is_no_rebirth() {
        let mut table = TaskTable::<u32>::new(4);
        table.remember(Pid::new(1).unwrap(), 77);
        let Entered::Known(slot, _) = table.enter(at(0), arrival(1, 1)) else { panic!() };
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
