// SPDX-License-Identifier: GPL-2.0-only

//! The PANDEMONIUM policy. Behaviour decides the tier of a task; tier and CPU time used decide its
//! place; age bounds every wait.
//!
//! ```text
//! arrival -> behaviour -> classify -> fair (virtual time) -> queue of its tier
//! next    -> dispatch order -> slice -> DSQ key -> placement
//! ```
//!
//! Each step is a module, and this one joins them. `dispatch_order`, `slices`, `dsq_key` and
//! `share` are pure functions of their arguments; `pick` and `explain` read the policy and change
//! nothing. `behaviour`, `classify`, `known`, `forks`, `fair`, `placement`, `assigned`,
//! `batch_starvation` and `crowd` each keep some state, which messages, dispatches or the user
//! change, and answer by that state and their arguments alone. `learning`, `hotplug` and
//! `charge_deficit` in `standing_orders` change the policy itself. No module reads a clock: time is
//! an argument.

mod assigned;
mod batch_starvation;
mod behaviour;
pub mod classify;
mod crowd;
mod dispatch_order;
mod dsq_key;
mod explain;
mod fair;
mod forks;
mod hotplug;
mod known;
mod learning;
mod pick;
pub(crate) mod placement;
mod policy_type;
mod share;
mod slices;
mod standing_orders;

use self::assigned::Assigned;
use self::batch_starvation::{BatchStarvation, Use};
pub use self::behaviour::SLEEP_LONG;
use self::classify::Classifier;
use self::crowd::Crowd;
pub use self::dispatch_order::LOW_WEIGHT_WAIT;
use self::dispatch_order::{Group, Turns};
use self::dsq_key::key_offset;
use self::fair::{Clock, KeyInput, charge, effective_weight, ordinary_batch_weight};
use self::forks::has_just_forked;
use self::known::{NamePrediction, Rank, Task};
use self::learning::program_of;
use self::placement::{PlacementContext, Placer};
use self::slices::slice;
use crate::control::detect::Detectors;
use crate::knobs::Knobs;
use crate::scaling::Scaling;
use pandemonium_engine::Mode;
use pandemonium_engine::knobs::Values;
use pandemonium_engine::procdb::{CAPACITY, Minute, ProcDb};
use pandemonium_engine::runqueue::{Runqueue, Slot};
use pandemonium_engine::table::{Entered, TaskTable};
use pandemonium_engine::task::{
    Arrival, Cause, Dispatch, Pid, Reason, Request, Tier, WEIGHT_DEFAULT,
};
use pandemonium_engine::time::{ShortSpan, Span, Stamp, Vtime};
use pandemonium_engine::topology::Topology;
use pandemonium_engine::treatment::{Assignment, Treatment};
use pandemonium_engine::{
    Explaining, KernelRules, Learning, MachineView, Policy, StandingOrders, Waiting,
};
use pandemonium_engine::{Setup, TASKS_MAX};

/// The policy.
pub struct Pandemonium {
    table: TaskTable<Task>,
    /// One queue a tier, in the order of [`Tier::ALL`].
    queues: [Runqueue; 3],
    /// Weight of all tasks in each queue.
    waiting_weight: [u64; 3],
    /// Average weight of the Batch tasks dispatched lately.
    batch_weight: u64,
    classifier: Classifier,
    assigned: Assigned,
    detectors: Detectors,
    batch_starvation: BatchStarvation,
    crowd: Crowd,
    placer: Placer,
    programs: ProcDb,
    minute: Minute,
    /// Whether the fast path tells the users of tasks.
    sees_users: bool,
    limits: Scaling,
    /// CPUs online at the last message; `None` before the first one.
    online: Option<u32>,
    knobs: Knobs,
    /// New tasks with a name that the process database knew.
    predictions: u64,
    clock: Clock,
    turns: Turns,
    /// Number of times that knobs or assigned processes changed: orders of before end.
    tunings: u32,
    /// The sum of the deficit that orders made, as far as `turns` includes it.
    order_deficit: u32,
    before: Before,
}

/// The state before the last decision, restored if the port refuses it.
#[derive(Clone, Copy, Default)]
struct Before {
    turns: Turns,
    batch_weight: u64,
    /// The place of the task in its queue.
    key: Vtime,
}

impl Pandemonium {
    /// A policy for a machine and a user's wishes.
    pub fn new(setup: &Setup) -> Self {
        let limits = Scaling::new(setup.cpus);
        Pandemonium {
            table: TaskTable::new(TASKS_MAX),
            queues: [(); 3].map(|()| Runqueue::new(TASKS_MAX)),
            waiting_weight: [0; 3],
            batch_weight: u64::from(WEIGHT_DEFAULT),
            classifier: Classifier::new(&setup.names),
            assigned: Assigned::default(),
            detectors: Detectors::new(limits.burst_wakeups),
            batch_starvation: BatchStarvation::new(setup.cpus),
            crowd: Crowd::new(setup.cpus),
            placer: Placer::new(setup),
            programs: ProcDb::new(CAPACITY),
            minute: Minute::default(),
            sees_users: false,
            limits,
            online: None,
            knobs: Knobs::default(),
            predictions: 0,
            clock: Clock::default(),
            turns: Turns::default(),
            tunings: 0,
            order_deficit: 0,
            before: Before::default(),
        }
    }

    /// An unknown task. It starts at the clock, with neither credit nor debt.
    fn newcomer(&self) -> Task {
        Task { vruntime: self.clock.now(), ..Task::default() }
    }

    /// Whether to apply the task's name: it is new, or inherited and the task has now slept or used
    /// a slice. Earlier, a pool's new worker would count as a hog because the old ones are.
    fn gets_name(&self, slot: Slot, arrival: &Arrival) -> bool {
        let task = self.table.data(slot);
        let is_young = arrival.facts.is_some_and(|facts| facts.cpu_time < self.knobs.slice);
        let too_soon = arrival.cause == Cause::Requeue && is_young;
        task.comm != arrival.comm || task.name_prediction == NamePrediction::Inherited && !too_soon
    }

    /// Applies a new name ([`Task::begin_as`]).
    fn rename(&mut self, slot: Slot, now: Stamp, arrival: &Arrival) -> bool {
        let known = self.programs.predict(&program_of(arrival)).filter(|_| self.knobs.rules.procdb);
        let name = self.classifier.look_up(&arrival.comm);
        self.predictions += u64::from(known.is_some());
        self.table.data_mut(slot).begin_as(now, arrival, name, known)
    }

    /// Starts a forked task ([`Task::begin_forked`]), and notes the fork with the parent, which is
    /// the waker of a task that has never run. A fork loop's child is part of the loop.
    fn begin_forked(&mut self, slot: Slot, now: Stamp, arrival: &Arrival) {
        let parent = arrival.facts.and_then(|facts| self.table.find(facts.waker?));
        let fork_loop = parent.is_some_and(|parent| {
            let task = self.table.data_mut(parent);
            task.behaviour.forks.note();
            task.classification.fork_loop
        });
        let name = self.classifier.look_up(&arrival.comm);
        self.table.data_mut(slot).begin_forked(now, arrival, name, fork_loop);
    }

    /// Updates the task from its message: CPU time used, behaviour, classification. `since` is the
    /// time since its last message. `treatment` is the number of the treatment of its process.
    fn learn(
        &mut self,
        slot: Slot,
        now: Stamp,
        (arrival, treatment): (&Arrival, u8),
        since: Span,
        view: &MachineView,
    ) {
        self.sees_users |= program_of(arrival).user.is_known();
        let ran = self.account(slot, arrival, view);
        let again;
        let mut arrival = arrival;
        if has_just_forked(arrival) {
            self.begin_forked(slot, now, arrival);
        } else if self.gets_name(slot, arrival) && self.rename(slot, now, arrival) {
            // New to the table, but not to the kernel: it has woken up before.
            again = Arrival { cause: Cause::Wakeup, ..*arrival };
            arrival = &again;
        }
        let knobs = &self.knobs;
        let task = self.table.data_mut(slot);
        let before = task.classification;
        let is_behind = self.clock.is_far_ahead_of(task.vruntime);
        let given_by = || self.assigned.knobs(before.treatment, knobs);
        task.note_end(arrival.cause, ran, is_behind, given_by);
        let (tier, share) = (before.tier, task.behaviour.share());
        let used = Use { tier, cause: arrival.cause, since, ran, share };
        self.batch_starvation.on_message(now, &used);
        self.crowd.on_message(now, tier, before.in_crowd, ran);
        task.behaviour.observe(now, arrival, since, ran);
        let its = &mut task.classification;
        its.treatment = treatment;
        let share = task.behaviour.share();
        its.over_share =
            self.batch_starvation.over_share(now, before.over_share, before.tier, share);
        its.in_crowd = self.crowd.holds(before.in_crowd, share);
        its.update(now, &task.behaviour, arrival, self.assigned.demand(treatment), knobs);
        let turned = its.cpu_bound && !before.cpu_bound;
        task.weight = arrival.weight;
        task.effective_weight = effective_weight(arrival.weight, its.tier) as u16;
        // A mature task teaches once a minute. A task that turns into a hog earlier teaches at
        // once, since it may exit before it matures.
        let mature = task.behaviour.is_mature();
        if arrival.cause == Cause::Wakeup && mature || turned && !mature {
            self.tell_programs(slot, arrival);
        }
    }

    /// Charges the task for the CPU time since its last message, and advances the clock.
    fn account(&mut self, slot: Slot, arrival: &Arrival, view: &MachineView) -> Span {
        let task = self.table.data_mut(slot);
        let first = task.effective_weight == 0;
        let ran = task.used(arrival);
        if first {
            // CPU time from before the first message is not charged.
            return arrival.run_interval;
        }
        let weight = u64::from(task.effective_weight);
        task.vruntime = task.vruntime.after(charge(ran, weight));
        // Of tasks that run or were decided only the number is known: each counts with this task's
        // weight.
        let waiting: u64 = self.waiting_weight.iter().sum();
        let others = u64::from(view.running.max(1)) + u64::from(view.queued);
        let contenders = waiting + others * weight;
        let neediest = self.queues[Tier::Batch.index()].peek().map(|(_, key)| key);
        self.clock.advance(ran, contenders.max(weight), neediest);
        ran
    }

    /// Puts the task into the queue of its tier. Returns the group in which its age counts.
    fn enqueue(&mut self, now: Stamp, slot: Slot) -> Group {
        let task = self.table.data_mut(slot);
        let tier = task.classification.tier;
        let key_input = KeyInput {
            vruntime: task.vruntime,
            awake: task.behaviour.awake(),
            weight: task.weight,
            tier,
            wake_freq: task.behaviour.wake_freq(),
            kept: task.kept_credit(),
            depth: self.queues[tier.index()].len(),
        };
        let place = self.clock.place(&key_input, &self.limits, &self.knobs);
        task.vruntime = place.vruntime;
        self.waiting_weight[tier.index()] += u64::from(task.effective_weight);
        let group = Group::of(tier, task.weight);
        self.queues[tier.index()].insert(slot, place.key);
        self.detectors.longrun.observe(now, self.batch_waits());
        group
    }

    fn waiting_in(&self, tier: Tier) -> usize {
        self.queues[tier.index()].len()
    }

    fn batch_waits(&self) -> bool {
        self.waiting_in(Tier::Batch) > 0
    }

    /// Takes the task out of its queue. Returns its key there.
    fn dequeue(&mut self, slot: Slot) -> Vtime {
        let task = self.table.data(slot);
        let queue = task.classification.tier.index();
        self.waiting_weight[queue] -= u64::from(task.effective_weight);
        self.queues[queue].remove(slot).expect("a waiting task is in the queue of its tier")
    }

    /// Whether the task stays in its queue, where virtual time orders it. A Batch task that was
    /// picked as the next one does while as many decided tasks wait as there are CPUs: further ones
    /// would take turns in the backend's queue, which is in the order of time, whatever their
    /// weights.
    fn holds_back(&self, (slot, reason): (Slot, Reason), view: &MachineView) -> bool {
        let task = self.table.data(slot);
        let is_batch = task.classification.tier == Tier::Batch;
        let waits = is_batch && task.rank(&self.knobs) != Rank::First;
        let enough = view.queued >= view.cpus.max(1);
        waits && reason == Reason::Order && enough && !self.batch_takes_turns()
    }

    /// Whether few Batch tasks wait, and all have the ordinary weight: they take turns by orders.
    fn batch_takes_turns(&self) -> bool {
        let waiting = self.waiting_in(Tier::Batch);
        let few = waiting <= 2 * self.limits.cpus as usize;
        let ordinary = waiting as u64 * ordinary_batch_weight();
        few && self.waiting_weight[Tier::Batch.index()] == ordinary
    }

    fn dispatch(
        &mut self,
        slot: Slot,
        request: &Request,
        reason: Reason,
        context: &PlacementContext,
    ) -> Dispatch {
        let task = self.table.data(slot);
        let tier = task.classification.tier;
        let treatment = task.classification.treatment;
        let knobs = self.assigned.knobs(treatment, context.knobs);
        let slice = slice(&task.need(&knobs), context.mode, &knobs);
        let rank = task.rank(context.knobs);
        let key = context.now + key_offset(slice, tier, rank, context.limits, context.knobs);
        let domain = self.assigned.domain(treatment);
        let is_lone_wakee =
            || task.behaviour.awake() == Span::ZERO && self.queues.iter().all(Runqueue::is_empty);
        let placed = self.placer.place(request, tier, domain, context, is_lone_wakee);
        self.placer.note(placed.placement, tier, slice, context);
        Dispatch {
            pid: request.pid,
            ticket: request.ticket,
            placement: placed.placement,
            slice,
            vtime: Vtime::from_raw(key.as_nanos()),
            tier,
            preempt: placed.kick,
            reason,
            order: None,
        }
    }
}

impl Policy for Pandemonium {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, view: &MachineView) {
        self.follow_cpus(view.cpus);
        let (arrival, treatment) = self.assigned.treat(arrival);
        self.detectors.burst.on_enqueue(now, arrival.cause, &self.knobs.rules);
        self.detectors.longrun.observe(now, self.batch_waits());
        let (slot, since) = match self.table.enter(now, arrival) {
            // The pid was reused while its last owner waited.
            Entered::Replaced(slot) if arrival.cause == Cause::New => {
                self.dequeue(slot);
                (slot, None)
            }
            Entered::Replaced(_) => return,
            Entered::New(slot) => (slot, None),
            Entered::Known(slot, since) => (slot, Some(since)),
        };
        if since.is_none() {
            *self.table.data_mut(slot) = self.newcomer();
        }
        let since = since.unwrap_or_default();
        self.learn(slot, now, (&arrival, treatment), since, view);
        let group = self.enqueue(now, slot);
        self.table.classify(slot, group.class());
    }

    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch> {
        self.detectors.longrun.observe(now, self.batch_waits());
        self.charge_deficit(view.order_deficit);
        let (limits, knobs) = (self.limits, self.knobs);
        let mode = self.mode(now);
        let context = PlacementContext { now, view, mode, limits: &limits, knobs: &knobs };
        let (slot, reason) = self.pick(&context).filter(|it| !self.holds_back(*it, view))?;
        self.before =
            Before { turns: self.turns, batch_weight: self.batch_weight, key: self.dequeue(slot) };
        let tier = self.table.data(slot).classification.tier;
        if tier == Tier::Batch {
            let weight = u64::from(self.table.data(slot).effective_weight);
            self.batch_weight = (self.batch_weight * 7 + weight).div_ceil(8);
        }
        self.turns = self.turns.after(tier, reason, self.batch_waits());
        let task = self.table.data_mut(slot);
        task.credit = ShortSpan::of(self.clock.credit(task.vruntime));
        let request = self.table.leave(slot);
        Some(self.dispatch(slot, &request, reason, &context))
    }

    /// Dispatches a successor along with an urgent task, so that its CPU need not ask again when
    /// the urgent task sleeps. Without it each wakeup costs one more run of the scheduler process.
    ///
    /// Batch tasks with an order go together, while few of them wait: then they take turns without
    /// the process. No Batch task waits behind more than two slices that were decided before it.
    /// Tasks of other weights are decided one at a time, by virtual time.
    fn sends_along(&self, sent: &Dispatch) -> bool {
        sent.tier > Tier::Batch || sent.order.is_some() && self.batch_takes_turns()
    }

    /// Dispatches all urgent tasks in one round, so that none waits for the round trip of another.
    fn wants_more(&self) -> bool {
        self.waiting_in(Tier::LatCritical) + self.waiting_in(Tier::Interactive) > 0
    }

    fn refused(&mut self, dispatch: Dispatch) {
        let Some(slot) = self.table.come_back(dispatch.pid) else { return };
        let task = self.table.data(slot);
        let queue = task.classification.tier.index();
        let Before { turns, batch_weight, key } = self.before;
        self.queues[queue].put_back(slot, key);
        self.waiting_weight[queue] += u64::from(task.effective_weight);
        self.placer.forget();
        (self.turns, self.batch_weight) = (turns, batch_weight);
    }

    fn exit(&mut self, pid: Pid) {
        if let Some(slot) = self.table.waiting(pid) {
            self.dequeue(slot);
        }
        self.table.forget(pid);
    }

    fn waiting(&self) -> &dyn Waiting {
        &self.table
    }

    fn urgent_wait(&self, now: Stamp) -> Span {
        self.longest_wait(now, Group::Urgent).unwrap_or_default()
    }

    fn tune(&mut self, values: &Values) {
        self.knobs = Knobs::of(values);
        self.tunings = self.tunings.wrapping_add(1);
    }

    fn assign(&mut self, treatments: &[Treatment], processes: &[Assignment]) {
        self.assigned.replace(treatments, processes);
        self.tunings = self.tunings.wrapping_add(1);
    }

    fn follow_topology(&mut self, topology: &Topology) {
        self.placer.follow_topology(topology);
    }

    fn kernel_rules(&self, now: Stamp) -> KernelRules {
        KernelRules {
            wakes_idle: !self.knobs.rules.low_power,
            preempt: self.knobs.rules.preempt,
            hand_off: self.knobs.rules.sync_wakeups,
            preempt_thresh: self.knobs.preempt_thresh,
            burst: self.mode(now).burst,
            batch_slice: self.knobs.batch_slice,
            idle_slice: self.knobs.slice_min,
            performance: [
                self.knobs.batch_perf,
                self.knobs.interactive_perf,
                self.knobs.lat_critical_perf,
            ],
        }
    }

    fn mode(&self, now: Stamp) -> Mode {
        self.detectors.mode(now, &self.knobs.rules)
    }

    fn count(&self, counters: &mut [u64]) {
        counters[0] = self.predictions;
    }

    fn learning(&mut self) -> Option<&mut dyn Learning> {
        Some(self)
    }

    fn explaining(&self) -> Option<&dyn Explaining> {
        Some(self)
    }

    fn orders(&self) -> Option<&dyn StandingOrders> {
        (self.knobs.gives_orders() && !self.placer.has_domain()).then_some(self)
    }
}
