// SPDX-License-Identifier: GPL-2.0-only

//! A scheduler with a planted fault: it waits in a round, never ends one, or panics.

use super::held_up::{SETTLE, STALL_S, expect_early};
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::{EXIT_LIMIT, Ended, STOP_LIMIT, Scheduler};
use crate::guest::{Guest, kernel, report, wakeups, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "blocked",
        about: "the worker waits in the kernel and never comes back: the backend \
            schedules hogs and sleepers meanwhile, no wakeup waits for more than 50 ms, health \
            shows it, and a signal ends the scheduler",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: blocked,
        ..USUAL
    },
    Scenario {
        name: "endless-round",
        about: "the same with a worker that computes in one round without end",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: endless_round,
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

/// The fault comes so long after the start (`src/planted.rs`).
const AFTER: Duration = Duration::from_secs(2);
/// From the panic to the kernel's own scheduler.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(1);

fn blocked(guest: &Guest) -> Result<()> {
    without_decisions(guest, "blocked")
}

fn endless_round(guest: &Guest) -> Result<()> {
    without_decisions(guest, "endless")
}

/// Measures wakeups beside hogs while no decision comes, and ends a scheduler that still does not
/// decide.
fn without_decisions(guest: &Guest, fault: &str) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--plant", fault])?;
    let mut kinds = vec![Kind::Hog; 2 * guest.cpus];
    kinds.extend([Kind::Sleeper { pause_us: 2_000 }; 2]);
    let load = Load::start(&kinds)?;
    sleep(AFTER + SETTLE);
    let probe = wakeups::start(STALL_S)?;
    let moves = watch::every_worker_moves(&load, STALL_S, |_| scheduler.expect_in_charge());
    expect_early(&probe.finish()?)?;
    moves.context("while no decision came")?;
    let statistics = scheduler.statistics()?;
    let health = statistics.text("health")?;
    ensure!(health.contains("has not run for"), "health is {health:?}");
    drop(load);
    kernel::expect_no_stall()?;
    scheduler.stop(libc::SIGTERM, STOP_LIMIT).map(drop)
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
