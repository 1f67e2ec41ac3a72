// SPDX-License-Identifier: GPL-2.0-only

//! What is kept about each task, as small as it can be: among 100,000 tasks a decision costs what
//! it takes to fetch two of these records from memory.

use super::behaviour::Behaviour;
use super::classify::Classification;
use super::slices::Need;
use pandemonium_engine::Evidence;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::procdb::{Minute, Prediction};
use pandemonium_engine::table::TaskTable;
use pandemonium_engine::task::{Arrival, Cause, Comm, Tier, Weight};
use pandemonium_engine::time::{ShortSpan, Span, Stamp, Vtime};

/// A task that has used no more CPU time than this has only been forked. Chosen: the kernel's own
/// part of a fork, which is charged to the child, takes tens of microseconds.
const JUST_FORKED: Span = Span::from_micros(100);

/// A task. With what the table keeps of its request it fills two cache lines.
#[derive(Clone, Copy, Default)]
pub struct Task {
    pub comm: Comm,
    pub behaviour: Behaviour,
    pub classification: Classification,
    /// Its nice weight.
    pub weight: Weight,
    /// Its weight in its tier, at most twice [`WEIGHT_MAX`](pandemonium_engine::task::WEIGHT_MAX); 0 before its
    /// first message has been taken in.
    pub effective_weight: u16,
    pub vruntime: Vtime,
    /// The slice it was given last.
    pub slice: ShortSpan,
    /// CPU time of its life, where that is known; else when its last run interval ended.
    accounted: u64,
    pub name_prediction: NamePrediction,
    /// When the process database learned from it last.
    pub learned: Option<Minute>,
}

/// What the name of a task promised, until its behaviour has been compared with that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamePrediction {
    /// Nothing is known of the name.
    #[default]
    Nothing,
    /// The tier of its namesakes.
    Tier(Tier),
    /// The task was forked and bears its parent's name, which says nothing of it yet.
    Inherited,
}

const _: () = assert!(TaskTable::<Task>::RECORD_SIZE == 128, "one byte more costs another line");

impl Task {
    /// A task of which nothing is known, and where it stands.
    pub fn at(vruntime: Vtime) -> Task {
        Task { vruntime, ..Task::default() }
    }

    /// Bears a new name: what is known of that is all there is, else what the fast path has seen of
    /// the task. Returns whether that was something.
    pub fn begin_as(
        &mut self,
        now: Stamp,
        arrival: &Arrival,
        named: Option<Tier>,
        known: Option<Prediction>,
    ) -> bool {
        self.comm = arrival.comm;
        self.learned = None;
        self.classification = Classification { named, ..Classification::default() };
        self.name_prediction = NamePrediction::Nothing;
        self.behaviour = Behaviour::default();
        if let Some(known) = known {
            self.name_prediction = NamePrediction::Tier(known.tier);
            self.classification.behaves = known.tier;
            self.behaviour = Behaviour::predicted(&known);
        } else if let Some(life) = Behaviour::witnessed(arrival) {
            self.behaviour = life;
            return true;
        }
        self.behaviour.begin(now, arrival);
        false
    }

    /// CPU time since the last message.
    pub fn used(&mut self, arrival: &Arrival) -> Span {
        let (used, accounted) = match &arrival.facts {
            Some(facts) => {
                let life = facts.cpu_time.as_nanos();
                (Span::from_nanos(life.saturating_sub(self.accounted)), life)
            }
            // Queued again without having run, a task tells of its last run interval once more.
            None => {
                let stopped = arrival.stopped.as_nanos();
                let again = stopped == self.accounted && stopped != 0;
                (if again { Span::ZERO } else { arrival.run_interval }, stopped)
            }
        };
        self.accounted = accounted;
        used
    }

    /// Who begins to use more than a share begins at the clock, as a new task does. What it took beyond its share
    /// would be paid back at once, and a pipe would stand still for 40 ms.
    pub fn note_over_share(&mut self, over_share: bool, clock: Vtime) {
        if over_share && !self.classification.over_share {
            self.vruntime = self.vruntime.min(clock);
        }
        self.classification.over_share = over_share;
    }

    /// The slice that it was given last, or would have been.
    pub fn granted(&self, knobs: &Knobs) -> Span {
        match self.slice.get() {
            Span::ZERO => knobs.slice,
            granted => granted,
        }
    }

    /// What its slice depends on. Of whom neither his own life nor his name tells anything, a
    /// whole slice is expected.
    pub fn need(&self, knobs: &Knobs) -> Need {
        let (tier, seen) = (self.classification.tier, &self.behaviour);
        let is_unknown = !seen.speaks() && !matches!(self.name_prediction, NamePrediction::Tier(_));
        let run = match tier {
            Tier::LatCritical => seen.run(),
            _ if is_unknown => seen.expected_run().max(knobs.slice),
            _ => seen.expected_run(),
        };
        let effective_weight = self.effective_weight.into();
        Need { tier, run, births: seen.births(), effective_weight }
    }

    /// Why it is treated as it is, for a person who asks.
    pub fn evidence(&self) -> Evidence {
        let Task { comm, classification, behaviour, weight, .. } = *self;
        Evidence {
            comm,
            tier: classification.tier,
            behaves: classification.behaves,
            named: classification.named,
            cpu_bound: classification.cpu_bound,
            over_share: classification.over_share,
            mature: behaviour.is_mature(),
            run: behaviour.run(),
            run_dev: behaviour.run_dev(),
            wake_freq: behaviour.wake_freq(),
            score: behaviour.score(),
            weight,
        }
    }
}

/// Whether the task has never run. If its pid has been used before, or its name is known from
/// before a restart, the message tells of a life.
pub fn has_just_forked(arrival: &Arrival) -> bool {
    let idle_so_far = match &arrival.facts {
        Some(facts) => facts.cpu_time < JUST_FORKED,
        None => arrival.stopped == Stamp::default(),
    };
    arrival.cause == Cause::New && idle_so_far
}
