// SPDX-License-Identifier: GPL-2.0-only

//! A CPU goes and comes back: the kernel ejects the scheduler with a request to restart, and it
//! must.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, kernel, report, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "hotplug",
        about: "a CPU goes offline and online three times under load: we come back by ourselves \
            each time",
        limit_s: 120,
        run: hotplug,
        ..USUAL
    },
    Scenario {
        name: "signal-after-restart",
        about: "after a restart by hotplug SIGTERM still ends us within 3 s with exit code 0, and \
            so does SIGINT",
        limit_s: 90,
        once: true,
        run: signal_after_restart,
        ..USUAL
    },
];

const BACK_LIMIT: Duration = Duration::from_secs(10);
/// Later than this something hangs, and the console log should say what, while it does.
const BACK_USUALLY: Duration = Duration::from_secs(4);
const SIGNAL_LIMIT: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(50);

fn hotplug(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    for round in 1..=3 {
        report::progress(format!("round {round} of 3"));
        go_and_come_back(guest, &scheduler).with_context(|| format!("in round {round} of 3"))?;
    }
    watch::every_worker_moves(&load, 4, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}

fn signal_after_restart(guest: &Guest) -> Result<()> {
    for (name, signal) in [("SIGTERM", libc::SIGTERM), ("SIGINT", libc::SIGINT)] {
        let scheduler = Scheduler::start(guest, &[])?;
        go_and_come_back(guest, &scheduler).with_context(|| format!("before {name}"))?;
        scheduler.stop(signal, SIGNAL_LIMIT).with_context(|| format!("{name} after a restart"))?;
    }
    Ok(())
}

/// One restart for the CPU that goes, one for the CPU that comes.
pub fn go_and_come_back(guest: &Guest, scheduler: &Scheduler) -> Result<()> {
    let last = guest.cpus - 1;
    for (online, event) in [(false, "going"), (true, "coming back")] {
        let restarts = scheduler.statistics()?.count("restarts")?;
        // By an ordinary task, as a person would do it, and one that may hang without hanging us.
        let change = std::thread::spawn(move || kernel::set_online(last, online));
        wait_for_restart(scheduler, restarts)
            .with_context(|| format!("after CPU {last}'s {event}"))?;
        change.join().expect("switching a CPU does not panic")?;
    }
    Ok(())
}

/// In between there is neither a scheduler nor a statistics server, so only the end of the wait
/// counts.
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
                    "back after {} ms, restarts: {restarts}",
                    start.elapsed().as_millis()
                ));
                return Ok(());
            }
            (state, restarts) if start.elapsed() > BACK_LIMIT => bail!(
                "not back after {} s: {}; restarts were {before} and are {}; it printed: {}",
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
