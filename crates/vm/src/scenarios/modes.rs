// SPDX-License-Identifier: GPL-2.0-only

//! Options that change the policy's rules, each with the tasks that it concerns. In exact mode: in
//! fast mode a busy host would delay every task.

use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load};
use crate::guest::probe::Samples;
use crate::guest::processes::bind;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, clock, report, wakeups, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::CStr;
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "modes",
        about: "how late a wakee runs beside hogs: within a millisecond under --fifo-mode, which \
            must switch back under load, and at a tick with --no-preempt",
        cpus: Some(2),
        exact: true,
        once: true,
        run: modes,
        ..USUAL
    },
    Scenario {
        name: "boost",
        about: "--boost: a hog of that name gets more CPU time than the others, and a hog boosted \
            to batch gets no more",
        cpus: Some(2),
        exact: true,
        once: true,
        run: boost,
        ..USUAL
    },
    Scenario {
        name: "low-power",
        about: "--low-power: a Batch task waits for the busy CPU while the other one is idle, and \
            a LatCritical task does not",
        cpus: Some(2),
        exact: true,
        once: true,
        run: low_power,
        ..USUAL
    },
    Scenario {
        name: "low-power-bound",
        about: "--low-power: of tasks that compute, all bound to the scheduling process's CPU, \
            none starves while the other CPU idles",
        cpus: Some(2),
        once: true,
        run: low_power_bound,
        ..USUAL
    },
];

/// By then the hogs have used their first slices and are classified.
const SETTLE: Duration = Duration::from_millis(700);
/// Some 200 wakeups.
const PROBE_S: u64 = 1;
/// A slice ends at a tick, every 4 ms, so a wakee that waits for a tick waits 2 ms on average. A
/// wakee that preempts waits far less than 1 ms.
const SOON_US: f64 = 1_000.0;
const WINDOW: Duration = Duration::from_secs(2);
/// The least work of a boosted hog, by that of another hog.
const BOOST_MIN_PERCENT: u64 = 150;
/// The most CPU time of a hog that shares its CPU with a batch task, which needs a third of a CPU.
/// A hog alone on its CPU gets all of it. Work would not show this, because busy CPUs share one
/// stream of instructions.
const SHARED_MAX_PERCENT: u64 = 85;
/// Longer than the kernel's watchdog waits, in seconds.
const WATCHED_S: u64 = 8;
const BOOSTED: &CStr = c"packets";
const HELD_BACK: &CStr = c"lump";

fn modes(guest: &Guest) -> Result<()> {
    // Under the policy fifo the median is 10 ms, so a mode that does not switch back fails here.
    let variants: [(&[&str], bool); 2] = [(&["--fifo-mode"], true), (&["--no-preempt"], false)];
    for (arguments, soon) in variants {
        let scheduler = Scheduler::start(guest, arguments)?;
        let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
        sleep(SETTLE);
        let late = wakeups::start(PROBE_S)?.finish()?;
        let what = format!("with {arguments:?} a wakee runs late by {}", quantiles(&late));
        report::note(what.as_str());
        ensure!((late.quantile_us(500) < SOON_US) == soon, "{what}");
        drop(load);
        scheduler.finish()?;
    }
    Ok(())
}

fn boost(guest: &Guest) -> Result<()> {
    let boosts = ["--boost", "packets", "--boost", "lump:batch"];
    let scheduler = Scheduler::start(guest, &boosts)?;
    let mut plan = vec![Kind::Hog; 2 * guest.cpus];
    plan.extend([BOOSTED, HELD_BACK].map(|name| Kind::Named { name, life: Life::Hog }));
    let load = Load::start(&plan)?;
    sleep(SETTLE);
    let done = load.steps_in(WINDOW);
    let hogs = done[..2 * guest.cpus].iter().sum::<u64>() / (2 * guest.cpus as u64);
    ensure!(hogs > 0, "the other hogs did nothing: {done:?}");
    let [boosted, held_back] = [2, 1].map(|last| done[plan.len() - last] * 100 / hogs);
    let said = format!("of the work of a hog: packets {boosted} %, lump {held_back} %");
    report::note(said.as_str());
    ensure!(boosted >= BOOST_MIN_PERCENT && held_back < BOOST_MIN_PERCENT, "{said}");
    drop(load);
    scheduler.finish().map(drop)
}

fn low_power(guest: &Guest) -> Result<()> {
    // One waiting task only: with two, even the hog may wake the other CPU.
    let lump = Life::Periodic { period_us: 12_000, work_us: 4_000 };
    let plan = [Kind::Hog, Kind::Named { name: HELD_BACK, life: lump }];
    let mut shares = Vec::new();
    for arguments in [&["--boost", "lump:batch"][..], &["--boost", "lump:batch", "--low-power"]] {
        let scheduler = Scheduler::start(guest, arguments)?;
        let load = Load::start(&plan)?;
        sleep(SETTLE);
        let used = || clock::cpu_time_ns(load.workers()[0].pid).context("the hog has a CPU clock");
        let (before, start) = (used()?, clock::now_ns());
        let done = load.steps_in(WINDOW);
        let percent = (used()? - before) * 100 / (clock::now_ns() - start);
        let late = wakeups::start(PROBE_S)?.finish()?;
        report::note(format!(
            "with {arguments:?}: units of work {done:?}, the hog has {percent} % of a CPU, a wakee \
             runs late by {}",
            quantiles(&late)
        ));
        ensure!(done.iter().all(|&units| units > 0), "a worker made no progress: {done:?}");
        ensure!(late.quantile_us(500) < SOON_US, "with {arguments:?} a wakee runs late");
        shares.push(percent);
        drop(load);
        scheduler.finish()?;
    }
    let [without, with] = shares[..] else { bail!("two runs have two shares") };
    ensure!(
        without > SHARED_MAX_PERCENT,
        "without --low-power the hog shares its CPU: {without} %"
    );
    ensure!(with <= SHARED_MAX_PERCENT, "with --low-power the hog is alone on its CPU: {with} %");
    Ok(())
}

fn low_power_bound(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--low-power"])?;
    let load = Load::start(&[Kind::PinnedHog { cpu: 0 }; 4])?;
    bind(scheduler.worker()?, 0)?;
    watch::every_worker_moves(&load, WATCHED_S, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

fn quantiles(late: &Samples) -> String {
    let [p50, p90, p99] = [500, 900, 990].map(|permille| late.quantile_us(permille));
    format!("{p50:.0} us (p50), {p90:.0} us (p90), {p99:.0} us (p99)")
}
