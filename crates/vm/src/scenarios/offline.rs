// SPDX-License-Identifier: GPL-2.0-only

//! CPUs that are offline before the scheduler starts, as with SMT switched off.

use super::hotplug::switch;
use super::record;
use crate::guest::load::{Kind, Load};
use crate::guest::processes::bind;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report, wakeups, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "offline-cpu",
        about: "CPU 2 of three is offline before the start: beside hogs and a pipe no wakeup \
            waits for a tick, and a sleeper bound to CPUs 1 and 2 runs; with a strict domain of \
            those two as well",
        cpus: Some(3),
        limit_s: 120,
        exact: true,
        once: true,
        run: offline_cpu,
        ..USUAL
    },
    Scenario {
        name: "cpu-comes",
        about: "the second thread of a core is offline before the start, and comes online: from \
            Linux 7.0 on the scheduler stays loaded. Then the cache of the core is known, as a \
            hog shows that changes between the two threads, and a recording of it replays",
        cpus: Some(4),
        threads: 2,
        limit_s: 120,
        run: cpu_comes,
        ..USUAL
    },
];

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

/// The threads of the second core. The second of them is offline at the start.
const CORE: [usize; 2] = [2, 3];
/// The CPUs that share the second-level cache of CPU 3, by the kernel.
const SHARED: &str = "/sys/devices/system/cpu/cpu3/cache/index2/shared_cpu_list";
/// A CPU of the other core.
const ELSEWHERE: usize = 1;
const FILE: &str = "/tmp/run.rec";
/// A hog is bound to another CPU so often.
const CHANGE: Duration = Duration::from_millis(5);
/// The share of runs on the same cache is that of a whole second, and is computed once a second.
const CHANGES_FOR: Duration = Duration::from_millis(2_500);
/// The supervisor reads the kernel's files once a second, until they agree.
const KNOWN_WITHIN: Duration = Duration::from_secs(6);
/// Runs on the cache of the run before, in percent: of a hog that changes between two cores at most
/// (measured: 4; its other runs follow a preemption), and between the threads of a core at least.
const BETWEEN_CORES_MAX: u64 = 50;
const WITHIN_CORE_MIN: u64 = 95;

fn cpu_comes(guest: &Guest) -> Result<()> {
    kernel::set_online(CORE[1], false)?;
    let scheduler = Scheduler::start(guest, &["--record", FILE])?;
    let load = Load::start(&[Kind::Hog])?;
    let hog = load.workers().first().context("no hog runs")?.pid;
    sleep(SETTLE);
    let between = share_on_same_cache(&scheduler, hog, [ELSEWHERE, CORE[0]])?;
    switch(guest, &scheduler, true)?;
    await_topology(&scheduler)?;
    let within = share_on_same_cache(&scheduler, hog, CORE)?;
    report::note(format!("runs on the same cache: {between} % and {within} %"));
    drop(load);
    scheduler.finish()?;
    ensure!(between <= BETWEEN_CORES_MAX, "two cores share a cache: {between} %");
    ensure!(within >= WITHIN_CORE_MIN, "the threads of a core do not share its cache: {within} %");
    record::expect_to_replay(FILE).map(drop)
}

/// Waits until the supervisor tells of two cores.
fn await_topology(scheduler: &Scheduler) -> Result<()> {
    let shared = fs::read_to_string(SHARED).with_context(|| format!("reading {SHARED}"))?;
    ensure!(shared.trim() == "2-3", "the threads of the emulator share no cache: {shared}");
    let start = Instant::now();
    let mut told = Vec::new();
    let is_known = |line: &String| line.contains("4 CPUs online: 2 cores, 2 second-level caches");
    while !told.iter().any(is_known) {
        ensure!(start.elapsed() < KNOWN_WITHIN, "it told of no CPU that came: {told:?}");
        sleep(CHANGE);
        told.extend(scheduler.printed());
    }
    Ok(())
}

/// Binds the hog to the two CPUs in turn, and returns the share of its runs on the cache of the run
/// before, in percent.
fn share_on_same_cache(scheduler: &Scheduler, hog: libc::pid_t, cpus: [usize; 2]) -> Result<u64> {
    let start = Instant::now();
    while start.elapsed() < CHANGES_FOR {
        for cpu in cpus {
            bind(hog, cpu)?;
            sleep(CHANGE);
        }
    }
    scheduler.expect_in_charge()?;
    scheduler.statistics()?.count("l2_batch_pct")
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
