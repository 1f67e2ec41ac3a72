// SPDX-License-Identifier: GPL-2.0-only

//! Coming and going.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Decides whether a kernel is good for anything; run once for each kernel that is fetched.
pub const KERNEL_CHECK: Scenario = Scenario {
    name: "kernel-check",
    about: "load the scheduler once, whatever it does then",
    run: |guest| Scheduler::start(guest, &[]).map(drop),
    ..USUAL
};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "reload",
        about: "load and unload ten times: each time the kernel runs under us, then by itself, and \
            we exit with 0",
        limit_s: 90,
        run: reload,
        ..USUAL
    },
    Scenario {
        name: "slow-start",
        about: "the process that decides is held up between the kernel's start and its first \
            round, longer than the kernel's watchdog allows a task to wait: a busy machine must go \
            on meanwhile",
        limit_s: 90,
        once: true,
        run: slow_start,
        ..USUAL
    },
];

/// The backend's watchdog ends us after 5 s.
const HELD_UP: Duration = Duration::from_secs(8);

fn reload(guest: &Guest) -> Result<()> {
    for round in 1..=10 {
        report::progress(format!("round {round} of 10"));
        kernel::wait_for_state("disabled", Duration::from_secs(5))?;
        Scheduler::start(guest, &[])
            .and_then(Scheduler::finish)
            .with_context(|| format!("in round {round} of 10"))?;
    }
    Ok(())
}

fn slow_start(guest: &Guest) -> Result<()> {
    let held_up = HELD_UP.as_millis().to_string();
    let scheduler = Scheduler::start(guest, &["--plant-start-delay-ms", &held_up])?;
    let load = Load::start(&vec![Kind::Hog; 4 * guest.cpus])?;
    let meanwhile = load.steps_in(HELD_UP - Duration::from_secs(1));
    scheduler.expect_in_charge()?;
    ensure!(meanwhile.iter().all(|&units| units > 0), "some hogs stand still: {meanwhile:?}");
    let afterwards = load.steps_in(Duration::from_secs(2));
    ensure!(afterwards.iter().all(|&units| units > 0), "some hogs stand still: {afterwards:?}");
    let statistics = scheduler.statistics()?;
    let decided = statistics.count("nr_batch")?;
    let congested = statistics.count("nr_sched_congested")?;
    ensure!(decided > 0, "it decides nothing after its late start");
    ensure!(congested == 0, "{congested} tasks count as congested that were kept back on purpose");
    scheduler.finish().map(drop)
}
