// SPDX-License-Identifier: GPL-2.0-only

//! The process database: what is learned is known at the next start, and a bad file stops no start.

use super::control::ask;
use super::errors::IDLE_LIMIT;
use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "procdb",
        about: "the second run knows a program that the first run learned, by its name; a killed \
            worker loses little. In exact mode: a host that stops a CPU changes what is learned",
        limit_s: 180,
        exact: true,
        once: true,
        run: learns_and_knows,
        ..USUAL
    },
    Scenario {
        name: "procdb-damaged",
        about: "a corrupt, foreign or truncated database is set aside with a warning, and the \
            scheduler starts",
        limit_s: 90,
        once: true,
        run: damaged,
        ..USUAL
    },
];

pub(super) const DATABASE: &str = "/var/lib/scx_pandemonium_user/procdb.bin";
/// The program to learn: each run is as long as the others.
pub(super) const TICKER: Kind =
    Kind::Named { name: c"ticker", life: Life::Periodic { period_us: 4_000, work_us: 200 } };
/// One task of a name more than a prediction needs.
const TASKS: usize = 4;
const HOGS_PER_CPU: usize = 2;
/// Long enough for some hundred wakeups of each, also on a busy host.
pub(super) const LEARNING: Duration = Duration::from_secs(5);
/// Longer than the worker takes to pass what it learned to the supervisor.
const PASSED_ON: Duration = Duration::from_secs(12);

fn learns_and_knows(guest: &Guest) -> Result<()> {
    let name = TICKER.name();
    let first = Scheduler::start(guest, &[])?;
    ensure!(!fs::exists(DATABASE)?, "a database exists before the first run");
    run_tickers(guest, LEARNING)?;
    let hits = first.statistics()?.count("procdb_hits")?;
    let total = first.statistics()?.count("procdb_total")?;
    first.finish()?;
    let table = ask(guest, &["procdb", "show"])?;
    let line = table.lines().find(|line| line.starts_with(name));
    let line = line.with_context(|| format!("{name} was not learned: {table}"))?;
    report::note(format!("after the first run ({total} known, {hits} hits): {line}"));
    ensure!(!line.contains('?'), "{name} is not learned well enough: {line}");

    let second = Scheduler::start(guest, &[])?;
    let known = second.statistics()?.count("procdb_confident")?;
    ensure!(known > 0, "the second run started without what the first one learned");
    run_tickers(guest, LEARNING)?;
    let hits = second.statistics()?.count("procdb_hits")?;
    report::note(format!("in the second run: {known} known at the start, {hits} hits"));
    ensure!(hits >= TASKS as u64, "{hits} hits for {TASKS} tasks with a known name");
    second.finish()?;

    ask(guest, &["procdb", "forget", "--all"])?;
    let third = Scheduler::start(guest, &[])?;
    ensure!(third.statistics()?.count("procdb_total")? == 0, "a forgotten name is still known");
    run_tickers(guest, LEARNING)?;
    std::thread::sleep(PASSED_ON);
    third.replace_worker(IDLE_LIMIT)?;
    report::note(third.finish()?.describe());
    let table = ask(guest, &["procdb", "show"])?;
    ensure!(table.contains(name), "the killed worker lost what it had learned: {table}");

    let exported: serde_json::Value = serde_json::from_str(&ask(guest, &["procdb", "export"])?)
        .context("procdb export does not print JSON")?;
    ensure!(exported.to_string().contains(name), "{name} was not exported: {exported}");
    ask(guest, &["procdb", "forget", name])?;
    let table = ask(guest, &["procdb", "show"])?;
    ensure!(!table.contains(name), "{name} was not forgotten: {table}");
    Ok(())
}

/// Runs the program beside hogs: a wakeup that finds an idle CPU is not queued to user space.
pub(super) fn run_tickers(guest: &Guest, time: Duration) -> Result<()> {
    let hogs = vec![Kind::Hog; HOGS_PER_CPU * guest.cpus];
    let load = Load::start(&[vec![TICKER; TASKS], hogs].concat())?;
    std::thread::sleep(time);
    drop(load);
    Ok(())
}

fn damaged(guest: &Guest) -> Result<()> {
    let mut good = b"PANDEMDB".to_vec();
    good.extend([3, 0, 0, 0, 1, 0, 0, 0]);
    good.extend([7; 64 + 8]);
    let directory = DATABASE.trim_end_matches("/procdb.bin");
    fs::create_dir_all(directory).context("making the database's directory")?;
    let cases: [(&[u8], &str); 3] = [
        (&good, "checksum does not match"),
        (&good[..40], "do not fit the 1 entries"),
        (b"#!/bin/sh\n", "not a process database"),
    ];
    for (number, (bytes, reason)) in (1..).zip(cases) {
        fs::write(DATABASE, bytes).context("writing a bad database")?;
        let scheduler = Scheduler::start(guest, &[])?;
        run_tickers(guest, Duration::from_millis(500))?;
        let ended = scheduler.finish()?;
        let warning = ended.output.iter().find(|line| line.contains("set aside"));
        let warning = warning.with_context(|| format!("no warning: {}", ended.describe()))?;
        report::note(warning.as_str());
        ensure!(warning.contains(reason), "the warning does not say {reason:?}: {warning}");
        let kept = format!("{DATABASE}.rejected-{number}");
        ensure!(fs::read(&kept)? == bytes, "{kept} differs from the bad file");
    }
    Ok(())
}
