// SPDX-License-Identifier: GPL-2.0-only

//! Phases of the benchmark whose figures are compared with others of the same run. In exact mode:
//! in fast mode a busy host would delay every task.

use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::{Command, Stdio};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "launches",
        about: "programs start one after the other beside hogs: a program in its last microseconds \
            does not wait behind a hog",
        cpus: Some(2),
        exact: true,
        once: true,
        run: launches,
        ..USUAL
    },
    Scenario {
        name: "batch-starvation",
        about: "on one CPU a hog gets its share beside a pair that sends a byte to and fro without \
            pause, and the pair waits for the hog at most a millisecond at a time",
        cpus: Some(1),
        exact: true,
        once: true,
        run: batch_starvation,
        ..FULL_SPEED
    },
];

/// A launch that waits for a hog takes longer than this many medians.
const LATE: f64 = 1.5;
/// The part of launches that wait for a hog: 0.36 while programs were preempted just before their
/// exit, at most 0.01 since. Those were preempted by a kernel thread at a tick, before the program
/// was loaded.
const LATE_MAX: f64 = 0.05;
/// The hog's work beside the pair, by its work beside a task that sleeps: 0.005 while the pair was
/// always urgent, 0.19 to 0.38 since.
const WORK_MIN: f64 = 0.1;
/// p99 of a round trip in us: a task that waits for the hog preempts it after a millisecond.
const TRIP_MAX: f64 = 1_500.0;

fn launches(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let launch = measure("launch", "2")?;
    let [median, p99] = [figure(&launch, "p50")?, figure(&launch, "p99")?];
    let late = part_above(&launch, LATE * median * 1_000.0)?;
    let what = format!("launches take {median:.0} us (p50) and {p99:.0} (p99), {late:.3} are late");
    report::note(what.as_str());
    ensure!(late <= LATE_MAX, "{what}");
    scheduler.finish().map(drop)
}

fn batch_starvation(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let [wake, ipc] = [measure("wake", "1")?, measure("ipc", "4")?];
    let [usual, beside] = [figure(&wake, "work")?, figure(&ipc, "work")?];
    let [median, p99] = [figure(&ipc, "pipe_p50")?, figure(&ipc, "pipe_p99")?];
    let what = format!(
        "the hog does {beside:.0} units a second of {usual:.0}, a round trip takes {median:.0} us \
         (p50) and {p99:.0} us (p99)"
    );
    report::note(what.as_str());
    ensure!(beside >= usual * WORK_MIN && p99 <= TRIP_MAX, "{what}");
    scheduler.finish().map(drop)
}

/// Measures a phase of the benchmark.
fn measure(phase: &str, seconds: &str) -> Result<Value> {
    let mut probe = Command::new("/bin/pandemonium_probe");
    probe.args([phase, "--seconds", seconds]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = probe.output().context("starting the probe")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the probe: {}, printing: {said}", output.status);
    serde_json::from_str(&said).with_context(|| said.to_string())
}

fn figure(report: &Value, name: &str) -> Result<f64> {
    let figures = report["figures"].as_array().context("figures")?;
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.and_then(|figure| figure["value"].as_f64()).with_context(|| format!("no {name}"))
}

/// The part of a phase's latencies that are longer than this.
fn part_above(report: &Value, limit_ns: f64) -> Result<f64> {
    let buckets = report["curves"][0]["buckets"].as_array().context("no curve")?;
    let counts = |above: f64| -> f64 {
        let longer = buckets.iter().filter(|bucket| bucket[0].as_f64() > Some(above));
        longer.filter_map(|bucket| bucket[1].as_f64()).sum()
    };
    Ok(counts(limit_ns) / counts(0.0))
}
