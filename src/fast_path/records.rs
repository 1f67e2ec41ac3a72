// SPDX-License-Identifier: GPL-2.0-only

//! The kernel's record of each task, and user space's hint about each task for the kernel.
//!
//! Pids that are equal modulo the number of sets share a set of a few records, and the kernel
//! may write a record while user space reads it. So a record counts only if it names the pid and
//! has not changed meanwhile.

use super::mapped::Mapped;
use super::news::Kind;
use super::{abi, occupant};
use anyhow::Result;
use libbpf_rs::MapCore;
use pandemonium_engine::facts::{CpuSet, Facts};
use pandemonium_engine::task::{CpuId, Pid, Tier, User};
use pandemonium_engine::time::{Span, Stamp};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Task records; see `FP_TASKS`.
pub(super) const TASKS: usize = abi::fp_limits_FP_TASKS as usize;
/// Sets of records; see `FP_SETS`.
const SETS: usize = abi::fp_limits_FP_SETS as usize;
/// Kernel ABI: task flags of `linux/sched.h`, policy of `uapi/linux/sched.h`.
const PF_KTHREAD: u32 = 0x0020_0000;
const PF_WQ_WORKER: u32 = 0x0000_0020;
const SCHED_IDLE: u16 = 5;

/// Both tables, by pid.
pub struct Records {
    pub(super) tasks: Mapped<abi::fp_task>,
    pub(super) hints: Mapped<abi::fp_hint>,
    /// Hints that were taken from a task that still lives.
    pub(super) stolen_hints: Cell<u64>,
}

impl Records {
    /// Maps both tables.
    pub fn new(tasks: &impl MapCore, hints: &impl MapCore) -> Result<Records> {
        Ok(Records::of(Mapped::new(tasks, TASKS)?, Mapped::new(hints, TASKS)?))
    }

    pub(super) fn of(tasks: Mapped<abi::fp_task>, hints: Mapped<abi::fp_hint>) -> Records {
        Records { tasks, hints, stolen_hints: Cell::default() }
    }

    /// User space has received a message about a task. Returns the task's facts, and how long the
    /// message took, if that is known. `None` if another task uses the record, or the kernel is
    /// writing it.
    pub fn receive(&self, pid: Pid, now: Stamp) -> Option<(Facts, Option<Span>)> {
        let hint = self.claim_hint(pid);
        // SAFETY: points into the mapping. The pid is written last, so a kernel that reads
        // meanwhile takes the hint for another pid's or reads a complete one, of this decision or
        // the last.
        unsafe {
            if (*hint).pid != pid.as_raw() {
                (&raw mut (*hint).tier).write_volatile(occupant(Tier::Interactive));
                (&raw mut (*hint).sent).write_volatile(0);
            }
            (&raw mut (*hint).received).write_volatile(now.as_nanos());
            fence(Ordering::Release);
            (&raw mut (*hint).pid).write_volatile(pid.as_raw());
        }
        let task = self.task(pid)?;
        // The message may arrive before the wakeup is recorded. Then the record is the old one.
        let since = if task.waiting != 0 { task.woken } else { task.stopped };
        // Zero if the task began to run before the load, and stops for the first time.
        let waited = (since > 0).then(|| now.since(Stamp::from_nanos(since)));
        Some((facts(&task), waited))
    }

    /// User space sends a decision about a task: writes its tier and the time into the hint.
    /// Returns how long the decision took, if the time of its message is known.
    pub fn sent(&self, pid: Pid, tier: Tier, now: Stamp) -> Option<Span> {
        let hint = self.claim_hint(pid);
        // SAFETY: as in `receive`.
        let received = unsafe {
            let known = (*hint).pid == pid.as_raw();
            (&raw mut (*hint).tier).write_volatile(occupant(tier));
            (&raw mut (*hint).sent).write_volatile(now.as_nanos());
            fence(Ordering::Release);
            (&raw mut (*hint).pid).write_volatile(pid.as_raw());
            known.then(|| (*hint).received)
        };
        received.map(|received| now.since(Stamp::from_nanos(received)))
    }

    /// Applies news of a task to its hint. Returns whether the task has exited: if the pid waits
    /// for a decision, the kernel has reused it for a new task.
    pub fn take_news(&self, pid: Pid, kind: Kind) -> bool {
        let Some(hint) = self.hint(pid) else { return false };
        // SAFETY: points into the mapping, which this process alone writes.
        unsafe {
            match kind {
                Kind::Exec => {
                    (&raw mut (*hint).tier).write_volatile(occupant(Tier::Interactive));
                    false
                }
                Kind::Exit if (*hint).sent >= (*hint).received => {
                    (&raw mut (*hint).pid).write_volatile(0);
                    true
                }
                Kind::Exit => false,
            }
        }
    }

    /// The hint about the task, if there is one.
    pub(super) fn hint(&self, pid: Pid) -> Option<*mut abi::fp_hint> {
        let mut hints = ways(pid).map(|index| self.hints.at(index));
        // SAFETY: points into the mapping; any bytes are a valid integer.
        hints.find(|hint| unsafe { (**hint).pid } == pid.as_raw())
    }

    /// The hint about the task, or the one to be used for it: an empty one of its set, or the
    /// one of which no message came for longest.
    fn claim_hint(&self, pid: Pid) -> *mut abi::fp_hint {
        // SAFETY: points into the mapping; any bytes are valid integers.
        let age = |hint: &*mut abi::fp_hint| unsafe {
            if (**hint).pid == 0 { 0 } else { (**hint).received }
        };
        if let Some(hint) = self.hint(pid) {
            return hint;
        }
        let oldest = ways(pid).map(|index| self.hints.at(index)).min_by_key(age);
        let hint = oldest.unwrap_or_else(|| self.hints.at(pid.as_raw() as usize % SETS));
        // SAFETY: as above.
        let is_taken = unsafe { (*hint).pid } != 0;
        self.stolen_hints.update(|stolen| stolen + u64::from(is_taken));
        hint
    }

    /// The record of a task, if it is complete.
    fn task(&self, pid: Pid) -> Option<abi::fp_task> {
        let is_owner = |task: &abi::fp_task| task.pid == pid.as_raw();
        ways(pid).find_map(|index| self.record(index).filter(is_owner))
    }

    /// A record, whatever task it is of, if it is complete.
    pub(super) fn record(&self, index: usize) -> Option<abi::fp_task> {
        let record = self.tasks.at(index);
        // SAFETY: `record` points into the mapping, which lives as long as `self`; any bytes are
        // valid integers. The kernel may write meanwhile, so the copy counts only if the sequence
        // number was even and has not changed.
        let task = unsafe {
            let seq = AtomicU32::from_ptr(&raw mut (*record).seq);
            let before = seq.load(Ordering::Acquire);
            let copy = std::ptr::read_volatile(record);
            fence(Ordering::Acquire);
            if before & 1 == 1 || seq.load(Ordering::Relaxed) != before {
                return None;
            }
            copy
        };
        Some(task)
    }
}

/// The records of the pid's set.
fn ways(pid: Pid) -> impl Iterator<Item = usize> {
    (pid.as_raw() as usize % SETS..TASKS).step_by(SETS)
}

fn facts(task: &abi::fp_task) -> Facts {
    Facts {
        wakeups: task.wakeups,
        voluntary: task.voluntary,
        involuntary: task.involuntary,
        cpu_time: Span::from_nanos(task.cpu_ns),
        woken: Stamp::from_nanos(task.woken),
        slept: Span::from_nanos(task.slept_ns),
        kthread: task.flags & PF_KTHREAD != 0,
        workqueue: task.flags & PF_WQ_WORKER != 0,
        idle_class: task.policy == SCHED_IDLE,
        nice: task.nice,
        allowed: CpuSet::of_group(task.allowed_group, task.allowed),
        kicked: CpuId::new(task.kicked_cpu).filter(|_| task.waiting != 0),
        handed_off: task.handed_off != 0 && task.waiting != 0,
        waker: Pid::new(task.waker),
        process: Pid::new(task.tgid),
        user: User::new(task.user),
        last_cpu: CpuId::new(task.last_cpu),
        run_interval: Span::from_nanos(task.run_interval_ns),
        stopped: Stamp::from_nanos(task.stopped),
        // The backend counts orders.
        ..Facts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    fn at(us: u64) -> Stamp {
        Stamp::from_nanos(us * 1_000)
    }

    fn records() -> Records {
        Records::of(Mapped::anonymous(TASKS), Mapped::anonymous(TASKS))
    }

    /// Writes the record of a task that woke up at 100 us and last stopped at 40 us.
    fn write(records: &Records, owner: i32, change: fn(&mut abi::fp_task)) {
        let record = records.tasks.at(owner as usize % SETS);
        // SAFETY: points into the mapping, which only this test uses.
        let task = unsafe { &mut *record };
        (task.pid, task.seq, task.wakeups, task.waiting) = (owner, 4, 9, 1);
        (task.woken, task.stopped, task.kicked_cpu, task.last_cpu) = (100_000, 40_000, 3, -1);
        change(task);
    }

    #[test]
    fn a_record_counts_if_it_is_complete_and_names_the_pid() {
        let records = records();
        assert_eq!(records.receive(pid(7), at(110)), None, "no task has a record");
        write(&records, 7, |_| ());
        let (facts, waited) = records.receive(pid(7), at(110)).unwrap();
        assert_eq!((facts.wakeups, facts.kicked, facts.last_cpu), (9, CpuId::new(3), None));
        assert_eq!(waited, Some(Span::from_micros(10)));
        write(&records, 7, |task| task.user = 1_000);
        assert_eq!(records.receive(pid(7), at(110)).unwrap().0.user, User::new(1_000));
        write(&records, 7, |task| task.seq = 5);
        assert_eq!(records.receive(pid(7), at(110)), None, "the kernel is writing it");
    }

    #[test]
    fn a_task_that_lost_its_cpu_has_waited_since_then_without_a_kick() {
        let records = records();
        write(&records, 7, |task| (task.waiting, task.handed_off) = (0, 1));
        let (facts, waited) = records.receive(pid(7), at(110)).unwrap();
        assert_eq!((facts.kicked, facts.handed_off), (None, false));
        assert_eq!(waited, Some(Span::from_micros(70)));
        write(&records, 7, |task| (task.waiting, task.stopped) = (0, 0));
        assert_eq!(
            records.receive(pid(7), at(110)).unwrap().1,
            None,
            "it has never stopped before"
        );
    }

    #[test]
    fn pids_that_share_a_set_have_hints_of_their_own_until_it_is_full() {
        let records = records();
        let nth = |number: i32| pid(7 + number * SETS as i32);
        write(&records, nth(1).as_raw(), |_| ());
        assert_eq!(records.receive(nth(0), at(110)), None, "the record is of another task");
        assert!(records.receive(nth(1), at(111)).is_some());
        for number in 2..4 {
            records.receive(nth(number), at(110 + number as u64));
        }
        let sent = |number, us| records.sent(nth(number), Tier::Batch, at(us));
        assert_eq!((0..4).filter_map(|number| sent(number, 120)).count(), 4);
        assert_eq!(records.stolen_hints.get(), 0);
        // A fifth one takes the place of the one of which no message came for longest.
        records.receive(nth(4), at(130));
        assert_eq!(records.stolen_hints.get(), 1);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|number| records.hint(nth(number)).is_some()),
            [false, true, true, true, true]
        );
        assert!(!records.take_news(nth(0), Kind::Exit), "the hint has another owner");
        assert!(records.take_news(nth(2), Kind::Exit));
        records.receive(nth(5), at(140));
        assert!(records.hint(nth(1)).is_some(), "the empty one was taken");
        assert_eq!(records.stolen_hints.get(), 1);
    }

    #[test]
    fn an_exit_does_not_count_while_the_pid_waits_for_a_decision() {
        let records = records();
        records.receive(pid(7), at(1));
        records.sent(pid(7), Tier::Batch, at(2));
        records.receive(pid(7), at(3));
        assert!(!records.take_news(pid(7), Kind::Exit));
        records.sent(pid(7), Tier::Batch, at(4));
        assert!(records.take_news(pid(7), Kind::Exit));
        assert!(!records.take_news(pid(7), Kind::Exit), "reported once");
    }

    #[test]
    fn another_program_does_not_inherit_the_tier() {
        let records = records();
        let tier = || unsafe { (*records.hint(pid(7)).unwrap()).tier };
        records.sent(pid(7), Tier::Batch, at(1));
        assert_eq!(tier(), occupant(Tier::Batch));
        assert!(!records.take_news(pid(7), Kind::Exec));
        assert_eq!(tier(), occupant(Tier::Interactive));
    }
}
