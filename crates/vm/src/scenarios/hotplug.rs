// SPDX-License-Identifier: GPL-2.0-only

//! A CPU goes offline and online: the scheduler stays loaded on Linux 7.0 and later, unless the
//! user asks for a domain.

use crate::guest::load::{Kind, Load, mix};
use crate::guest::scheduler::Scheduler;
use crate::guest::statistics::Statistics;
use crate::guest::witness::Witness;
use crate::guest::{Guest, kernel, report, watch};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "hotplug",
        about: "a CPU goes offline and online three times under load: the scheduler stays loaded \
            from Linux 7.0 on, and every task runs on",
        // Before 7.0 it starts again six times: 6 s each beside these tasks, 24 on a busy host.
        limit_s: 300,
        run: hotplug,
        ..USUAL
    },
    Scenario {
        name: "signal-after-restart",
        about: "beside a domain a CPU comes online that was offline at the start, or goes offline: \
            the scheduler starts again, no wakeup waits for 200 ms longer than a real-time task, \
            and SIGTERM and SIGINT still end it within 3 s with exit code 0",
        limit_s: 120,
        once: true,
        run: signal_after_restart,
        ..USUAL
    },
];

/// Runs by name only: `suite --only hotplug-100`.
pub const HOTPLUG_100: Scenario = Scenario {
    name: "hotplug-100",
    about: "a CPU goes offline and online a hundred times beside a load of every kind, on an \
        otherwise idle host: no wakeup waits for 200 ms longer than a real-time task",
    cpus: Some(2),
    limit_s: 3_600,
    run: hotplug_100,
    ..FULL_SPEED
};

/// The worker may load beside hogs: 3.6 s in exact mode, and in fast mode three times as long.
const BACK_LIMIT: Duration = Duration::from_secs(30);
/// A longer restart hangs somewhere: the console log records the state of its threads.
const BACK_USUALLY: Duration = Duration::from_secs(15);
/// The statistics show the CPUs that are online once a second at the latest.
const FOLLOWS_LIMIT: Duration = Duration::from_secs(5);
const SIGNAL_LIMIT: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(50);

fn hotplug(guest: &Guest) -> Result<()> {
    let last = guest.cpus - 1;
    let scheduler = Scheduler::start(guest, &[])?;
    let mut plan = vec![Kind::Hog; 2 * guest.cpus];
    let bound = Kind::BoundSleeper { pause_us: 3_000, cpus: 1 << last };
    plan.extend([bound, Kind::PinnedHog { cpu: last }, Kind::PipePair]);
    let load = Load::start(&plan)?;
    let moves = || watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge());
    cycles(3, || {
        switch(guest, &scheduler, false)?;
        // The kernel lets the tasks that were bound to the CPU use every CPU.
        moves()?;
        switch(guest, &scheduler, true)
    })?;
    watch::every_worker_moves(&load, 4, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

fn hotplug_100(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&mix(guest.cpus))?;
    let witness = Witness::start(guest.cpus)?;
    let mut worst: f64 = 0.0;
    cycles(100, || {
        let (done, waited) = witness.while_measuring(|| {
            switch(guest, &scheduler, false)?;
            switch(guest, &scheduler, true)
        })?;
        done?;
        report::note(waited.to_string());
        worst = worst.max(waited.worst_us);
        waited.expect_short()
    })?;
    report::note(format!("the longest wakeup took {worst:.0} us"));
    watch::every_worker_moves(&load, 4, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Does `once`, which takes a CPU offline and online, `n` times.
fn cycles(n: u32, mut once: impl FnMut() -> Result<()>) -> Result<()> {
    for cycle in 1..=n {
        report::progress(format!("cycle {cycle} of {n}"));
        once().with_context(|| format!("in cycle {cycle} of {n}"))?;
    }
    Ok(())
}

fn signal_after_restart(guest: &Guest) -> Result<()> {
    let last = guest.cpus - 1;
    for (name, signal) in [("SIGTERM", libc::SIGTERM), ("SIGINT", libc::SIGINT)] {
        kernel::set_online(last, false)?;
        // Of this domain only CPU 0 is online: it has all CPUs until the last one comes.
        let scheduler = Scheduler::start(guest, &["--primary-domain", "0"])?;
        restart_at(&scheduler, last, true)?;
        scheduler.stop(signal, SIGNAL_LIMIT).with_context(|| format!("{name} after a restart"))?;
    }
    let scheduler = Scheduler::start(guest, &["--primary-domain", "0"])?;
    let load = Load::start(&vec![Kind::Hog; guest.cpus])?;
    let witness = Witness::start(guest.cpus)?;
    for online in [false, true] {
        let (restarted, waited) =
            witness.while_measuring(|| restart_at(&scheduler, last, online))?;
        restarted?;
        report::note(waited.to_string());
        waited.expect_short()?;
    }
    drop((witness, load));
    scheduler.finish().map(drop)
}

/// Takes the last CPU offline or online. The scheduler follows.
pub fn switch(guest: &Guest, scheduler: &Scheduler, online: bool) -> Result<()> {
    let last = guest.cpus - 1;
    if !stays_loaded()? {
        return restart_at(scheduler, last, online);
    }
    let cpus = if online { guest.cpus } else { last };
    change(last, online, || follows(scheduler, cpus as u64))
}

/// Before 7.0 the kernel warns when a CPU goes offline while a scheduler stays loaded.
fn stays_loaded() -> Result<bool> {
    let release = kernel::release()?;
    let major = release.split('.').next().and_then(|major| major.parse::<u32>().ok());
    Ok(major.with_context(|| format!("the kernel's release is {release:?}"))? >= 7)
}

/// Switches a CPU so that the scheduler has to start again, and waits for that.
pub fn restart_at(scheduler: &Scheduler, cpu: usize, online: bool) -> Result<()> {
    let restarts = scheduler.statistics()?.count("restarts")?;
    change(cpu, online, || wait_for_restart(scheduler, restarts))
}

/// Switches a CPU, from a thread of its own because the write may hang, and awaits what follows.
fn change(cpu: usize, online: bool, awaited: impl FnOnce() -> Result<()>) -> Result<()> {
    let change = std::thread::spawn(move || kernel::set_online(cpu, online));
    let event = if online { "online" } else { "offline" };
    awaited().with_context(|| format!("after CPU {cpu} went {event}"))?;
    change.join().expect("switching a CPU does not panic")
}

/// Waits until the scheduler counts so many CPUs; it must not have been started again.
fn follows(scheduler: &Scheduler, cpus: u64) -> Result<()> {
    let start = Instant::now();
    loop {
        scheduler.expect_in_charge()?;
        let now = scheduler.statistics()?;
        ensure!(now.count("restarts")? == 0, "the scheduler was started again");
        let counted = now.count("nr_cpus")?;
        if counted == cpus {
            return Ok(());
        }
        ensure!(start.elapsed() < FOLLOWS_LIMIT, "the scheduler counts {counted} CPUs, not {cpus}");
        std::thread::sleep(GLANCE);
    }
}

/// During a restart there is neither a scheduler nor a statistics server, so errors count only
/// after the limit.
fn wait_for_restart(scheduler: &Scheduler, before: u64) -> Result<()> {
    let start = Instant::now();
    let mut examined = false;
    loop {
        if start.elapsed() > BACK_USUALLY && !examined {
            scheduler.log_state();
            examined = true;
        }
        let restarts = Statistics::ask().and_then(|statistics| statistics.count("restarts"));
        match (scheduler.expect_in_charge(), restarts) {
            (Ok(()), Ok(restarts)) if restarts > before => {
                report::note(format!(
                    "restarted after {} ms, restarts: {restarts}",
                    start.elapsed().as_millis()
                ));
                return Ok(());
            }
            (state, restarts) if start.elapsed() > BACK_LIMIT => bail!(
                "not restarted after {} s: {}; restarts were {before} and are {}; it printed: {}",
                BACK_LIMIT.as_secs(),
                state.map_or_else(|error| format!("{error:#}"), |()| "it is loaded".into()),
                restarts
                    .map_or_else(|error| format!("unknown ({error:#})"), |count| count.to_string()),
                scheduler.printed().join(" | ")
            ),
            _ => std::thread::sleep(GLANCE),
        }
    }
}
