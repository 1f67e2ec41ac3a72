// SPDX-License-Identifier: GPL-2.0-only

//! Loading and unloading.

use super::held_up;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, kernel, report, wakeups};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Checks a kernel: run once for each kernel that is fetched.
pub const KERNEL_CHECK: Scenario = Scenario {
    name: "kernel-check",
    about: "the kernel loads the scheduler",
    run: |guest| Scheduler::start(guest, &[]).map(drop),
    ..FULL_SPEED
};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "reload",
        about: "load and unload six times: each time the kernel runs under the scheduler, then \
            under the kernel's own, and the scheduler exits with 0",
        limit_s: 120,
        run: reload,
        ..USUAL
    },
    Scenario {
        name: "slow-start",
        about: "the worker process is delayed between loading and its first round, longer than the \
            kernel's watchdog allows a task to wait: meanwhile hogs make progress, and no wakeup \
            waits for more than 50 ms",
        limit_s: 90,
        exact: true,
        once: true,
        run: slow_start,
        ..USUAL
    },
];

const RELOADS: usize = 6;
/// The kernel's watchdog ejects the scheduler after 5 s.
const DELAY: Duration = Duration::from_secs(8);
/// How long wakeups are measured meanwhile, and from the start of the load, in seconds.
const MEASURED_S: u64 = 5;
const LOADING_S: u64 = 3;

fn reload(guest: &Guest) -> Result<()> {
    for round in 1..=RELOADS {
        report::progress(format!("round {round} of {RELOADS}"));
        kernel::wait_for_state("disabled", Duration::from_secs(5))?;
        Scheduler::start(guest, &[])
            .and_then(Scheduler::finish)
            .with_context(|| format!("in round {round} of {RELOADS}"))?;
    }
    Ok(())
}

fn slow_start(guest: &Guest) -> Result<()> {
    let delay = DELAY.as_millis().to_string();
    let load = Load::start(&vec![Kind::Hog; 4 * guest.cpus])?;
    // From the load on.
    let loading = wakeups::start(LOADING_S)?;
    let scheduler = Scheduler::start(guest, &["--plant-start-delay-ms", &delay])?;
    let probe = wakeups::start(MEASURED_S)?;
    let meanwhile = load.steps_in(Duration::from_secs(MEASURED_S));
    for waits in [loading, probe] {
        held_up::expect_early(&waits.finish()?)?;
    }
    scheduler.expect_in_charge()?;
    // Statistics are served from the first round on. A request waits for two seconds.
    ensure!(Statistics::ask().is_err(), "its first round was not delayed");
    ensure!(meanwhile.iter().all(|&units| units > 0), "a hog makes no progress: {meanwhile:?}");
    let afterwards = load.steps_in(Duration::from_secs(2));
    ensure!(afterwards.iter().all(|&units| units > 0), "a hog makes no progress: {afterwards:?}");
    let statistics = scheduler.statistics()?;
    let decided = statistics.count("nr_batch")?;
    let congested = statistics.count("nr_sched_congested")?;
    ensure!(decided > 0, "it decides nothing after the delay");
    ensure!(congested == 0, "{congested} tasks count as congested during the planned delay");
    scheduler.finish().map(drop)
}
