// SPDX-License-Identifier: GPL-2.0-only

//! The unit: started, loaded, read, restarted and killed, as systemd sees it.

use super::machine::{UNIT, main_pid, property, run, shell, tail, wait_for, worker_pid};
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::Duration;

const OPS: &str = "pandemonium_user";
/// From the command of systemctl to the scheduler in charge.
const START_LIMIT: Duration = Duration::from_secs(150);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The first two delays of the unit, in seconds: they grow in five steps from 10 s to five minutes.
/// So systemd prints them.
const DELAYS: [(&str, f64); 2] = [("10s", 10.0), ("19.7", 19.7)];
/// A short look at the load, in seconds.
const LOAD_S: u64 = 6;
/// How long each of the tasks that never sleep must have run meanwhile at least, in nanoseconds.
/// Their fair share is more than a second.
const HOG_NS_MIN: u64 = 200_000_000;

/// The guide's first look, before anything is started.
pub fn check(_: &Guest) -> Result<()> {
    let text = shell("sudo scx_pandemonium_user check")?;
    for line in text.lines() {
        report::telemetry(line);
    }
    ensure!(!text.contains("FAILED"), "it succeeds with a failure");
    let json: Value = serde_json::from_str(&shell("sudo scx_pandemonium_user check --json")?)?;
    ensure!(json["can_run"] == true, "as JSON it cannot run: {json}");
    let refused = run("runuser -u nobody -- scx_pandemonium_user check")?;
    ensure!(refused.code == Some(3), "without privileges it ends with {:?}", refused.code);
    Ok(())
}

pub fn enable(_: &Guest) -> Result<()> {
    shell(&format!("sudo systemctl enable --now {UNIT}"))?;
    let took = wait_for_charge()?;
    report::note(format!("in charge {:.1} s after the command", took.as_secs_f64()));
    let enabled = property(UNIT, "UnitFileState")?;
    ensure!(enabled == "enabled", "the unit is {enabled}");
    expect_in_charge()
}

fn wait_for_charge() -> Result<Duration> {
    wait_for("sched_ext enabled", START_LIMIT, || {
        let failed = property(UNIT, "ActiveState")? == "failed";
        ensure!(
            !failed,
            "the unit failed: {}",
            tail(&run(&format!("journalctl -u {UNIT}"))?.output)
        );
        Ok(kernel::sched_ext_state()? == "enabled")
    })
}

/// The unit is active, the kernel runs its scheduler, and that answers.
fn expect_in_charge() -> Result<()> {
    wait_for_charge()?;
    let active = property(UNIT, "ActiveState")?;
    ensure!(active == "active", "sched_ext is enabled, and the unit is {active}");
    let ops = kernel::sched_ext_ops()?;
    ensure!(ops.starts_with(OPS), "the scheduler is {ops}");
    Statistics::ask().map(drop)
}

/// Tasks that never sleep in the background, and in the foreground frames and sound: all of them
/// move, and the scheduler is well.
pub fn load(guest: &Guest) -> Result<()> {
    let hogs: Vec<String> = (0..2 * guest.cpus).map(|number| format!("vm-hog-{number}")).collect();
    for hog in &hogs {
        shell(&format!(
            "systemd-run --quiet --unit={hog} --slice=background.slice -p CPUWeight=50 -- \
                /bin/sh -c 'while :; do :; done'"
        ))?;
    }
    // Beside units with weights it has something to say.
    let findings = shell("scx_pandemonium_user check")?;
    ensure!(findings.contains("the cpu controller is on"), "check: {}", tail(&findings));
    let foreground = |unit: &str, slice: &str, phase: &str| {
        format!(
            "systemd-run --quiet --wait --pipe --unit={unit} --slice={slice} -- \
                pandemonium_probe {phase} --seconds {LOAD_S} --warm-up-ms 100"
        )
    };
    let lines = [
        foreground("vm-player", "app.slice", "audio"),
        foreground("vm-compositor", "session.slice", "deadline"),
    ];
    let results: Vec<Result<String>> = std::thread::scope(|scope| {
        let threads = lines.each_ref().map(|line| scope.spawn(|| shell(line)));
        threads.map(|thread| thread.join().expect("a command does not panic")).into()
    });
    for result in results {
        let figures: Value = serde_json::from_str(&result?).context("the probe prints JSON")?;
        report::telemetry(figures["figures"].to_string());
    }
    for hog in &hogs {
        let ran: u64 = property(hog, "CPUUsageNSec")?.parse().context("the CPU time of a unit")?;
        ensure!(ran >= HOG_NS_MIN, "{hog} had {ran} ns of {LOAD_S} s");
    }
    let statistics = Statistics::ask()?;
    report::note(format!("health under load: {}", statistics.text("health")?));
    ensure!(statistics.text("fast_path")? == "loaded", "{}", statistics.text("fast_path")?);
    expect_in_charge()?;
    shell(&format!("systemctl stop {}", hogs.join(" "))).map(drop)
}

pub fn journal(_: &Guest) -> Result<()> {
    let lines = shell(&format!("journalctl --unit={UNIT} --output=cat --no-pager"))?;
    let version = shell("scx_pandemonium_user --version")?;
    ensure!(lines.contains(version.trim()), "no line with {version:?}: {}", tail(&lines));
    // Every other line is about a start or an end.
    report::telemetry(tail(&lines));
    ensure!(!lines.contains("panicked"), "{lines}");
    Ok(())
}

pub fn restart(_: &Guest) -> Result<()> {
    let before = main_pid()?;
    shell(&format!("sudo systemctl restart {UNIT}"))?;
    expect_in_charge()?;
    ensure!(main_pid()? != before, "the main process is the same");
    let lines = shell(&format!("journalctl --unit={UNIT} --output=cat --no-pager"))?;
    ensure!(lines.contains("[KNOBS]"), "no report of the first run: {}", tail(&lines));
    Ok(())
}

pub fn worker_killed(_: &Guest) -> Result<()> {
    killed(worker_pid()?, 0)
}

pub fn main_killed(_: &Guest) -> Result<()> {
    killed(main_pid()?, 1)
}

/// Kills a process of the unit. The kernel's own scheduler takes over, and systemd starts the unit
/// again after a delay that grows from one failure to the next.
fn killed(pid: u32, failures_before: usize) -> Result<()> {
    let (printed, delay) = DELAYS[failures_before];
    shell(&format!("kill -KILL {pid}"))?;
    kernel::wait_for_state("disabled", STOP_LIMIT)?;
    let took = wait_for("an automatic restart", STOP_LIMIT, || {
        Ok(property(UNIT, "SubState")?.starts_with("auto-restart"))
    })?;
    let next = property(UNIT, "RestartUSecNext")?;
    report::note(format!("noticed after {:.1} s, restarts in {next}", took.as_secs_f64()));
    ensure!(next.starts_with(printed), "systemd restarts it in {next}, not in {delay} s");
    let waited =
        wait_for("started again", START_LIMIT, || Ok(kernel::sched_ext_state()? == "enabled"))?;
    // It was noticed a moment after systemd began to count.
    let least = delay - took.as_secs_f64() - 2.0;
    ensure!(waited.as_secs_f64() > least, "systemd waited {waited:?}, not {delay} s");
    let restarts = property(UNIT, "NRestarts")?;
    let expected = (failures_before + 1).to_string();
    ensure!(restarts == expected, "systemd counts {restarts} restarts, not {expected}");
    expect_in_charge()
}
