// SPDX-License-Identifier: GPL-2.0-only

//! The counters of one worker, in memory that it shares with the process that started it.

use super::memory::Zeroed;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What one worker reports, on a cache line of its own.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Units of work done.
    pub steps: AtomicU64,
    /// Units finished on a CPU where the worker must not run.
    pub strays: AtomicU64,
    /// CPUs where the worker must run, a bit for each of the first 64; 0 allows every CPU.
    home: AtomicU64,
    /// Longest time between two units, for workers that read the clock.
    pub longest_ns: AtomicU64,
}

// SAFETY: four atomics.
unsafe impl Zeroed for Slot {}

impl Slot {
    /// Counts one unit of work, and a stray if it ended on the wrong CPU.
    pub fn done(&self) {
        self.count_stray();
        self.steps.fetch_add(1, Relaxed);
    }

    /// From now on the worker must run on these CPUs only.
    pub fn belongs_to(&self, cpus: u64) {
        self.home.store(cpus, Relaxed);
    }

    /// Counts a stray if the caller runs on a CPU where it must not run.
    pub fn count_stray(&self) {
        let home = self.home.load(Relaxed);
        if home == 0 {
            return;
        }
        // SAFETY: asks for a number.
        let here = unsafe { libc::sched_getcpu() };
        if !(0..64).contains(&here) || home >> here & 1 == 0 {
            self.strays.fetch_add(1, Relaxed);
        }
    }
}
