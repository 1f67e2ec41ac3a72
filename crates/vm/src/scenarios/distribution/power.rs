// SPDX-License-Identifier: GPL-2.0-only

//! The machine sleeps and wakes up again.

use super::machine::{UNIT, main_pid, property, shell};
use super::service::expect_in_charge;
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Duration;

/// How long the machine sleeps, in seconds of its clock.
const SLEEP_S: u64 = 4;
const BACK_LIMIT: Duration = Duration::from_secs(60);

/// Suspends to memory, and the alarm of the machine's clock wakes it up. The kernel takes all CPUs
/// but one offline meanwhile, which ejects a scheduler; ours starts again in the same unit.
pub fn suspend(_: &Guest) -> Result<()> {
    let states = fs::read_to_string("/sys/power/state").context("the states of sleep")?;
    if !states.split_whitespace().any(|state| state == "mem") {
        report::note(format!("skipped: this kernel suspends to {:?} only", states.trim()));
        return Ok(());
    }
    let before = main_pid()?;
    let sleeps = || -> Result<u64> {
        let count = fs::read_to_string("/sys/power/suspend_stats/success")?;
        count.trim().parse().context("counting the suspensions")
    };
    let slept_before = sleeps()?;
    shell(&format!("rtcwake --mode no --seconds {SLEEP_S} && systemctl suspend"))?;
    kernel::wait_for_state("enabled", BACK_LIMIT)?;
    super::machine::wait_for("the machine slept", BACK_LIMIT, || Ok(sleeps()? > slept_before))?;
    expect_in_charge()?;
    ensure!(main_pid()? == before, "systemd had to start the unit again");
    ensure!(property(UNIT, "NRestarts")? == "2", "a failure was counted");
    kernel::expect_no_stall()
}
