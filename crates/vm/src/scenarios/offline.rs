// SPDX-License-Identifier: GPL-2.0-only

//! CPUs that are offline before the scheduler starts, as with SMT switched off.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report, wakeups, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[Scenario {
    name: "offline-cpu",
    about: "CPU 2 of three is offline before the start: beside hogs and a pipe no wakeup waits \
        for a tick, and a sleeper bound to CPUs 1 and 2 runs; with a strict domain of those two \
        as well",
    cpus: Some(3),
    limit_s: 120,
    exact: true,
    once: true,
    run: offline_cpu,
    ..USUAL
}];

/// The CPU that is offline.
const OFFLINE: usize = 2;
/// CPUs 1 and 2, as bits.
const LAST_TWO: u64 = 0b110;
/// How long it measures, in seconds: five hundred wakeups.
const SECONDS: u64 = 2;
/// By then the tasks of the load are classified.
const SETTLE: Duration = Duration::from_secs(1);
/// p99 of a wakeup, in us: less than the shortest tick. It was 6,600 while the offline CPU was the
/// first choice of every wakeup. A CPU is interrupted every 500 us at most.
const P99_MAX: f64 = 1_000.0;

fn offline_cpu(guest: &Guest) -> Result<()> {
    kernel::set_online(OFFLINE, false)?;
    let p99 = p99_of_wakeups(guest, &[])?;
    // Only CPU 1 of this domain is online, and hogs fill it: here every task must make progress.
    p99_of_wakeups(guest, &["--primary-domain", "1-2", "--domain-strict"])
        .context("with a strict domain of CPUs 1 and 2")?;
    kernel::set_online(OFFLINE, true)?;
    ensure!(p99 <= P99_MAX, "p99 of wakeups is {p99:.0} us with CPU {OFFLINE} offline");
    Ok(())
}

/// Runs a load beside a task that wakes up, and returns p99 of its waits in us.
fn p99_of_wakeups(guest: &Guest, options: &[&str]) -> Result<f64> {
    let scheduler = Scheduler::start(guest, options)?;
    let mut plan = vec![Kind::Hog; 2 * guest.cpus];
    plan.extend([Kind::PipePair, Kind::BoundSleeper { pause_us: 3_000, cpus: LAST_TWO }]);
    let load = Load::start(&plan)?;
    sleep(SETTLE);
    let probe = wakeups::start(SECONDS)?;
    watch::every_worker_moves(&load, SECONDS, |_| scheduler.expect_in_charge())?;
    let waits = probe.finish()?;
    let [p50, p99, worst] = [waits.quantile_us(500), waits.quantile_us(990), waits.worst_us()];
    report::note(format!("{options:?}: wakeups p50 {p50:.0} us, p99 {p99:.0}, worst {worst:.0}"));
    drop(load);
    scheduler.finish().map(|_| p99)
}
