// SPDX-License-Identifier: GPL-2.0-only

//! Rules that each change one knob, as functions of the samples.

use super::regime::{Profile, Regime};
use crate::scaling::Scaling;
use pandemonium_engine::time::Span;

/// Tightening never goes below this slice (README: 500 us).
pub const SLICE_FLOOR: Span = Span::from_micros(500);
/// One step of relaxing lengthens the slice by this (README: 500 us).
pub const RELAX_STEP: Span = Span::from_micros(500);
/// This many bad intervals in a row tighten, and this many good ones relax by one step.
pub const IN_A_ROW: u32 = 2;

/// Tightens (shortens) the slice while latency is bad, and relaxes it step by step afterwards.
///
/// Both directions use the same definition of bad: the P99 latency of all wakeups, or of those of
/// Interactive tasks, is above the ceiling. So an interval that tightens never counts towards
/// relaxing, and the slice does not grow while Interactive tasks are late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflex {
    /// The present slice limit of Interactive and LatCritical tasks.
    pub slice: Span,
    /// How long a running Batch task is protected from preemption by other Batch tasks at present.
    /// Tasks of higher tiers preempt it at once.
    pub preempt: Span,
    /// Bad intervals in a row.
    pub spikes: u32,
    /// Good intervals in a row while tightened.
    pub calm: u32,
    /// How often the slice was tightened.
    pub events: u64,
}

impl Reflex {
    /// Starts with the values of the profile.
    pub const fn new(baseline: &Profile) -> Reflex {
        Reflex { slice: baseline.slice, preempt: baseline.preempt, spikes: 0, calm: 0, events: 0 }
    }

    /// Starts over with another profile. `events` is kept.
    pub fn reset(&mut self, baseline: &Profile) {
        *self = Reflex { events: self.events, ..Reflex::new(baseline) };
    }

    /// There was a pause before the next interval, so counts of intervals in a row restart.
    pub fn interrupt(&mut self) {
        (self.spikes, self.calm) = (0, 0);
    }

    /// Whether the slice is shorter than the profile's.
    pub fn tightened(&self, baseline: &Profile) -> bool {
        self.slice < baseline.slice
    }

    /// Processes one interval. Returns whether it tightened the slice.
    ///
    /// Only MIXED tightens: LIGHT has nothing to gain, and HEAVY prefers throughput. Each step
    /// shortens the slice by a quarter, for as long as latency stays bad.
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

/// Whether the latency of an interval is bad: one of the two P99 is above the ceiling.
pub fn spikes(p99: Span, p99_interactive: Span, ceiling: Span) -> bool {
    p99 > ceiling || p99_interactive > ceiling
}

/// A Batch slice is not extended beyond this (README: 25 ms).
pub const BATCH_CEILING: Span = Span::from_millis(25);

/// The Batch slice for a share of sleeps that are waits for I/O, in per cent.
///
/// Above 60 % most tasks give up the CPU by themselves, so Batch may run a quarter longer. Below 15
/// % tasks sleep long or not at all, so the slice is a quarter shorter. `None` means that no task
/// slept, and changes nothing.
pub fn sleep_adjusted(batch: Span, io_percent: Option<u32>) -> Span {
    match io_percent {
        Some(61..) => batch.scale(5, 4).min(BATCH_CEILING.max(batch)),
        Some(..15) => batch.scale(3, 4),
        _ => batch,
    }
}

/// The threshold of the CoDel rescue, which follows the rate of dispatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sojourn {
    /// The present threshold.
    pub thresh: Span,
}

impl Sojourn {
    /// Starts at the floor.
    pub const fn new(limits: &Scaling) -> Sojourn {
        Sojourn { thresh: limits.sojourn_floor }
    }

    /// Processes the number of dispatches in `elapsed`, each counted once.
    ///
    /// The target is four times the average time between two dispatches, within the limits of the
    /// machine. The threshold moves an eighth of the way. Without dispatches or without time there
    /// is no rate, and nothing changes. On a busy machine the threshold is at its floor. It rises
    /// only where dispatches are milliseconds apart, because there a short threshold would make
    /// every dispatch a rescue.
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

/// The number of stable intervals in a row, up to [`STABLE`]. An interval is stable without an
/// event and with a P99 of at most half the ceiling.
pub fn stability(score: u32, eventful: bool, p99: Span, ceiling: Span) -> u32 {
    if eventful || p99 > ceiling.scale(1, 2) { 0 } else { score.saturating_add(1).min(STABLE) }
}

/// Whether to report the `tick`th interval: always, or every second one when all is stable.
pub const fn worth_a_line(score: u32, tick: u64) -> bool {
    score < STABLE || tick.is_multiple_of(2)
}
