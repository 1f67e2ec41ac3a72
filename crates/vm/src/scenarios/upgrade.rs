// SPDX-License-Identifier: GPL-2.0-only

//! The running program is replaced by the one that is now at its path.

mod fails;
mod kept;

use self::fails::upgrade_fails;
use self::kept::Stopped;
use super::control::ask;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::statistics::Statistics;
use crate::guest::wait::wait_for;
use crate::guest::witness::Witness;
use crate::guest::{Guest, report, watch};
use crate::scenario::{FULL_SPEED, Scenario};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs by name only, since it loads twice in exact time: `suite --only upgrade`.
pub const UPGRADE: Scenario = Scenario {
    name: "upgrade",
    about: "beside hogs the running program is replaced by the one at its path: no wakeup \
        waits for 200 ms longer than a real-time task, the kernel's own scheduler runs for at most \
        100 ms, process, knobs, learned programs and what is known of tasks are kept, and standing \
        orders are executed again; a program that is none, or that others can change, changes \
        nothing",
    cpus: Some(2),
    limit_s: 180,
    exact: true,
    once: true,
    run: |guest| upgrade(guest, 1, Some(PAUSE_US)),
    ..FULL_SPEED
};

/// Runs by name only: `suite --only upgrade-100`.
pub const UPGRADE_100: Scenario = Scenario {
    name: "upgrade-100",
    about: "the same a hundred times, in fast mode. How long the kernel's own scheduler runs \
        depends on the host then, and is only told",
    limit_s: 3_600,
    exact: false,
    run: |guest| upgrade(guest, 100, None),
    ..UPGRADE
};

/// Runs by name only: `suite --only upgrade-fails`.
pub const UPGRADE_FAILS: Scenario = Scenario {
    name: "upgrade-fails",
    about: "a new program passes its trial, and then fails to load several times: the old worker \
        decides meanwhile, a line tells of each failure, no wakeup waits for 200 ms longer than a \
        real-time task, and nothing is unloaded; when it can load, it takes over with all that the \
        old one knew, and a further upgrade works",
    limit_s: 240,
    exact: false,
    run: upgrade_fails,
    ..UPGRADE
};

/// The longest time of the kernel's own scheduler.
const PAUSE_US: u64 = 100_000;
/// Longer than an upgrade takes beside hogs.
const LIMIT: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(50);
/// Until the first standing order is executed after an upgrade. No order is handed on, and a task
/// gets one within some wakeups.
const ORDERS_LIMIT: Duration = Duration::from_secs(2);
/// The program, and where it is kept while something else has its place.
const PROGRAM: &str = "/bin/scx_pandemonium_user";
const KEPT: &str = "/bin/kept";
/// What is no upgrade: what it is, how it is made, and a part of the refusal.
type Impostor = (&'static str, fn(&Path) -> io::Result<()>, &'static str);
const IMPOSTORS: [Impostor; 3] = [
    ("a text", |path| write(path, 0o755), "cannot be executed"),
    ("another program", |path| fs::copy("/bin/busybox", path).map(drop), "cannot take over"),
    ("what every user can change", |path| write(path, 0o777), "can be written by every user"),
];
const KNOBS: [&str; 2] = ["batch_slice_us=2500", "slice_min_us=200"];

fn write(path: &Path, mode: u32) -> io::Result<()> {
    fs::write(path, "no program")?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn upgrade(guest: &Guest, times: u64, pause_max_us: Option<u64>) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    expect_refusals(&scheduler)?;
    let load = start_load(guest)?;
    let stopped = Stopped::start(guest)?;
    let witness = Witness::start(guest.cpus)?;
    let mut pauses = Vec::new();
    let mut worst: f64 = 0.0;
    for number in 1..=times {
        report::progress(format!("upgrade {number} of {times}"));
        let (pause, late) = upgrade_once(&scheduler, &witness, number)
            .with_context(|| format!("in upgrade {number} of {times}"))?;
        ensure!(
            pause_max_us.is_none_or(|most| pause <= most),
            "the kernel's own scheduler ran for {pause} us"
        );
        pauses.push(pause);
        worst = worst.max(late);
        expect_kept(guest, &scheduler, &stopped)?;
    }
    pauses.sort_unstable();
    let (median, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    report::note(format!(
        "{times} upgrades: the kernel's own scheduler ran for {median} us in the middle case and \
         {longest} at most; the longest wakeup took {worst:.0} us"
    ));
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    stopped.go_on(&scheduler)?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Starts hogs, and a task that wakes up beside them, and sets what an upgrade keeps.
fn start_load(guest: &Guest) -> Result<Load> {
    let mut kinds = vec![Kind::Hog; guest.cpus];
    kinds.push(Kind::Sleeper { pause_us: 3_000 });
    let load = Load::start(&kinds)?;
    ask(guest, &["tune", KNOBS[0], KNOBS[1], "profile=server"])?;
    Ok(load)
}

/// Returns how long the kernel's own scheduler ran, and the longest wakeup, in microseconds.
fn upgrade_once(scheduler: &Scheduler, witness: &Witness, number: u64) -> Result<(u64, f64)> {
    let start = Instant::now();
    let (upgraded, waited) = witness.while_measuring(|| {
        ask_for_upgrade(scheduler);
        wait_for_upgrade(number)
    })?;
    upgraded.with_context(|| format!("it printed: {:?}", scheduler.printed()))?;
    let took = start.elapsed().as_millis();
    scheduler.expect_in_charge()?;
    let now = scheduler.statistics()?;
    let (pause, undecided) = (now.count("upgrade_pause_us")?, now.count("upgrade_undecided_us")?);
    report::note(format!(
        "upgraded within {took} ms; the kernel's own scheduler ran for {pause} us, no decision for \
         {undecided} us; {waited}"
    ));
    let printed = scheduler.printed();
    let told = printed.iter().any(|line| line.contains("the kernel's own scheduler ran"));
    ensure!(told, "it did not tell about the upgrade: {printed:?}");
    waited.expect_short()?;
    ensure!(pause > 0, "there was no moment without a scheduler");
    wait_for("an executed standing order", ORDERS_LIMIT, || {
        Ok(scheduler.statistics()?.count("nr_orders")? > 0)
    })?;
    Ok((pause, waited.worst_us))
}

/// Between the two programs no statistics are served.
fn wait_for_upgrade(number: u64) -> Result<()> {
    let upgrades = || Statistics::ask().and_then(|statistics| statistics.count("upgrades"));
    wait_for("upgraded", LIMIT, || Ok(upgrades().unwrap_or(0) >= number)).map(drop)
}

fn expect_kept(guest: &Guest, scheduler: &Scheduler, stopped: &Stopped) -> Result<()> {
    let knobs = ask(guest, &["tune"])?;
    for knob in KNOBS {
        let is_kept = |line: &str| line.starts_with(knob) && line.contains("* ");
        ensure!(knobs.lines().any(is_kept), "the knob {knob} is not kept: {knobs}");
    }
    let now = scheduler.statistics()?;
    ensure!(now.text("profile")? == "server", "the profile is not kept");
    ensure!(now.count("procdb_total")? > 0, "the learned programs are not kept");
    stopped.expect_known(guest)
}

/// What is no newer version of the program changes nothing, and the reason is told.
fn expect_refusals(scheduler: &Scheduler) -> Result<()> {
    let worker = scheduler.worker()?;
    for (what, make, reason) in IMPOSTORS {
        report::progress(format!("upgrade to {what}"));
        fs::rename(PROGRAM, KEPT)?;
        let made = make(Path::new(PROGRAM));
        ask_for_upgrade(scheduler);
        let told = wait_for_refusal(scheduler, reason);
        fs::rename(KEPT, PROGRAM)?;
        made.map_err(Into::into)
            .and(told)
            .with_context(|| format!("after an upgrade to {what}"))?;
        scheduler.expect_in_charge()?;
        ensure!(scheduler.worker()? == worker, "{what} is another scheduling process");
    }
    Ok(())
}

fn wait_for_refusal(scheduler: &Scheduler, reason: &str) -> Result<()> {
    let printed = wait_for_line(scheduler, "no upgrade, the scheduler goes on")?;
    let line = printed.last().context("it has printed a line")?;
    ensure!(line.contains(reason), "the reason is not {reason:?}: {line}");
    Ok(())
}

/// Waits for a line with this part. Returns it as the last one of those printed since the last
/// look.
fn wait_for_line(scheduler: &Scheduler, part: &str) -> Result<Vec<String>> {
    let start = Instant::now();
    let mut printed = Vec::new();
    while start.elapsed() < LIMIT {
        printed.extend(scheduler.printed());
        if let Some(at) = printed.iter().position(|line| line.contains(part)) {
            printed.truncate(at + 1);
            return Ok(printed);
        }
        std::thread::sleep(GLANCE);
    }
    bail!("not printed within {} s: {part:?}, but: {printed:?}", LIMIT.as_secs())
}

fn ask_for_upgrade(scheduler: &Scheduler) {
    // SAFETY: a plain system call, on a child of this process.
    unsafe { libc::kill(scheduler.pid(), libc::SIGUSR2) };
}
