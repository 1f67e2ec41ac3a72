// SPDX-License-Identifier: GPL-2.0-only

//! The PANDEMONIUM policy: tiers by behaviour, fair inside a tier, nobody forgotten.
//!
//! Each tier has a queue, ordered by deadline: when a task arrived, plus the patience of its tier,
//! plus or minus what it has had too much or too little. The most urgent tier goes first, with two
//! exceptions that keep the others alive. *Deficit*: after so many decisions for more urgent tiers
//! a tier gets one. *Rescue*: at most every other decision goes to whoever has waited longest, if
//! that is longer than the starvation limit and its turn in the crowd explain.
//!
//! The kernel orders its queues by the same deadline, so the order holds for the few tasks that
//! wait there too.

use super::classify::{Classifier, Habit};
use super::scaling::Scaling;
use super::{Order, TASKS_MAX, dispatch};
use crate::engine::{Counters, Knobs, MachineView, Memo, Policy};
use crate::runqueue::{Runqueue, Slot};
use crate::table::{Entered, TaskTable};
use crate::task::{Arrival, Cause, Comm, Dispatch, Pid, Tier};
use crate::time::{Span, Stamp, Vtime};

/// What is kept about each task.
#[derive(Clone, Copy, Default)]
struct Task {
    habit: Habit,
    /// Weighted CPU time used, compared with [`Pandemonium::clock`].
    vruntime: Vtime,
}

/// The policy. See the module.
pub struct Pandemonium {
    table: TaskTable<Task>,
    /// One queue a tier, in the order of [`Tier::ALL`].
    queues: [Runqueue; 3],
    classifier: Classifier,
    scaling: Scaling,
    knobs: Knobs,
    counters: Counters,
    /// Virtual time of the machine: follows the tasks that are dispatched.
    clock: Vtime,
    turns: Turns,
    /// Clock and turns before the last decision, for the case that it is refused.
    before: (Vtime, Turns),
}

/// Whose turn it is, as far as that does not follow from who waits.
#[derive(Clone, Copy, Default)]
struct Turns {
    /// Decisions for more urgent tiers since each tier, while it waited, was served last.
    passed: [u32; 3],
    /// Whether the last decision was a rescue.
    rescued: bool,
}

impl Pandemonium {
    /// A policy for a machine with `cpus` CPUs that treats the names in `compositors` as it does
    /// the built-in ones.
    pub fn new(cpus: u32, compositors: &[Comm]) -> Self {
        Pandemonium {
            table: TaskTable::new(TASKS_MAX),
            queues: [(); 3].map(|()| Runqueue::new(TASKS_MAX)),
            classifier: Classifier::new(compositors),
            scaling: Scaling::new(cpus),
            knobs: Knobs::default(),
            counters: Counters::default(),
            clock: Vtime::START,
            turns: Turns::default(),
            before: (Vtime::START, Turns::default()),
        }
    }

    /// How long a task of this tier may be passed by tasks that come later.
    ///
    /// A key lies half to one and a half times the patience after the arrival. A quarter of the
    /// starvation limit keeps the latest Interactive key ahead of the earliest Batch key, however
    /// long a slice is asked for.
    fn patience(&self, tier: Tier) -> Span {
        match tier {
            Tier::LatCritical => Span::ZERO,
            Tier::Interactive => self.knobs.slice.min(self.scaling.starvation.scale(1, 4)),
            Tier::Batch => self.scaling.starvation,
        }
    }

    fn slice(&self, tier: Tier) -> Span {
        match tier {
            Tier::Batch => self.knobs.slice,
            Tier::LatCritical | Tier::Interactive => self.knobs.slice_min,
        }
    }

    /// Charges the task for its last stint and returns where it stands: ahead of the clock if it
    /// has had more than its share, behind if less. Both are limited to half the starvation
    /// limit, so that neither a long sleep nor a long run alone decides the future.
    fn settle(&mut self, slot: Slot, arrival: &Arrival) -> Vtime {
        let limit = self.scaling.starvation.scale(1, 2);
        let (floor, ceiling) = (self.clock.before(limit), self.clock.after(limit));
        let task = self.table.data_mut(slot);
        task.vruntime =
            task.vruntime.after(arrival.weight.charge(arrival.stint)).clamp(floor, ceiling);
        task.vruntime
    }

    /// The key: arrival + patience + (vruntime - clock), the last scaled down to the patience so
    /// that fairness orders tasks of one tier and never lifts one above the next.
    fn deadline(&self, now: Stamp, tier: Tier, vruntime: Vtime) -> Vtime {
        let patience = self.patience(tier);
        let half = self.scaling.starvation.scale(1, 2);
        let standing = vruntime.as_raw() + half.as_nanos() - self.clock.as_raw();
        // `standing` runs from 0 to `starvation`: the share of it becomes a share of `patience`.
        let share = patience.scale(standing, self.scaling.starvation.as_nanos());
        Vtime::from_raw((now + patience.scale(1, 2) + share).as_nanos())
    }

    /// Whoever has waited longest, if that is longer than tier and crowd explain: the starvation
    /// limit, and a slice for each task that shares the CPUs with it.
    fn overdue(&self, now: Stamp) -> Option<Slot> {
        let oldest = self.table.oldest()?;
        let crowd = self.table.nr_waiting() as u64;
        let turn = self.knobs.slice.scale(crowd, u64::from(self.scaling.cpus));
        (self.table.waited(oldest, now) > self.scaling.starvation + turn).then_some(oldest)
    }

    /// The tier whose turn it is: the lowest that was passed too often, else the highest.
    fn tier_in_turn(&self) -> Option<Tier> {
        let waits = |tier: &Tier| !self.queues[tier.index()].is_empty();
        let passed = |tier: &Tier| self.turns.passed[tier.index()] >= self.scaling.deficit_budget;
        let lowest = Tier::ALL.into_iter().find(|tier| waits(tier) && passed(tier));
        lowest.or_else(|| Tier::ALL.into_iter().rev().find(waits))
    }

    /// Takes the next task out of its queue.
    fn pick(&mut self, now: Stamp) -> Option<(Slot, Vtime)> {
        self.table.oldest()?;
        let rescue = if self.turns.rescued { None } else { self.overdue(now) };
        self.turns.rescued = rescue.is_some();
        let picked = match rescue {
            Some(slot) => {
                let queue = &mut self.queues[self.table.data(slot).habit.tier.index()];
                queue.remove(slot).map(|deadline| (slot, deadline))
            }
            None => self.queues[self.tier_in_turn()?.index()].pop(),
        }?;
        self.counters.rescues += self.turns.rescued as u64;
        self.pass(self.table.data(picked.0).habit.tier);
        Some(picked)
    }

    /// Notes that `served` had its turn and every tier below that waits did not.
    fn pass(&mut self, served: Tier) {
        self.turns.passed[served.index()] = 0;
        for tier in Tier::ALL.into_iter().filter(|tier| *tier < served) {
            self.turns.passed[tier.index()] += !self.queues[tier.index()].is_empty() as u32;
        }
    }
}

impl Policy for Pandemonium {
    fn on_arrival(&mut self, now: Stamp, arrival: Arrival, _view: &MachineView) {
        self.counters.arrived(arrival.cause);
        let slot = match self.table.enter(now, arrival) {
            Entered::Replaced(slot) if arrival.cause == Cause::New => {
                // The pid has been used again while its last owner waited.
                self.queues[self.table.data(slot).habit.tier.index()].remove(slot);
                *self.table.data_mut(slot) = Task { vruntime: self.clock, ..Task::default() };
                slot
            }
            Entered::Replaced(_) => return,
            Entered::New(slot) => {
                self.table.data_mut(slot).vruntime = self.clock;
                slot
            }
            Entered::Known(slot) => slot,
        };
        let vruntime = self.settle(slot, &arrival);
        let tier = self.classifier.classify(&mut self.table.data_mut(slot).habit, &arrival);
        let deadline = self.deadline(now, tier, vruntime);
        self.queues[tier.index()].insert(slot, deadline);
    }

    fn next(&mut self, now: Stamp, view: &MachineView) -> Option<Dispatch> {
        self.before = (self.clock, self.turns);
        let (slot, deadline) = self.pick(now)?;
        let task = self.table.data(slot);
        let tier = task.habit.tier;
        // No single dispatch moves the clock further than one slice: a light task that had the
        // machine for itself must not make everybody else look poor.
        self.clock = self.clock.max(task.vruntime.min(self.clock.after(self.knobs.slice)));
        self.counters.by_tier[tier.index()] += 1;
        let order = Order { slice: self.slice(tier), vtime: deadline, tier };
        Some(dispatch(&mut self.table, slot, view, &self.knobs, order))
    }

    fn on_refused(&mut self, dispatch: Dispatch) {
        let Some(slot) = self.table.come_back(dispatch.pid) else { return };
        let tier = self.table.data(slot).habit.tier;
        self.queues[tier.index()].put_back(slot, dispatch.vtime);
        self.counters.by_tier[tier.index()] -= 1;
        self.counters.rescues -= self.turns.rescued as u64;
        (self.clock, self.turns) = self.before;
    }

    fn on_exit(&mut self, pid: Pid) {
        if let Some(slot) = self.table.forget(pid) {
            for queue in &mut self.queues {
                queue.remove(slot);
            }
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

    fn export(&self, keep: &mut dyn FnMut(Memo)) {
        for (pid, task) in self.table.known() {
            let Habit { comm, tier, .. } = task.habit;
            keep(Memo { pid, comm, tier, run: task.habit.longest_run() });
        }
    }

    fn import(&mut self, memo: Memo) {
        let habit = Habit::remembered(memo.comm, memo.tier, memo.run);
        self.table.remember(memo.pid, Task { habit, vruntime: self.clock });
    }
}
