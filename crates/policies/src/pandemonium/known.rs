// SPDX-License-Identifier: GPL-2.0-only

//! The policy's data about each task. It is small, because among 100,000 tasks the cost of a
//! decision is that of fetching two of these records from memory.

use super::behaviour::Behaviour;
use super::classify::{Classification, Name};
use super::slices::{Need, slice};
use crate::knobs::Knobs;
use pandemonium_engine::Mode;
use pandemonium_engine::orders::REST_MIN;
use pandemonium_engine::procdb::{Minute, Prediction};
use pandemonium_engine::table::TaskTable;
use pandemonium_engine::task::{Arrival, Cause, Comm, Tier, Weight};
use pandemonium_engine::time::{ShortSpan, Span, Stamp, Vtime};

/// A task. Together with the request that the table keeps, it fills two cache lines.
#[derive(Clone, Copy, Default)]
pub struct Task {
    pub comm: Comm,
    pub behaviour: Behaviour,
    pub classification: Classification,
    /// Its nice weight.
    pub weight: Weight,
    /// Its weight in its tier, at most twice
    /// [`WEIGHT_MAX`](pandemonium_engine::task::WEIGHT_MAX); 0 before the first message.
    pub effective_weight: u16,
    pub vruntime: Vtime,
    /// Its credit, of virtual time, when it was last decided.
    pub credit: ShortSpan,
    /// What [`used`](Task::used) has charged up to: the total CPU time if it is known, else the end
    /// of the last run interval.
    pub accounted: u64,
    pub name_prediction: NamePrediction,
    /// It is a Batch task that has had less than its share, and was preempted before its slice was
    /// used up.
    pub preempted: bool,
    /// When the process database last learned from it.
    pub learned: Option<Minute>,
}

/// What the task's name predicted, until the process database has compared that with the behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamePrediction {
    /// There is no prediction for the name.
    #[default]
    Nothing,
    /// The predicted tier.
    Tier(Tier),
    /// The task was forked and still has its parent's name, which does not predict its behaviour
    /// yet.
    Inherited,
}

/// The place of a task among those of its tier that were decided at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// A known task that has just woken up, or a Batch task that has had less than its share and
    /// was preempted.
    First,
    /// It has never run.
    New,
    /// Any other task.
    Last,
}

const _: () = assert!(TaskTable::<Task>::RECORD_SIZE == 128, "one byte more costs another line");

impl Task {
    /// The task has a new name, so everything learned under the old one is dropped. The behaviour
    /// restarts from the name's prediction, or without one from what the fast path has observed.
    /// Returns whether that includes a run and the sleep after it.
    pub fn begin_as(
        &mut self,
        now: Stamp,
        arrival: &Arrival,
        name: Name,
        prediction: Option<Prediction>,
    ) -> bool {
        self.comm = arrival.comm;
        self.learned = None;
        self.classification = Classification::of(name);
        self.name_prediction = NamePrediction::Nothing;
        let observed = Behaviour::observed(arrival).filter(|_| prediction.is_none());
        self.behaviour = observed.unwrap_or_default();
        if let Some(prediction) = prediction {
            self.name_prediction = NamePrediction::Tier(prediction.tier);
            self.classification.tier_by_score = prediction.tier;
            self.behaviour = Behaviour::predicted(&prediction);
        }
        if observed.is_none() {
            self.behaviour.begin(now, arrival);
        }
        observed.is_some() && arrival.facts.is_some_and(|facts| facts.has_slept())
    }

    /// The task was just forked. It has its parent's name, which predicts nothing about it, so only
    /// a listed name counts.
    pub fn begin_forked(&mut self, now: Stamp, arrival: &Arrival, name: Name, fork_loop: bool) {
        self.comm = arrival.comm;
        self.name_prediction = NamePrediction::Inherited;
        self.classification = Classification { fork_loop, ..Classification::of(name) };
        self.behaviour.begin(now, arrival);
    }

    /// CPU time since the last message.
    pub fn used(&mut self, arrival: &Arrival) -> Span {
        let (used, accounted) = match &arrival.facts {
            Some(facts) => {
                let total = facts.cpu_time.as_nanos();
                (Span::from_nanos(total.saturating_sub(self.accounted)), total)
            }
            // The message of a task that was queued again without having run repeats its last run
            // interval.
            None => {
                let stopped = arrival.stopped.as_nanos();
                let repeated = stopped == self.accounted && stopped != 0;
                (if repeated { Span::ZERO } else { arrival.run_interval }, stopped)
            }
        };
        self.accounted = accounted;
        used
    }

    /// The credit that a Batch task which has just woken up may have. Work that passes from task to
    /// task, such as a ring of pipes, would otherwise collect credit in each of them while another
    /// one works, and a hog beside it would get the share of one task of many.
    pub fn kept_credit(&self) -> Option<Span> {
        let is_batch = self.classification.tier == Tier::Batch;
        (is_batch && self.behaviour.awake() == Span::ZERO).then(|| self.credit.get())
    }

    /// Its rank among the tasks of its tier.
    pub fn rank(&self, knobs: &Knobs) -> Rank {
        let has_run = self.behaviour.is_known() || self.behaviour.awake() > Span::ZERO;
        match self.classification.tier {
            Tier::Batch if self.preempted => Rank::First,
            Tier::Batch => Rank::Last,
            _ if self.is_fresh(knobs) => Rank::First,
            _ if has_run => Rank::Last,
            _ => Rank::New,
        }
    }

    /// Whether it is a known task that has just woken up, and has run for less than the shortest
    /// slice since: a higher tier may have preempted it at once. It comes before tasks of its tier
    /// that have run for longer, and before new ones, as by the policy's own key.
    fn is_fresh(&self, knobs: &Knobs) -> bool {
        let seen = &self.behaviour;
        seen.is_known() && seen.awake() < knobs.slice_min
    }

    /// Notes whether a Batch task was preempted. `ran` is the CPU time since its last message,
    /// before which it was given a slice; `is_behind` says whether it has had less than its share.
    /// `knobs` returns those by which that slice was computed: the user may demand one.
    pub fn note_end(
        &mut self,
        cause: Cause,
        ran: Span,
        is_behind: bool,
        knobs: impl FnOnce() -> Knobs,
    ) {
        let given = || {
            let knobs = knobs();
            slice(&self.need(&knobs), Mode::default(), &knobs)
        };
        self.preempted = cause == Cause::Requeue
            && is_behind
            && self.classification.tier == Tier::Batch
            && ran + REST_MIN <= given();
    }

    /// What its slice depends on. An unknown task, without observed behaviour or prediction, gets a
    /// full slice: a child cut off earlier waits while its siblings are forked.
    pub fn need(&self, knobs: &Knobs) -> Need {
        let (tier, seen) = (self.classification.tier, &self.behaviour);
        let is_predicted = matches!(self.name_prediction, NamePrediction::Tier(_));
        let run = match tier {
            Tier::LatCritical => seen.run(),
            _ if seen.is_known() || is_predicted => seen.expected_run(),
            _ => seen.expected_run().max(knobs.slice),
        };
        let effective_weight = self.effective_weight.into();
        Need { tier, run, forks: seen.forks.count(), effective_weight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preempted_batch_task_comes_first_until_its_slice_is_used_up() {
        let knobs = Knobs::default();
        let mut task = Task { effective_weight: 128, ..Task::default() };
        task.classification.tier = Tier::Batch;
        let whole = knobs.batch_slice;
        let mut comes_first = |cause, ran| {
            task.note_end(cause, ran, true, || knobs);
            task.rank(&knobs) == Rank::First
        };
        assert!(comes_first(Cause::Requeue, whole - REST_MIN));
        assert!(!comes_first(Cause::Requeue, whole - REST_MIN.scale(1, 2)));
        assert!(!comes_first(Cause::Wakeup, Span::ZERO));
        task.classification.tier = Tier::LatCritical;
        task.note_end(Cause::Requeue, Span::ZERO, true, || knobs);
        assert!(!task.preempted);
        assert_eq!(task.rank(&knobs), Rank::New, "its behaviour is not known");
    }
}
