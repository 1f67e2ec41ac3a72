// SPDX-License-Identifier: GPL-2.0-only

//! The PANDEMONIUM policy. Behaviour decides the tier of a task; tier and CPU time used decide its
//! place; age bounds every wait.
//!
//! ```text
//! arrival -> behaviour -> classify -> fair (virtual time) -> queue of its tier
//! next    -> order (whose turn) -> slices -> placement
//! ```
//!
//! Each step is a module and a pure function of state and time; this one joins them.

mod assigned;
mod batch_starvation;
mod behaviour;
pub mod classify;
mod explain;
mod fair;
mod known;
mod learning;
mod order;
mod orders;
pub(crate) mod placement;
mod policy_type;
mod slices;

use self::assigned::Assigned;
use self::batch_starvation::BatchStarvation;
use self::classify::{Classification, Classifier};
use self::fair::{Clock, KeyInput, charge, effective_weight};
use self::known::{NamePrediction, Task, has_just_forked};
use self::learning::program_of;
pub use self::order::LIGHT_WAIT;
use self::order::{Choice, Situation, Turns, choose};
use self::placement::{PlacementContext, Placer};
use self::slices::slice;
use crate::control::detect::Detectors;
use crate::knobs::Knobs;
use crate::scaling::Scaling;
use pandemonium_engine::Mode;
use pandemonium_engine::knobs::Values;
use pandemonium_engine::procdb::{CAPACITY, Minute, ProcDb};
use pandemonium_engine::runqueue::{Runqueue, Slot};
use pandemonium_engine::table::{Class, Entered, TaskTable};
use pandemonium_engine::task::{
    Arrival, Cause, Dispatch, Pid, Reason, Request, Tier, WEIGHT_DEFAULT, Weight,
};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::treatment::{Assignment, Treatment};
use pandemonium_engine::{
    Explaining, KernelRules, Learning, MachineView, Policy, StandingOrders, Waiting,
};
use pandemonium_engine::{Setup, TASKS_MAX};

/// Classes of waiting tasks whose ages are compared: above Batch, Batch, and Batch below the
/// default weight, which is meant to wait longer.
const URGENT: Class = Class::new(0);
const BATCH: Class = Class::new(1);
const LIGHT: Class = Class::new(2);

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
    placer: Placer,
    programs: ProcDb,
    minute: Minute,
    /// Whether the fast path tells the users of tasks.
    sees_users: bool,
    limits: Scaling,
    knobs: Knobs,
    /// New tasks with a name that the process database knew.
    predictions: u64,
    clock: Clock,
    turns: Turns,
    /// Number of times that knobs or assigned processes changed: orders of before are void.
    tunings: u32,
    /// The count of executed orders that `turns` includes.
    passed: u32,
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
            placer: Placer::new(setup),
            programs: ProcDb::new(CAPACITY),
            minute: Minute::default(),
            sees_users: false,
            limits,
            knobs: Knobs::default(),
            predictions: 0,
            clock: Clock::default(),
            turns: Turns::default(),
            tunings: 0,
            passed: 0,
            before: Before::default(),
        }
    }

    /// An unknown task. It starts at the clock, with neither credit nor debt.
    fn newcomer(&self) -> Task {
        Task::at(self.clock.now())
    }

    /// Starts a forked task. It has its parent's name, which predicts nothing about it, so only a
    /// listed name counts. A fork loop's child is part of the loop.
    fn begin_forked(&mut self, slot: Slot, now: Stamp, arrival: &Arrival) {
        let fork_loop = self.note_parent(arrival);
        let name = self.classifier.look_up(&arrival.comm);
        let task = self.table.data_mut(slot);
        task.comm = arrival.comm;
        task.name_prediction = NamePrediction::Inherited;
        task.classification = Classification { fork_loop, ..Classification::of(name) };
        task.behaviour.begin(now, arrival);
    }

    /// Notes the fork with the parent, which is the waker of a task that has never run. Returns
    /// whether the parent is a fork loop.
    fn note_parent(&mut self, arrival: &Arrival) -> bool {
        let parent = arrival.facts.and_then(|facts| self.table.find(facts.waker?));
        parent.is_some_and(|parent| {
            let task = self.table.data_mut(parent);
            task.behaviour.note_fork();
            task.classification.fork_loop
        })
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

    /// Updates the task from its message: CPU time used, behaviour, classification. `since` is the
    /// time since its last message. `treatment` is the number of the treatment of its process.
    fn learn(
        &mut self,
        slot: Slot,
        now: Stamp,
        (arrival, treatment): (&Arrival, u8),
        since: Span,
        running: u32,
    ) {
        self.sees_users |= program_of(arrival).user.is_known();
        let ran = self.account(slot, arrival, running);
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
        self.batch_starvation.on_message(now, before.tier, arrival.cause, since, ran);
        task.behaviour.observe(now, arrival, ran);
        let its = &mut task.classification;
        its.treatment = treatment;
        its.over_share =
            self.batch_starvation.over_share(now, before.over_share, task.behaviour.takes());
        its.update(&task.behaviour, arrival, self.assigned.demand(treatment), knobs);
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
    fn account(&mut self, slot: Slot, arrival: &Arrival, running: u32) -> Span {
        let task = self.table.data_mut(slot);
        let first = task.effective_weight == 0;
        let ran = task.used(arrival);
        if first {
            // CPU time from before the first message is not charged.
            return arrival.run_interval;
        }
        let weight = u64::from(task.effective_weight);
        task.vruntime = task.vruntime.after(charge(ran, weight));
        // Only the number of running tasks is known: each counts with this task's weight.
        let waiting: u64 = self.waiting_weight.iter().sum();
        let contenders = waiting + u64::from(running.max(1)) * weight;
        let neediest = self.queues[Tier::Batch.index()].peek().map(|(_, key)| key);
        self.clock.advance(ran, contenders.max(weight), neediest);
        ran
    }

    /// Puts the task into the queue of its tier. Returns the class in which its age counts.
    fn enqueue(&mut self, now: Stamp, slot: Slot) -> Class {
        let task = self.table.data_mut(slot);
        let tier = task.classification.tier;
        let key_input = KeyInput {
            vruntime: task.vruntime,
            awake: task.behaviour.awake(),
            weight: task.weight,
            tier,
            wake_freq: task.behaviour.wake_freq(),
            depth: self.queues[tier.index()].len(),
        };
        let place = self.clock.place(&key_input, &self.limits, &self.knobs);
        task.vruntime = place.vruntime;
        self.waiting_weight[tier.index()] += u64::from(task.effective_weight);
        let class = match tier {
            Tier::Batch if task.weight.get() < u64::from(WEIGHT_DEFAULT) => LIGHT,
            Tier::Batch => BATCH,
            _ => URGENT,
        };
        self.queues[tier.index()].insert(slot, place.key);
        self.detectors.on_batch(now, self.batch_waits());
        class
    }

    fn batch_waits(&self) -> bool {
        !self.queues[Tier::Batch.index()].is_empty()
    }

    /// Takes the task out of its queue. Returns its key there.
    fn dequeue(&mut self, slot: Slot) -> Vtime {
        let task = self.table.data(slot);
        let queue = task.classification.tier.index();
        self.waiting_weight[queue] -= u64::from(task.effective_weight);
        self.queues[queue].remove(slot).expect("a waiting task is in the queue of its tier")
    }

    /// How long a Batch task waits for its fair turn: the Batch slice, scaled by the weight of all
    /// Batch tasks over its own, spread over the CPUs; at most [`LIGHT_WAIT`].
    fn batch_turn(&self, slot: Slot) -> Span {
        let cpus = u64::from(self.limits.cpus);
        let contenders = self.waiting_weight[Tier::Batch.index()] + cpus * self.batch_weight;
        let weight = u64::from(self.table.data(slot).effective_weight.max(1));
        self.knobs.batch_slice.scale(contenders, weight * cpus).min(LIGHT_WAIT)
    }

    /// Which classes wait, and for how much longer than their fair turn.
    fn situation(&self, now: Stamp) -> Situation {
        let waiting = |tier: Tier| self.queues[tier.index()].len();
        let urgent = waiting(Tier::LatCritical) + waiting(Tier::Interactive);
        let urgent_turn = self.knobs.slice.scale(urgent as u64, u64::from(self.limits.cpus));
        let age = |class, turn: &dyn Fn(Slot) -> Span| {
            let oldest = self.table.oldest_of(class)?;
            Some(self.table.waited(oldest, now) - turn(oldest))
        };
        let batch_turn = |slot| urgent_turn + self.batch_turn(slot);
        Situation {
            lat_critical: waiting(Tier::LatCritical) > 0,
            interactive: waiting(Tier::Interactive) > 0,
            batch: self.batch_waits(),
            urgent_age: age(URGENT, &|_| urgent_turn),
            batch_age: age(BATCH, &batch_turn),
            light_age: age(LIGHT, &batch_turn),
        }
    }

    /// Picks the next task and the reason. Changes nothing.
    fn pick(&self, context: &PlacementContext) -> Option<(Slot, Reason)> {
        let oldest = self.table.oldest()?;
        if self.knobs.rules.fifo_mode && context.view.running < context.view.cpus {
            return Some((oldest, Reason::Fifo));
        }
        let situation = self.situation(context.now);
        let (choice, reason) =
            choose(&situation, &self.turns, context.mode, &self.limits, &self.knobs)?;
        let slot = match choice {
            Choice::First(Tier::LatCritical) => {
                self.queues[Tier::LatCritical.index()].peek().map(|(slot, _)| slot)
            }
            Choice::First(tier) => {
                let last_cpu = |slot| self.table.request(slot).map(|request| request.cpu);
                self.placer.nearest(&self.queues[tier.index()], context, last_cpu)
            }
            Choice::OldestUrgent => self.table.oldest_of(URGENT),
            Choice::OldestBatch => self.table.oldest_of(BATCH),
            Choice::OldestLight => self.table.oldest_of(LIGHT),
        };
        slot.map(|slot| (slot, reason))
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
        let knobs = self.assigned.knobs(task.classification.treatment, context.knobs);
        let slice = slice(&task.need(&knobs), context.mode, &knobs);
        let is_fresh = task.is_fresh(context.knobs);
        let key = context.now + self.key_offset(slice, tier, is_fresh);
        let (placement, preempt) = self.placer.place(request, tier, context);
        self.placer.note(placement, tier, slice, context);
        Dispatch {
            pid: request.pid,
            ticket: request.ticket,
            placement,
            slice,
            vtime: Vtime::from_raw(key.as_nanos()),
            tier,
            preempt,
            reason,
            order: None,
        }
    }
}

impl Policy for Pandemonium {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, view: &MachineView) {
        let (arrival, treatment) = self.assigned.treat(arrival);
        self.detectors.on_enqueue(now, arrival.cause, &self.knobs.rules);
        self.detectors.on_batch(now, self.batch_waits());
        let (slot, since) = match self.table.enter(now, arrival) {
            Entered::Replaced(slot) if arrival.cause == Cause::New => {
                // The pid was reused while its last owner waited: the new task inherits that age.
                self.dequeue(slot);
                *self.table.data_mut(slot) = self.newcomer();
                self.learn(slot, now, (&arrival, treatment), Span::ZERO, view.running);
                self.enqueue(now, slot);
                return;
            }
            Entered::Replaced(_) => return,
            Entered::New(slot) => {
                *self.table.data_mut(slot) = self.newcomer();
                (slot, Span::ZERO)
            }
            Entered::Known(slot, since) => (slot, since),
        };
        self.learn(slot, now, (&arrival, treatment), since, view.running);
        let class = self.enqueue(now, slot);
        self.table.classify(slot, class);
    }

    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch> {
        self.detectors.on_batch(now, self.batch_waits());
        self.note_passed(view.passed);
        let (limits, knobs) = (self.limits, self.knobs);
        let mode = self.mode(now);
        let context = PlacementContext { now, view, mode, limits: &limits, knobs: &knobs };
        let (slot, reason) = self.pick(&context)?;
        self.before =
            Before { turns: self.turns, batch_weight: self.batch_weight, key: self.dequeue(slot) };
        let tier = self.table.data(slot).classification.tier;
        if tier == Tier::Batch {
            let weight = u64::from(self.table.data(slot).effective_weight);
            self.batch_weight = (self.batch_weight * 7 + weight).div_ceil(8);
        }
        self.turns = self.turns.after(tier, reason, self.batch_waits());
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
        let waiting = self.queues[Tier::Batch.index()].len();
        let ordinary = effective_weight(Weight::default(), Tier::Batch);
        let all_ordinary = self.waiting_weight[Tier::Batch.index()] == waiting as u64 * ordinary;
        let few = waiting <= 2 * self.limits.cpus as usize;
        sent.tier > Tier::Batch || sent.order.is_some() && few && all_ordinary
    }

    /// Dispatches all urgent tasks in one round, so that none waits for the round trip of another.
    fn wants_more(&self) -> bool {
        let waits = |tier: Tier| !self.queues[tier.index()].is_empty();
        waits(Tier::LatCritical) || waits(Tier::Interactive)
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

    fn tune(&mut self, values: &Values) {
        self.knobs = Knobs::of(values);
        self.tunings = self.tunings.wrapping_add(1);
    }

    fn assign(&mut self, treatments: &[Treatment], processes: &[Assignment]) {
        self.assigned.replace(treatments, processes);
        self.tunings = self.tunings.wrapping_add(1);
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
