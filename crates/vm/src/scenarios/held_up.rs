// SPDX-License-Identifier: GPL-2.0-only

//! A scheduler whose processes are stopped, or whose output is not read.

use super::hotplug;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report, wakeups, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "stopped",
        about: "beside hogs the worker process is stopped ten times, and no wakeup waits for more \
            than 50 ms; the supervisor is stopped for longer than the watchdog waits, and \
            scheduling goes on",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        run: stopped,
        ..USUAL
    },
    Scenario {
        name: "unread",
        about: "the scheduler prints into a full pipe: it restarts for a CPU that goes offline, \
            and ends at a signal",
        limit_s: 60,
        once: true,
        run: unread,
        ..USUAL
    },
    Scenario {
        name: "no-reader",
        about: "the scheduler prints and warns into closed pipes: it restarts for a CPU that goes \
            offline, and ends at a signal",
        limit_s: 60,
        once: true,
        run: no_reader,
        ..USUAL
    },
];

/// The longest wakeup while the worker is stopped.
const WORST_US: f64 = 50_000.0;
const STOPS: u64 = 10;
const BETWEEN: Duration = Duration::from_millis(300);
/// How long wakeups are measured, in seconds: longer than all stops take.
const SECONDS: u64 = 4;
/// How long the supervisor is stopped, in seconds. The watchdog waits for five.
const WITHOUT_SUPERVISOR: u64 = 7;
const SETTLE: Duration = Duration::from_secs(1);

fn stopped(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    sleep(SETTLE);
    let worker = scheduler.worker()?;
    let probe = wakeups::start(SECONDS)?;
    for _ in 0..STOPS {
        signal(worker, libc::SIGSTOP)?;
        sleep(BETWEEN);
    }
    let waits = probe.finish()?;
    let [p99, worst] = [waits.quantile_us(990), waits.worst_us()];
    report::note(format!("stopped {STOPS} times: wakeups p99 {p99:.0} us, worst {worst:.0}"));
    ensure!(worst <= WORST_US, "a wakeup waited for {worst:.0} us while the worker was stopped");
    scheduler.expect_in_charge()?;
    let told = scheduler.printed().iter().filter(|line| line.contains("was continued")).count();
    ensure!(told > 0, "it did not say that it was stopped");

    // Ctrl-Z stops the supervisor's process group.
    // SAFETY: plain system calls.
    let groups = unsafe { [libc::getpgid(worker), libc::getpgid(scheduler.pid())] };
    ensure!(groups[0] != groups[1], "Ctrl-Z would stop the worker with its supervisor");
    signal(scheduler.pid(), libc::SIGSTOP)?;
    let moves =
        watch::every_worker_moves(&load, WITHOUT_SUPERVISOR, |_| scheduler.expect_in_charge());
    signal(scheduler.pid(), libc::SIGCONT)?;
    moves.context("while the supervisor was stopped")?;
    drop(load);
    scheduler.finish().map(drop)
}

fn signal(pid: libc::pid_t, signal: libc::c_int) -> Result<()> {
    // SAFETY: a plain system call.
    ensure!(unsafe { libc::kill(pid, signal) } == 0, "process {pid} has ended");
    Ok(())
}

fn no_reader(guest: &Guest) -> Result<()> {
    // Without a part of the fast path it warns.
    let arguments = ["--stats", "0.1", "--break-fast-path", "new-tasks"];
    let scheduler = Scheduler::start_without_readers(guest, &arguments)?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    hotplug::go_and_come_back(guest, &scheduler)?;
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

fn unread(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start_unread(guest, &["--stats", "0.1"])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    // A pipe of one page is full after twenty lines.
    sleep(SETTLE * 4);
    hotplug::go_and_come_back(guest, &scheduler)?;
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}
