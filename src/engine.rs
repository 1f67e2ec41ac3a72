// SPDX-License-Identifier: GPL-2.0-only

//! The seam between policy and mechanism, and the round that joins them.
//!
//! A [`Policy`] decides and never calls out. A [`Port`] carries messages and never decides: the
//! kernel is one, a simulated machine can be another. [`round`] lives beside the policy on
//! purpose: bounds, order, refusal and accounting are where schedulers in user space break, so
//! whatever tests a policy must run this code and not a copy of it.

use crate::task::{Arrival, Cause, Comm, CpuId, Dispatch, Pid, Placement, Tier};
use crate::time::{Span, Stamp};

/// The port has no space for a dispatch now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a policy may know about the machine beyond the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineView {
    /// CPUs online.
    pub cpus: u32,
    /// CPUs that run a task of ours at the moment.
    pub running: u32,
    /// The CPU on which we are deciding. It is free as soon as the round ends.
    pub here: Option<CpuId>,
}

/// Mechanism: the kernel, or something that behaves like it.
pub trait Port {
    /// The next task that waits, decoded. Malformed messages were counted and skipped.
    fn recv(&mut self) -> Option<Arrival>;
    /// Hands a decision over, or refuses it without effect.
    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full>;
    /// Interrupts whoever runs on `cpu`. Nothing happens if the port cannot.
    fn kick(&mut self, cpu: CpuId);
    /// The machine as it is now.
    fn view(&self) -> &MachineView;
}

/// What an experimenter writes.
///
/// Contract: a task taken in by [`on_arrival`](Policy::on_arrival) comes out of
/// [`next`](Policy::next) exactly once, with its newest ticket, unless
/// [`on_exit`](Policy::on_exit) ends it before.
pub trait Policy {
    /// A task waits for a CPU. Only called while there is [room](Policy::has_room).
    fn on_arrival(&mut self, now: Stamp, arrival: Arrival, view: &MachineView);
    /// The next decision, or `None` when nothing should run now.
    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch>;
    /// The port refused the decision that [`next`](Policy::next) just made: the task waits again,
    /// in the place it had.
    fn on_refused(&mut self, dispatch: Dispatch);
    /// The task is gone.
    fn on_exit(&mut self, pid: Pid);
    /// New settings, valid from the next decision on.
    fn apply(&mut self, knobs: &Knobs);
    /// How many tasks wait for a decision.
    fn queued(&self) -> usize;
    /// Whether one more arrival can be taken in.
    fn has_room(&self) -> bool;
    /// How long the longest waiting task has waited.
    fn oldest_wait(&self, now: Stamp) -> Span;
    /// What the policy counts, for people to read.
    fn counters(&self) -> Counters {
        Counters::default()
    }
    /// Hands out what is worth keeping over a restart of the scheduler.
    fn export(&self, _keep: &mut dyn FnMut(Memo)) {}
    /// Takes back what [`export`](Policy::export) handed out.
    fn import(&mut self, _memo: Memo) {}
}

/// Settings that a person or a controller may change while the scheduler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Longest time slice, for tasks that use it.
    pub slice: Span,
    /// Shortest time slice, for tasks that others wait behind.
    pub slice_min: Span,
    /// Send a task that may run on one CPU only to that CPU's own queue. Off, it competes in the
    /// shared queue by its key, and other CPUs step over it.
    pub percpu_local: bool,
}

impl Default for Knobs {
    /// 4 ms is one tick of a kernel with HZ=250: the kernel enforces a slice at ticks only, so a
    /// shorter one is no shorter there. 1 ms is the parent project's smallest slice.
    fn default() -> Self {
        Knobs { slice: Span::from_millis(4), slice_min: Span::from_millis(1), percpu_local: false }
    }
}

/// What a policy has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Arrivals that were wake-ups, first sight included.
    pub wakeups: u64,
    /// Arrivals that had lost the CPU.
    pub requeues: u64,
    /// Decisions taken for age rather than for order.
    pub rescues: u64,
    /// Decisions by tier, in the order of [`Tier::ALL`].
    pub by_tier: [u64; 3],
}

impl Counters {
    /// Counts an arrival.
    pub fn arrived(&mut self, cause: Cause) {
        match cause {
            Cause::New | Cause::Wakeup => self.wakeups += 1,
            Cause::Requeue => self.requeues += 1,
        }
    }
}

/// What is kept of a task over a restart of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memo {
    /// Who.
    pub pid: Pid,
    /// Its name: a task that changed it since is somebody else.
    pub comm: Comm,
    /// How urgent it was.
    pub tier: Tier,
    /// How long it usually ran between two sleeps.
    pub run: Span,
}

/// How much one round may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages taken in before the first decision.
    pub arrivals: usize,
    /// Decisions sent.
    pub dispatches: usize,
}

impl Limits {
    /// Messages one round takes in: as many as the backend's ring can hold, so that a decision is
    /// made among all tasks that wait, and never more, so that a flood cannot keep the round from
    /// deciding.
    pub const ARRIVALS: usize = 4096;

    /// The backend takes one decision from us per dispatch call, so one a round keeps what we
    /// sent and what a CPU takes in step (docs/architecture.md, "One decision a round").
    pub const KERNEL: Limits = Limits { arrivals: Limits::ARRIVALS, dispatches: 1 };
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Arrivals taken in.
    pub received: usize,
    /// Decisions the port accepted.
    pub sent: usize,
    /// Whether the port refused one, which ends the round.
    pub refused: bool,
    /// Tasks that still wait. Above zero the scheduler wants to run again at once.
    pub pending: usize,
}

/// One round: take in who waits, decide, hand over. `now` is the only clock of the round.
pub fn round<P: Port, Q: Policy>(
    now: Stamp,
    port: &mut P,
    policy: &mut Q,
    limits: Limits,
) -> Round {
    let mut done = Round::default();
    while done.received < limits.arrivals && policy.has_room() {
        let Some(arrival) = port.recv() else { break };
        policy.on_arrival(now, arrival, port.view());
        done.received += 1;
    }
    while done.sent < limits.dispatches {
        let Some(dispatch) = policy.next(now, port.view()) else { break };
        if port.send(&dispatch) == Err(Full) {
            policy.on_refused(dispatch);
            done.refused = true;
            break;
        }
        done.sent += 1;
        if let (true, Placement::Cpu(cpu)) = (dispatch.preempt, dispatch.placement) {
            port.kick(cpu);
        }
    }
    done.pending = policy.queued();
    done
}
