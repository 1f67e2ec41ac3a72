// SPDX-License-Identifier: GPL-2.0-only

//! What all processes of a play share: the gate at the start, the measured time, and the recorders,
//! which are there before the first task runs and never grow.

use crate::tasks::futex::futex;
use crate::tasks::memory::Zeroed;
use pandemonium_engine::durations::{BUCKETS, bucket, quantile};
use pandemonium_engine::time::Span;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// The start and the measured time, as values of the monotonic clock in nanoseconds.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Control {
    /// 1 as soon as the tasks may start.
    open: AtomicU32,
    /// Processes that wait at the gate.
    ready: AtomicU32,
    /// Requests for a nice value, a class or CPUs that the kernel refused.
    refused: AtomicU32,
    /// Processes and threads that could not be started.
    failed: AtomicU32,
    start_ns: AtomicU64,
    from_ns: AtomicU64,
    until_ns: AtomicU64,
}

// SAFETY: atomics.
unsafe impl Zeroed for Control {}

impl Control {
    /// Opens the gate: tasks start at `start_ns`, and times from `from_ns` to `until_ns` count.
    pub fn open(&self, start_ns: u64, from_ns: u64, until_ns: u64) {
        self.start_ns.store(start_ns, Relaxed);
        self.from_ns.store(from_ns, Relaxed);
        self.until_ns.store(until_ns, Relaxed);
        self.open.store(1, Release);
        futex(&self.open, libc::FUTEX_WAKE, i32::MAX as u32);
    }

    /// Waits at the gate, and returns when the tasks start.
    pub fn wait(&self) -> u64 {
        self.ready.fetch_add(1, Relaxed);
        while self.open.load(Acquire) == 0 {
            futex(&self.open, libc::FUTEX_WAIT, 0);
        }
        self.start_ns.load(Relaxed)
    }

    /// Whether so many processes wait at the gate.
    pub fn are_ready(&self, processes: usize) -> bool {
        self.ready.load(Relaxed) as usize >= processes
    }

    /// Whether a time that ends now counts.
    pub fn measures(&self, now_ns: u64) -> bool {
        (self.from_ns.load(Relaxed)..self.until_ns.load(Relaxed)).contains(&now_ns)
    }

    /// Counts a refusal of the kernel.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a task that could not be started.
    pub fn count_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// The refusals and failures so far.
    pub fn troubles(&self) -> (u32, u32) {
        (self.refused.load(Relaxed), self.failed.load(Relaxed))
    }
}

/// The measured times of one group of tasks.
#[repr(C, align(64))]
pub struct Recorder {
    buckets: [AtomicU64; BUCKETS],
    longest_ns: AtomicU64,
    missed: AtomicU64,
}

// SAFETY: atomics.
unsafe impl Zeroed for Recorder {}

impl Recorder {
    /// Counts a time, and whether it is a miss.
    pub fn record(&self, ns: u64, missed: bool) {
        self.buckets[bucket(Span::from_nanos(ns))].fetch_add(1, Relaxed);
        self.longest_ns.fetch_max(ns, Relaxed);
        self.missed.fetch_add(u64::from(missed), Relaxed);
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// The number of misses.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// The time that `permille` of a thousand do not exceed, in microseconds; zero without any.
    pub fn quantile_us(&self, permille: u64) -> f64 {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Relaxed));
        let longest = Span::from_nanos(self.longest_ns.load(Relaxed));
        quantile(counts, longest, permille).as_nanos() as f64 / 1e3
    }
}

/// Work done by one task, in rounds of `work::burn`, on a cache line of its own.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Work(pub AtomicU64);

// SAFETY: an atomic.
unsafe impl Zeroed for Work {}

/// Sleeps a little; for waits that need not be exact.
pub fn nap() {
    std::thread::sleep(Duration::from_millis(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::memory::Shared;

    #[test]
    fn a_recorder_gives_quantiles_to_a_part_in_32_and_never_beyond_the_longest() {
        let shared = Shared::<Recorder>::new(1).unwrap();
        let recorder = &shared[0];
        assert_eq!((recorder.count(), recorder.quantile_us(990)), (0, 0.0));
        (1..=1_000).for_each(|us| recorder.record(us * 1_000, us > 900));
        for (permille, us) in [(500, 500.0), (990, 990.0), (999, 999.0), (1_000, 1_000.0)] {
            let found = recorder.quantile_us(permille);
            assert!((us..=us * (1.0 + 1.0 / 32.0)).contains(&found), "{found} for {us}");
        }
        assert_eq!((recorder.quantile_us(1_000), recorder.missed()), (1_000.0, 100));
        recorder.record(u64::MAX, true);
        assert_eq!(recorder.count(), 1_001);
    }
}
