// SPDX-License-Identifier: GPL-2.0-only

//! Policies to compare with: [`Fifo`] and [`Vruntime`] are the least that one could do,
//! [`Dropping`] is wrong on purpose.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use pandemonium_engine::TASKS_MAX;
use pandemonium_engine::adapting::Adapting;
use pandemonium_engine::knobs::{KeySet, Kind, KnobProfile, Table, Values};
use pandemonium_engine::placement::{PlaceRules, usual_place};
use pandemonium_engine::registry::{Bounds, Counter};
use pandemonium_engine::runqueue::Runqueue;
use pandemonium_engine::table::{Entered, TaskTable};
use pandemonium_engine::task::{Arrival, Dispatch, Pid, Tier};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::topology::Topology;
use pandemonium_engine::treatment::{Assignment, Treatment};
use pandemonium_engine::{
    Explaining, KernelRules, Learning, MachineView, Mode, Policy, PolicyType, Setup,
    StandingOrders, Waiting,
};

/// The knobs of every [`Reference`] policy.
pub static TABLE: Table = Table::new(&[ReferenceKnobs::KNOBS]);

pandemonium_engine::knobs! {
    /// The knobs of a [`Reference`] policy.
    pub struct ReferenceKnobs {
        /// Slice of every task.
        "slice_us" | "batch_slice_us": slice: Span = Span::from_millis(4),
            Kind::micros(100, 100_000);
        /// A running task may be interrupted for one that wakes up.
        "rule.preempt": preempt: bool = true, Kind::Switch;
        /// Tasks bound to one CPU go into its own queue.
        "percpu_local": percpu_local: bool = false, Kind::Switch;
    }
}

impl ReferenceKnobs {
    fn place_rules(&self) -> PlaceRules {
        PlaceRules { preempt: self.preempt, bound_local: self.percpu_local }
    }
}

/// How a [`Reference`] policy orders tasks.
pub trait Ordering: Default + Send + 'static {
    /// What the policy is called.
    const NAME: &'static str;
    /// What it does, in one line.
    const ABOUT: &'static str;

    /// The key of a task that arrives, given the key it had before.
    fn key(&mut self, before: Vtime, arrival: &Arrival, knobs: &ReferenceKnobs) -> Vtime;
    /// The task with this key was dispatched.
    fn dispatched(&mut self, _key: Vtime) {}
    /// The port refused the dispatch that was just made.
    fn refused(&mut self) {}
    /// Where a task starts that was never seen before.
    fn start(&self) -> Vtime;
}

/// First come, first served.
pub type Fifo = Reference<ByArrival>;
/// Weighted fair order: the task with the least CPU time for its weight goes first.
pub type Vruntime = Reference<ByVruntime>;

/// One queue in one order, every task with the same slice.
pub struct Reference<O> {
    table: TaskTable<Vtime>,
    queue: Runqueue,
    order: O,
    knobs: ReferenceKnobs,
}

impl<O: Ordering> Default for Reference<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Ordering> Reference<O> {
    /// An empty queue.
    pub fn new() -> Self {
        Reference {
            table: TaskTable::new(TASKS_MAX),
            queue: Runqueue::new(TASKS_MAX),
            order: O::default(),
            knobs: ReferenceKnobs::default(),
        }
    }
}

impl<O: Ordering> Policy for Reference<O> {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, _view: &MachineView) {
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
        let request = self.table.leave(slot);
        let (placement, preempt) = usual_place(&request, view, self.knobs.place_rules());
        let plain = request.dispatch(view, Tier::default(), self.knobs.slice, key);
        Some(Dispatch { placement, preempt, ..plain })
    }

    fn refused(&mut self, dispatch: Dispatch) {
        self.order.refused();
        self.table.put_back(&dispatch, &mut self.queue);
    }

    fn exit(&mut self, pid: Pid) {
        self.table.remove(pid, &mut self.queue);
    }

    fn waiting(&self) -> &dyn Waiting {
        &self.table
    }

    fn tune(&mut self, values: &Values) {
        self.knobs = ReferenceKnobs::of(values);
    }

    fn kernel_rules(&self, _now: Stamp) -> KernelRules {
        KernelRules { preempt: self.knobs.preempt, ..KernelRules::default() }
    }
}

impl<O: Ordering> PolicyType for Reference<O> {
    const NAME: &'static str = O::NAME;
    const ABOUT: &'static str = O::ABOUT;
    const KNOBS: &'static Table = &TABLE;

    fn new(_setup: &Setup) -> Self {
        Reference::new()
    }

    fn bounds(_cpus: u32, values: &Values) -> Bounds {
        Bounds { wait: None, slice: ReferenceKnobs::of(values).slice.scale(5, 4) }
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
    const NAME: &'static str = "fifo";
    const ABOUT: &'static str = "First come, first served";

    fn key(&mut self, _before: Vtime, _arrival: &Arrival, _knobs: &ReferenceKnobs) -> Vtime {
        self.last = self.last.after(Span::from_nanos(1));
        self.last
    }

    fn start(&self) -> Vtime {
        self.last
    }
}

/// CPU time divided by weight.
pub struct ByVruntime {
    /// The virtual time of the task dispatched last, never going back.
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
    const NAME: &'static str = "vruntime";
    const ABOUT: &'static str = "Plain weighted fair order";

    /// A sleeper gets at most one slice of credit, else it would own the CPU for as long as it
    /// had slept. A task owes at most [`DEBT_SLICES`], else a light one that ran on an idle
    /// machine would starve when the machine gets busy.
    fn key(&mut self, before: Vtime, arrival: &Arrival, knobs: &ReferenceKnobs) -> Vtime {
        let floor = self.clock.before(knobs.slice);
        let ceiling = self.clock.after(knobs.slice.scale(DEBT_SLICES, 1));
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

/// Loses every 100th task it is given, for good. The tests that boot a kernel must fail with it: a
/// test suite that a broken scheduler passes proves nothing.
pub struct Dropping<Q> {
    inner: Q,
    seen: u64,
    /// Until they exit. The kernel's side runs a lost task in each stall of the scheduling process,
    /// which gives it one slice.
    lost: BTreeSet<Pid>,
}

impl<Q: Policy> Dropping<Q> {
    /// One task in this many is lost.
    pub const EVERY: u64 = 100;

    /// Breaks `inner`.
    pub fn new(inner: Q) -> Self {
        Dropping { inner, seen: 0, lost: BTreeSet::new() }
    }
}

impl<Q: Policy> Policy for Dropping<Q> {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, view: &MachineView) {
        let pid = arrival.pid;
        self.seen += 1;
        if self.seen.is_multiple_of(Self::EVERY) {
            self.lost.insert(pid);
        }
        if !self.lost.contains(&pid) {
            self.inner.arrive(now, arrival, view);
        }
    }

    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch> {
        self.inner.next(now, view)
    }

    fn wants_more(&self) -> bool {
        self.inner.wants_more()
    }

    fn sends_along(&self, sent: &Dispatch) -> bool {
        self.inner.sends_along(sent)
    }

    fn refused(&mut self, dispatch: Dispatch) {
        self.inner.refused(dispatch);
    }

    fn exit(&mut self, pid: Pid) {
        self.lost.remove(&pid);
        self.inner.exit(pid);
    }

    fn waiting(&self) -> &dyn Waiting {
        self.inner.waiting()
    }

    fn tune(&mut self, values: &Values) {
        self.inner.tune(values);
    }

    fn kernel_rules(&self, now: Stamp) -> KernelRules {
        self.inner.kernel_rules(now)
    }

    fn mode(&self, now: Stamp) -> Mode {
        self.inner.mode(now)
    }

    fn count(&self, counters: &mut [u64]) {
        self.inner.count(counters);
    }

    fn assign(&mut self, treatments: &[Treatment], processes: &[Assignment]) {
        self.inner.assign(treatments, processes);
    }

    fn follow_topology(&mut self, topology: &Topology) {
        self.inner.follow_topology(topology);
    }

    fn learning(&mut self) -> Option<&mut dyn Learning> {
        self.inner.learning()
    }

    fn explaining(&self) -> Option<&dyn Explaining> {
        self.inner.explaining()
    }

    fn orders(&self) -> Option<&dyn StandingOrders> {
        self.inner.orders()
    }
}

impl<Q: PolicyType> PolicyType for Dropping<Q> {
    const NAME: &'static str = "dropping";
    const ABOUT: &'static str = "Loses every 100th task: the checkers must notice";
    const KNOBS: &'static Table = Q::KNOBS;
    const PROFILES: &'static [KnobProfile] = Q::PROFILES;
    const COUNTERS: &'static [Counter] = Q::COUNTERS;
    const HIDDEN: bool = true;

    fn new(setup: &Setup) -> Self {
        Dropping::new(Q::new(setup))
    }

    fn adapting(cpus: u32, start: Values, chosen: KeySet) -> Box<dyn Adapting> {
        Q::adapting(cpus, start, chosen)
    }

    fn bounds(cpus: u32, values: &Values) -> Bounds {
        Q::bounds(cpus, values)
    }
}
