// SPDX-License-Identifier: GPL-2.0-only

//! The kernel unloads the scheduler: it says why, names the culprit, and writes a report.

use super::errors::EJECTED;
use crate::guest::load::{Kind, Load};
use crate::guest::processes::make_real_time;
use crate::guest::scheduler::{Ended, Scheduler};
use crate::guest::{Guest, kernel, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "ejection",
        about: "the kernel ejects the scheduler (SysRq key S): it prints the reason, writes a \
            report without names of programs, and exits with 7",
        run: by_sysrq,
        ..USUAL
    },
    Scenario {
        name: "stall-ejection",
        about: "a real-time task takes the only CPU of a hog where the kernel does not prevent \
            that, for longer than its watchdog waits: the scheduler is ejected, names both tasks \
            and the CPU in one sentence, writes a report without their names, and exits with 7",
        cpus: Some(2),
        run: by_stall,
        ..USUAL
    },
];

const LIMIT: Duration = Duration::from_secs(10);
/// The kernel's watchdog looks for a stall of 5 s at intervals of half of that.
const WATCHED: Duration = Duration::from_secs(10);
/// Until the tasks run as usual.
const SETTLE: Duration = Duration::from_secs(1);
/// The CPU of the two tasks.
const CPU: usize = 1;

fn by_sysrq(guest: &Guest) -> Result<()> {
    let mut scheduler = Scheduler::start(guest, &[])?;
    ensure!(kernel::sysrq('S'), "this kernel has no SysRq keys");
    let ended = expect_ejected(&mut scheduler, LIMIT)?;
    let says_why = ended.output.iter().any(|line| line.to_lowercase().contains("sysrq"));
    ensure!(says_why, "the kernel's reason is missing: {}", ended.describe());
    expect_report(&ended, "sysrq")
}

fn by_stall(guest: &Guest) -> Result<()> {
    kernel::withhold_share(CPU)?;
    let mut scheduler = Scheduler::start(guest, &[])?;
    let hog = Load::start(&[Kind::PinnedHog { cpu: CPU }])?;
    let real_time = Load::start(&[Kind::PinnedHog { cpu: CPU }])?;
    sleep(SETTLE);
    let [hog_pid, real_time_pid] = [&hog, &real_time].map(|load| load.workers()[0].pid);
    make_real_time(&real_time)?;
    sleep(WATCHED);
    // A kernel thread that the kernel needs for the unloading may wait for that CPU as well.
    drop(real_time);
    let ended = expect_ejected(&mut scheduler, LIMIT)?;
    let parts = [
        format!("(pid {hog_pid}) did not run for"),
        format!("may run on CPU {CPU} only"),
        format!("(pid {real_time_pid}) had that CPU"),
    ];
    let says_all = |line: &String| parts.iter().all(|part| line.contains(part));
    ensure!(ended.output.iter().any(says_all), "not {parts:?}: {}", ended.describe());
    expect_report(&ended, "failed to run for")
}

/// The scheduler ends as one that was ejected, and the kernel's own is in charge.
fn expect_ejected(scheduler: &mut Scheduler, limit: Duration) -> Result<Ended> {
    let ended = scheduler.wait_for_end(limit)?;
    report::note(ended.describe());
    ensure!(ended.status.code() == Some(EJECTED), "not exit code {EJECTED}: {}", ended.describe());
    ended.expect_no_panic()?;
    kernel::wait_for_state("disabled", LIMIT)?;
    Ok(ended)
}

/// The report that it names has the reason, and no name of a program.
pub(super) fn expect_report(ended: &Ended, reason: &str) -> Result<()> {
    let line = ended.output.iter().find(|line| line.contains("a report without names"));
    let line = line.with_context(|| format!("no report is named: {}", ended.describe()))?;
    let path = line.rsplit(": ").next().unwrap_or_default();
    let report = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    ensure!(report.to_lowercase().contains(reason), "the report has no reason: {report}");
    let agent = std::fs::read_to_string("/proc/self/comm").context("its own name")?;
    ensure!(!report.contains(agent.trim()), "the report names a program: {report}");
    Ok(())
}
