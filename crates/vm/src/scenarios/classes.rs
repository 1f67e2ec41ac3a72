// SPDX-License-Identifier: GPL-2.0-only

//! Which tasks the scheduler schedules, and where they may run.

use crate::guest::load::{self, Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "full-user",
        about: "--full-user: every wakeup is queued to user space, even on an idle machine, and \
            the mix makes progress",
        once: true,
        run: full_user,
        ..USUAL
    },
    Scenario {
        name: "partial",
        about: "--partial: the scheduler schedules the tasks that asked for SCHED_EXT and no \
            others; all of them make progress",
        once: true,
        run: partial,
        ..USUAL
    },
    Scenario {
        name: "pinned",
        about: "three tasks bound to each CPU beside unbound ones: every task makes progress, and \
            the bound ones stay on their CPU",
        run: pinned,
        ..USUAL
    },
    Scenario {
        name: "weights",
        about: "hogs of nice 0 and 5 share by the kernel's weights; nice 19 and SCHED_IDLE get \
            little, but not nothing. In exact mode, so that no share depends on the host",
        cpus: Some(2),
        limit_s: 60,
        exact: true,
        once: true,
        run: weights,
        ..USUAL
    },
];

/// `sched_prio_to_weight` of the kernel: 1024 and 335.
const NICE_0_TO_5: f64 = 1024.0 / 335.0;
/// nice 19 weighs 15 of 1024, SCHED_IDLE 3. A tick of 4 ms a second adds little to that.
const LOSERS_MAX_PERCENT: u64 = 5;
const SECOND: Duration = Duration::from_secs(1);

fn full_user(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--full-user"])?;
    // On a machine with idle CPUs the backend would otherwise dispatch these wakeups itself.
    let sleepers = Load::start(&[Kind::Sleeper { pause_us: 5_000 }; 4])?;
    std::thread::sleep(SECOND);
    let before = scheduler.statistics()?;
    let slept: u64 = sleepers.steps().iter().sum();
    std::thread::sleep(3 * SECOND);
    let wakes = sleepers.steps().iter().sum::<u64>() - slept;
    let after = scheduler.statistics()?;
    let rise = |field| after.rise(&before, field);
    let (ours, kernels) = (rise("nr_user_dispatches")?, rise("nr_kernel_dispatches")?);
    report::note(format!("{wakes} wakeups: {ours} user dispatches, {kernels} by the backend"));
    // Each of the four sleepers may be waking at each of the two readings.
    ensure!(ours + 8 >= wakes, "{wakes} wakeups, but only {ours} user dispatches");
    // Kernel threads bound to a CPU are never queued to user space; on a machine that mostly
    // sleeps they have little work.
    ensure!(kernels <= wakes / 4, "{kernels} dispatches by the backend for {wakes} wakeups");
    drop(sleepers);
    let load = Load::start(&load::mix(guest.cpus))?;
    watch::every_worker_moves(&load, 5, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

/// The class of sched_ext is below that of ordinary tasks: an ordinary hog takes its whole CPU, and
/// sched_ext tasks on that CPU wait. Newer kernels guarantee the class a share. On older ones its
/// tasks can make progress only beside ordinary tasks that sleep now and then.
fn partial(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--partial"])?;
    let mut others = vec![Kind::Sleeper { pause_us: 1_000 }; 2 * guest.cpus];
    if kernel::guarantees_sched_ext_a_share() {
        others.push(Kind::Hog);
    }
    let ordinary = Load::start(&others)?;
    let ours = Load::start(&vec![Kind::SchedExtHog; 2 * guest.cpus])?;
    watch::every_worker_moves(&ours, 6, |_| scheduler.expect_in_charge())?;
    expect_class(&ours, true)?;
    expect_class(&ordinary, false)?;
    let before = scheduler.statistics()?.count("nr_user_dispatches")?;
    ensure!(before > 0, "no user dispatch for the tasks that asked for SCHED_EXT");
    drop(ours);
    std::thread::sleep(SECOND);
    let alone = scheduler.statistics()?.count("nr_user_dispatches")?;
    watch::every_worker_moves(&ordinary, 2, |_| Ok(()))?;
    let end = scheduler.statistics()?.count("nr_user_dispatches")?;
    report::note(format!(
        "user dispatches: {before} while SCHED_EXT tasks ran, {} in 2 s without",
        end - alone
    ));
    ensure!(
        end == alone,
        "{} user dispatches in 2 s without any task that asked for SCHED_EXT",
        end - alone
    );
    drop(ordinary);
    scheduler.finish().map(drop)
}

/// Fails unless the kernel reports this class for each worker.
fn expect_class(load: &Load, sched_ext: bool) -> Result<()> {
    for worker in load.workers() {
        let path = format!("/proc/{}/sched", worker.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let line = text.lines().find(|line| line.starts_with("ext.enabled"));
        let enabled = line
            .and_then(|line| line.split(':').nth(1))
            .context("/proc/PID/sched has no ext.enabled")?;
        ensure!(
            (enabled.trim() == "1") == sched_ext,
            "{} has ext.enabled {}",
            worker.name,
            enabled.trim()
        );
    }
    Ok(())
}

fn pinned(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let bound = (0..guest.cpus).flat_map(|cpu| [Kind::PinnedHog { cpu }; 3]);
    let mut plan: Vec<Kind> = bound.collect();
    plan.extend(vec![Kind::Hog; guest.cpus]);
    plan.push(Kind::Sleeper { pause_us: 3_000 });
    let load = Load::start(&plan)?;
    watch::every_worker_moves(&load, 8, |_| scheduler.expect_in_charge())?;
    for (worker, strays) in load.workers().iter().zip(load.strays()) {
        ensure!(
            strays == 0,
            "{} did {strays} units of work on a CPU where it must not run",
            worker.name
        );
    }
    drop(load);
    scheduler.finish().map(drop)
}

fn weights(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let pair = [Kind::NiceHog { nice: 0 }, Kind::NiceHog { nice: 5 }];
    let done = work_in(6 * SECOND, &pair.repeat(guest.cpus))?;
    let sum = |first: usize| done.iter().skip(first).step_by(2).sum::<u64>();
    let ratio = sum(0) as f64 / sum(1).max(1) as f64;
    report::note(format!("nice 0 and 5 in turn: {done:?}, so {ratio:.2} to 1"));
    ensure!(
        (ratio / NICE_0_TO_5 - 1.0).abs() <= 0.1,
        "nice 0 gets {ratio:.2} times as much as nice 5, not {NICE_0_TO_5:.2} times"
    );

    let mut plan = vec![Kind::Hog; guest.cpus];
    plan.extend([Kind::NiceHog { nice: 19 }, Kind::IdleClassHog]);
    let done = work_in(5 * SECOND, &plan)?;
    report::note(format!("units of work of {plan:?}: {done:?}"));
    let (hogs, losers) = done.split_at(guest.cpus);
    let each = hogs.iter().sum::<u64>() / hogs.len() as u64;
    for (kind, &loser) in plan[guest.cpus..].iter().zip(losers) {
        ensure!(loser > 0, "{kind:?} made no progress");
        ensure!(
            loser * 100 <= each * LOSERS_MAX_PERCENT,
            "{kind:?} did {loser} units of work, a hog {each}"
        );
    }
    scheduler.finish().map(drop)
}

/// The work of each worker in this time, after a warm-up.
fn work_in(time: Duration, plan: &[Kind]) -> Result<Vec<u64>> {
    let load = Load::start(plan)?;
    std::thread::sleep(SECOND / 2);
    Ok(load.steps_in(time))
}
