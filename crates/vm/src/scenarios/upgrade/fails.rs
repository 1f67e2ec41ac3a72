// SPDX-License-Identifier: GPL-2.0-only

//! A new program that passes its trial, and then fails to load.

use super::kept::Stopped;
use super::{
    LIMIT, ask_for_upgrade, expect_kept, start_load, upgrade_once, wait_for_line, wait_for_upgrade,
};
use crate::guest::load::Load;
use crate::guest::scheduler::Scheduler;
use crate::guest::wait::wait_for;
use crate::guest::witness::Witness;
use crate::guest::{Guest, boot, clock, kernel, report, watch};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::{Duration, Instant};

/// What every load of a scheduler reads. An empty file makes it fail before an earlier one ends.
const READ_AT_LOAD: &str = "/sys/kernel/sched_ext/hotplug_seq";
const EMPTY: &str = "/dev/null";
/// The variable by which the old program hands over: `VARIABLE` of `src/upgrade/handover.rs`.
const HANDOVER: &[u8] = b"SCX_PANDEMONIUM_USER_UPGRADE=";
/// Shorter than a program takes from its execution to the load of the backend.
const MOMENT: Duration = Duration::from_millis(1);
/// What is told of a failure, and of two in a row.
const REFUSED: &str = "the kernel refused to load the scheduler";
const FAILED_TWICE: &str = "2 starts in a row have failed: starting again in";
/// For how long the old worker is watched after that, in seconds.
const WATCHED_S: u64 = 2;

pub(super) fn upgrade_fails(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = start_load(guest)?;
    let stopped = Stopped::start(guest)?;
    let witness = Witness::start(guest.cpus)?;
    let old = scheduler.worker()?;
    let (upgraded, waited) = witness.while_measuring(|| {
        fail_to_upgrade(&scheduler, &load, old)?;
        wait_for_upgrade(1).context("when it can load")
    })?;
    upgraded.with_context(|| format!("it printed: {:?}", scheduler.printed()))?;
    report::note(waited.to_string());
    waited.expect_short()?;
    let is_new = || Ok(scheduler.worker().is_ok_and(|worker| worker != old));
    wait_for("the new scheduling process alone", LIMIT, is_new)?;
    expect_kept(guest, &scheduler, &stopped)?;

    report::progress("a further upgrade");
    upgrade_once(&scheduler, &witness, 2).context("in the further upgrade")?;
    expect_kept(guest, &scheduler, &stopped)?;
    stopped.go_on(&scheduler)?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Asks for an upgrade to a program that fails to load once it has replaced the old one. In the end
/// it can load.
fn fail_to_upgrade(scheduler: &Scheduler, load: &Load, old: libc::pid_t) -> Result<()> {
    let loads = kernel::sched_ext_loads()?;
    ask_for_upgrade(scheduler);
    wait_for_new_program(scheduler)?;
    let no_load = NoLoad::begin()?;
    let printed = wait_for_line(scheduler, FAILED_TWICE)?;
    let reason = printed.iter().find(|line| line.contains(REFUSED));
    report::note(reason.with_context(|| format!("it does not say why: {printed:?}"))?.as_str());
    expect_decisions(scheduler, load, old)?;
    let more = kernel::sched_ext_loads()? - loads;
    ensure!(more == 0, "a scheduler was loaded {more} times meanwhile");
    drop(no_load);
    Ok(())
}

/// Waits until the supervisor executes the new program: its trial is over then.
fn wait_for_new_program(scheduler: &Scheduler) -> Result<()> {
    let start = Instant::now();
    let path = format!("/proc/{}/environ", scheduler.pid());
    let is_new = || {
        let variables = fs::read(&path).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable.starts_with(HANDOVER))
    };
    while !is_new() {
        let is_early = start.elapsed() < LIMIT;
        ensure!(is_early, "no new program is executed: {:?}", scheduler.printed());
        std::thread::sleep(MOMENT);
    }
    Ok(())
}

/// The old worker still decides: its scheduler is the loaded one, and it uses CPU time, as a worker
/// does only if it has rounds.
fn expect_decisions(scheduler: &Scheduler, load: &Load, old: libc::pid_t) -> Result<()> {
    let used = || clock::cpu_time_ns(old).context("the old scheduling process has ended");
    let mut before = used()?;
    watch::every_worker_moves(load, WATCHED_S, |_| {
        scheduler.expect_in_charge()?;
        let statistics = scheduler.statistics()?;
        let health = statistics.text("health")?;
        ensure!(health == "starting", "the statistics say that health is {health}");
        ensure!(scheduler.processes().contains(&old), "the old scheduling process has ended");
        let now = used()?;
        ensure!(now > before, "the old scheduling process decides nothing");
        before = now;
        Ok(())
    })
    .context("while the new program fails to load")
}

/// While it lives, no program loads a scheduler.
struct NoLoad;

impl NoLoad {
    fn begin() -> Result<NoLoad> {
        boot::mount(EMPTY, READ_AT_LOAD, "", libc::MS_BIND)?;
        Ok(NoLoad)
    }
}

impl Drop for NoLoad {
    fn drop(&mut self) {
        if let Err(error) = boot::unmount(READ_AT_LOAD) {
            report::note(format!("no program can load a scheduler any more: {error:#}"));
        }
    }
}
