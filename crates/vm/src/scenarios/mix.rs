// SPDX-License-Identifier: GPL-2.0-only

//! Every kind of task at once, and every task makes progress: with the default options, with each
//! policy and other options, on few and many CPUs.

use crate::guest::load::{self, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report, watch};
use crate::scenario::{Expect, Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "mix",
        about: "hogs, sleepers, pipes, forks and execs for 20 s: every task makes progress in \
            every 3 s, by the scheduler's decisions",
        limit_s: 90,
        once: true,
        run: |guest| run(guest, &["--stats", "1"], 20),
        ..USUAL
    },
    Scenario {
        name: "mix-1-cpu",
        about: "the mix on one CPU, which the scheduler shares with the tasks that it schedules",
        cpus: Some(1),
        once: true,
        run: |guest| run(guest, &[], 5),
        ..USUAL
    },
    Scenario {
        name: "mix-8-cpus",
        about: "the mix on eight CPUs, with sixteen hogs",
        cpus: Some(8),
        limit_s: 90,
        once: true,
        run: |guest| run(guest, &[], 6),
        ..USUAL
    },
    Scenario {
        name: "policies",
        about: "a short mix under each policy and under options that change where and how long \
            tasks run",
        limit_s: 120,
        once: true,
        run: policies,
        ..USUAL
    },
    Scenario {
        name: "dropping",
        about: "a broken policy loses every 100th task: the mix must fail, which proves that it \
            can",
        // A worker without progress, or the kernel just ejecting the scheduler.
        expect: Expect::Fail(&["no progress", "not enabled"]),
        limit_s: 90,
        once: true,
        run: dropping,
        ..USUAL
    },
];

/// Shorter than the kernel's watchdog waits, 5 s.
const FIRST_LIMIT: Duration = Duration::from_secs(3);

/// Beside the progress it checks that the kernel names this scheduler, and that the scheduler's
/// decisions increase while the load runs.
fn run(guest: &Guest, arguments: &[&str], seconds: u64) -> Result<()> {
    let scheduler = Scheduler::start(guest, arguments)?;
    report::note(format!("the kernel runs under {}", kernel::sched_ext_ops()?));
    let load = Load::start(&load::mix(guest.cpus))?;
    let mut decisions = vec![first_decisions(&scheduler)?];
    watch::every_worker_moves(&load, seconds, |_| {
        scheduler.expect_in_charge()?;
        let now = scheduler.statistics()?.count("nr_user_dispatches")?;
        let before = decisions.last().copied().unwrap_or(0);
        ensure!(now > before, "no decision in the last second: still {now} user dispatches");
        decisions.push(now);
        Ok(())
    })?;
    report::note(format!("user dispatches, second by second: {decisions:?}"));
    drop(load);
    if arguments.contains(&"--stats") {
        let printed = scheduler.printed();
        let line = printed.iter().rfind(|line| line.contains("health:"));
        report::note(line.context("--stats printed no line with its health")?.as_str());
    }
    scheduler.finish().map(drop)
}

/// Waits for the first decisions. The loaded scheduler first locks its memory, which takes a while
/// where eight virtual CPUs share two.
fn first_decisions(scheduler: &Scheduler) -> Result<u64> {
    let start = Instant::now();
    loop {
        let decisions = scheduler.statistics()?.count("nr_user_dispatches")?;
        if decisions > 0 {
            return Ok(decisions);
        }
        ensure!(start.elapsed() < FIRST_LIMIT, "no decision in {} s", FIRST_LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn policies(guest: &Guest) -> Result<()> {
    let variants: [&[&str]; 6] = [
        &["--policy", "fifo"],
        &["--policy", "vruntime"],
        &["--policy", "pandemonium"],
        &["--percpu-local"],
        &["--numa-local"],
        &["--slice-us", "500", "--slice-us-min", "200"],
    ];
    for arguments in variants {
        let name = arguments.join(" ");
        report::note(name.as_str());
        run(guest, arguments, 3).with_context(|| format!("with {name}"))?;
    }
    Ok(())
}

/// It sends the scheduler no request, because the scheduler's own threads may be lost too. It
/// usually ends within ten seconds; a stall of the scheduling process, in which the kernel's side
/// runs lost tasks too, puts the end off.
fn dropping(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--policy", "dropping"])?;
    let load = Load::start(&load::mix(guest.cpus))?;
    watch::every_worker_moves(&load, 60, |_| scheduler.expect_in_charge())
}
