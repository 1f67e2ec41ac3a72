// SPDX-License-Identifier: GPL-2.0-only

//! The kernel's records of all tasks, for a process that only looks at them.

use super::abi;
use super::mapped::Mapped;
use super::records::{Records, TASKS};
use crate::privileges;
use anyhow::{Context, Result};
use libbpf_rs::MapHandle;
use pandemonium_engine::task::{Pid, Tier};
use pandemonium_engine::time::{Span, Stamp};

/// A wakeup longer ago than this tells nothing of the waits of now.
const RECENT: Span = Span::from_millis(2_000);

/// A view of both tables that writes nothing.
pub struct TaskRecords(Records);

// SAFETY: the mappings live as long as the value, and every read of them is volatile or atomic.
unsafe impl Send for TaskRecords {}

/// What the kernel has recorded of a task. Counts are since its record has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Where its record is. Records come in this order.
    pub index: usize,
    pub pid: i32,
    /// The first thread of its process.
    pub process: i32,
    /// When it began, by which tasks with the same pid differ.
    pub start_time: u64,
    pub wakeups: u64,
    /// CPU time since its fork, up to now.
    pub cpu_time: Span,
    /// The tier of the last decision about it.
    pub tier: Option<Tier>,
    /// Whether it runs now, or waits for a CPU after a wakeup.
    pub is_busy: bool,
    /// When it last woke up or stopped.
    pub last_event: Stamp,
    /// Its wait for a CPU after its last wakeup, which goes on if it waits.
    pub last_wait: Span,
    /// When it last woke up.
    pub woken: Stamp,
}

impl TaskRecords {
    /// The tables with these numbers, which [`FastPath::task_maps`](super::FastPath::task_maps)
    /// tells.
    pub fn open([tasks, hints]: [u32; 2]) -> Result<TaskRecords> {
        let map = |id| MapHandle::from_map_id(id).context("cannot open a map of the fast path");
        let (tasks, hints) =
            privileges::as_admin(|| Ok::<_, anyhow::Error>((map(tasks)?, map(hints)?)))?;
        let tasks = Mapped::read_only(&tasks, TASKS)?;
        let hints = Mapped::read_only(&hints, TASKS)?;
        Ok(TaskRecords(Records::of(tasks, hints)))
    }

    /// All tasks that have a record.
    pub fn all(&self, now: Stamp) -> impl Iterator<Item = Observed> {
        (0..TASKS).filter_map(move |index| self.at(index, now))
    }

    fn at(&self, index: usize, now: Stamp) -> Option<Observed> {
        let record = self.0.tasks.at(index);
        // SAFETY: points into the mapping; any bytes are a valid integer. Most records are empty,
        // and to read their owner alone is cheaper.
        if unsafe { (&raw const (*record).pid).read_volatile() } == 0 {
            return None;
        }
        let task = self.0.record(index).filter(|task| task.pid > 0)?;
        let hint = Pid::new(task.pid).and_then(|pid| self.0.hint(pid));
        // SAFETY: points into the mapping; any bytes are valid integers.
        let hint = hint.map(|hint| unsafe { hint.read_volatile() });
        let tier = hint.filter(|hint| hint.sent > 0).and_then(|hint| tier_of(hint.tier));
        Some(Observed { index, tier, ..observed(&task, now) })
    }
}

fn observed(task: &abi::fp_task, now: Stamp) -> Observed {
    let at = Stamp::from_nanos;
    let waits = task.waiting != 0;
    let runs = !waits && task.started > task.stopped;
    let running = if runs { now.since(at(task.started)) } else { Span::ZERO };
    let last_wait = match () {
        () if task.woken == 0 => Span::ZERO,
        () if waits => now.since(at(task.woken)),
        // It has lost its CPU and got it again since.
        () if now.since(at(task.woken)) > RECENT => Span::ZERO,
        () => at(task.started).since(at(task.woken)),
    };
    Observed {
        index: 0,
        pid: task.pid,
        process: task.tgid,
        start_time: task.start_time,
        wakeups: task.wakeups,
        cpu_time: Span::from_nanos(task.cpu_ns) + running,
        tier: None,
        is_busy: runs || waits,
        last_event: at(task.woken.max(task.stopped)),
        last_wait,
        woken: at(task.woken),
    }
}

fn tier_of(occupant: u32) -> Option<Tier> {
    Tier::ALL.into_iter().find(|tier| super::occupant(*tier) == occupant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Stamp {
        Stamp::from_nanos(us * 1_000)
    }

    fn records(change: impl Fn(&mut abi::fp_task)) -> TaskRecords {
        let records = TaskRecords(Records::of(Mapped::anonymous(TASKS), Mapped::anonymous(TASKS)));
        let record = records.0.tasks.at(7);
        // SAFETY: points into the mapping, which only this test uses.
        let task = unsafe { &mut *record };
        (task.pid, task.tgid, task.seq, task.wakeups) = (7, 6, 4, 9);
        (task.woken, task.started, task.stopped) = (100_000, 130_000, 90_000);
        task.cpu_ns = 5_000_000;
        change(task);
        records
    }

    fn only(records: &TaskRecords, us: u64) -> Observed {
        let all: Vec<Observed> = records.all(at(us)).collect();
        assert_eq!(all.len(), 1);
        all[0]
    }

    #[test]
    fn a_running_task_has_used_its_cpu_up_to_now() {
        let task = only(&records(|_| ()), 1_130);
        assert_eq!((task.pid, task.process, task.index, task.wakeups), (7, 6, 7, 9));
        assert_eq!(task.cpu_time, Span::from_micros(6_000));
        assert_eq!((task.last_wait, task.is_busy), (Span::from_micros(30), true));
    }

    #[test]
    fn a_waiting_task_waits_until_now_and_a_sleeping_one_is_idle() {
        let task = only(&records(|task| (task.waiting, task.started) = (1, 80_000)), 150);
        assert_eq!((task.last_wait, task.is_busy), (Span::from_micros(50), true));
        assert_eq!(task.cpu_time, Span::from_micros(5_000));
        let task = only(&records(|task| task.stopped = 140_000), 150);
        assert_eq!((task.last_event, task.is_busy), (at(140), false));
    }

    #[test]
    fn a_tier_counts_if_the_hint_is_the_task_s() {
        let records = records(|_| ());
        let hint = records.0.hints.at(7);
        // SAFETY: points into the mapping, which only this test uses.
        let hint = unsafe { &mut *hint };
        (hint.pid, hint.tier, hint.sent) = (7, super::super::occupant(Tier::Batch), 1);
        assert_eq!(only(&records, 150).tier, Some(Tier::Batch));
        hint.sent = 0;
        assert_eq!(only(&records, 150).tier, None, "no decision yet");
        (hint.pid, hint.sent) = (8, 1);
        assert_eq!(only(&records, 150).tier, None);
    }

    #[test]
    fn a_record_that_is_being_written_is_left_out() {
        assert_eq!(records(|task| task.seq = 5).all(at(150)).count(), 0);
        assert_eq!(records(|task| task.pid = 0).all(at(150)).count(), 0);
    }
}
