// SPDX-License-Identifier: GPL-2.0-only

//! What a policy is: it decides, and never calls out.
//!
//! A [`Policy`] says four things: what to do when a task [arrives](Policy::arrive), which task is
//! [next](Policy::next), what a [refused](Policy::refused) decision means, and what an
//! [exit](Policy::exit) means. A [`TaskTable`](crate::table::TaskTable) and a
//! [`Runqueue`](crate::runqueue::Runqueue) make three of them one line each. Everything else is an
//! offer: knobs, counters, and the optional traits [`Learning`], [`Explaining`] and
//! [`StandingOrders`]. An adaptive
//! loop belongs to the policy's [type](crate::registry::PolicyType), since it runs in another
//! process.

use crate::explaining::Explaining;
use crate::knobs::Values;
use crate::learning::Learning;
use crate::orders::{Bounds, Order};
use crate::port::MachineView;
use crate::reserve::Reserve;
use crate::task::{Arrival, Dispatch, Pid, Tier};
use crate::time::{Span, Stamp};
use crate::topology::Topology;
use crate::treatment::{Assignment, Treatment};
use alloc::boxed::Box;

/// What an experimenter writes.
///
/// Contract: a task taken in by [`arrive`](Policy::arrive) comes out of [`next`](Policy::next)
/// exactly once, with its newest ticket, unless [`exit`](Policy::exit) ends it before. No call
/// allocates or blocks.
pub trait Policy: Send {
    /// A task waits for a CPU. Only called while there is [room](Waiting::has_room).
    fn arrive(&mut self, now: Stamp, arrival: Arrival, view: &MachineView);
    /// The next decision, or `None` when nothing should run now.
    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch>;
    /// The port refused the decision that [`next`](Policy::next) just made: the task waits again,
    /// in the place it had.
    fn refused(&mut self, dispatch: Dispatch);
    /// The task is gone.
    fn exit(&mut self, pid: Pid);
    /// The tasks that wait for a decision; a [`TaskTable`](crate::table::TaskTable) knows them.
    fn waiting(&self) -> &dyn Waiting;

    /// New values of the policy's knobs, valid from the next decision on.
    fn tune(&mut self, _values: &Values) {}
    /// Replaces the processes that the user demands a treatment for, in the order of their pids.
    /// Valid from the next arrival on.
    fn assign(&mut self, _treatments: &[Treatment], _processes: &[Assignment]) {}
    /// Replaces the topology, because CPUs have come or gone. Valid from the next decision on.
    fn follow_topology(&mut self, _topology: &Topology) {}
    /// Whether one more decision should follow in the same round, because an urgent task waits.
    fn wants_more(&self) -> bool {
        false
    }
    /// Whether the next decision should follow the one that was just accepted in the same round, so
    /// that the CPU has a successor when the task sleeps.
    fn sends_along(&self, _sent: &Dispatch) -> bool {
        false
    }
    /// How long the longest waiting task above Batch has waited for a decision, for health.
    fn urgent_wait(&self, _now: Stamp) -> Span {
        Span::ZERO
    }
    /// What the backend does by itself until the next round.
    fn kernel_rules(&self, _now: Stamp) -> KernelRules {
        KernelRules::default()
    }
    /// What is going on beyond single tasks, for statistics and the adaptive loop.
    fn mode(&self, _now: Stamp) -> Mode {
        Mode::default()
    }
    /// Writes the policy's own counters, in the order of
    /// [`COUNTERS`](crate::registry::PolicyType::COUNTERS).
    fn count(&self, _counters: &mut [u64]) {}
    /// What the policy learns of tasks and programs and keeps over a restart.
    fn learning(&mut self) -> Option<&mut dyn Learning> {
        None
    }
    /// What the policy can say of a task.
    fn explaining(&self) -> Option<&dyn Explaining> {
        None
    }
    /// The policy's standing orders.
    fn orders(&self) -> Option<&dyn StandingOrders> {
        None
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, view: &MachineView) {
        (**self).arrive(now, arrival, view);
    }
    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch> {
        (**self).next(now, view)
    }
    fn refused(&mut self, dispatch: Dispatch) {
        (**self).refused(dispatch);
    }
    fn exit(&mut self, pid: Pid) {
        (**self).exit(pid);
    }
    fn waiting(&self) -> &dyn Waiting {
        (**self).waiting()
    }
    fn tune(&mut self, values: &Values) {
        (**self).tune(values);
    }
    fn assign(&mut self, treatments: &[Treatment], processes: &[Assignment]) {
        (**self).assign(treatments, processes);
    }
    fn follow_topology(&mut self, topology: &Topology) {
        (**self).follow_topology(topology);
    }
    fn wants_more(&self) -> bool {
        (**self).wants_more()
    }
    fn sends_along(&self, sent: &Dispatch) -> bool {
        (**self).sends_along(sent)
    }
    fn urgent_wait(&self, now: Stamp) -> Span {
        (**self).urgent_wait(now)
    }
    fn kernel_rules(&self, now: Stamp) -> KernelRules {
        (**self).kernel_rules(now)
    }
    fn mode(&self, now: Stamp) -> Mode {
        (**self).mode(now)
    }
    fn count(&self, counters: &mut [u64]) {
        (**self).count(counters);
    }
    fn learning(&mut self) -> Option<&mut dyn Learning> {
        (**self).learning()
    }
    fn explaining(&self) -> Option<&dyn Explaining> {
        (**self).explaining()
    }
    fn orders(&self) -> Option<&dyn StandingOrders> {
        (**self).orders()
    }
}

/// The tasks that wait for a decision.
pub trait Waiting {
    /// How many.
    fn nr_waiting(&self) -> usize;
    /// The same in whole steps of 64, for a driver that tells the kernel only what has changed.
    fn nr_waiting_in_steps(&self) -> u32 {
        (self.nr_waiting() / 64 * 64) as u32
    }
    /// Whether one more arrival can be taken in.
    fn has_room(&self) -> bool;
    /// How long the longest waiting task has waited.
    fn oldest_wait(&self, now: Stamp) -> Span;

    /// The number of records that are or were in use: the memory of further ones is untouched.
    fn nr_records(&self) -> u32 {
        0
    }
    /// Visits the memory of all records, array by array. By default there is none, and a driver
    /// leaves the policy's memory as it is.
    fn reserves(&self, _visit: &mut dyn FnMut(Reserve)) {}
    /// The driver has put memory behind so many records. Before the first call all of them can be
    /// used. Records in use stay so.
    fn open(&self, _records: u32) {}
}

/// A policy that writes orders. It offers itself by [`Policy::orders`].
pub trait StandingOrders {
    /// The order that goes with a decision.
    fn order(&self, now: Stamp, decision: &Dispatch) -> Option<Order>;
    /// The bounds until the next round.
    fn bounds(&self, now: Stamp) -> Bounds;
}

/// What the backend and the fast path do by themselves between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRules {
    /// A running task may be interrupted for a more urgent one that wakes up.
    pub preempt: bool,
    /// A waker that has always slept soon after a wakeup is expected to do so again.
    pub hand_off: bool,
    /// A Batch task that has run for less is not interrupted for another Batch task.
    pub preempt_thresh: Span,
    /// Very many tasks wake up at the moment: the threshold counts as zero.
    pub burst: bool,
    /// Longest slice of a Batch task. If it is shorter than a tick, a timer ends it while another
    /// Batch task waits.
    pub batch_slice: Span,
    /// An idle CPU is woken when the scheduler process leaves its CPU while tasks wait, and for
    /// each Batch task. If not, the policy places a Batch task that wakes up while a CPU is busy.
    pub wakes_idle: bool,
    /// Performance that a CPU is asked for while it runs a task of each tier, in percent of its
    /// highest.
    pub performance: [u32; Tier::ALL.len()],
    /// Slice of a task that the backend places on an idle CPU. Fixed while it is loaded.
    pub idle_slice: Span,
}

impl Default for KernelRules {
    fn default() -> Self {
        KernelRules {
            preempt: true,
            hand_off: true,
            preempt_thresh: Span::from_millis(1),
            burst: false,
            batch_slice: Span::from_millis(4),
            wakes_idle: true,
            performance: [100; Tier::ALL.len()],
            idle_slice: Span::from_micros(100),
        }
    }
}

/// What a policy found out beyond single tasks.
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
}
