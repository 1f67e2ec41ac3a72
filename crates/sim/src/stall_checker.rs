// SPDX-License-Identifier: GPL-2.0-only

//! The checker of stalls. Only a decision, or the backend, ends the wait of a task that is queued
//! to user space: the checker reports tasks that wait there while no round begins.

use super::machine::limits::HEARTBEAT;
use super::observer::{Event, Fault, TaskId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use pandemonium_engine::task::Pid;
use pandemonium_engine::time::{Span, Stamp};

/// The longest time without a round while tasks are queued to user space, besides a slice. The
/// backend notices a stopped process within 30 ms (`PATCH_CHECKS` and one check more). A running
/// one waits for a CPU, behind a slice, or until Batch work is due.
const QUIET_MAX: Span = Span::from_millis(100);

/// The same while the backend knows nothing of the last round's Batch tasks, because what that
/// round published is late: the heartbeat begins the next one.
const QUIET_MAX_LATE: Span = Span::from_nanos(HEARTBEAT + QUIET_MAX.as_nanos());

/// The account of the tasks that are queued to user space.
#[derive(Default)]
pub struct StallChecker {
    /// By pid: whether the task is queued to user space.
    queued: Vec<bool>,
    nr_queued: usize,
    /// The tasks for which the round has decided. Its decisions have not arrived yet.
    decided: Vec<Pid>,
    /// The longest slice that a decision has given.
    longest_slice: Span,
    /// Whether what the last round published is late.
    is_late: bool,
    /// When the last round began, or the first of the tasks was queued, whichever is later.
    quiet_since: Stamp,
}

impl StallChecker {
    /// Takes an event. Returns a sentence if it violates the rule.
    pub fn saw(&mut self, now: Stamp, event: &Event) -> Option<String> {
        match event {
            Event::Queued { task, .. } => {
                if self.nr_queued == 0 {
                    self.quiet_since = now;
                }
                self.note(task.pid, true);
            }
            Event::Congested { task } => {
                let why = self.check(now);
                self.note(task.pid, false);
                return why;
            }
            Event::Direct { task, .. }
            | Event::Ordered { task, .. }
            | Event::Resumed { task }
            // By an older decision too: the backend takes it if it names no CPU.
            | Event::Placed { task }
            | Event::Withdrawn { task }
            | Event::Died { task } => self.leaves(*task),
            Event::Sent { dispatch, .. } => {
                self.longest_slice = self.longest_slice.max(dispatch.slice);
                self.decided.push(dispatch.pid);
            }
            Event::Submitted => {
                while let Some(pid) = self.decided.pop() {
                    self.note(pid, false);
                }
            }
            Event::Began { .. } => {
                let why = self.check(now);
                self.quiet_since = now;
                return why;
            }
            Event::Faulted { fault: Fault::LateRevocation, .. } => self.is_late = true,
            Event::Bounded(_) => self.is_late = false,
            Event::Loaded(_) => {
                let longest_slice = self.longest_slice;
                *self = StallChecker { longest_slice, ..StallChecker::default() };
            }
            _ => {}
        }
        None
    }

    /// Returns a sentence if tasks have been waiting for too long.
    pub fn check(&self, now: Stamp) -> Option<String> {
        let (quiet, nr) = (now.since(self.quiet_since), self.nr_queued);
        let bound = self.longest_slice + if self.is_late { QUIET_MAX_LATE } else { QUIET_MAX };
        (nr > 0 && quiet > bound).then(|| {
            format!("no round began for {quiet}, longer than {bound}, while {nr} tasks waited")
        })
    }

    fn leaves(&mut self, task: TaskId) {
        self.decided.retain(|pid| *pid != task.pid);
        self.note(task.pid, false);
    }

    fn note(&mut self, pid: Pid, queued: bool) {
        let index = pid.as_raw() as usize;
        if index >= self.queued.len() {
            self.queued.resize(index + 1, false);
        }
        let before = core::mem::replace(&mut self.queued[index], queued);
        self.nr_queued = self.nr_queued + usize::from(queued) - usize::from(before);
    }
}
