// SPDX-License-Identifier: GPL-2.0-only

//! What the worker has decided about each task, while a reader wants it.
//!
//! The worker writes one cache line a message and one a decision, and nothing while there is no
//! reader. Pids that are equal modulo the number of sets share a set of records. A task that finds
//! its set full takes the record with the oldest last decision.

use pandemonium_engine::task::{Pid, Reason, Tier};
use pandemonium_engine::time::{Span, Stamp};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Records.
pub const TASKS: usize = 8_192;
/// Records of a set. Two neighbours of a set are [`SETS`] records apart.
const WAYS: usize = 4;
const SETS: usize = TASKS / WAYS;
/// The longest wait is that of windows of so many nanoseconds as a power of two: about a second.
const WINDOW_BITS: u32 = 30;

/// All records, and what their reader needs.
#[repr(C)]
pub struct TaskCells {
    /// Until when a reader wants records (CLOCK_MONOTONIC, ns).
    until_ns: AtomicU64,
    /// The kernel's numbers of the maps of task records and of hints; 0 without the fast path.
    maps: [AtomicU64; 2],
    /// Keeps each record in a cache line of its own.
    unused: [AtomicU64; 5],
    cells: [TaskCell; TASKS],
}

/// One record, written by the worker.
#[repr(C)]
struct TaskCell {
    /// The pid, and above it the tier and the rule of the last decision. 0 while it is written.
    owner: AtomicU64,
    /// Since when it waits for a decision; 0 if it does not.
    waiting_ns: AtomicU64,
    /// Messages about a wakeup.
    wakeups: AtomicU64,
    decisions: AtomicU64,
    /// Executed orders, as the backend counts them.
    orders: AtomicU64,
    /// The number of the window of time in which the last wait ended, or the record was taken; the
    /// longest wait in it, and in the one before.
    window: AtomicU64,
    longest_ns: AtomicU64,
    longest_before_ns: AtomicU64,
}

/// What was decided about a task. Counts are since its record has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    pub pid: i32,
    /// The last decision; `None` if there was none yet.
    pub last: Option<(Tier, Reason)>,
    pub wakeups: u64,
    pub decisions: u64,
    pub orders: u64,
    /// The longest wait for a decision in the last second or two.
    pub longest: Span,
}

impl TaskCells {
    /// A reader wants records until then.
    pub fn want(&self, until: Stamp) {
        self.until_ns.fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    /// Whether a reader wants records.
    pub fn are_wanted(&self, now: Stamp) -> bool {
        now.as_nanos() < self.until_ns.load(Ordering::Relaxed)
    }

    /// Publishes the numbers of the fast path's maps.
    pub fn set_maps(&self, ids: Option<[u32; 2]>) {
        let ids = ids.unwrap_or_default();
        self.maps.iter().zip(ids).for_each(|(map, id)| map.store(id.into(), Ordering::Relaxed));
    }

    /// The numbers of the fast path's maps; `None` without it.
    pub fn maps(&self) -> Option<[u32; 2]> {
        let ids = [0, 1].map(|at| self.maps[at].load(Ordering::Relaxed) as u32);
        Some(ids).filter(|ids| !ids.contains(&0))
    }

    /// The worker has received a message about a task. What it noted before `since`, when records
    /// became wanted, may have gaps.
    pub fn received(&self, pid: Pid, now: Stamp, since: Stamp, woke: bool, orders: Option<u32>) {
        let cell = self.take(pid, now);
        let waiting = cell.waiting_ns.load(Ordering::Relaxed);
        if waiting < since.as_nanos() {
            cell.waiting_ns.store(now.as_nanos(), Ordering::Relaxed);
        }
        add(&cell.wakeups, woke.into());
        if let Some(orders) = orders {
            cell.orders.store(orders.into(), Ordering::Relaxed);
        }
    }

    /// The worker has sent a decision about a task.
    pub fn sent(&self, pid: Pid, now: Stamp, since: Stamp, tier: Tier, reason: Reason) {
        let cell = self.take(pid, now);
        let waiting = cell.waiting_ns.swap(0, Ordering::Relaxed);
        if waiting >= since.as_nanos() {
            cell.note_wait(now, now.since(Stamp::from_nanos(waiting)));
        }
        add(&cell.decisions, 1);
        cell.owner.store(owner(pid, Some((tier, reason))), Ordering::Release);
    }

    /// What was decided about a task; `None` if it has no record.
    pub fn of(&self, pid: i32, now: Stamp) -> Option<Decided> {
        self.set(pid).find(|cell| cell.pid() == pid)?.read(now).filter(|read| read.pid == pid)
    }

    /// What was decided about all tasks.
    pub fn all(&self, now: Stamp) -> impl Iterator<Item = Decided> {
        self.cells.iter().filter_map(move |cell| cell.read(now))
    }

    fn set(&self, pid: i32) -> impl Iterator<Item = &TaskCell> {
        self.cells.iter().skip(pid as usize % SETS).step_by(SETS)
    }

    /// The record of the task, which may be a new one.
    fn take(&self, pid: Pid, now: Stamp) -> &TaskCell {
        let raw = pid.as_raw();
        let known = self.set(raw).find(|cell| cell.pid() == raw);
        known.unwrap_or_else(|| {
            let oldest = |cell: &&TaskCell| match cell.pid() {
                0 => 0,
                _ => 1 + cell.window.load(Ordering::Relaxed),
            };
            let cell = self.set(raw).min_by_key(oldest).unwrap_or(&self.cells[0]);
            cell.change_hands(pid, now);
            cell
        })
    }
}

impl TaskCell {
    /// The pid of the record's task; 0 if it is empty or being written.
    fn pid(&self) -> i32 {
        self.owner.load(Ordering::Relaxed) as u32 as i32
    }

    /// Empties the record for the task.
    fn change_hands(&self, pid: Pid, now: Stamp) {
        self.owner.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let counts = [&self.waiting_ns, &self.wakeups, &self.decisions, &self.orders];
        let waits = [&self.longest_ns, &self.longest_before_ns];
        counts.into_iter().chain(waits).for_each(|word| word.store(0, Ordering::Relaxed));
        self.window.store(window_of(now), Ordering::Relaxed);
        self.owner.store(owner(pid, None), Ordering::Release);
    }

    fn note_wait(&self, now: Stamp, waited: Span) {
        let (was, is) = (self.window.load(Ordering::Relaxed), window_of(now));
        let longest = self.longest_ns.load(Ordering::Relaxed);
        if was != is {
            let before = if was + 1 == is { longest } else { 0 };
            self.longest_before_ns.store(before, Ordering::Relaxed);
            self.window.store(is, Ordering::Relaxed);
        }
        let longest = if was == is { longest } else { 0 };
        self.longest_ns.store(longest.max(waited.as_nanos()), Ordering::Relaxed);
    }

    fn read(&self, now: Stamp) -> Option<Decided> {
        let owner = self.owner.load(Ordering::Acquire);
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let window = window_of(now);
        let longest = match window.checked_sub(get(&self.window)) {
            Some(0) => get(&self.longest_ns).max(get(&self.longest_before_ns)),
            Some(1) => get(&self.longest_ns),
            _ => 0,
        };
        let decided = Decided {
            pid: Pid::new(owner as u32 as i32)?.as_raw(),
            last: last(owner),
            wakeups: get(&self.wakeups),
            decisions: get(&self.decisions),
            orders: get(&self.orders),
            longest: Span::from_nanos(longest),
        };
        fence(Ordering::Acquire);
        // A record that changes hands meanwhile is neither task's.
        (get(&self.owner) as u32 == owner as u32).then_some(decided)
    }
}

/// The number of the window of time.
fn window_of(now: Stamp) -> u64 {
    now.as_nanos() >> WINDOW_BITS
}

/// There is one writer, so no read-modify-write is needed.
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

fn owner(pid: Pid, last: Option<(Tier, Reason)>) -> u64 {
    let decision = last.map_or(0, |(tier, reason)| {
        1 << 32 | (tier.index() as u64) << 40 | (reason.index() as u64) << 48
    });
    pid.as_raw() as u64 | decision
}

fn last(owner: u64) -> Option<(Tier, Reason)> {
    let byte = |at: u32| (owner >> at & 0xff) as usize;
    (byte(32) != 0).then_some(())?;
    Some((*Tier::ALL.get(byte(40))?, *Reason::ALL.get(byte(48))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    /// Within a window of time: 1 s is less than one window.
    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos(1 << 40) + Span::from_millis(ms)
    }

    #[test]
    fn a_task_has_its_last_decision_its_counts_and_its_longest_wait() {
        let shared = Shared::create().unwrap();
        let cells = &shared.tasks;
        assert_eq!(cells.of(7, at(0)), None);
        cells.received(pid(7), at(1), at(0), true, Some(3));
        cells.sent(pid(7), at(5), at(0), Tier::Batch, Reason::Deficit);
        cells.received(pid(7), at(6), at(0), false, Some(9));
        cells.sent(pid(7), at(7), at(0), Tier::LatCritical, Reason::Order);
        let expected = Decided {
            pid: 7,
            last: Some((Tier::LatCritical, Reason::Order)),
            wakeups: 1,
            decisions: 2,
            orders: 9,
            longest: Span::from_millis(4),
        };
        assert_eq!(cells.of(7, at(8)), Some(expected));
        assert_eq!(cells.all(at(8)).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn a_wait_is_forgotten_after_two_windows() {
        let shared = Shared::create().unwrap();
        let cells = &shared.tasks;
        let longest = |ms| cells.of(7, at(ms)).unwrap().longest;
        let wait = |from, to| {
            cells.received(pid(7), at(from), at(0), true, None);
            cells.sent(pid(7), at(to), at(0), Tier::Batch, Reason::Order);
        };
        wait(1, 9);
        wait(1_200, 1_202);
        assert_eq!(longest(1_203), Span::from_millis(8), "of the window before");
        assert_eq!(longest(2_400), Span::from_millis(2));
        assert_eq!(longest(5_000), Span::ZERO);
        wait(6_000, 6_001);
        assert_eq!(longest(6_002), Span::from_millis(1));
    }

    #[test]
    fn a_wait_from_before_records_were_wanted_does_not_count() {
        let shared = Shared::create().unwrap();
        let cells = &shared.tasks;
        cells.received(pid(7), at(1), at(0), true, None);
        // No reader for a while: the decision was not noted.
        cells.received(pid(7), at(5_000), at(4_999), true, None);
        cells.sent(pid(7), at(5_001), at(4_999), Tier::Batch, Reason::Order);
        assert_eq!(cells.of(7, at(5_002)).unwrap().longest, Span::from_millis(1));
    }

    #[test]
    fn a_full_set_gives_away_the_record_decided_for_longest_ago() {
        let shared = Shared::create().unwrap();
        let cells = &shared.tasks;
        let pids = [0, 1, 2, 3, 4].map(|way| 7 + way * SETS as i32);
        // Each decision is in another window of time.
        let decide = |number: i32, ms: u64| {
            cells.received(pid(number), at(ms), at(0), true, None);
            cells.sent(pid(number), at(ms + 1), at(0), Tier::Batch, Reason::Deficit);
        };
        (0..WAYS).for_each(|way| decide(pids[way], 2_000 * way as u64));
        decide(pids[0], 8_000);
        let counts = |number: i32| cells.of(number, at(9_000)).map(|task| task.decisions);
        assert_eq!(pids.map(counts), [Some(2), Some(1), Some(1), Some(1), None]);
        cells.received(pid(pids[4]), at(8_500), at(0), false, None);
        assert_eq!(pids.map(counts), [Some(2), None, Some(1), Some(1), Some(0)]);
    }

    #[test]
    fn records_are_wanted_until_the_last_reader_stops() {
        let shared = Shared::create().unwrap();
        let cells = &shared.tasks;
        assert!(!cells.are_wanted(at(0)));
        cells.want(at(10));
        cells.want(at(5));
        assert!(cells.are_wanted(at(9)) && !cells.are_wanted(at(10)));
        assert_eq!(cells.maps(), None);
        cells.set_maps(Some([4, 5]));
        assert_eq!(cells.maps(), Some([4, 5]));
        assert_eq!(size_of::<TaskCell>(), 64, "one cache line");
    }
}
