// SPDX-License-Identifier: GPL-2.0-only

//! Waiting for what a scenario expects.

use anyhow::{Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

const GLANCE: Duration = Duration::from_millis(100);

/// Waits until something holds. Returns how long that took.
pub fn wait_for(what: &str, limit: Duration, holds: impl Fn() -> Result<bool>) -> Result<Duration> {
    let start = Instant::now();
    while !holds()? {
        ensure!(start.elapsed() < limit, "after {} s: not yet {what}", limit.as_secs());
        sleep(GLANCE);
    }
    Ok(start.elapsed())
}
