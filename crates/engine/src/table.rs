// SPDX-License-Identifier: GPL-2.0-only

//! One record for every known task, in memory that is allocated once.
//!
//! A record is kept while its task runs or sleeps, so that what was learned about the task is
//! known at its next wakeup. Each record is on exactly one list:
//!
//! - *waiting*: the task's newest ticket is not answered yet. Oldest first, one list for each
//!   [`Class`] of tasks.
//! - *resting*: the task runs or sleeps. Least recently dispatched first.
//! - *free*: the record belongs to no task.
//!
//! Records are made one by one, within the memory that was allocated at the start, when a new task
//! finds none that is free: so memory is touched only for as many tasks as there were at once. When
//! no further record may be made, the table evicts the task that has rested
//! longest. An evicted task that arrives again is a new task. When all records wait, the table
//! has [no room](TaskTable::has_room), and the round leaves messages in the kernel's ring until a
//! dispatch makes room.

use crate::facts::CpuSet;
use crate::index::Index;
use crate::list::{Links, List};
use crate::policy::Waiting;
use crate::reserve::Reserve;
use crate::runqueue::Slot;
use crate::task::{Arrival, Cause, CpuId, Pid, Request, Ticket};
use crate::time::{Span, Stamp};
use alloc::vec::Vec;
use core::cell::Cell;
use core::num::NonZero;

/// The list that a record is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Resting,
    Waiting,
}

/// A group of tasks. Ages are compared within a group. The policy gives the numbers their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// The number of classes.
    pub const COUNT: usize = 3;

    /// The class with this number, below [`Class::COUNT`].
    pub const fn new(number: u8) -> Class {
        assert!((number as usize) < Class::COUNT, "there are no more classes");
        Class(number)
    }
}

/// The part of a record that searches read of many tasks. It takes eight bytes and is stored apart
/// from the record, so that a search touches few cache lines.
#[derive(Clone, Copy)]
struct Entry {
    pid: Pid,
    state: State,
    /// The waiting list that the task is on, or was on last.
    class: Class,
}

/// A [`Request`] in 24 bytes instead of 40.
#[derive(Clone, Copy)]
struct Kept {
    ticket: Ticket,
    /// [`Request::allowed`]; no bit if not known.
    allowed: u64,
    group: u16,
    cpu: CpuId,
    /// There are at most 1,024 CPUs. Zero is left to `Option<Kept>`.
    cpus_allowed: NonZero<u16>,
    /// A CPU, or -1.
    kicked: i16,
}

impl Kept {
    fn of(request: Request) -> Kept {
        let allowed = request.allowed.unwrap_or_default();
        let cpus_allowed = request.cpus_allowed.min(u16::MAX.into()) as u16;
        Kept {
            ticket: request.ticket,
            allowed: allowed.bits(),
            group: allowed.group(),
            cpu: request.cpu,
            cpus_allowed: NonZero::new(cpus_allowed).unwrap_or(NonZero::<u16>::MIN),
            kicked: request.kicked.map_or(-1, |cpu| cpu.as_raw() as i16),
        }
    }

    fn request(&self, pid: Pid) -> Request {
        Request {
            pid,
            ticket: self.ticket,
            cpu: self.cpu,
            cpus_allowed: self.cpus_allowed.get().into(),
            allowed: (self.allowed != 0).then(|| CpuSet::of_group(self.group, self.allowed)),
            kicked: CpuId::new(self.kicked.into()),
        }
    }
}

/// The part of a record that is read only when its task arrives or is dispatched. With the data of
/// the `pandemonium` policy it is two cache lines long, so the allocator, which rounds up to a
/// power of two, wastes nothing.
#[derive(Clone)]
#[repr(align(64))]
struct Record<T> {
    /// From the newest message; `None` for a task restored after a restart.
    kept: Option<Kept>,
    data: T,
}

/// The state of the table that an arrival found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The task is new, or was evicted. Its data is `T::default()`.
    New(Slot),
    /// The task is known and was not waiting. With the time since its last message.
    Known(Slot, Span),
    /// The task waits already. The newer ticket replaces the older one. If the pid was reused by a
    /// new task, that waits from now on. The data is unchanged even then, because a queue may
    /// depend on it.
    Replaced(Slot),
}

/// Records of up to a fixed number of tasks; `T` is the policy's data about each.
pub struct TaskTable<T> {
    records: Vec<Record<T>>,
    entries: Vec<Entry>,
    /// When each task began to wait. A newer ticket does not change it, because the task has
    /// waited all the time.
    since: Vec<Stamp>,
    index: PidIndex,
    links: Links,
    free: List,
    resting: List,
    waiting: [List; Class::COUNT],
    nr_waiting: usize,
    /// Records that may be made: the capacity, or those that a driver has opened.
    limit: Cell<u32>,
    capacity: u32,
    /// The task that left last and the task behind it on its list, until another task enters or
    /// leaves.
    last_left: Option<(Slot, Option<Slot>)>,
}

impl<T: Clone + Default> Waiting for TaskTable<T> {
    fn nr_waiting(&self) -> usize {
        self.nr_waiting
    }

    fn has_room(&self) -> bool {
        self.nr_waiting < self.limit.get() as usize
    }

    fn oldest_wait(&self, now: Stamp) -> Span {
        self.oldest().map_or(Span::ZERO, |slot| self.waited(slot, now))
    }

    fn nr_records(&self) -> u32 {
        self.records.len() as u32
    }

    fn reserves(&self, visit: &mut dyn FnMut(Reserve)) {
        visit(Reserve::of(&self.records));
        visit(Reserve::of(&self.entries));
        visit(Reserve::of(&self.since));
        visit(self.links.reserve());
    }

    fn open(&self, records: u32) {
        self.limit.set(records.clamp(self.nr_records().max(1), self.capacity));
    }
}

impl<T: Clone + Default> TaskTable<T> {
    /// Bytes of the part of a record that is read only when its task arrives or is dispatched.
    pub const RECORD_SIZE: usize = size_of::<Record<T>>();

    /// A table for up to `capacity` tasks, which must be between 1 and 2^30.
    pub fn new(capacity: u32) -> Self {
        assert!((1..=1 << 30).contains(&capacity), "capacity is a number of tasks");
        let all = capacity as usize;
        TaskTable {
            records: Vec::with_capacity(all),
            entries: Vec::with_capacity(all),
            since: Vec::with_capacity(all),
            index: PidIndex(Index::new(capacity)),
            links: Links::with_capacity(capacity),
            free: List::EMPTY,
            resting: List::EMPTY,
            waiting: [List::EMPTY; Class::COUNT],
            nr_waiting: 0,
            limit: Cell::new(capacity),
            capacity,
            last_left: None,
        }
    }

    /// The longest waiting task. Of several with the same age, the one of the lowest class.
    pub fn oldest(&self) -> Option<Slot> {
        let heads = self.waiting.iter().filter_map(List::head);
        heads.min_by_key(|head| self.since[head.0 as usize])
    }

    /// The longest waiting task of a class.
    pub fn oldest_of(&self, class: Class) -> Option<Slot> {
        self.waiting[class.0 as usize].head()
    }

    /// Moves the task that has just [entered](Self::enter) to a class. No other task may have
    /// entered in between, or the class is no longer ordered by age.
    pub fn classify(&mut self, slot: Slot, class: Class) {
        let entry = &mut self.entries[slot.0 as usize];
        let before = core::mem::replace(&mut entry.class, class);
        if entry.state == State::Waiting && before != class {
            self.waiting[before.0 as usize].unlink(&mut self.links, slot);
            self.waiting[class.0 as usize].push_back(&mut self.links, slot);
        }
    }

    /// Takes an arrival. There must be [room](Self::has_room).
    pub fn enter(&mut self, now: Stamp, arrival: Arrival) -> Entered {
        self.last_left = None;
        let Some(slot) = self.index.find(&self.entries, arrival.pid) else {
            let slot = self.allot(arrival.pid);
            self.wait(now, slot, arrival);
            return Entered::New(slot);
        };
        if self.entries[slot.0 as usize].state == State::Waiting {
            self.records[slot.0 as usize].kept = Some(Kept::of(arrival.request()));
            if arrival.cause == Cause::New {
                self.wait_anew(now, slot);
            }
            return Entered::Replaced(slot);
        }
        let pid_reused = self.is_pid_reused(slot, &arrival);
        if pid_reused {
            self.records[slot.0 as usize].data = T::default();
        }
        self.resting.unlink(&mut self.links, slot);
        let since = self.waited(slot, now);
        self.wait(now, slot, arrival);
        if pid_reused { Entered::New(slot) } else { Entered::Known(slot, since) }
    }

    /// The task was dispatched and rests until its next arrival. Returns its request.
    pub fn leave(&mut self, slot: Slot) -> Request {
        let Entry { pid, state, class } = self.entries[slot.0 as usize];
        assert!(state == State::Waiting, "only a waiting task leaves");
        let kept = self.records[slot.0 as usize].kept.expect("a waiting task has arrived");
        let class = &mut self.waiting[class.0 as usize];
        self.last_left = Some((slot, class.behind(&self.links, slot)));
        class.unlink(&mut self.links, slot);
        self.nr_waiting -= 1;
        self.rest(slot);
        kept.request(pid)
    }

    /// Undoes the last [`leave`](Self::leave): the dispatch of `pid` was refused. The task waits
    /// again, with its old age and at its old place in the list. If another task entered or left
    /// in between, the old place is unknown and the task goes to the end of the list.
    pub fn come_back(&mut self, pid: Pid) -> Option<Slot> {
        let slot = self.index.find(&self.entries, pid)?;
        let entry = &mut self.entries[slot.0 as usize];
        if entry.state != State::Resting {
            return None;
        }
        entry.state = State::Waiting;
        self.resting.unlink(&mut self.links, slot);
        let behind = match self.last_left.take() {
            Some((left, behind)) if left == slot => behind,
            _ => None,
        };
        self.waiting[entry.class.0 as usize].insert_before(&mut self.links, behind, slot);
        self.nr_waiting += 1;
        Some(slot)
    }

    /// The task has exited: frees its record. Returns the slot if the task was waiting, so that
    /// the caller removes it from its queue.
    pub fn forget(&mut self, pid: Pid) -> Option<Slot> {
        self.last_left = None;
        let slot = self.index.find(&self.entries, pid)?;
        let Entry { state, class, .. } = self.entries[slot.0 as usize];
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

    /// Restores a task's data after a restart, unless the table is full or knows the task.
    pub fn remember(&mut self, pid: Pid, data: T) {
        let is_full = self.free.head().is_none() && !self.may_make_record();
        if is_full || self.index.find(&self.entries, pid).is_some() {
            return;
        }
        let slot = self.allot(pid);
        self.records[slot.0 as usize].data = data;
        self.rest(slot);
    }

    /// The slot of a known task.
    pub fn find(&self, pid: Pid) -> Option<Slot> {
        self.index.find(&self.entries, pid)
    }

    /// The slot of a waiting task.
    pub fn waiting(&self, pid: Pid) -> Option<Slot> {
        let slot = self.index.find(&self.entries, pid)?;
        (self.entries[slot.0 as usize].state == State::Waiting).then_some(slot)
    }

    /// The request of the task's newest message, if there was one.
    pub fn request(&self, slot: Slot) -> Option<Request> {
        let kept = self.records[slot.0 as usize].kept.as_ref()?;
        Some(kept.request(self.entries[slot.0 as usize].pid))
    }

    /// How long the task has waited; for a resting task, the time since its last message.
    pub fn waited(&self, slot: Slot, now: Stamp) -> Span {
        now.since(self.since[slot.0 as usize])
    }

    /// The policy's data about the task.
    pub fn data(&self, slot: Slot) -> &T {
        &self.records[slot.0 as usize].data
    }

    /// The policy's data about the task, for changes.
    pub fn data_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.records[slot.0 as usize].data
    }

    /// All known tasks, in the order of their slots.
    pub fn known(&self) -> impl Iterator<Item = (Pid, &T)> {
        let used = self.entries.iter().zip(&self.records);
        let used = used.filter(|(entry, _)| entry.state != State::Free);
        used.map(|(entry, record)| (entry.pid, &record.data))
    }

    /// A first ticket of a task that had tickets before means that the pid was reused. A task
    /// restored after a restart had none: it gets a first ticket because the backend restarted.
    fn is_pid_reused(&self, slot: Slot, arrival: &Arrival) -> bool {
        arrival.ticket == Ticket::FIRST && self.records[slot.0 as usize].kept.is_some()
    }

    fn wait(&mut self, now: Stamp, slot: Slot, arrival: Arrival) {
        self.records[slot.0 as usize].kept = Some(Kept::of(arrival.request()));
        self.since[slot.0 as usize] = now;
        let entry = &mut self.entries[slot.0 as usize];
        entry.state = State::Waiting;
        self.waiting[entry.class.0 as usize].push_back(&mut self.links, slot);
        self.nr_waiting += 1;
    }

    /// The pid of a waiting task was reused: the new task does not inherit the age of another.
    fn wait_anew(&mut self, now: Stamp, slot: Slot) {
        let class = &mut self.waiting[self.entries[slot.0 as usize].class.0 as usize];
        class.unlink(&mut self.links, slot);
        class.push_back(&mut self.links, slot);
        self.since[slot.0 as usize] = now;
    }

    fn rest(&mut self, slot: Slot) {
        self.entries[slot.0 as usize].state = State::Resting;
        self.resting.push_back(&mut self.links, slot);
    }

    /// Returns a record for a new task, on no list yet.
    fn allot(&mut self, pid: Pid) -> Slot {
        if self.free.head().is_none() && self.may_make_record() {
            self.make_record();
        }
        if self.free.head().is_none() {
            let forgotten = self.resting.head().expect("the caller has checked that there is room");
            self.resting.unlink(&mut self.links, forgotten);
            self.vacate(forgotten);
        }
        let slot = self.free.head().expect("a record was free or was just freed");
        self.free.unlink(&mut self.links, slot);
        let entry = &mut self.entries[slot.0 as usize];
        (entry.pid, entry.class) = (pid, Class::default());
        self.index.insert(&self.entries, slot);
        slot
    }

    fn may_make_record(&self) -> bool {
        self.nr_records() < self.limit.get()
    }

    /// Makes the next record, a free one. Within the capacity it allocates nothing.
    fn make_record(&mut self) {
        let slot = Slot(self.nr_records());
        self.records.push(Record { kept: None, data: T::default() });
        let (pid, class) = (Pid::default(), Class::default());
        self.entries.push(Entry { pid, state: State::Free, class });
        self.since.push(Stamp::default());
        self.links.add_slot();
        self.free.push_back(&mut self.links, slot);
    }

    /// Clears a record that is on no list and adds it to the free list.
    fn vacate(&mut self, slot: Slot) {
        self.index.remove(&self.entries, slot);
        self.entries[slot.0 as usize].state = State::Free;
        self.records[slot.0 as usize] = Record { kept: None, data: T::default() };
        self.free.push_back(&mut self.links, slot);
    }
}

/// Finds a slot by pid.
struct PidIndex(Index);

impl PidIndex {
    fn find(&self, entries: &[Entry], pid: Pid) -> Option<Slot> {
        self.0.find(hash(pid), |slot| entries[slot as usize].pid == pid).map(Slot)
    }

    fn insert(&mut self, entries: &[Entry], slot: Slot) {
        self.0.insert(hash(entries[slot.0 as usize].pid), slot.0);
    }

    fn remove(&mut self, entries: &[Entry], slot: Slot) {
        self.0.remove(hash(entries[slot.0 as usize].pid), slot.0);
    }
}

/// A pid is its own hash, because the index spreads consecutive numbers.
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
    fn a_newer_ticket_keeps_the_age() {
        let mut table = TaskTable::<u32>::new(4);
        table.enter(at(100), arrival(1, 1));
        table.enter(at(200), arrival(2, 1));
        let Entered::Replaced(slot) = table.enter(at(900), arrival(1, 2)) else { panic!() };
        assert_eq!(table.oldest_wait(at(1000)), Span::from_nanos(900));
        assert_eq!(table.nr_waiting(), 2);
        assert_eq!(table.leave(slot).ticket, Ticket(2));
        assert_eq!(table.oldest_wait(at(1000)), Span::from_nanos(800));
    }

    #[test]
    fn a_task_with_the_pid_of_a_waiting_one_waits_from_its_own_arrival() {
        let (mut table, other) = (TaskTable::<u32>::new(4), Class::new(1));
        for (pid, came) in [(1, 100), (2, 200)] {
            table.enter(at(came), arrival(pid, 1));
        }
        let new = Arrival { cause: Cause::New, ..arrival(1, 1) };
        let Entered::Replaced(slot) = table.enter(at(900), new) else { panic!() };
        assert_eq!(table.oldest_wait(at(1000)), Span::from_nanos(800));
        table.classify(slot, other);
        assert_eq!(table.oldest_of(other), Some(slot));
        assert_eq!(table.waited(slot, at(1000)), Span::from_nanos(100));
    }

    /// Tasks that arrived at the same time keep their order too, or a refusal would change which
    /// of them is rescued first.
    #[test]
    fn a_refused_task_gets_its_age_and_its_place_back() {
        let mut table = TaskTable::<u32>::new(4);
        for (pid, came) in [(1, 100), (2, 200), (3, 200)] {
            table.enter(at(came), arrival(pid, 1));
        }
        for (pid, waited) in [(3, 800), (2, 800), (1, 900)] {
            let pid = Pid::new(pid).unwrap();
            let slot = table.index.find(&table.entries, pid).unwrap();
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
    fn a_full_table_evicts_the_task_that_rested_longest() {
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
    fn a_reused_pid_is_a_new_task_but_a_restart_keeps_the_data() {
        let mut table = TaskTable::<u32>::new(4);
        table.remember(Pid::new(1).unwrap(), 77);
        let Entered::Known(slot, _) = table.enter(at(0), arrival(1, 1)) else { panic!() };
        assert_eq!(*table.data(slot), 77);
        table.leave(slot);
        let Entered::New(slot) = table.enter(at(1), arrival(1, 1)) else { panic!() };
        assert_eq!(*table.data(slot), 0);
    }

    #[test]
    fn memory_is_touched_only_for_tasks_that_were_there_at_once() {
        let mut table = TaskTable::<u32>::new(100);
        let mut ranges = std::vec::Vec::new();
        table.reserves(&mut |reserve| ranges.push(reserve));
        assert_eq!((table.nr_records(), ranges.len()), (0, 4));
        for pid in 1..=50 {
            table.enter(at(0), arrival(pid, 1));
            assert!(table.forget(Pid::new(pid).unwrap()).is_some());
        }
        assert_eq!(table.nr_records(), 1, "a free record is used again");
        for pid in 1..=100 {
            table.enter(at(1), arrival(pid, 1));
        }
        let mut after = std::vec::Vec::new();
        table.reserves(&mut |reserve| after.push(reserve));
        assert_eq!((table.nr_records(), after), (100, ranges), "nothing is allocated again");
    }

    #[test]
    fn only_open_records_are_used() {
        let mut table = TaskTable::<u32>::new(4);
        table.open(2);
        for pid in [1, 2, 3] {
            let slot = match table.enter(at(0), arrival(pid, 1)) {
                Entered::New(slot) => slot,
                other => panic!("{other:?}"),
            };
            table.leave(slot);
        }
        assert_eq!((table.nr_records(), table.known().count()), (2, 2), "the first is evicted");
        table.remember(Pid::new(9).unwrap(), 9);
        assert_eq!(table.find(Pid::new(9).unwrap()), None);
        for pid in [4, 5] {
            table.enter(at(1), arrival(pid, 1));
        }
        assert!(!table.has_room());
        table.open(9);
        assert!(table.has_room());
        table.enter(at(1), arrival(6, 1));
        table.open(0);
        assert_eq!((table.nr_records(), table.has_room()), (3, false), "they stay in use");
    }

    proptest! {
        /// Compared with a map: a waiting task has its newest ticket and the age of its first
        /// one, and the oldest task is found.
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
