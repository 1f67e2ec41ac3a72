// SPDX-License-Identifier: GPL-2.0-only

//! Waits until the machine is idle.
//!
//! For some seconds after the boot the kernel does work of its own, which would slow whatever is
//! measured first.

use super::report;
use anyhow::{Context, Result};
use std::fs;
use std::time::{Duration, Instant};

const SAMPLE: Duration = Duration::from_millis(500);
/// The machine is idle if at least this part of the ticks in a sample is idle.
const IDLE_PERCENT_MIN: u64 = 97;
/// A machine that stays busy longer is measured as it is, because figures are compared within one
/// boot.
const LIMIT: Duration = Duration::from_secs(20);

pub fn wait() -> Result<()> {
    report::progress("waiting for the boot to settle");
    let start = Instant::now();
    let mut before = ticks()?;
    while start.elapsed() < LIMIT {
        std::thread::sleep(SAMPLE);
        let now = ticks()?;
        let (idle, all) = (now.idle - before.idle, now.all - before.all);
        if all > 0 && idle * 100 >= all * IDLE_PERCENT_MIN {
            return Ok(());
        }
        before = now;
    }
    report::note(format!("the machine is still busy after {} s", LIMIT.as_secs()));
    Ok(())
}

struct Ticks {
    idle: u64,
    all: u64,
}

/// First line of /proc/stat: user, nice, system, idle, iowait and so on, summed over the CPUs.
fn ticks() -> Result<Ticks> {
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let idle = fields.iter().skip(3).take(2).sum();
    Ok(Ticks { idle, all: fields.iter().sum() })
}
