// SPDX-License-Identifier: GPL-2.0-only

//! The machine as its user sees it: a shell and units.

use crate::guest::{Guest, report};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const UNIT: &str = "scx_pandemonium_user.service";
const GLANCE: Duration = Duration::from_millis(100);
/// What a command printed, and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub output: String,
}

/// Runs a line of shell to its end; both of its streams are read as one.
pub fn run(line: &str) -> Result<Ran> {
    let mut shell = Command::new("/bin/bash");
    shell.args(["-o", "pipefail", "-c", &format!("exec 2>&1; {line}")]).stdin(Stdio::null());
    let output = shell.output().with_context(|| format!("starting `{line}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Ran { code: output.status.code(), output: text })
}

/// The same, and it must succeed. Returns what it printed.
pub fn shell(line: &str) -> Result<String> {
    let Ran { code, output } = run(line)?;
    ensure!(code == Some(0), "`{line}` ended with {code:?}: {}", tail(&output));
    Ok(output)
}

/// The last lines of a long text.
pub fn tail(text: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

/// A property of a unit as systemd shows it.
pub fn property(unit: &str, name: &str) -> Result<String> {
    Ok(shell(&format!("systemctl show --property={name} --value {unit}"))?.trim().to_owned())
}

/// The main process of our unit.
pub fn main_pid() -> Result<u32> {
    let pid = property(UNIT, "MainPID")?;
    pid.parse().with_context(|| format!("the main process is {pid:?}"))
}

/// The process that schedules: the child of the main process.
pub fn worker_pid() -> Result<u32> {
    let main = main_pid()?;
    let children = shell(&format!("pgrep --parent {main}"))?;
    let first = children.lines().next().with_context(|| format!("{main} has no child"))?;
    first.trim().parse().with_context(|| format!("reading {children:?}"))
}

/// Waits until something holds.
pub fn wait_for(what: &str, limit: Duration, holds: impl Fn() -> Result<bool>) -> Result<Duration> {
    let start = Instant::now();
    while !holds()? {
        ensure!(start.elapsed() < limit, "after {} s: not yet {what}", limit.as_secs());
        sleep(GLANCE);
    }
    Ok(start.elapsed())
}

/// The boot is over.
pub fn is_up(_: &Guest) -> Result<()> {
    // A unit of Debian's own that lacks a module of the kernel makes the machine "degraded".
    let state = run("systemctl is-system-running --wait")?.output;
    let failed = shell("systemctl list-units --failed --plain --no-legend")?;
    let about = shell("cat /etc/debian_version; systemctl --version | head -1; uname -r")?;
    report::note(format!("Debian {}: {}", about.trim().replace('\n', ", "), state.trim()));
    for line in failed.lines() {
        report::note(format!("failed by itself: {}", line.trim()));
    }
    let comm = fs::read_to_string("/proc/1/comm").context("looking at process 1")?;
    ensure!(comm.trim() == "systemd", "process 1 is {comm:?}");
    Ok(())
}
