// SPDX-License-Identifier: GPL-2.0-only

//! What the policy knows of tasks, before and after an upgrade.

use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load};
use crate::guest::processes::signal;
use crate::guest::scheduler::Scheduler;
use crate::guest::wait::wait_for;
use crate::guest::{Guest, family, report, watch};
use crate::scenarios::control::ask;
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::Duration;

/// The tasks. A new task counts as an Interactive one that runs for 100 us.
const TASKS: [Kind; 2] = [
    Kind::Named { name: c"known-hog", life: Life::Hog },
    Kind::Named {
        name: c"known-sleeper",
        life: Life::Periodic { period_us: 10_000, work_us: 1_000 },
    },
];
const LEAST_RUN_US: u64 = 500;
/// Beside hogs the policy knows them by then.
const LEARNING: Duration = Duration::from_secs(1);
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Tasks that were stopped once the policy knew them. A stopped task sends no message, so a new
/// program knows of it only what the old one has handed on; else it says that it does not know the
/// task.
pub(super) struct Stopped {
    load: Load,
    /// What the policy knew of each when it stopped.
    known: Vec<Known>,
}

impl Stopped {
    /// Starts and stops them, beside a load of every CPU: the wakeups of a task that finds idle
    /// CPUs are not queued to user space.
    pub(super) fn start(guest: &Guest) -> Result<Stopped> {
        let load = Load::start(&TASKS)?;
        sleep(LEARNING);
        send(&load, libc::SIGSTOP)?;
        let are_stopped = || Ok(load.workers().iter().all(|task| family::is_stopped(task.pid)));
        wait_for("stopped tasks", STOP_LIMIT, are_stopped)?;
        let known = Known::of_all(guest, &load)?;
        let [hog, sleeper] = &known[..] else { unreachable!("each task is known") };
        let are_known = hog.tier == "Batch" && sleeper.run_us >= LEAST_RUN_US;
        ensure!(are_known, "before the upgrade they are known as new tasks are: {known:?}");
        Ok(Stopped { load, known })
    }

    /// Each still has its tier, and the run that it usually has.
    pub(super) fn expect_known(&self, guest: &Guest) -> Result<()> {
        let now = Known::of_all(guest, &self.load).context("after the upgrade")?;
        for (before, now) in self.known.iter().zip(&now) {
            // The old program hands on the run that it expects, which is that of now if it is
            // longer.
            let is_kept = now.tier == before.tier && now.run_us >= before.run_us;
            ensure!(is_kept, "of a task {before:?} was known, and after the upgrade {now:?}");
        }
        Ok(())
    }

    /// They go on, and each makes progress.
    pub(super) fn go_on(self, scheduler: &Scheduler) -> Result<()> {
        send(&self.load, libc::SIGCONT)?;
        watch::every_worker_moves(&self.load, 2, |_| scheduler.expect_in_charge())
    }
}

/// Sends a signal to each task.
fn send(load: &Load, number: libc::c_int) -> Result<()> {
    load.workers().iter().try_for_each(|task| signal(task.pid, number))
}

/// What `explain` says of a task.
#[derive(Debug)]
struct Known {
    tier: String,
    /// How long it usually runs between two sleeps, in microseconds.
    run_us: u64,
}

impl Known {
    fn of_all(guest: &Guest, load: &Load) -> Result<Vec<Known>> {
        load.workers().iter().map(|task| Known::of(guest, task.pid)).collect()
    }

    fn of(guest: &Guest, pid: libc::pid_t) -> Result<Known> {
        let said = ask(guest, &["explain", &pid.to_string(), "--for", "1"])?;
        let line = said.lines().next().unwrap_or_default();
        report::note(line);
        let between = |before: &str, after: &str| {
            let rest = line.split_once(before).map(|(_, rest)| rest);
            rest.and_then(|rest| rest.split_once(after)).map(|(part, _)| part)
        };
        let tier = between(&format!("(pid {pid}) is "), ": ");
        let run_us = between("usually runs for ", " us ").and_then(|us| us.parse().ok());
        let (tier, run_us) = tier.zip(run_us).with_context(|| line.to_owned())?;
        Ok(Known { tier: tier.to_owned(), run_us })
    }
}
