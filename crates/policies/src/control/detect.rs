// SPDX-License-Identifier: GPL-2.0-only

//! Detection of bursts and of long runs of Batch work from the stream of messages.
//!
//! The policy passes *every* message to the detectors on arrival, so that no later decision about a
//! task influences the detection.

use crate::knobs::Rules;
use pandemonium_engine::Mode;
use pandemonium_engine::task::Cause;
use pandemonium_engine::time::{Span, Stamp};

/// One sample is the time that this many enqueues took (PANDEMONIUM 5.4.13).
const ENQUEUES_PER_SAMPLE: u32 = 64;
/// Fraction bits of the average and the sum. The average moves an eighth of the way to each sample;
/// in whole nanoseconds it would not reach samples of a few nanoseconds.
const FRACTION: u32 = 8;
/// The length of a sample is capped at this. A longer one means that the machine was idle, and
/// without the cap any normal load after minutes of idle time would look like a burst. Chosen: 64
/// enqueues in 100 ms is idle on any machine.
const SAMPLE_MAX: Span = Span::from_millis(100);

/// Change-point detection on the rate of enqueues (Page's cumulative sum, 1954): the sum of how
/// much shorter than their average the samples are, beyond a slack of a quarter of the average.
///
/// A rate that doubles is not a burst. A rise to 3.3 times is a burst from the fifth sample on, a
/// rise to 10 times from the third. The burst ends when the average has followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cusum {
    /// Enqueues since the last sample.
    enqueues: u32,
    sampled: Option<Stamp>,
    /// Average sample; zero before the first. Average and sum have [`FRACTION`] bits.
    average: u64,
    sum: u64,
}

impl Cusum {
    /// Counts one enqueue. At the end of a sample, returns whether there is a burst.
    ///
    /// The first enqueue only starts the first sample.
    pub fn observe(&mut self, now: Stamp) -> Option<bool> {
        let Some(sampled) = self.sampled else {
            self.sampled = Some(now);
            return None;
        };
        self.enqueues += 1;
        if self.enqueues < ENQUEUES_PER_SAMPLE {
            return None;
        }
        self.enqueues = 0;
        self.sampled = Some(now);
        self.sample(now.since(sampled));
        Some(self.fires())
    }

    fn sample(&mut self, length: Span) {
        let length = length.min(SAMPLE_MAX).as_nanos() << FRACTION;
        self.average = match self.average {
            0 => length,
            average => average - (average >> 3) + (length >> 3),
        };
        let slack = self.average >> 2;
        if length + slack < self.average {
            self.sum = self.sum.saturating_add(self.average - length - slack);
        } else {
            self.sum /= 2;
        }
    }

    /// Whether the sum is above twice the average.
    pub const fn fires(&self) -> bool {
        self.average > 0 && self.sum > 2 * self.average
    }
}

/// The window in which wakeups are counted. The README's limit is per tick, and 4 ms is the tick
/// of a kernel with HZ=250.
pub const WAKE_WINDOW: Span = Span::from_millis(4);

/// The average number of wakeups in a window moves by this part of the difference, as a power of
/// two: 64 windows are a quarter of a second. Chosen: longer than a burst, and shorter than the
/// time after which a user calls a load steady.
const WAKE_AVERAGE: u32 = 6;

/// Counts wakeups in windows of [`WAKE_WINDOW`]. A burst is more wakeups in one window than a
/// limit and than twice the average, because a load that always wakes up often is not a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeRate {
    limit: u32,
    began: Stamp,
    wakeups: u32,
    /// Average wakeups of a window, with [`FRACTION`] bits.
    average: u64,
}

impl WakeRate {
    /// With `limit` wakeups in one window.
    pub const fn new(limit: u32) -> WakeRate {
        WakeRate { limit, began: Stamp::from_nanos(0), wakeups: 0, average: 0 }
    }

    /// Counts one wakeup. Returns whether there is a burst.
    pub fn observe(&mut self, now: Stamp) -> bool {
        if now < self.began || now.since(self.began) >= WAKE_WINDOW {
            let windows = now.since(self.began).as_nanos() / WAKE_WINDOW.as_nanos();
            self.learn(windows);
            (self.began, self.wakeups) = (now, 0);
        }
        self.wakeups = self.wakeups.saturating_add(1);
        self.wakeups > self.limit && u64::from(self.wakeups) << FRACTION > 2 * self.average
    }

    /// Averages the window that ends, and the empty windows after it.
    fn learn(&mut self, windows: u64) {
        let counted = u64::from(self.wakeups) << FRACTION;
        self.average = self.average - (self.average >> WAKE_AVERAGE) + (counted >> WAKE_AVERAGE);
        for _ in 1..windows.min(4 << WAKE_AVERAGE) {
            self.average -= self.average.div_ceil(1 << WAKE_AVERAGE);
        }
    }
}

/// A burst ends after this time in which neither detector fired. Chosen: 25 windows, so that a
/// short pause, such as that of a shell between two commands, does not end a burst.
pub const BURST_QUIET: Span = Span::from_millis(100);

/// Both detectors of bursts, and the end of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    cusum: Cusum,
    wakes: WakeRate,
    fired: Option<Stamp>,
}

impl Burst {
    /// With a limit of `wakeups` in one window
    /// ([`Scaling::burst_wakeups`](crate::scaling::Scaling)).
    pub fn new(wakeups: u32) -> Burst {
        Burst { cusum: Cusum::default(), wakes: WakeRate::new(wakeups), fired: None }
    }

    /// Processes one message. A new task counts as a wakeup, because many forks are a burst.
    pub fn on_enqueue(&mut self, now: Stamp, cause: Cause, rules: &Rules) {
        // Both detectors get every message, so that one that is switched on later knows the past.
        let rises = self.cusum.observe(now) == Some(true);
        let storms = cause != Cause::Requeue && self.wakes.observe(now);
        if rises && rules.burst_cusum || storms && rules.burst_wakeups {
            self.fired = Some(now);
        }
    }

    /// Whether there is a burst. It also ends if no more messages arrive.
    pub fn active(&self, now: Stamp) -> bool {
        self.fired.is_some_and(|fired| fired <= now && now.since(fired) < BURST_QUIET)
    }
}

/// If Batch tasks wait without a pause for longer than this, it is a long run (README).
pub const LONGRUN: Span = Span::from_millis(2_000);

/// How long the Batch queue has not been empty. Dispatching tasks from it does not matter as long
/// as others remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longrun {
    since: Option<Stamp>,
}

impl Longrun {
    /// Processes whether Batch tasks wait. Call it whenever this may have changed.
    pub fn observe(&mut self, now: Stamp, waiting: bool) {
        self.since = match self.since {
            // A clock that stepped back must not make the long run endless.
            Some(since) if waiting => Some(since.min(now)),
            None if waiting => Some(now),
            _ => None,
        };
    }

    /// Whether there is a long run: Batch tasks have waited for longer than [`LONGRUN`].
    pub fn active(&self, now: Stamp) -> bool {
        self.since.is_some_and(|since| now.since(since) > LONGRUN)
    }
}

/// All detectors of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detectors {
    /// It processes every message.
    pub burst: Burst,
    /// It processes whether Batch tasks wait.
    pub longrun: Longrun,
}

impl Detectors {
    /// With a limit of `wakeups` in one window of [`WAKE_WINDOW`].
    pub fn new(wakeups: u32) -> Detectors {
        Detectors { burst: Burst::new(wakeups), longrun: Longrun::default() }
    }

    /// The present mode. A detector that is switched off reports nothing.
    pub fn mode(&self, now: Stamp, rules: &Rules) -> Mode {
        let burst = (rules.burst_cusum || rules.burst_wakeups) && self.burst.active(now);
        Mode { burst, longrun: rules.longrun && self.longrun.active(now) }
    }
}
