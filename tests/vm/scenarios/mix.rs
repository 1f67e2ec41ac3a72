//! Every kind of task at once, and everyone gets on.

use crate::guest::load::{self, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report, watch};
use crate::scenario::{Expect, Scenario};
use anyhow::{Result, ensure};

pub const ALL: &[Scenario] = &[Scenario {
    name: "mix",
    about: "hogs, sleepers, pipes, forks and execs for 20 s: everyone moves in every 3 s, by our decisions",
    cpus: None,
    limit_s: 90,
    expect: Expect::Pass,
    stress_ng: false,
    run: |guest| run(guest, &[], 20),
}];

/// The proof beside the progress: the kernel names us, and our decisions rise while the hogs run.
pub fn run(guest: &Guest, arguments: &[&str], seconds: u64) -> Result<()> {
    let scheduler = Scheduler::start(guest, arguments)?;
    report::note(format!("the kernel runs under {}", crate::guest::kernel::sched_ext_ops()?));
    let load = Load::start(&load::mix(guest.cpus))?;
    let mut decisions = Vec::new();
    watch::every_worker_moves(&load, seconds, |_| {
        scheduler.expect_in_charge()?;
        let now = scheduler.statistics()?.count("nr_user_dispatches")?;
        let before = decisions.last().copied().unwrap_or(0);
        ensure!(now > before, "no decision of ours in the last second: still {now} user dispatches");
        decisions.push(now);
        Ok(())
    })?;
    report::note(format!("user dispatches, second by second: {decisions:?}"));
    drop(load);
    scheduler.finish().map(drop)
}
