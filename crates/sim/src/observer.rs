// SPDX-License-Identifier: GPL-2.0-only

//! The events that a simulated machine reports. Checkers, measurements and recordings see nothing
//! else of it.

use super::topology::Mask;
use pandemonium_engine::Mode;
use pandemonium_engine::knobs::Values;
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::task::{Arrival, Comm, Dispatch, Pid, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{MachineView, Round};

/// Identifies a task in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskId {
    /// Its slot in the machine's table. Reused after the task has exited.
    pub slot: u32,
    /// Its pid. Reused as well.
    pub pid: Pid,
    /// Its group in the workload.
    pub group: u32,
}

/// Why a task leaves a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It sleeps.
    Slept,
    /// It is still runnable: its slice ended, or it was preempted.
    Lost,
    /// It exited, or changed to another scheduling class.
    Gone,
}

/// What occupies a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// The idle task.
    Idle,
    /// The scheduler process.
    Scheduler,
    /// A task, and the tier that the policy last gave it.
    Task(TaskId, Tier),
}

/// A kind of fault that the simulator injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The ring to the scheduler is full.
    RingFull,
    /// The ring from the scheduler is full: a decision is refused.
    Refusal,
    /// A round of the scheduler process takes longer than it should.
    LateScheduler,
    /// The scheduler process is stopped for a while, between two rounds or in one.
    StoppedScheduler,
    /// A task dies, in whatever state it is.
    TaskDeath,
    /// A task dies, and a new task gets its pid at once.
    PidReuse,
    /// A task queued to user space is dequeued and queued again: its old ticket is stale.
    StaleTicket,
    /// The clocks of the CPUs disagree.
    ClockSkew,
    /// CPUs go offline or online: the scheduler stays loaded, or is loaded again.
    Hotplug,
    /// A task's affinity mask changes.
    Affinity,
    /// A task changes to another scheduling class, and returns later.
    ClassChange,
    /// A kick is lost.
    LostKick,
    /// A task's nice value changes.
    Renice,
    /// A CPU is offline from the start.
    OfflineAtStart,
    /// The backend keeps no record of an order: the slot went to another task.
    LostOrder,
    /// What a round publishes reaches the backend only with the next round.
    LateRevocation,
    /// A task is dequeued and queued again just before its decision arrives, which is void then.
    LostDecision,
    /// A task may not use the CPU that the policy names: it goes to another one.
    BouncedDecision,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Fault; 18] = [
        Fault::RingFull,
        Fault::Refusal,
        Fault::LateScheduler,
        Fault::StoppedScheduler,
        Fault::TaskDeath,
        Fault::PidReuse,
        Fault::StaleTicket,
        Fault::ClockSkew,
        Fault::Hotplug,
        Fault::Affinity,
        Fault::ClassChange,
        Fault::LostKick,
        Fault::Renice,
        Fault::OfflineAtStart,
        Fault::LostOrder,
        Fault::LateRevocation,
        Fault::LostDecision,
        Fault::BouncedDecision,
    ];

    /// Its name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::RingFull => "ring-full",
            Fault::Refusal => "refusal",
            Fault::LateScheduler => "late-scheduler",
            Fault::StoppedScheduler => "stopped-scheduler",
            Fault::TaskDeath => "task-death",
            Fault::PidReuse => "pid-reuse",
            Fault::StaleTicket => "stale-ticket",
            Fault::ClockSkew => "clock-skew",
            Fault::Hotplug => "hotplug",
            Fault::Affinity => "affinity",
            Fault::ClassChange => "class-change",
            Fault::LostKick => "lost-kick",
            Fault::Renice => "renice",
            Fault::OfflineAtStart => "offline-at-start",
            Fault::LostOrder => "lost-order",
            Fault::LateRevocation => "late-revocation",
            Fault::LostDecision => "lost-decision",
            Fault::BouncedDecision => "bounced-decision",
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task was created.
    Forked {
        /// The task.
        task: TaskId,
        /// Its name.
        comm: Comm,
        /// Its weight.
        weight: u32,
        /// Its affinity mask.
        mask: Mask,
    },
    /// A task became runnable: it woke up, was forked, or returned from another class.
    Woke {
        /// The task.
        task: TaskId,
    },
    /// The task was queued to user space.
    Queued {
        /// The task.
        task: TaskId,
        /// The ticket: the number of this enqueue.
        ticket: u64,
    },
    /// The ring to the policy was full: the backend put the task into the shared queue itself.
    Congested {
        /// The task.
        task: TaskId,
    },
    /// The task's standing order was executed.
    Ordered {
        /// The task.
        task: TaskId,
        /// Its CPU.
        cpu: u32,
        /// Whether it preempts what the CPU runs. If not, it waits in the shared DSQ.
        at_once: bool,
    },
    /// A task that an order preempted waits in the shared DSQ for the rest of its slice.
    Resumed {
        /// The task.
        task: TaskId,
    },
    /// A round published the bounds on orders; `None` if no order is executed.
    Bounded(Option<Bounds>),
    /// The backend dispatched the task without asking the policy.
    Direct {
        /// The task.
        task: TaskId,
        /// The CPU.
        cpu: u32,
    },
    /// A runnable task is dequeued: it died, or changed class, or it is about to be queued again
    /// because an attribute changed.
    Withdrawn {
        /// The task.
        task: TaskId,
    },
    /// A task is gone.
    Died {
        /// The task.
        task: TaskId,
    },
    /// A task's affinity mask changed.
    Moved {
        /// The task.
        task: TaskId,
        /// The new mask.
        mask: Mask,
    },
    /// A round begins.
    Began {
        /// The CPU of the scheduler process.
        cpu: u32,
        /// The time that the scheduler reads from its CPU's clock.
        now: Stamp,
        /// What the policy sees of the machine.
        view: MachineView,
    },
    /// The policy received a task.
    Took(Arrival),
    /// The policy's decision was accepted.
    Sent {
        /// The decision.
        dispatch: Dispatch,
        /// The target CPU, if there is one: the port may have picked an idle CPU.
        cpu: Option<u32>,
    },
    /// The decisions of the round reach the backend.
    Submitted,
    /// The policy's decision was refused.
    Refused(Dispatch),
    /// The policy was told that a task exited.
    Exited(Pid),
    /// The policy received settings.
    Applied(Values),
    /// A round has decided; it ends `busy` after it began.
    Ended {
        /// Its result.
        round: Round,
        /// Whether the policy reports room for more tasks.
        has_room: bool,
        /// The longest wait of a queued task, as the policy reports it.
        oldest_wait: Span,
        /// The mode that the policy reports.
        mode: Mode,
        /// The CPU time that the round takes.
        busy: Span,
    },
    /// The adaptive loop has evaluated the last second.
    Looked {
        /// The regime that it sees.
        regime: &'static str,
        /// Idle time of all CPUs, in per mille.
        idle: Option<u32>,
    },
    /// The backend put the task into a queue, by a decision.
    Placed {
        /// The task.
        task: TaskId,
    },
    /// The backend dropped a decision: its task is gone, is no longer queued, or the ticket is
    /// stale.
    Void(Dispatch),
    /// A CPU is kicked.
    Kicked {
        /// The CPU.
        cpu: u32,
        /// The task for which it is kicked, if there is one.
        wakee: Option<TaskId>,
    },
    /// A CPU switches.
    Switched {
        /// The CPU.
        cpu: u32,
        /// The previous occupant.
        from: Occupant,
        /// Why it left the CPU.
        left: Left,
        /// The next occupant.
        to: Occupant,
    },
    /// A task did work.
    Worked {
        /// The task.
        task: TaskId,
        /// The work in nanoseconds of a full-speed CPU.
        work: u64,
    },
    /// A measured time ended.
    Measured {
        /// The group of the task that ended it.
        group: u32,
        /// Its length.
        took: Span,
        /// Whether it was longer than the group's deadline.
        missed: bool,
    },
    /// A fault was injected.
    Faulted {
        /// The kind of fault.
        fault: Fault,
        /// The affected task, if there is one.
        task: Option<TaskId>,
    },
    /// A CPU went online or offline.
    Online {
        /// The CPU.
        cpu: u32,
        /// Whether it is online.
        online: bool,
    },
    /// The scheduler was unloaded (`false`) or is loaded again (`true`).
    Loaded(bool),
    /// From now on no faults are injected.
    Calm,
    /// The kernel's watchdog found a task that waits too long: it would eject the scheduler.
    Watchdog {
        /// The task.
        task: TaskId,
    },
}

/// Receives the events of a machine.
pub trait Observer {
    /// Called for every event, at its simulated time.
    fn saw(&mut self, now: Stamp, event: &Event);
}

impl Observer for () {
    fn saw(&mut self, _now: Stamp, _event: &Event) {}
}

impl<W: Observer + ?Sized> Observer for &mut W {
    fn saw(&mut self, now: Stamp, event: &Event) {
        (**self).saw(now, event);
    }
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn saw(&mut self, now: Stamp, event: &Event) {
        self.0.saw(now, event);
        self.1.saw(now, event);
    }
}

impl<A: Observer, B: Observer, C: Observer> Observer for (A, B, C) {
    fn saw(&mut self, now: Stamp, event: &Event) {
        self.0.saw(now, event);
        self.1.saw(now, event);
        self.2.saw(now, event);
    }
}

impl<W: Observer> Observer for Option<W> {
    fn saw(&mut self, now: Stamp, event: &Event) {
        if let Some(observer) = self {
            observer.saw(now, event);
        }
    }
}
