// SPDX-License-Identifier: GPL-2.0-only

//! The adaptive loop, its detectors and the knobs, from outside.
//!
//! Numbers are those that PANDEMONIUM 5.4.13 documents or, for its tests, demands. No formula is
//! repeated here: every expectation is a number that a reader can check by hand.

mod batch_slice;
mod bursts;
mod histograms;
mod knobs;
mod longrun;
mod properties;
mod regimes;
mod sojourn;
mod stability;
mod tighten;
mod user_knobs;

use pandemonium_engine::adapting::Adapting;
use pandemonium_engine::histogram::{Latencies, Sleeps};
use pandemonium_engine::knobs::KeySet;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::control::regime::Regime;
use pandemonium_policies::control::{Controller, INTERVAL, Sample};
use pandemonium_policies::knobs::Knobs;

const US: fn(u64) -> Span = Span::from_micros;
const MS: fn(u64) -> Span = Span::from_millis;

/// A CPU count at which no cap of a profile matters.
const CPUS: u32 = 8;

/// A controller that is stepped once a second.
struct Machine {
    control: Controller,
    now: Stamp,
}

impl Machine {
    fn new(cpus: u32) -> Machine {
        Machine::with(cpus, Knobs::default(), Knobs::none())
    }

    /// With the README's Batch slice, so that the Batch slices of all regimes apply.
    fn with_long_batch_slices() -> Machine {
        let start = Knobs { batch_slice: MS(20), ..Knobs::default() };
        Machine::with(CPUS, start, Knobs::none())
    }

    fn with(cpus: u32, start: Knobs, pinned: KeySet) -> Machine {
        Machine { control: Controller::new(cpus, start, pinned), now: Stamp::default() }
    }

    fn step(&mut self, sample: Sample) -> Option<Knobs> {
        self.now = self.now + INTERVAL;
        self.control.step(self.now, &sample).then(|| *self.control.knobs())
    }

    fn steps(&mut self, times: usize, sample: Sample) -> Knobs {
        for _ in 0..times {
            self.step(sample);
        }
        *self.control.knobs()
    }

    /// Steps the machine into a regime, through MIXED if necessary.
    fn enter(&mut self, regime: Regime) {
        let idle = match regime {
            Regime::Light => 900,
            Regime::Mixed => 290,
            Regime::Heavy => 0,
        };
        self.steps(4, idling(idle));
        assert_eq!(self.control.regime(), regime);
    }

    /// The count of tightenings in the controller's line.
    fn tightenings(&self) -> String {
        let line = self.control.report().last_words;
        line.split(' ').filter(|word| word.starts_with("tighten_events=")).collect()
    }
}

/// A second without events, in which the regime stays MIXED.
fn quiet() -> Sample {
    idling(290)
}

fn idling(idle: u32) -> Sample {
    Sample { elapsed: INTERVAL, idle: Some(idle), ..Sample::default() }
}

/// A quiet second in which every task of `tier` waited for `wait`.
fn waits(tier: Tier, wait: Span) -> Sample {
    let mut sample = quiet();
    for _ in 0..100 {
        sample.latency[tier.index()].record(wait);
    }
    sample
}

/// A second with a P99 above every ceiling.
fn bad() -> Sample {
    waits(Tier::Batch, MS(20))
}

/// A quiet second in which `io` of 100 sleeps were waits for I/O.
fn sleeping(io: u64) -> Sample {
    Sample { sleep: sleeps(io), ..quiet() }
}

fn sleeps(io: u64) -> Sleeps {
    let mut sleeps = Sleeps::default();
    (0..100).for_each(|i| sleeps.record(if i < io { MS(1) } else { MS(500) }));
    sleeps
}

fn latencies(counts: &[(u64, Span)]) -> Latencies {
    let mut latencies = Latencies::default();
    for &(count, wait) in counts {
        (0..count).for_each(|_| latencies.record(wait));
    }
    latencies
}
