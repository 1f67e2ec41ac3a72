// SPDX-License-Identifier: GPL-2.0-only

//! The seam between policy and mechanism, and the round that joins them.
//!
//! A [`Policy`] decides and never calls out. A [`Port`] carries messages and never decides: the
//! kernel is one, a simulated machine can be another. [`round`] lives beside the policy on
//! purpose: bounds, order, refusal and accounting are where schedulers in user space break, so
//! whatever tests a policy must run this code and not a copy of it.

use crate::control::detect::Mode;
use crate::facts::CpuSet;
use crate::knobs::Knobs;
use crate::procdb::{Minute, Profile};
use crate::task::{Arrival, Cause, Comm, CpuId, Dispatch, Pid, Placement, Tier, Weight};
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
    /// CPUs that run nothing, of the first 64, as far as that is known.
    pub idle: CpuSet,
    /// CPUs that run a task of ours, of the first 64, as far as that is known.
    pub busy: CpuSet,
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
    /// Whether one more decision should follow in the same round.
    fn wants_more(&self) -> bool {
        false
    }
    /// Whether the decision that was just accepted should not go alone: the next one follows in
    /// the same round, so that nobody has to ask again when the task has run.
    fn sends_along(&self, _sent: &Dispatch) -> bool {
        false
    }
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
    /// What the policy thinks is going on beyond single tasks.
    fn mode(&self, _now: Stamp) -> Mode {
        Mode::default()
    }
    /// What is held of a task, and what its tier rests on. One look-up; it allocates nothing.
    fn evidence(&self, _pid: Pid) -> Option<Evidence> {
        None
    }
    /// What time it is for what is learned of programs. Called about once a minute.
    fn on_minute(&mut self, _when: Minute) {}
    /// What was learned of programs.
    fn programs(&self) -> &[Profile] {
        &[]
    }
    /// Takes in what was learned of programs before. For the start: it may allocate.
    fn learn_programs(&mut self, _when: Minute, _known: &[Profile]) {}
    /// Hands out what is worth keeping over a restart of the scheduler.
    fn export(&self, _keep: &mut dyn FnMut(Memo)) {}
    /// Takes back what [`export`](Policy::export) handed out.
    fn import(&mut self, _memo: Memo) {}
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
    /// Tasks of whose name something was known when they appeared.
    pub predictions: u64,
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

/// What a policy holds of a task, and what its tier rests on, for people to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Its name.
    pub comm: Comm,
    /// How urgent it is.
    pub tier: Tier,
    /// The tier that its behaviour alone gives.
    pub behaves: Tier,
    /// The tier that its name gives, if that decides.
    pub named: Option<Tier>,
    /// It has used up its slices for longer than it usually runs.
    pub cpu_bound: bool,
    /// It takes what Batch work lacks.
    pub hoards: bool,
    /// It has been seen often enough that averages move slowly.
    pub mature: bool,
    /// How long it usually runs between two sleeps, and how far a run usually is from that.
    pub run: Span,
    /// See `run`.
    pub run_dev: Span,
    /// Wake-ups in 100 ms.
    pub wake_freq: u64,
    /// The score that its behaviour gives.
    pub score: u32,
    /// Its share of CPU time.
    pub weight: Weight,
}

/// How much one round may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages taken in before the first decision.
    pub arrivals: usize,
    /// Decisions sent, whatever they are.
    pub dispatches: usize,
    /// Decisions sent besides, while the policy [wants more](Policy::wants_more) or
    /// [sends one along](Policy::sends_along).
    pub extra: usize,
}

impl Limits {
    /// Messages one round takes in: as many as the backend's ring can hold, so that a decision is
    /// made among all tasks that wait, and never more, so that a flood cannot keep the round from
    /// deciding.
    pub const ARRIVALS: usize = 4096;

    /// One decision for the CPU that becomes free, so that all others are made as late as can be;
    /// and as many besides as one dispatch call takes from us (`GUARD_DRAIN` in
    /// src/bpf/backend_guard.h), if somebody urgent waits.
    pub const KERNEL: Limits = Limits { arrivals: Limits::ARRIVALS, dispatches: 1, extra: 7 };
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
    let mut along = false;
    while done.sent < limits.dispatches
        || done.sent < limits.dispatches + limits.extra && (along || policy.wants_more())
    {
        let Some(dispatch) = policy.next(now, port.view()) else { break };
        if port.send(&dispatch) == Err(Full) {
            policy.on_refused(dispatch);
            done.refused = true;
            break;
        }
        done.sent += 1;
        along = policy.sends_along(&dispatch);
        if let (true, Placement::Cpu(cpu)) = (dispatch.preempt, dispatch.placement) {
            port.kick(cpu);
        }
    }
    done.pending = policy.queued();
    done
}
