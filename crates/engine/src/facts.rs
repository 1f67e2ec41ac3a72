// SPDX-License-Identifier: GPL-2.0-only

//! What the fast path observes of one task, beyond what the task's message says.

pub use crate::topology::CpuSet;

use crate::time::{Span, Stamp};
use crate::topology::CpuId;
use core::fmt;

/// A thread, by the number the kernel calls pid (and `ps` calls TID or LWP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

impl Pid {
    /// A pid, or `None` for zero (the idle task) and for negative numbers.
    pub const fn new(raw: i32) -> Option<Pid> {
        if raw > 0 { Some(Pid(raw)) } else { None }
    }

    /// The kernel's number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// The user of a task, by the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User(u32);

impl User {
    /// Nothing tells the user. No user has this number, the kernel's `(uid_t)-1`.
    pub const UNKNOWN: User = User(u32::MAX);
    /// The superuser, of whom kernel threads are too.
    pub const ROOT: User = User(0);

    /// A user by number.
    pub const fn new(raw: u32) -> User {
        User(raw)
    }

    /// The kernel's number.
    pub const fn as_raw(self) -> u32 {
        self.0
    }

    /// Whether it is a user's number.
    pub const fn is_known(self) -> bool {
        self.0 != User::UNKNOWN.0
    }
}

impl Default for User {
    fn default() -> Self {
        User::UNKNOWN
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_known() { write!(f, "user {}", self.0) } else { f.write_str("unknown user") }
    }
}

/// Facts about one task, recorded by the fast path inside the kernel.
///
/// The policies of this repository do not read `idle_class`, `handed_off` and `ordered`. A policy
/// of one's own may, and recordings keep them for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Wakeups, including those that found an idle CPU and were not queued to user space.
    pub wakeups: u64,
    /// Voluntary switches: times the task gave up the CPU to sleep.
    pub voluntary: u64,
    /// Involuntary switches: times the task lost the CPU while it could still run.
    pub involuntary: u64,
    /// Total CPU time since the task was forked.
    pub cpu_time: Span,
    /// Time of the last wakeup.
    pub woken: Stamp,
    /// Length of the sleep that the last wakeup ended.
    pub slept: Span,
    /// The task is a kernel thread.
    pub kthread: bool,
    /// The task is a workqueue thread.
    pub workqueue: bool,
    /// The scheduling class is SCHED_IDLE.
    pub idle_class: bool,
    /// The nice value, -20 to 19.
    pub nice: i8,
    /// CPUs the task may use, as far as [`CpuSet`] tells.
    pub allowed: CpuSet,
    /// The CPU that was interrupted for the wakeup, or that the waker is about to give up.
    pub kicked: Option<CpuId>,
    /// The waker is expected to give up its CPU: lately it slept right after each wakeup.
    pub handed_off: bool,
    /// The waker, or for a wakeup from an interrupt the task that the interrupt found on its
    /// CPU; `None` for the idle task.
    pub waker: Option<Pid>,
    /// The first thread of the task's process.
    pub process: Option<Pid>,
    /// The real user of the task, which a setuid program does not change.
    pub user: User,
    /// The CPU the task ran on last.
    pub last_cpu: Option<CpuId>,
    /// Length of the last run interval, until the task slept or lost the CPU.
    pub run_interval: Span,
    /// End of the last run interval.
    pub stopped: Stamp,
    /// Orders that were executed for the task.
    pub orders: u32,
    /// When the last of them was executed.
    pub ordered: Stamp,
    /// The task that the last of them preempted.
    pub preempted: Option<Pid>,
}

impl Facts {
    /// Whether the task has slept and woken up since its last run. If not, it lost its CPU.
    pub fn has_slept(&self) -> bool {
        self.woken > self.stopped
    }

    /// When the last run interval began, if that was noted.
    pub fn last_began(&self) -> Option<Stamp> {
        (self.run_interval > Span::ZERO).then(|| self.stopped.before(self.run_interval))
    }
}
