// SPDX-License-Identifier: GPL-2.0-only

//! What can be seen of a simulated machine from outside: judges, measurements and recordings all
//! live on these events and on nothing else.

use super::topology::Mask;
use pandemonium_engine::Mode;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::task::{Arrival, Comm, Dispatch, Pid, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{MachineView, Round};
use pandemonium_policies::control::regime::Regime;

/// A task, as outsiders know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskId {
    /// Its place in the machine's table. Used again when the task is gone.
    pub slot: u32,
    /// Its pid. May be used again as well.
    pub pid: Pid,
    /// Its group in the workload.
    pub group: u32,
}

/// Why a task leaves a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It sleeps.
    Slept,
    /// Its slice was over, or somebody interrupted it.
    Lost,
    /// It ended, or left for another scheduling class.
    Gone,
}

/// Who occupies a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nobody.
    Idle,
    /// The scheduler process.
    Scheduler,
    /// A task, and the tier that the policy last gave it.
    Task(TaskId, Tier),
}

/// Something that went wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The ring to the scheduler is full.
    RingFull,
    /// The ring from the scheduler is full: a decision is refused.
    Refusal,
    /// The scheduler process takes long over a round.
    LateScheduler,
    /// The scheduler process stands still for a while.
    StoppedScheduler,
    /// A task dies, wherever it is.
    TaskDeath,
    /// The pid of a task that died is given to a new one at once.
    PidReuse,
    /// A task is taken out of the scheduler's hands and queued anew: its old ticket is void.
    StaleTicket,
    /// The clocks of the CPUs disagree.
    ClockSkew,
    /// A CPU goes offline, and another time online: the scheduler is loaded anew.
    Hotplug,
    /// The CPUs that a task may use change.
    Affinity,
    /// A task leaves for another scheduling class, and comes back later.
    ClassChange,
    /// An interrupt is lost.
    LostKick,
    /// A task's nice value changes.
    Renice,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Fault; 13] = [
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
    ];

    /// What a person calls it.
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
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task was born.
    Born {
        /// Who.
        task: TaskId,
        /// Its name.
        comm: Comm,
        /// Its share.
        weight: u32,
        /// Where it may run.
        mask: Mask,
    },
    /// A task wants a CPU from now on: it woke up, was born, or came back from another class.
    Woke {
        /// Who.
        task: TaskId,
    },
    /// The task was queued to the policy, with this ticket.
    Queued {
        /// Who.
        task: TaskId,
        /// Which enqueue of it.
        ticket: u64,
    },
    /// The ring to the policy was full: the task went to the shared queue unasked.
    Congested {
        /// Who.
        task: TaskId,
    },
    /// The kernel half placed the task by itself.
    Direct {
        /// Who.
        task: TaskId,
        /// Where.
        cpu: u32,
    },
    /// A task that waited or ran is taken away from the scheduler: it died, or changed class, or
    /// it is about to be queued anew.
    Withdrawn {
        /// Who.
        task: TaskId,
    },
    /// A task is no more.
    Died {
        /// Who.
        task: TaskId,
    },
    /// Where a task may run has changed.
    Moved {
        /// Who.
        task: TaskId,
        /// Where it may run now.
        mask: Mask,
    },
    /// A round begins.
    Began {
        /// On which CPU.
        cpu: u32,
        /// What time the scheduler takes it for.
        now: Stamp,
        /// What it is told of the machine.
        view: MachineView,
    },
    /// The policy takes in a task.
    Took(Arrival),
    /// The policy's decision was accepted.
    Sent {
        /// The decision.
        dispatch: Dispatch,
        /// Where it goes in the end, if to one CPU: the port may name an idle one.
        cpu: Option<u32>,
    },
    /// The policy's decision was refused.
    Refused(Dispatch),
    /// The policy was told that a task is gone.
    Exited(Pid),
    /// The policy was given settings.
    Applied(Knobs),
    /// A round has decided; its work is done `busy` after it began.
    Ended {
        /// What it did.
        round: Round,
        /// Whether the policy says that it has room for more.
        has_room: bool,
        /// How long its oldest task has waited, as the policy says.
        oldest_wait: Span,
        /// Decisions that it has taken for age so far.
        rescues: u64,
        /// What the policy thinks is going on.
        mode: Mode,
        /// What the round costs.
        busy: Span,
    },
    /// The adaptive loop has looked at the last second.
    Looked {
        /// Its verdict on the load.
        regime: Regime,
        /// How long CPUs were idle, in per mille.
        idle: Option<u32>,
    },
    /// The kernel half takes a decision out of the ring and has no use for it.
    Void(Dispatch),
    /// A CPU is interrupted.
    Kicked {
        /// Which.
        cpu: u32,
        /// For whom, if for a wake-up.
        wakee: Option<TaskId>,
    },
    /// A CPU changes hands.
    Switched {
        /// Which.
        cpu: u32,
        /// Who had it.
        from: Occupant,
        /// Why that ended.
        left: Left,
        /// Who has it now.
        to: Occupant,
    },
    /// CPU time was used for work that counts: nanoseconds of a full-speed CPU.
    Worked {
        /// Who.
        task: TaskId,
        /// How much.
        work: u64,
    },
    /// A measured time ended.
    Measured {
        /// Of which group.
        group: u32,
        /// How long it was.
        took: Span,
        /// Whether it was longer than the group's deadline.
        missed: bool,
    },
    /// Something went wrong on purpose.
    Faulted {
        /// What.
        fault: Fault,
        /// With whom, if with a task.
        task: Option<TaskId>,
    },
    /// A CPU is online from now on, or not.
    Online {
        /// Which.
        cpu: u32,
        /// Whether it is online.
        online: bool,
    },
    /// The scheduler was unloaded (`false`) or is loaded again (`true`).
    Loaded(bool),
    /// Nothing goes wrong on purpose any more.
    Calm,
    /// The kernel's watchdog finds a task that has waited for too long, and would end us.
    Watchdog {
        /// Who.
        task: TaskId,
    },
}

/// Watches a machine.
pub trait Observer {
    /// Something happened.
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
