// SPDX-License-Identifier: GPL-2.0-only

//! Very many tasks.

use super::{SECOND, expect_sound};
use crate::guest::crowd::{Crowd, Life, Member};
use crate::guest::load::{Kind, Load};
use crate::guest::memory::Memory;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report};
use crate::scenarios::control::ask;
use anyhow::{Context, Result, bail, ensure};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

const HOGS: usize = 10_000;
/// Each of them runs within this time: half of what the kernel's watchdog allows.
const TURN_MAX: Duration = Duration::from_millis(2_500);
/// A task that wakes up passes them.
const BESIDE_HOGS: Duration = Duration::from_millis(50);
/// Seconds until all have run, and for how long they are watched then.
const SETTLE_S: u64 = 8;
/// They begin within this time after that.
const BEGIN_S: u64 = 60;
const WATCHED_S: u64 = 12;

pub(super) fn runnable(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let mut crowd = Crowd::prepare()?;
    let period = Duration::from_millis(20);
    crowd.add(1, Life::Ticker { period })?;
    sleep(SECOND);
    crowd.add(HOGS, Life::Hog)?;
    crowd.add(1, Life::Ticker { period })?;
    watch_crowd(&scheduler, SETTLE_S)?;
    let (tickers, hogs): (Vec<_>, Vec<_>) = split(&crowd, &[0, HOGS + 1]);
    await_begin(&scheduler, hogs.iter().copied(), BEGIN_S, |hog| hog.steps() > 0)?;
    crowd.members().iter().for_each(|member| member.begin_anew());
    let middle = Memory::of_scheduler(&scheduler)?;
    watch_crowd(&scheduler, WATCHED_S)?;
    let quantiles = |mut sorted: Vec<u64>| {
        sorted.sort_unstable();
        [0, 10, 500, 990, 1_000].map(|permille| sorted[(HOGS - 1) * permille / 1_000])
    };
    let units = quantiles(hogs.iter().map(|hog| hog.steps()).collect());
    let waits = quantiles(hogs.iter().map(|hog| hog.longest().as_millis() as u64).collect());
    let turns = quantiles(hogs.iter().map(|hog| hog.most()).collect());
    report::note(format!(
        "{HOGS} hogs, the least, 1 %, half, 99 % and the most: units of one {units:?}, in one turn \
         {turns:?}, the longest wait of one {waits:?} ms"
    ));
    let late = expect_punctual("beside them", &tickers, BESIDE_HOGS);
    Memory::of_scheduler(&scheduler)?.expect_flat_since(&middle)?;
    expect_sound(&scheduler)?;
    late?;
    let ([least, ..], longest) = (units, Duration::from_millis(waits[4]));
    ensure!(least > 0, "a hog did not run");
    ensure!(longest <= TURN_MAX, "a hog waited for {longest:?}, longer than {TURN_MAX:?}");
    drop(crowd);
    scheduler.finish().map(drop)
}

/// Waits until each has begun. A new thread maps a stack for its signals, and waits for another one
/// that does so and has lost its CPU.
pub(super) fn await_begin<'c>(
    scheduler: &Scheduler,
    members: impl IntoIterator<Item = &'c Member> + Clone,
    limit_s: u64,
    has_begun: impl Fn(&Member) -> bool,
) -> Result<()> {
    let missing = || members.clone().into_iter().filter(|member| !has_begun(member)).count();
    for second in 1..=limit_s {
        let idle = missing();
        if idle == 0 {
            report::note(format!("all began within {second} s"));
            return Ok(());
        }
        report::progress(format!("{idle} have not begun"));
        watch_crowd(scheduler, 1)?;
    }
    bail!("{} threads have not begun after {limit_s} s", missing())
}

/// The members with these numbers, and the others.
fn split<'c>(crowd: &'c Crowd, apart: &[usize]) -> (Vec<&'c Member>, Vec<&'c Member>) {
    let members = crowd.members().iter().map(Arc::as_ref).enumerate();
    let (apart, others): (Vec<_>, Vec<_>) = members.partition(|(at, _)| apart.contains(at));
    let plain = |numbered: Vec<(usize, &'c Member)>| numbered.into_iter().map(|it| it.1).collect();
    (plain(apart), plain(others))
}

pub(super) fn watch_crowd(scheduler: &Scheduler, seconds: u64) -> Result<()> {
    for second in 1..=seconds {
        report::progress(format!("second {second} of {seconds}"));
        sleep(SECOND);
        scheduler.expect_in_charge()?;
    }
    Ok(())
}

fn expect_punctual(what: &str, tickers: &[&Member], late_max: Duration) -> Result<()> {
    let worst = tickers.iter().map(|member| member.longest()).max().context("no tickers")?;
    let mean = tickers.iter().map(|it| it.mean()).sum::<Duration>() / tickers.len() as u32;
    let steps: u64 = tickers.iter().map(|member| member.steps()).sum();
    report::note(format!("{what}: {steps} wakeups, late by {mean:?} in the mean, worst {worst:?}"));
    ensure!(steps > 0, "{what}: no task woke up");
    ensure!(worst <= late_max, "{what}: a wakeup was late by {worst:?}");
    Ok(())
}

const THREADS: usize = 32_768;
/// Those that wake up once a second.
const AWAKE: usize = THREADS / 100;
/// Pids that are equal modulo this share records, four of them at a time: `FP_SETS` of
/// `src/bpf/fast_path.h`.
const SETS: usize = 16_384;
/// Sets that are too small, and tasks that want each of them. The first pid is far from others.
const FULL_SETS: usize = 8;
const SHARERS: usize = 8;
const FIRST_PID: usize = 1 << 20;
/// A wakeup beside two hogs a CPU.
const BESIDE_THREADS: Duration = Duration::from_millis(50);

pub(super) fn threads(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let hogs = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    let mut crowd = Crowd::prepare()?;
    report::progress("starting threads");
    crowd.add(AWAKE, Life::Ticker { period: SECOND })?;
    for number in 0..FULL_SETS * SHARERS {
        let pid = FIRST_PID + number % FULL_SETS + number / FULL_SETS * SETS;
        let period = Duration::from_millis(100);
        crowd.add_congruent(pid, SETS, Life::Ticker { period })?;
    }
    crowd.add(THREADS - crowd.members().len(), Life::Asleep)?;
    watch_crowd(&scheduler, SETTLE_S)?;
    let tickers: Vec<&Member> =
        crowd.members().iter().take(AWAKE + FULL_SETS * SHARERS).map(Arc::as_ref).collect();
    tickers.iter().for_each(|member| member.begin_anew());
    let middle = Memory::of_scheduler(&scheduler)?;
    let stolen = scheduler.statistics()?.count("nr_stolen")?;
    watch_crowd(&scheduler, WATCHED_S)?;
    let stolen = scheduler.statistics()?.count("nr_stolen")? - stolen;
    let late = expect_punctual("among them", &tickers, BESIDE_THREADS);
    report::note(format!("{stolen} thefts in {WATCHED_S} s"));
    Memory::of_scheduler(&scheduler)?.expect_flat_since(&middle)?;
    let sharers = &tickers[AWAKE..];
    for member in [tickers[0], tickers[AWAKE / 2], sharers[0], sharers[3], sharers[60]] {
        expect_urgent(guest, member.pid())?;
    }
    expect_sound(&scheduler)?;
    late?;
    ensure!(tickers.iter().all(|member| member.steps() > 0), "a thread did not wake up");
    ensure!(stolen > 0, "{SHARERS} tasks share four records, and no theft is counted");
    let work = hogs.steps_in(SECOND);
    ensure!(work.iter().all(|&units| units > 0), "a hog does not run: {work:?}");
    drop((crowd, hogs));
    scheduler.finish().map(drop)
}

/// A task that only wakes up and works a little is above Batch.
fn expect_urgent(guest: &Guest, pid: libc::pid_t) -> Result<()> {
    let said = ask(guest, &["explain", &pid.to_string(), "--for", "2"])?;
    let line = said.lines().next().unwrap_or_default();
    report::note(line);
    let is_urgent = ["is Interactive", "is LatCritical"].iter().any(|tier| line.contains(tier));
    ensure!(is_urgent, "{pid}: {said}");
    Ok(())
}
