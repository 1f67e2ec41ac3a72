// SPDX-License-Identifier: GPL-2.0-only

//! Programs that begin and end. In exact time: a busy host would make everybody late.

use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::{Command, Stdio};

pub const ALL: &[Scenario] = &[Scenario {
    name: "launches",
    about: "programs are launched one after the other beside hogs: none waits behind a hog for the \
        last microseconds of the one before it",
    cpus: Some(2),
    exact: true,
    once: true,
    run: launches,
    ..USUAL
}];

/// The phase of the benchmark: `launch` for so many seconds.
const LAUNCH: &[&str] = &["launch", "--seconds", "2"];
/// p99 was 3.1 times the median while programs lost their CPU at their end, and is 1.04 times since
/// they do not. A tick in the middle of a launch costs less than this.
const P99_TO_MEDIAN_MAX: f64 = 1.5;

fn launches(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let mut probe = Command::new("/bin/pandemonium_probe");
    probe.args(LAUNCH).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = probe.output().context("starting the probe")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the probe: {}, saying: {said}", output.status);
    let measured: Value = serde_json::from_str(&said).with_context(|| said.to_string())?;
    let [median, p99] = [figure(&measured, "p50")?, figure(&measured, "p99")?];
    let what = format!("launches take {median:.0} us (p50) and {p99:.0} us (p99)");
    report::note(what.as_str());
    ensure!(p99 <= median * P99_TO_MEDIAN_MAX, "{what}");
    scheduler.finish().map(drop)
}

fn figure(report: &Value, name: &str) -> Result<f64> {
    let figures = report["figures"].as_array().context("figures")?;
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.and_then(|figure| figure["value"].as_f64()).with_context(|| format!("no {name}"))
}
