// SPDX-License-Identifier: GPL-2.0-only

//! What the machine remembers of tasks, CPUs, queues and the scheduler process.

use crate::observer::TaskId;
use crate::random::Random;
use crate::topology::Mask;
use alloc::collections::BTreeSet;
use pandemonium_engine::task::{Dispatch, Pid, Tier};

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// The slot is empty.
    Nowhere,
    /// Asleep until its timer fires.
    Timer,
    /// Asleep until another task wakes it.
    Token,
    /// Queued to user space: in the ring, or in the policy's hands.
    Hands,
    /// In the queue of a CPU.
    Queue(u16),
    /// In the queue for any CPU.
    Shared,
    /// On a CPU.
    Cpu(u16),
}

/// 100,000 tasks have to fit into a block of 16 MiB, so there is no field to spare.
const _: () = assert!(100_000 * size_of::<Task>() <= 16 << 20);

/// A task.
#[derive(Clone)]
pub(super) struct Task {
    pub random: Random,
    /// Work left of the present step, in nanoseconds of a full-speed CPU.
    pub left: u64,
    /// When its present period began; periods are counted from its fork.
    pub period: u64,
    /// When it last stopped, and how long that run interval was.
    pub stopped: u64,
    pub run_interval: u64,
    /// CPU time since it last woke up.
    pub awake: u64,
    pub cpu_time: u64,
    /// Key in the kernel's queues.
    pub vtime: u64,
    /// Breaks ties of `vtime` in the queue it is in.
    pub order: u64,
    /// Since when it wants a CPU.
    pub since: u64,
    /// When it last woke up, and how long it had slept.
    pub woken: u64,
    pub slept: u64,
    pub mask: Mask,
    /// Its slice in nanoseconds; none is as long as the 4 s that this can hold.
    pub slice: u32,
    /// Of its timer.
    pub generation: u32,
    pub pid: Pid,
    pub tickets: u32,
    pub wakeups: u32,
    pub voluntary: u32,
    pub involuntary: u32,
    pub place: Where,
    pub group: u16,
    /// Its place in its row, and in its program.
    pub seat: u16,
    pub step: u8,
    /// The CPU that the kernel has it down for, and the one that it really ran on.
    pub cpu: u16,
    pub ran_on: u16,
    /// The CPU that was interrupted for its wake-up, or a negative number; and whether it was not,
    /// because its occupant hands it over.
    pub kicked: i16,
    pub handed_off: bool,
    /// How often it slept soon after it woke somebody.
    pub handoffs: u8,
    pub tokens: u8,
    pub nice: i8,
    /// What the policy last thought of it.
    pub tier: Option<Tier>,
}

impl Task {
    /// Whether it waits for a CPU.
    pub fn waits(&self) -> bool {
        matches!(self.place, Where::Hands | Where::Queue(_) | Where::Shared)
    }

    /// What the fast path takes it for.
    pub fn tier(&self) -> Tier {
        self.tier.unwrap_or_default()
    }

    pub fn id(&self, slot: u32) -> TaskId {
        TaskId { slot, pid: self.pid, group: u32::from(self.group) }
    }
}

/// Who has a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    Idle,
    Scheduler,
    Task(u32),
}

/// Which interrupt is on its way to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kick {
    None,
    /// Has an effect on an idle CPU only.
    Idle,
    /// Ends the slice of whoever runs.
    Preempt,
}

pub(super) struct Cpu {
    pub current: Current,
    /// Changes whenever what was planned for the occupant is out of date.
    pub generation: u32,
    /// When the occupant began, or its slice was renewed.
    pub started: u64,
    /// Since when it works: switching takes a while.
    pub works_from: u64,
    /// Speed at present: that of the CPU, less what a busy sibling takes.
    pub speed: u64,
    pub kick: Kick,
    /// What the fast path knows of it.
    pub seen: Occupied,
    pub online: bool,
    /// What its clock is ahead by.
    pub skew: u64,
}

/// What the fast path notes of a CPU: `struct fp_cpu`.
#[derive(Clone)]
pub(super) struct Occupied {
    pub current: Current,
    pub pid: Pid,
    /// When the occupant began, and for how long it may run.
    pub since: u64,
    pub slice: u64,
    /// When it woke somebody last; zero if it did not.
    pub woke: u64,
    /// How often it slept soon after it woke somebody.
    pub handoffs: u8,
    /// Whether it is of low weight.
    pub light: bool,
    /// When the CPU was last interrupted, and how often in which window of time.
    pub kicked: u64,
    pub window: u64,
    pub kicks: u32,
    /// The task that its next switch should serve, and when that woke up.
    pub wanted: Option<(Pid, u64)>,
    /// When a wake-up seen here that found no CPU is worth another try; zero for never.
    pub retry_at: u64,
}

impl Default for Occupied {
    fn default() -> Self {
        Occupied {
            current: Current::Idle,
            pid: Pid::default(),
            since: 0,
            slice: 0,
            woke: 0,
            handoffs: 0,
            light: false,
            kicked: 0,
            window: 0,
            kicks: 0,
            wanted: None,
            retry_at: 0,
        }
    }
}

/// A queue of the kernel: by virtual time, and in order of insertion where that is equal.
pub(super) type Queue = BTreeSet<(u64, u64, u32)>;

/// A decision on its way down.
#[derive(Clone, Copy)]
pub(super) struct Down {
    pub dispatch: Dispatch,
    /// The CPU that it names, if it names one.
    pub cpu: Option<u32>,
}

/// Where the scheduler process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In its own queue, to be run when something is pending.
    Queued,
    /// On a CPU, about to begin a round.
    Starting,
    /// On a CPU, with a round decided and its costs not yet worked off.
    Deciding,
    /// Stopped from outside.
    Frozen,
    /// Not there: the kernel schedules by itself.
    Unloaded,
}

/// The scheduler process, and what kernel half and user half share about it.
pub(super) struct Scheduler {
    pub stage: Stage,
    /// Where it runs or ran last.
    pub cpu: u32,
    /// It is to be run whether or not something is pending.
    pub needed: bool,
    /// Work that it says is left.
    pub pending: u64,
    /// When it last ran.
    pub ran: u64,
    /// What the present round has done so far, to be paid for.
    pub took: u64,
    pub sent: u64,
    pub calls: u64,
    /// Until when it is to be stopped after this round.
    pub freeze: Option<u64>,
}

/// What the kernel half counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Tasks that it placed by itself.
    pub direct: u64,
    /// Decisions that it dropped, for a ticket that was not the newest.
    pub cancelled: u64,
    /// Decisions that named a CPU outside the task's mask.
    pub bounced: u64,
    /// Tasks that found the ring full.
    pub congested: u64,
    /// Interrupts that the fast path sent by itself.
    pub kicks: u64,
    /// Interrupts that the policy asked for.
    pub asked: u64,
    /// Rounds of the scheduler process.
    pub rounds: u64,
    /// CPU time of the scheduler process in nanoseconds.
    pub own_time: u64,
    /// Plans that took place: the measure of how much was simulated.
    pub events: u64,
}
