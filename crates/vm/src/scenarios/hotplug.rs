// SPDX-License-Identifier: GPL-2.0-only

//! A CPU goes offline and online: the kernel ejects the scheduler with a request to restart, and
//! the scheduler must restart.

use super::upgrade::while_measuring;
use crate::guest::load::{Kind, Load, mix};
use crate::guest::scheduler::Scheduler;
use crate::guest::statistics::Statistics;
use crate::guest::witness::Witness;
use crate::guest::{Guest, kernel, report, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "hotplug",
        about: "a CPU goes offline and online three times under load: the scheduler restarts each \
            time",
        limit_s: 120,
        run: hotplug,
        ..USUAL
    },
    Scenario {
        name: "signal-after-restart",
        about: "after a restart by hotplug SIGTERM and SIGINT still end the scheduler within 3 s \
            with exit code 0",
        limit_s: 90,
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
    ..USUAL
};

/// The worker loads beside the load, on the one CPU that is left: 3.6 s in exact mode, and in fast
/// mode three times as long.
const BACK_LIMIT: Duration = Duration::from_secs(30);
/// A longer restart hangs somewhere: the console log records the state of its threads.
const BACK_USUALLY: Duration = Duration::from_secs(15);
const SIGNAL_LIMIT: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(50);

fn hotplug(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    cycles(3, || go_and_come_back(guest, &scheduler))?;
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
        let (done, waited) = while_measuring(&witness, || go_and_come_back(guest, &scheduler))?;
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
    for (name, signal) in [("SIGTERM", libc::SIGTERM), ("SIGINT", libc::SIGINT)] {
        let scheduler = Scheduler::start(guest, &[])?;
        go_and_come_back(guest, &scheduler).with_context(|| format!("before {name}"))?;
        scheduler.stop(signal, SIGNAL_LIMIT).with_context(|| format!("{name} after a restart"))?;
    }
    Ok(())
}

/// Takes a CPU offline and online, and waits for one restart after each.
pub fn go_and_come_back(guest: &Guest, scheduler: &Scheduler) -> Result<()> {
    let last = guest.cpus - 1;
    for (online, event) in [(false, "offline"), (true, "online")] {
        let restarts = scheduler.statistics()?.count("restarts")?;
        // From a thread of its own, because the write may hang.
        let change = std::thread::spawn(move || kernel::set_online(last, online));
        wait_for_restart(scheduler, restarts)
            .with_context(|| format!("after CPU {last} went {event}"))?;
        change.join().expect("switching a CPU does not panic")?;
    }
    Ok(())
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
