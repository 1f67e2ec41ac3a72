// SPDX-License-Identifier: GPL-2.0-only

//! Counts by length of time: how long tasks waited for a CPU, and how long they slept.

use crate::time::Span;

/// Upper edges of the latency buckets, each belonging to the bucket below it; the last bucket has
/// none (PANDEMONIUM 5.4.13).
pub const LATENCY_EDGES: [Span; 11] = [
    Span::from_micros(10),
    Span::from_micros(25),
    Span::from_micros(50),
    Span::from_micros(100),
    Span::from_micros(250),
    Span::from_micros(500),
    Span::from_millis(1),
    Span::from_millis(2),
    Span::from_millis(5),
    Span::from_millis(10),
    Span::from_millis(20),
];

/// Upper edges of the sleep buckets: waiting for I/O, short I/O, moderate; longer is idle.
pub const SLEEP_EDGES: [Span; 3] =
    [Span::from_millis(1), Span::from_millis(10), Span::from_millis(100)];

/// Counts in `B` buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const B: usize> {
    /// How many fell into each bucket, shortest first.
    pub counts: [u64; B],
}

/// From wakeup to running.
pub type Latencies = Histogram<{ LATENCY_EDGES.len() + 1 }>;
/// From going to sleep to wakeup.
pub type Sleeps = Histogram<{ SLEEP_EDGES.len() + 1 }>;

impl<const B: usize> Default for Histogram<B> {
    fn default() -> Self {
        Histogram { counts: [0; B] }
    }
}

impl<const B: usize> Histogram<B> {
    /// How many buckets there are.
    pub const BUCKETS: usize = B;

    /// What was counted since `earlier`, a snapshot of the same counts. A count that shrank, as
    /// after a restart, gives zero.
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    fn zip(&self, other: &Self, join: fn(u64, u64) -> u64) -> Self {
        let mut joined = *self;
        for (count, &other) in joined.counts.iter_mut().zip(&other.counts) {
            *count = join(*count, other);
        }
        joined
    }

    /// Wide enough for any counts.
    fn total(&self) -> u128 {
        self.counts.iter().map(|&count| count as u128).sum()
    }

    /// The bucket that holds what `share` of `whole` did not exceed; `None` when nothing was
    /// counted.
    pub(crate) fn bucket_at(&self, share: u32, whole: u32) -> Option<usize> {
        let needed = (self.total() * u128::from(share)).div_ceil(u128::from(whole.max(1))).max(1);
        let mut seen = 0;
        self.counts.iter().position(|&count| {
            seen += u128::from(count);
            seen >= needed
        })
    }

    fn count(&mut self, edges: &[Span], length: Span) {
        let bucket = edges.partition_point(|&edge| edge < length);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
    }
}

impl Latencies {
    /// Counts one wait.
    pub fn record(&mut self, wait: Span) {
        self.count(&LATENCY_EDGES, wait);
    }

    /// What 99 of 100 waits did not exceed: the upper edge of their bucket, but never more than
    /// the last edge, and zero when nothing was counted.
    pub fn p99(&self) -> Span {
        let last = LATENCY_EDGES.len() - 1;
        self.bucket_at(99, 100).map_or(Span::ZERO, |bucket| LATENCY_EDGES[bucket.min(last)])
    }
}

impl Sleeps {
    /// Counts one sleep.
    pub fn record(&mut self, sleep: Span) {
        self.count(&SLEEP_EDGES, sleep);
    }

    /// Per cent of sleeps up to 10 ms, which are waits for I/O; `None` when no task slept, which
    /// says nothing about how they would.
    pub fn io_percent(&self) -> Option<u32> {
        let total = self.total();
        let io = self.counts[0] as u128 + self.counts[1] as u128;
        // A share of the total is at most 100.
        (io * 100).checked_div(total).map(|percent| percent as u32)
    }
}
