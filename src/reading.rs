// SPDX-License-Identifier: GPL-2.0-only

//! What the worker has counted, at one time.

use super::clock;
use super::fast_path_counters::FastPathCounters;
use super::shared::{Numbers, Shared};
use pandemonium_engine::time::Stamp;

/// A copy of the shared counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    pub at: Stamp,
    pub numbers: Numbers,
    pub fast_path: FastPathCounters,
    pub driver: Driver,
}

/// What the supervisor knows besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Driver {
    /// Whether the kernel says that no sched_ext scheduler is in charge.
    pub is_unloaded: bool,
    /// Restarts within the last minute.
    pub recent_restarts: u64,
    /// When the adaptive loop last ran.
    pub adapted: Stamp,
    /// Whether the kernel refused to make a thread of the supervisor real-time.
    pub not_real_time: bool,
    /// Whether the last save of the profiles of programs failed.
    pub save_failed: bool,
    /// Entries that the recording has dropped.
    pub record_dropped: u64,
    /// Lines that were dropped because the output was full.
    pub unprinted: u64,
}

impl Reading {
    /// Reads the counters now.
    pub fn of(shared: &Shared, driver: Driver) -> Reading {
        let (numbers, fast_path) = (shared.counters.read(), shared.fast_path.read());
        Reading { at: clock::now(), numbers, fast_path, driver }
    }
}
