// SPDX-License-Identifier: GPL-2.0-only

//! The machine sleeps and wakes up again.

use super::machine::{UNIT, main_pid, property, shell, wait_for};
use super::service::expect_in_charge;
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// systemd runs what is in this folder just before the machine sleeps, and after. Without packages
/// that use it there is none.
const HOOKS: &str = "/usr/lib/systemd/system-sleep";
/// Sets the alarm of the machine's clock. On a slow machine the kernel takes some seconds to sleep
/// after that, and an alarm that rings before wakes nothing up.
const ALARM: &str = "#!/bin/sh\n[ \"$1\" != pre ] || rtcwake --mode no --seconds 12\n";
const BACK_LIMIT: Duration = Duration::from_secs(150);

/// Suspends to memory, and the alarm wakes the machine up. The kernel takes all CPUs but one
/// offline meanwhile, which ejects a scheduler; ours starts again in the same unit.
pub fn suspend(_: &Guest) -> Result<()> {
    let states = fs::read_to_string("/sys/power/state").context("the states of sleep")?;
    let has_mem = states.split_whitespace().any(|state| state == "mem");
    ensure!(has_mem, "this kernel suspends to {:?} only", states.trim());
    let hook = Path::new(HOOKS).join("vm-alarm");
    fs::create_dir(HOOKS).context("creating the folder of hooks")?;
    fs::write(&hook, ALARM).context("writing the hook")?;
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).context("marking the hook")?;
    let before = (main_pid()?, property(UNIT, "NRestarts")?);
    let slept_before = times_slept()?;
    shell("systemctl suspend")?;
    wait_for("the machine slept", BACK_LIMIT, || Ok(times_slept()? > slept_before))?;
    let took =
        wait_for("sched_ext enabled", BACK_LIMIT, || Ok(kernel::sched_ext_state()? == "enabled"))?;
    report::note(format!("in charge {:.1} s after the machine woke up", took.as_secs_f64()));
    fs::remove_dir_all(HOOKS).context("removing the hook")?;
    expect_in_charge()?;
    let after = (main_pid()?, property(UNIT, "NRestarts")?);
    ensure!(after == before, "systemd had to start the unit again: {before:?}, {after:?}");
    kernel::expect_no_stall()
}

/// How often the machine has slept since it was started.
fn times_slept() -> Result<u64> {
    let count = fs::read_to_string("/sys/power/suspend_stats/success")?;
    count.trim().parse().context("counting the suspensions")
}
