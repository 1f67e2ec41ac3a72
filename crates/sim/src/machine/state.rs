// SPDX-License-Identifier: GPL-2.0-only

//! The state of tasks, CPUs, queues and the scheduler process.

use super::rules::Kicks;
use crate::observer::TaskId;
use crate::random::Random;
use crate::topology::Mask;
use alloc::collections::BTreeSet;
use pandemonium_engine::task::{Dispatch, Pid, Tier};

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// The slot is empty.
    Vacant,
    /// Asleep until its timer fires.
    Timer,
    /// Asleep until another task wakes it.
    Blocked,
    /// Queued to user space: in the ring, or held by the policy.
    UserSpace,
    /// In the queue of a CPU.
    Queue(u16),
    /// In the queue for any CPU.
    Shared,
    /// In the local DSQ of a CPU, which runs it next.
    Local(u16),
    /// On a CPU.
    Cpu(u16),
}

/// 100,000 tasks must fit into a block of 16 MiB.
const _: () = assert!(100_000 * size_of::<Task>() <= 16 << 20);

/// A task.
#[derive(Clone)]
pub(super) struct Task {
    pub random: Random,
    /// Work left in the current step, in nanoseconds of a full-speed CPU.
    pub left: u64,
    /// When its current period began; the first one begins at its fork.
    pub period: u64,
    /// When it last left a CPU, and how long that run interval was.
    pub stopped: u64,
    pub run_interval: u64,
    /// CPU time since it last woke up.
    pub awake: u64,
    pub cpu_time: u64,
    /// Key in the kernel's queues.
    pub vtime: u64,
    /// Orders tasks of equal `vtime` in a queue.
    pub order: u64,
    /// When it last became runnable.
    pub since: u64,
    /// When it last woke up, and how long it had slept.
    pub woken: u64,
    pub slept: u64,
    pub mask: Mask,
    /// Its slice in nanoseconds. A `u32` holds 4 s, longer than any slice.
    pub slice: u32,
    /// Generation of its timer: an event of an older generation is ignored.
    pub generation: u32,
    pub pid: Pid,
    /// Enqueues to user space so far; the last one is its valid ticket.
    pub tickets: u32,
    pub wakeups: u32,
    pub voluntary: u32,
    pub involuntary: u32,
    pub place: Where,
    pub group: u16,
    /// Its place in its row, and its next step in the program.
    pub seat: u16,
    pub step: u8,
    /// The CPU that the kernel assigned last (`task_cpu()`), and the one that it last ran on.
    pub cpu: u16,
    pub ran_on: u16,
    /// The CPU that its last wakeup is to get, -1 if none was found.
    pub kicked: i16,
    /// Whether that CPU was not really kicked, because the waker on it hands it over.
    pub handed_off: bool,
    /// Times in a row that it slept soon after waking another task.
    pub handoffs: u8,
    /// Wakeups that arrived while it was not blocked; the next [`Step::Wait`] takes one.
    ///
    /// [`Step::Wait`]: crate::workload::Step::Wait
    pub pending_wakes: u8,
    pub nice: i8,
    /// The tier of its last dispatch.
    pub tier: Option<Tier>,
}

impl Task {
    /// Whether it waits for a CPU.
    pub fn waits(&self) -> bool {
        matches!(self.place, Where::UserSpace | Where::Queue(_) | Where::Shared | Where::Local(_))
    }

    /// Its tier as the fast path sees it.
    pub fn tier(&self) -> Tier {
        self.tier.unwrap_or_default()
    }

    pub fn id(&self, slot: u32) -> TaskId {
        TaskId { slot, pid: self.pid, group: u32::from(self.group) }
    }
}

/// What runs on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    Idle,
    Scheduler,
    Task(u32),
}

/// The strongest kick on its way to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kick {
    None,
    /// `SCX_KICK_IDLE`: affects an idle CPU only.
    Idle,
    /// `SCX_KICK_PREEMPT`: ends the slice of the running task.
    Preempt,
}

pub(super) struct Cpu {
    pub current: Current,
    /// Grows whenever the planned event for the occupant becomes invalid.
    pub generation: u32,
    /// When the occupant got the CPU, or its slice was renewed.
    pub started: u64,
    /// When its work begins: the context switch comes first.
    pub works_from: u64,
    /// Current speed: that of the CPU, less what a busy sibling takes.
    pub speed: u64,
    pub kick: Kick,
    /// The fast path's record of this CPU.
    pub seen: CpuRecord,
    pub online: bool,
    /// Whether it has gone offline: `patch_active_dsq` knows that. A CPU that never was online it
    /// takes for an active one.
    pub left: bool,
    /// How far its clock is ahead.
    pub skew: u64,
    /// The task in its local DSQ: the wakee for which an order preempts the CPU's task.
    pub local: Option<u32>,
    /// The wakee of the task that runs, which is about to sleep.
    pub handed_to: Option<Pid>,
    /// When it last looked beyond its local DSQ.
    pub looked: u64,
    /// When it last looked into the shared DSQ, and how often into its own since.
    pub looked_shared: u64,
    pub looked_own: u32,
    pub order_kicks: Kicks,
}

/// The fast path's record of a CPU: `struct fp_cpu`.
#[derive(Clone)]
pub(super) struct CpuRecord {
    pub current: Current,
    pub pid: Pid,
    /// When the occupant got the CPU, and its slice.
    pub since: u64,
    pub slice: u64,
    /// When the occupant last woke a task in this run interval; zero if it did not.
    pub woke: u64,
    /// Times in a row that the occupant slept soon after waking another task.
    pub handoffs: u8,
    /// Whether the occupant has a low weight: nice above 0, or `SCHED_IDLE`.
    pub low_weight: bool,
    /// Whether `slice` is less than the occupant was given, because very many tasks wait.
    pub crowded: bool,
    pub kicks: Kicks,
}

impl Default for CpuRecord {
    fn default() -> Self {
        CpuRecord {
            current: Current::Idle,
            pid: Pid::default(),
            since: 0,
            slice: 0,
            woke: 0,
            handoffs: 0,
            low_weight: false,
            crowded: false,
            kicks: Kicks::default(),
        }
    }
}

/// A DSQ: (`vtime`, order of insertion, slot of the task).
pub(super) type Queue = BTreeSet<(u64, u64, u32)>;

/// A decision on its way to the kernel.
#[derive(Clone, Copy)]
pub(super) struct Down {
    pub dispatch: Dispatch,
    /// The CPU that it names, if it names one.
    pub cpu: Option<u32>,
}

/// What the scheduler process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In its own queue, to run when something is pending.
    Queued,
    /// On a CPU, about to begin a round.
    Starting,
    /// On a CPU: the round has decided, and its simulated time passes.
    Deciding,
    /// Stopped by an injected fault.
    Frozen,
    /// Unloaded: the kernel schedules without it.
    Unloaded,
}

/// A stop of the scheduler process by an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// When it continues.
    pub until: u64,
    pub place: StopPlace,
}

/// Where a stop interrupts the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopPlace {
    /// The round has ended.
    BetweenRounds,
    /// The round has decided. Its decisions arrive when the process continues.
    InRound,
}

/// The scheduler process, and what the backend's two halves share about it.
pub(super) struct Scheduler {
    pub stage: Stage,
    /// The CPU it runs on, or ran on last.
    pub cpu: u32,
    /// Run it even if nothing is pending (`usersched_needed`).
    pub needed: bool,
    /// Tasks that it last reported as pending, and whether one of them is above Batch.
    pub pending: u64,
    pub urgent: bool,
    /// When it last ran.
    pub ran: u64,
    /// What the current round has done so far: it costs simulated time.
    pub took: u64,
    pub sent: u64,
    pub calls: u64,
    /// If set, the process is stopped, or will be at the end of the round.
    pub stop: Option<Stop>,
    /// Whether the backend decides instead of the process.
    pub is_stalled: bool,
}

/// Counters of the backend's kernel side and the fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Tasks that the backend dispatched without asking the policy.
    pub direct: u64,
    /// Decisions dropped because their ticket was stale.
    pub cancelled: u64,
    /// Decisions that named a CPU outside the task's affinity mask.
    pub bounced: u64,
    /// Tasks that found the ring full.
    pub congested: u64,
    /// Kicks by which the fast path preempted a victim for a waiting task.
    pub kicks: u64,
    /// Standing orders executed.
    pub orders: u64,
    /// Kicks that the policy asked for.
    pub asked: u64,
    /// Rounds of the scheduler process.
    pub rounds: u64,
    /// CPU time of the scheduler process in nanoseconds.
    pub own_time: u64,
    /// Events simulated: the measure of how much work a run was.
    pub events: u64,
}
