// SPDX-License-Identifier: GPL-2.0-only

//! An adaptive loop: once a second facts go in, and values of knobs come out.
//!
//! The loop of a policy runs beside the scheduler process, in the process that watches over it, so
//! it may take its time. A person's values go through it too: what a person has set, the loop
//! leaves alone. A policy without a loop of its own gets [`Fixed`].

use crate::histogram::{Latencies, Sleeps};
use crate::knobs::{Amended, FileError, KeySet, KnobError, Layers, Values};
use crate::time::{Span, Stamp};
use alloc::boxed::Box;
use alloc::string::String;

/// How often a loop runs. It must cope with any other rhythm.
pub const INTERVAL: Span = Span::from_millis(1_000);

/// The facts of one interval. All counts are of this interval only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// How long the interval really was.
    pub elapsed: Span,
    /// Time that CPUs were idle, in per mille of the time they had: see [`idle_per_mille`].
    /// `None` when it could not be measured.
    pub idle: Option<u32>,
    /// Decisions that reached a CPU, the policy's and the backend's, each counted once.
    pub dispatches: u64,
    /// From wakeup to running, by [`Tier::index`](crate::task::Tier::index).
    pub latency: [Latencies; 3],
    /// How long tasks slept.
    pub sleep: Sleeps,
    /// Batch work has waited for seconds.
    pub longrun: bool,
    /// There was a burst at any time of the interval.
    pub burst: bool,
}

/// The idle share of an interval: `idle` is summed over `cpus` CPUs. `None` for an interval of no
/// length.
pub fn idle_per_mille(idle: Span, elapsed: Span, cpus: u32) -> Option<u32> {
    let all = elapsed.scale(cpus as u64, 1).as_nanos();
    let share = (idle.as_nanos() as u128 * 1_000).checked_div(all as u128)?;
    Some(share.min(1_000) as u32)
}

/// An adaptive loop, and what a person has set.
pub trait Adapting: Send {
    /// The values in force.
    fn values(&self) -> Values;
    /// The knobs that a person has set.
    fn pinned(&self) -> KeySet;
    /// A person sets knobs, as lines `KEY=VALUE`. They are in force at once, and the loop leaves
    /// them alone until they are released. On an error nothing is changed.
    fn pin(&mut self, text: &str) -> Result<Amended, FileError>;
    /// A person gives knobs back: they are as in the profile or else as at the start, and the loop
    /// may move those again that no profile sets. An error, and nothing is changed, if that
    /// contradicts what remains set.
    fn release(&mut self, keys: KeySet) -> Result<(), KnobError>;
    /// Replaces the [profile](crate::knobs::KnobProfile) by the lines `KEY=VALUE` of another one.
    /// They are in force at once, the loop leaves them alone, and what a person has set wins over
    /// them. On an error nothing is changed.
    fn replace_profile(&mut self, text: &str) -> Result<(), FileError>;
    /// Takes in one interval. Returns whether values changed.
    fn step(&mut self, now: Stamp, sample: &Sample) -> bool;
    /// CPUs came or went: so many are online now.
    fn on_hotplug(&mut self, cpus: u32);
    /// What the loop makes of the machine.
    fn report(&self) -> Report;
    /// The same loop again, for a change that may be refused.
    fn boxed(&self) -> Box<dyn Adapting>;
}

/// What a loop makes of the machine, for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The load, in one word; empty without a loop.
    pub regime: &'static str,
    /// How many quiet intervals there were in a row.
    pub stability: u32,
    /// Slices are shorter than the regime's, because latency was bad.
    pub tightened: bool,
    /// How often that happened.
    pub tighten_events: u64,
    /// A longer wait is worth a word of health; zero if there is no such limit.
    pub wait_limit: Span,
    /// Whether the last interval is worth a line.
    pub worth_a_line: bool,
    /// What to say at the end.
    pub last_words: String,
}

/// No loop: values change when a person changes them.
#[derive(Clone, Debug)]
pub struct Fixed {
    layers: Layers,
}

impl Fixed {
    /// Values as they are at the start, and those of them that a person has chosen.
    pub fn new(start: Values, pinned: KeySet) -> Fixed {
        Fixed { layers: Layers::new(start, pinned) }
    }
}

impl Adapting for Fixed {
    fn values(&self) -> Values {
        self.layers.values()
    }

    fn pinned(&self) -> KeySet {
        self.layers.chosen()
    }

    fn pin(&mut self, text: &str) -> Result<Amended, FileError> {
        self.layers.set(text)
    }

    fn release(&mut self, keys: KeySet) -> Result<(), KnobError> {
        self.layers.release(keys)
    }

    fn replace_profile(&mut self, text: &str) -> Result<(), FileError> {
        self.layers.replace_profile(text)
    }

    fn step(&mut self, _now: Stamp, _sample: &Sample) -> bool {
        false
    }

    fn on_hotplug(&mut self, _cpus: u32) {}

    fn report(&self) -> Report {
        Report { worth_a_line: true, ..Report::default() }
    }

    fn boxed(&self) -> Box<dyn Adapting> {
        Box::new(self.clone())
    }
}
