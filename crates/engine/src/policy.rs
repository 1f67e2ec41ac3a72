// SPDX-License-Identifier: GPL-2.0-only

//! What a policy is: it decides, and never calls out.

use crate::knobs::Knobs;
use crate::port::MachineView;
use crate::procdb::{Minute, Profile};
use crate::task::{Arrival, Cause, Comm, Dispatch, Pid, Tier, Weight};
use crate::time::{Span, Stamp};

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
    pub over_share: bool,
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

/// What the detectors found, and what follows from it (README, "Longrun Detection" and "Dual Burst
/// Detection").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Many tasks appear at once.
    pub burst: bool,
    /// Batch work has waited for seconds.
    pub longrun: bool,
}

impl Mode {
    /// Slices end at the burst slice.
    pub const fn short_slices(self) -> bool {
        self.burst || self.longrun
    }

    /// A Batch task gives way at once, whatever the threshold.
    pub const fn preempt_at_once(self) -> bool {
        self.burst
    }

    /// One task at most waits in a CPU's own queue.
    pub const fn shallow_queues(self) -> bool {
        self.burst
    }

    /// Batch work gets one of `N` dispatches instead of the usual budget.
    pub const fn tight_deficit(self) -> bool {
        self.longrun
    }

    /// Placement near the cache is WEAK, so that batch work spreads.
    pub const fn weak_affinity(self) -> bool {
        self.longrun
    }

    /// The Batch slice is the regime's, whatever the sleeps say.
    pub const fn base_batch_slice(self) -> bool {
        self.longrun
    }
}
