// SPDX-License-Identifier: GPL-2.0-only

//! Policies to compare with: [`Fifo`] and [`Vruntime`] are the least that one could do,
//! [`Dropping`] is wrong on purpose.

use crate::pandemonium::placement::place;
use pandemonium_engine::TASKS_MAX;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::runqueue::Runqueue;
use pandemonium_engine::table::{Entered, TaskTable};
use pandemonium_engine::task::{Arrival, Dispatch, Pid, Reason, Tier};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::{Counters, MachineView, Memo, Policy};

/// How a [`Reference`] policy orders tasks.
pub trait Ordering {
    /// The key of a task that arrives, given the key it had before.
    fn key(&mut self, before: Vtime, arrival: &Arrival, knobs: &Knobs) -> Vtime;
    /// The task with this key was dispatched.
    fn dispatched(&mut self, key: Vtime);
    /// The port refused the dispatch that was just made.
    fn refused(&mut self);
    /// Where a task starts that was never seen before.
    fn start(&self) -> Vtime;
}

/// First come, first served.
pub type Fifo = Reference<ByArrival>;
/// Weighted fair order: who has had the least CPU time for its weight goes first.
pub type Vruntime = Reference<ByVruntime>;

/// One queue in one order, every task with the same slice.
pub struct Reference<O> {
    table: TaskTable<Vtime>,
    queue: Runqueue,
    order: O,
    knobs: Knobs,
    counters: Counters,
}

impl<O: Ordering + Default> Reference<O> {
    /// An empty queue.
    pub fn new() -> Self {
        Reference {
            table: TaskTable::new(TASKS_MAX),
            queue: Runqueue::new(TASKS_MAX),
            order: O::default(),
            knobs: Knobs::default(),
            counters: Counters::default(),
        }
    }
}

impl<O: Ordering + Default> Default for Reference<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Ordering> Policy for Reference<O> {
    fn on_arrival(&mut self, now: Stamp, arrival: Arrival, _view: &MachineView) {
        self.counters.arrived(arrival.cause);
        let (slot, before) = match self.table.enter(now, arrival) {
            Entered::Replaced(_) => return,
            Entered::New(slot) => (slot, self.order.start()),
            Entered::Known(slot, _) => (slot, *self.table.data(slot)),
        };
        let key = self.order.key(before, &arrival, &self.knobs);
        *self.table.data_mut(slot) = key;
        self.queue.insert(slot, key);
    }

    fn next(&mut self, _now: Stamp, view: &MachineView) -> Option<Dispatch> {
        let (slot, key) = self.queue.pop()?;
        self.order.dispatched(key);
        self.counters.by_tier[Tier::default().index()] += 1;
        let request = self.table.leave(slot);
        let (placement, preempt) = place(&request, view, &self.knobs);
        Some(Dispatch {
            pid: request.pid,
            ticket: request.ticket,
            placement,
            slice: self.knobs.batch_slice,
            vtime: key,
            tier: Tier::default(),
            preempt,
            reason: Reason::Order,
        })
    }

    fn on_refused(&mut self, dispatch: Dispatch) {
        self.counters.by_tier[Tier::default().index()] -= 1;
        self.order.refused();
        if let Some(slot) = self.table.come_back(dispatch.pid) {
            self.queue.put_back(slot, dispatch.vtime);
        }
    }

    fn on_exit(&mut self, pid: Pid) {
        if let Some(slot) = self.table.forget(pid) {
            self.queue.remove(slot);
        }
    }

    fn apply(&mut self, knobs: &Knobs) {
        self.knobs = *knobs;
    }

    fn queued(&self) -> usize {
        self.table.nr_waiting()
    }

    fn has_room(&self) -> bool {
        self.table.has_room()
    }

    fn oldest_wait(&self, now: Stamp) -> Span {
        self.table.oldest_wait(now)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// Every arrival goes behind the one before.
pub struct ByArrival {
    last: Vtime,
}

impl Default for ByArrival {
    fn default() -> Self {
        ByArrival { last: Vtime::START }
    }
}

impl Ordering for ByArrival {
    fn key(&mut self, _before: Vtime, _arrival: &Arrival, _knobs: &Knobs) -> Vtime {
        self.last = self.last.after(Span::from_nanos(1));
        self.last
    }

    fn dispatched(&mut self, _key: Vtime) {}

    fn refused(&mut self) {}

    fn start(&self) -> Vtime {
        self.last
    }
}

/// CPU time divided by weight.
pub struct ByVruntime {
    /// The virtual time of whoever was dispatched last, never going back.
    clock: Vtime,
    /// The clock before the last dispatch, for the case that it is refused.
    clock_before: Vtime,
}

impl Default for ByVruntime {
    fn default() -> Self {
        ByVruntime { clock: Vtime::START, clock_before: Vtime::START }
    }
}

impl Ordering for ByVruntime {
    /// A sleeper gets at most one slice of credit, else it would own the CPU for as long as it
    /// had slept. A task owes at most [`DEBT_SLICES`], else a light one that ran on an idle
    /// machine would starve when the machine gets busy.
    fn key(&mut self, before: Vtime, arrival: &Arrival, knobs: &Knobs) -> Vtime {
        let floor = self.clock.before(knobs.batch_slice);
        let ceiling = self.clock.after(knobs.batch_slice.scale(DEBT_SLICES, 1));
        before.after(arrival.weight.charge(arrival.run_interval)).clamp(floor, ceiling)
    }

    fn dispatched(&mut self, key: Vtime) {
        self.clock_before = self.clock;
        self.clock = self.clock.max(key);
    }

    fn refused(&mut self) {
        self.clock = self.clock_before;
    }

    fn start(&self) -> Vtime {
        self.clock
    }
}

/// Most virtual time a task can owe, in slices. Chosen: 16 slices of 4 ms keep a nice-19 task
/// (weight 1.5) below a twentieth of an equal share and bring it back within the kernel's 5 s
/// watchdog with up to 75 runnable tasks a CPU.
const DEBT_SLICES: u64 = 16;

/// Loses every 100th task it is given. The tests that boot a kernel must fail with it: a test
/// suite that a broken scheduler passes proves nothing.
pub struct Dropping<Q> {
    inner: Q,
    seen: u64,
}

impl<Q: Policy> Dropping<Q> {
    /// One task in this many is lost.
    pub const EVERY: u64 = 100;

    /// Breaks `inner`.
    pub fn new(inner: Q) -> Self {
        Dropping { inner, seen: 0 }
    }
}

impl<Q: Policy> Policy for Dropping<Q> {
    fn on_arrival(&mut self, now: Stamp, arrival: Arrival, view: &MachineView) {
        self.seen += 1;
        if !self.seen.is_multiple_of(Self::EVERY) {
            self.inner.on_arrival(now, arrival, view);
        }
    }

    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch> {
        self.inner.next(now, view)
    }

    fn on_refused(&mut self, dispatch: Dispatch) {
        self.inner.on_refused(dispatch);
    }

    fn on_exit(&mut self, pid: Pid) {
        self.inner.on_exit(pid);
    }

    fn apply(&mut self, knobs: &Knobs) {
        self.inner.apply(knobs);
    }

    fn queued(&self) -> usize {
        self.inner.queued()
    }

    fn has_room(&self) -> bool {
        self.inner.has_room()
    }

    fn oldest_wait(&self, now: Stamp) -> Span {
        self.inner.oldest_wait(now)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn export(&self, keep: &mut dyn FnMut(Memo)) {
        self.inner.export(keep);
    }

    fn import(&mut self, memo: Memo) {
        self.inner.import(memo);
    }
}
