// SPDX-License-Identifier: GPL-2.0-only

//! A scheduler with a planted fault: it waits in a round, never ends one, or panics.

use super::ejection::expect_report;
use super::errors::EJECTED;
use super::held_up::{SETTLE, STALL_S, expect_early, expect_stall};
use crate::guest::load::{Kind, Load};
use crate::guest::processes::signal;
use crate::guest::scheduler::{EXIT_LIMIT, Ended, STOP_LIMIT, Scheduler};
use crate::guest::wait::wait_for;
use crate::guest::{Guest, kernel, report, wakeups, watch};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "blocked",
        about: "the worker waits in the kernel for longer than the watchdog waits: the backend \
            schedules hogs and sleepers meanwhile, no wakeup waits for more than 50 ms, health and \
            a line tell of it, and then why it was",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: blocked,
        ..FULL_SPEED
    },
    Scenario {
        name: "endless-round",
        about: "the same with a worker that computes in one round as long",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: endless_round,
        ..FULL_SPEED
    },
    Scenario {
        name: "never-back",
        about: "the worker never comes back from a round: a signal ends the scheduler, and so does \
            the death of its main process; if the kernel has ejected it, a signal does too, and \
            without one it ends with exit code 7 and a report",
        limit_s: 180,
        once: true,
        run: never_back,
        ..USUAL
    },
    Scenario {
        name: "panic",
        about: "the worker panics beside hogs, with an error output that is read and with a full \
            one: the kernel's own scheduler takes over at once, and the program ends with exit \
            code 1 and the reason",
        limit_s: 60,
        once: true,
        run: panic,
        ..USUAL
    },
];

/// The fault comes so long after the first round (`src/planted.rs`).
const AFTER: Duration = Duration::from_secs(2);
/// Statistics are served from the first round on. The kernel may have the worker wait for that
/// after it says that the scheduler is enabled.
const FIRST_ROUND_LIMIT: Duration = Duration::from_secs(15);
/// It lasts longer than wakeups are measured.
const LASTS_MS: &str = "9000";
/// From the panic to the kernel's own scheduler.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(1);
/// Until a worker without a scheduler is ended (`src/silence.rs`), and until one is that has got a
/// signal besides (`src/worker_process.rs`).
const SILENT_LIMIT: Duration = Duration::from_secs(50);
const SIGNAL_LIMIT: Duration = Duration::from_secs(35);
/// Until a worker without its main process ends itself (`src/process.rs`) and is unloaded.
const ORPHAN_LIMIT: Duration = Duration::from_secs(20);

fn blocked(guest: &Guest) -> Result<()> {
    without_decisions(guest, "blocked", "it waited in the kernel")
}

fn endless_round(guest: &Guest) -> Result<()> {
    without_decisions(guest, "endless", "one round took so long")
}

/// Measures wakeups beside hogs while no decision comes, and expects that it is told.
fn without_decisions(guest: &Guest, fault: &str, cause: &str) -> Result<()> {
    let scheduler = start_planted(guest, &["--plant", fault, "--plant-for-ms", LASTS_MS])?;
    let mut kinds = vec![Kind::Hog; 2 * guest.cpus];
    kinds.extend([Kind::Sleeper { pause_us: 2_000 }; 2]);
    // On the worker's CPU too.
    let bound = |cpu| Kind::BoundSleeper { pause_us: 3_000, cpus: 1u64 << cpu };
    kinds.extend((0..guest.cpus).map(bound));
    let load = Load::start(&kinds)?;
    sleep(AFTER);
    let probe = wakeups::start(STALL_S)?;
    let moves = watch::every_worker_moves(&load, STALL_S, |_| scheduler.expect_in_charge());
    let statistics = scheduler.statistics()?;
    let health = statistics.text("health")?;
    ensure!(health.contains("has not run for"), "health is {health:?}");
    expect_early(&probe.finish()?)?;
    moves.context("while no decision came")?;
    let told = scheduler.printed();
    let is_told = told.iter().any(|line| line.contains("has not decided for"));
    ensure!(is_told, "no line tells of it: {told:?}");
    // Until it is over, and told.
    sleep(AFTER + 2 * SETTLE);
    expect_stall(&scheduler, cause)?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Starts the scheduler, and waits for its first round. The fault comes later.
fn start_planted(guest: &Guest, arguments: &[&str]) -> Result<Scheduler> {
    let scheduler = Scheduler::start(guest, arguments)?;
    wait_for("the first round", FIRST_ROUND_LIMIT, || Ok(scheduler.statistics().is_ok()))?;
    Ok(scheduler)
}

/// Starts the scheduler, and waits until the fault has come.
fn start_faulty(guest: &Guest, fault: &str) -> Result<Scheduler> {
    let scheduler = start_planted(guest, &["--plant", fault])?;
    sleep(AFTER + SETTLE);
    Ok(scheduler)
}

fn never_back(guest: &Guest) -> Result<()> {
    let start = || start_faulty(guest, "blocked");
    start()?.stop(libc::SIGTERM, STOP_LIMIT).context("while it is loaded")?;
    orphan(guest)?;

    let eject = || -> Result<Scheduler> {
        let scheduler = start()?;
        ensure!(kernel::sysrq('S'), "this kernel has no SysRq keys");
        kernel::wait_for_state("disabled", STOP_LIMIT)?;
        Ok(scheduler)
    };
    let mut scheduler = eject()?;
    signal(scheduler.pid(), libc::SIGINT)?;
    let ended = scheduler.wait_for_end(SIGNAL_LIMIT).context("ejected, after a signal")?;
    ensure!(ended.status.code() == Some(0), "after a signal: {}", ended.describe());

    let ended = eject()?.wait_for_end(SILENT_LIMIT).context("ejected, without a signal")?;
    ensure!(ended.status.code() == Some(EJECTED), "without a signal: {}", ended.describe());
    ensure!(ended.tells("did not notice it"), "it does not say why: {}", ended.describe());
    ensure!(ended.tells("had decided nothing for"), "the gap is missing: {}", ended.describe());
    expect_report(&ended, "did not notice it")
}

/// Kills the main process while the worker is in a round without end.
fn orphan(guest: &Guest) -> Result<()> {
    let mut scheduler = start_faulty(guest, "endless")?;
    signal(scheduler.pid(), libc::SIGKILL)?;
    scheduler.wait_for_end(EXIT_LIMIT)?;
    kernel::wait_for_state("disabled", ORPHAN_LIMIT).context("after its main process was killed")
}

fn panic(guest: &Guest) -> Result<()> {
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    let planted = ["--plant", "panic"];
    let ended = end_by_panic(Scheduler::start(guest, &planted)?)?;
    ensure!(ended.tells("a planted panic"), "it does not say why: {}", ended.describe());
    let unread = Scheduler::start_with_full_output(guest, &planted)?;
    end_by_panic(unread).context("with a full error output")?;
    drop(load);
    Ok(())
}

/// Waits for the panic, and demands the kernel's own scheduler at once and the exit code of a bug.
fn end_by_panic(mut scheduler: Scheduler) -> Result<Ended> {
    let start = Instant::now();
    kernel::wait_for_state("disabled", AFTER + TAKEOVER_LIMIT).context("after the panic")?;
    report::note(format!("the kernel's own again {:.0?} after the start", start.elapsed()));
    let ended = scheduler.wait_for_end(EXIT_LIMIT)?;
    ensure!(ended.status.code() == Some(1), "it did not fail: {}", ended.describe());
    Ok(ended)
}
