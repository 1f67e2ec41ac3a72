// SPDX-License-Identifier: GPL-2.0-only

//! The small rules that move single knobs. Each is a function of what was seen.

use super::regime::{Profile, Regime};
use crate::scaling::Scaling;
use pandemonium_engine::time::Span;

/// Tightening never goes below this slice (README: 500 us).
pub const SLICE_FLOOR: Span = Span::from_micros(500);
/// How much longer a slice gets with one step of relaxing (README: 500 us).
pub const RELAX_STEP: Span = Span::from_micros(500);
/// So many bad intervals in a row tighten, and so many good ones relax by a step.
pub const IN_A_ROW: u32 = 2;

/// Shortens the slice while latency is bad, and gives it back by and by.
///
/// Bad is one thing for both directions: the P99 of all wake-ups, or that of Interactive ones, is
/// above the ceiling. So an interval that tightens never counts towards relaxing, and a slice that
/// keeps Interactive work late is not made longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflex {
    /// Longest Interactive or LatCritical slice at present.
    pub slice: Span,
    /// How long a Batch task runs before it gives way, at present.
    pub preempt: Span,
    /// Bad intervals in a row.
    pub spikes: u32,
    /// Good intervals in a row while tightened.
    pub calm: u32,
    /// How often it has tightened.
    pub events: u64,
}

impl Reflex {
    /// As relaxed as the profile allows.
    pub const fn new(baseline: &Profile) -> Reflex {
        Reflex { slice: baseline.slice, preempt: baseline.preempt, spikes: 0, calm: 0, events: 0 }
    }

    /// Starts over with another profile. What happened stays counted.
    pub fn reset(&mut self, baseline: &Profile) {
        *self = Reflex { events: self.events, ..Reflex::new(baseline) };
    }

    /// The next interval does not follow the last one: nothing counts as seen before it.
    pub fn interrupt(&mut self) {
        (self.spikes, self.calm) = (0, 0);
    }

    /// Whether the slice is shorter than the profile's.
    pub fn tightened(&self, baseline: &Profile) -> bool {
        self.slice < baseline.slice
    }

    /// Takes in one interval. Returns whether it tightened.
    ///
    /// Only MIXED tightens: while LIGHT there is nothing to gain, and HEAVY has chosen throughput.
    /// It goes on in steps of a quarter as long as latency stays bad.
    pub fn observe(&mut self, regime: Regime, baseline: &Profile, spike: bool) -> bool {
        if !spike {
            self.spikes = 0;
            self.relax(baseline);
            return false;
        }
        self.calm = 0;
        self.spikes = self.spikes.saturating_add(1);
        if self.spikes < IN_A_ROW || regime != Regime::Mixed || self.slice <= SLICE_FLOOR {
            return false;
        }
        self.slice = self.slice.scale(3, 4).max(SLICE_FLOOR);
        self.preempt = self.slice;
        self.spikes = 0;
        self.events += 1;
        true
    }

    fn relax(&mut self, baseline: &Profile) {
        if !self.tightened(baseline) {
            return;
        }
        self.calm += 1;
        if self.calm < IN_A_ROW {
            return;
        }
        self.slice = baseline.slice.min(self.slice + RELAX_STEP);
        self.preempt = baseline.preempt.min(self.slice);
        self.calm = 0;
    }
}

/// Whether an interval's latency is bad: either P99 is above the ceiling of the regime.
pub fn spikes(p99: Span, p99_interactive: Span, ceiling: Span) -> bool {
    p99 > ceiling || p99_interactive > ceiling
}

/// A Batch slice is not extended beyond this (README: 25 ms).
pub const BATCH_CEILING: Span = Span::from_millis(25);

/// The Batch slice for a share of sleeps that are waits for I/O, in per cent.
///
/// Above 60 % most tasks leave the CPU by themselves, so the rest may run a quarter longer. Below
/// 15 % tasks are away for long or not at all, so it is a quarter shorter. `None`, nobody slept,
/// changes nothing: a machine full of work is not one that is idle.
pub fn sleep_adjusted(batch: Span, io_percent: Option<u32>) -> Span {
    match io_percent {
        Some(61..) => batch.scale(5, 4).min(BATCH_CEILING.max(batch)),
        Some(..15) => batch.scale(3, 4),
        _ => batch,
    }
}

/// The threshold of the batch rescue, which follows the rate of dispatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sojourn {
    /// The threshold at present.
    pub thresh: Span,
}

impl Sojourn {
    /// Starts at the floor.
    pub const fn new(limits: &Scaling) -> Sojourn {
        Sojourn { thresh: limits.sojourn_floor }
    }

    /// Takes in how many dispatches there were in `elapsed`, each counted once.
    ///
    /// The target is four times the time between two of them, within the limits of the machine;
    /// the threshold goes an eighth of the way. Without dispatches, or without time, there is no
    /// rate and nothing changes. On any busy machine this is the floor, and on purpose: it leaves
    /// the floor where dispatches are milliseconds apart, because then a shorter threshold would
    /// make every single one a rescue.
    pub fn observe(&mut self, dispatches: u64, elapsed: Span, limits: &Scaling) {
        if dispatches == 0 || elapsed == Span::ZERO {
            return;
        }
        let target =
            elapsed.scale(4, dispatches).clamp(limits.sojourn_floor, limits.sojourn_ceiling);
        let (thresh, target) = (self.thresh.as_nanos(), target.as_nanos());
        self.thresh = Span::from_nanos(thresh - (thresh >> 3) + (target >> 3));
    }
}

/// The highest [`stability`].
pub const STABLE: u32 = 10;

/// How many intervals in a row nothing happened, up to [`STABLE`]: no event, and a P99 of at most
/// half the ceiling.
pub fn stability(score: u32, eventful: bool, p99: Span, ceiling: Span) -> u32 {
    if eventful || p99 > ceiling.scale(1, 2) { 0 } else { score.saturating_add(1).min(STABLE) }
}

/// Whether the `tick`th interval is worth a line of telemetry: when all is stable, every second.
pub const fn worth_a_line(score: u32, tick: u64) -> bool {
    score < STABLE || tick.is_multiple_of(2)
}
