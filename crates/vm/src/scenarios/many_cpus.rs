// SPDX-License-Identifier: GPL-2.0-only

//! More CPUs than a machine word has bits.

use crate::guest::load::{Kind, Load};
use crate::guest::memory::{Memory, RESIDENT_MAX};
use crate::guest::scheduler::Scheduler;
use crate::guest::wait::wait_for;
use crate::guest::{Guest, report, wakeups, watch};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[Scenario {
    name: "sixteen-cpus",
    about: "16 CPUs, as many as a desktop has: the kernel accepts every program, and hogs, a \
        sleeper, a pipe and tasks bound to the last CPUs run, and the worker holds at most 48 MiB",
    cpus: Some(16),
    limit_s: 120,
    once: true,
    run: sixteen_cpus,
    ..USUAL
}];

pub const MANY_CPUS: Scenario = Scenario {
    name: "many-cpus",
    about: "72 CPUs: hogs, sleepers, a pipe and tasks bound to the last CPUs all run; in a strict \
        domain of the last eight CPUs all run there. Minutes on a small host, where more \
        hogs than this would leave no time to the other CPUs",
    cpus: Some(72),
    limit_s: 1_800,
    run: many_cpus,
    ..FULL_SPEED
};

/// The first CPU of the domain, which lies beyond the first 64.
const FIRST: usize = 64;
/// Each takes the host's time from the other CPUs.
const HOGS: usize = 4;
/// For so long each worker has to move, in seconds: the host runs 72 CPUs on a few.
const SECONDS: u64 = 20;
/// The same for 16 CPUs.
const SHORT: u64 = 6;
/// By then the tasks are classified and placed.
const SETTLE: Duration = Duration::from_secs(5);
/// Looks at the CPU of each task, and the pause after each.
const LOOKS: u32 = 20;
const GLANCE: Duration = Duration::from_millis(250);
/// By then they all are where they should be.
const INSIDE_LIMIT: Duration = Duration::from_secs(120);

fn sixteen_cpus(guest: &Guest) -> Result<()> {
    let scheduler = start(guest, &[])?;
    let mut plan = vec![Kind::Hog; HOGS];
    plan.extend([0, guest.cpus - 1].map(|cpu| Kind::PinnedHog { cpu }));
    plan.extend([Kind::Sleeper { pause_us: 3_000 }, Kind::PipePair, Kind::Forker]);
    let load = Load::start(&plan)?;
    watch::every_worker_moves(&load, SHORT, |_| scheduler.expect_in_charge())?;
    Memory::of_scheduler(&scheduler)?.expect_at_most(RESIDENT_MAX)?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Starts the scheduler, with every part of the fast path.
fn start(guest: &Guest, options: &[&str]) -> Result<Scheduler> {
    let scheduler = Scheduler::start(guest, options)?;
    let statistics = scheduler.statistics()?;
    let fast_path = statistics.text("fast_path")?;
    ensure!(fast_path == "loaded", "the fast path is {fast_path}");
    Ok(scheduler)
}

fn many_cpus(guest: &Guest) -> Result<()> {
    everywhere(guest)?;
    in_the_last_eight(guest)
}

/// Every task moves, wherever it may run.
fn everywhere(guest: &Guest) -> Result<()> {
    let scheduler = start(guest, &[])?;
    let mut plan = vec![Kind::Hog; HOGS];
    plan.extend([guest.cpus - 1, FIRST].map(|cpu| Kind::PinnedHog { cpu }));
    plan.extend([1_000, 10_000, 10_000].map(|pause_us| Kind::Sleeper { pause_us }));
    plan.extend([Kind::PipePair, Kind::Forker]);
    let load = Load::start(&plan)?;
    sleep(SETTLE);
    let probe = wakeups::start(SECONDS)?;
    watch::every_worker_moves(&load, SECONDS, |_| scheduler.expect_in_charge())?;
    let waits = probe.finish()?;
    let [p50, p99] = [500, 990].map(|permille| waits.quantile_us(permille));
    report::note(format!("72 CPUs: wakeups p50 {p50:.0} us, p99 {p99:.0}"));
    drop(load);
    scheduler.finish().map(drop)
}

/// With a strict domain beyond the first 64 CPUs, tasks run there and nowhere else.
fn in_the_last_eight(guest: &Guest) -> Result<()> {
    let domain = format!("{FIRST}-{}", guest.cpus - 1);
    let scheduler = start(guest, &["--primary-domain", &domain, "--domain-strict"])?;
    let mut plan = vec![Kind::Hog; guest.cpus - FIRST];
    plan.push(Kind::Sleeper { pause_us: 10_000 });
    let load = Load::start(&plan)?;
    wait_until_inside(&load)?;
    watch::every_worker_moves(&load, SECONDS, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Waits until so many looks in a row find every task in the domain. A host that runs 72 CPUs on a
/// few holds the worker up again and again, and the backend uses every CPU meanwhile.
fn wait_until_inside(load: &Load) -> Result<()> {
    let stay_inside = || {
        for _ in 0..LOOKS {
            if cpus(load)?.iter().any(|cpu| *cpu < FIRST) {
                return Ok(false);
            }
            sleep(GLANCE);
        }
        Ok(true)
    };
    let waited = wait_for("every task in the domain", INSIDE_LIMIT, stay_inside);
    waited.map(drop).with_context(|| format!("now they run on the CPUs {:?}", cpus(load)))
}

/// The CPU of each task.
fn cpus(load: &Load) -> Result<Vec<usize>> {
    load.workers().iter().map(|worker| last_cpu(worker.pid)).collect()
}

/// The CPU on which a process runs, or ran last: field 39 of its `stat`.
fn last_cpu(pid: libc::pid_t) -> Result<usize> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name, field 2, may contain anything.
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let field = after_name.split_whitespace().nth(36).context("too few fields")?;
    field.parse().with_context(|| format!("{path}: the CPU is {field:?}"))
}
