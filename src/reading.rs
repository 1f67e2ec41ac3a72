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
}

impl Reading {
    /// Reads the counters now.
    pub fn of(shared: &Shared) -> Reading {
        let (numbers, fast_path) = (shared.counters.read(), shared.fast_path.read());
        Reading { at: clock::now(), numbers, fast_path }
    }
}
