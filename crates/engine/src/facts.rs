// SPDX-License-Identifier: GPL-2.0-only

//! What is known of a task beyond its message, when a fast path observes it.

use crate::task::{CpuId, Pid};
use crate::time::{Span, Stamp};

/// CPUs as a set, of the first 64. On larger machines a CPU beyond is in no set, and the policy
/// falls back to what the message says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(pub u64);

impl CpuSet {
    /// Whether `cpu` is in the set.
    pub const fn contains(self, cpu: CpuId) -> bool {
        let number = cpu.as_raw() as u32;
        number < u64::BITS && self.0 >> number & 1 == 1
    }
}

/// Facts about one task, as the kernel saw them happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Wake-ups, those included that never came to user space.
    pub wakeups: u64,
    /// Times it gave up the CPU to sleep.
    pub voluntary: u64,
    /// Times it lost the CPU.
    pub involuntary: u64,
    /// CPU time of its life.
    pub cpu_time: Span,
    /// When it last woke up.
    pub woken: Stamp,
    /// How long it slept before that.
    pub slept: Span,
    /// Whether it is a kernel thread.
    pub kthread: bool,
    /// Whether it is a workqueue thread.
    pub workqueue: bool,
    /// Whether its class is SCHED_IDLE.
    pub idle_class: bool,
    /// Its nice value, -20 to 19.
    pub nice: i8,
    /// CPUs it may use.
    pub allowed: CpuSet,
    /// The CPU that was interrupted for its wake-up, or that its waker is about to give up.
    pub kicked: Option<CpuId>,
    /// Whether its waker is about to give up its CPU: for so long it has slept right after each
    /// wake-up.
    pub handed_off: bool,
    /// Who woke it, or whom the interrupt that did found on its CPU; `None` for the idle task.
    pub waker: Option<Pid>,
    /// The first thread of its process.
    pub process: Option<Pid>,
    /// Where it ran last.
    pub last_cpu: Option<CpuId>,
    /// How long it ran the last time it ran, until it slept or lost the CPU.
    pub run_interval: Span,
    /// When that ended.
    pub stopped: Stamp,
}
