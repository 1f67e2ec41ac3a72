// SPDX-License-Identifier: GPL-2.0-only

//! Bursts and long runs of batch work, noticed from the stream of messages.
//!
//! Both are fed by *every* message, at the door: whatever a policy does with a task afterwards
//! must not decide whether the task was seen.

use crate::knobs::Rules;
use pandemonium_engine::Mode;
use pandemonium_engine::task::Cause;
use pandemonium_engine::time::{Span, Stamp};

/// One sample of the rate is the time that so many enqueues took (PANDEMONIUM 5.4.13).
const ENQUEUES_PER_SAMPLE: u32 = 64;
/// Fraction bits of average and sum. The average goes an eighth of the way to each sample; in whole
/// nanoseconds it would stop short of short samples.
const FRACTION: u32 = 8;
/// A sample counts as at most so long. Longer ones say that the machine rested, not how fast it
/// works; without a limit one pause of minutes would make any normal load look like a burst.
/// Chosen: 64 enqueues in 100 ms is idle on any machine.
const SAMPLE_MAX: Span = Span::from_millis(100);

/// Change-point detection on the rate of enqueues (Page's cumulative sum, 1954): sums up by how
/// much the samples fall short of their own average, less a slack of a quarter of it.
///
/// A rate that doubles is never a burst; one that rises to 3.3 times is at the fifth sample, to 10
/// times at the third. It ends by itself as the average follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cusum {
    /// Enqueues since the last sample.
    enqueues: u32,
    sampled: Option<Stamp>,
    /// Average sample; zero before the first. With [`FRACTION`], as the sum.
    average: u64,
    sum: u64,
}

impl Cusum {
    /// Counts one enqueue. Returns, at the end of a sample, whether there is a burst.
    ///
    /// The very first enqueue only starts the clock: what passed before it is no interval.
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

/// Wake-ups are counted in windows of our own clock. 4 ms is the tick of a kernel with HZ=250, by
/// which the README counts; its limit is per tick.
pub const WAKE_WINDOW: Span = Span::from_millis(4);

/// The average number of wake-ups in a window moves by this part of the difference, as a power of
/// two: 64 windows are a quarter of a second. Chosen: longer than a storm, shorter than a person
/// takes to call a load steady.
const WAKE_AVERAGE: u32 = 6;

/// Counts wake-ups in windows of [`WAKE_WINDOW`]. It sees a storm at once: more of them than a
/// limit, and than twice the usual number, since a load that always wakes up often is no burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeRate {
    limit: u32,
    began: Stamp,
    wakeups: u32,
    /// Average wake-ups of a window, with [`FRACTION`].
    average: u64,
}

impl WakeRate {
    /// More than `limit` in one window is a burst, if that is not usual.
    pub const fn new(limit: u32) -> WakeRate {
        WakeRate { limit, began: Stamp::from_nanos(0), wakeups: 0, average: 0 }
    }

    /// Counts one wake-up. Returns whether there is a burst.
    pub fn observe(&mut self, now: Stamp) -> bool {
        if now < self.began || now.since(self.began) >= WAKE_WINDOW {
            let windows = now.since(self.began).as_nanos() / WAKE_WINDOW.as_nanos();
            self.learn(windows);
            (self.began, self.wakeups) = (now, 0);
        }
        self.wakeups = self.wakeups.saturating_add(1);
        self.wakeups > self.limit && u64::from(self.wakeups) << FRACTION > 2 * self.average
    }

    /// Takes in the window that ends, and those in which nobody woke up after it.
    fn learn(&mut self, windows: u64) {
        let counted = u64::from(self.wakeups) << FRACTION;
        self.average = self.average - (self.average >> WAKE_AVERAGE) + (counted >> WAKE_AVERAGE);
        for _ in 1..windows.min(4 << WAKE_AVERAGE) {
            self.average -= self.average.div_ceil(1 << WAKE_AVERAGE);
        }
    }
}

/// A burst ends when neither detector has fired for so long. Chosen: 25 windows, so that a storm
/// that pauses for a moment, as a shell does between two commands, remains one.
pub const BURST_QUIET: Span = Span::from_millis(100);

/// Either detector, and the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    cusum: Cusum,
    wakes: WakeRate,
    fired: Option<Stamp>,
}

impl Burst {
    /// More than `wakeups` in one window are a burst
    /// ([`Scaling::burst_wakeups`](crate::scaling::Scaling)).
    pub fn new(wakeups: u32) -> Burst {
        Burst { cusum: Cusum::default(), wakes: WakeRate::new(wakeups), fired: None }
    }

    /// Takes in one message. A new task counts as a wake-up: forks are what a storm is made of.
    pub fn on_enqueue(&mut self, now: Stamp, cause: Cause, rules: &Rules) {
        // Both are always fed, so that one that is switched on knows the past.
        let rises = self.cusum.observe(now) == Some(true);
        let storms = cause != Cause::Requeue && self.wakes.observe(now);
        if rises && rules.burst_cusum || storms && rules.burst_wakeups {
            self.fired = Some(now);
        }
    }

    /// Whether there is a burst. Ends also when no message comes any more.
    pub fn active(&self, now: Stamp) -> bool {
        self.fired.is_some_and(|fired| fired <= now && now.since(fired) < BURST_QUIET)
    }
}

/// Batch work that has waited without a pause for longer than this is a long run (README).
pub const LONGRUN: Span = Span::from_millis(2_000);

/// Whether batch work has been waiting all the time. That somebody of the queue was served does
/// not matter: the age of the queue is another question than that of its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longrun {
    since: Option<Stamp>,
}

impl Longrun {
    /// Takes in whether batch work waits. To be called whenever that may have changed.
    pub fn observe(&mut self, now: Stamp, waiting: bool) {
        self.since = match self.since {
            // A clock that stepped back must not make the run endless.
            Some(since) if waiting => Some(since.min(now)),
            None if waiting => Some(now),
            _ => None,
        };
    }

    /// Whether it has for longer than [`LONGRUN`].
    pub fn active(&self, now: Stamp) -> bool {
        self.since.is_some_and(|since| now.since(since) > LONGRUN)
    }
}

/// All detectors of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detectors {
    burst: Burst,
    longrun: Longrun,
}

impl Detectors {
    /// More than `wakeups` in one window of [`WAKE_WINDOW`] are a burst.
    pub fn new(wakeups: u32) -> Detectors {
        Detectors { burst: Burst::new(wakeups), longrun: Longrun::default() }
    }

    /// Takes in one message, whatever becomes of it.
    pub fn on_enqueue(&mut self, now: Stamp, cause: Cause, rules: &Rules) {
        self.burst.on_enqueue(now, cause, rules);
    }

    /// Takes in whether batch work waits. To be called whenever that may have changed.
    pub fn on_batch(&mut self, now: Stamp, waiting: bool) {
        self.longrun.observe(now, waiting);
    }

    /// What is the case now, as far as the rules want to know.
    pub fn mode(&self, now: Stamp, rules: &Rules) -> Mode {
        let burst = (rules.burst_cusum || rules.burst_wakeups) && self.burst.active(now);
        Mode { burst, longrun: rules.longrun && self.longrun.active(now) }
    }
}
