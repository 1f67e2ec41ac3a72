// SPDX-License-Identifier: GPL-2.0-only

//! A process and its children: the scheduler that was started may be a supervisor with a worker
//! process.

use super::clock;
use anyhow::{Context, Result};
use std::fs;

/// CPU time that a process and its children have used so far.
pub fn cpu_time_ns(pid: libc::pid_t) -> Result<u64> {
    let times = std::iter::once(pid).chain(children_of(pid)).map(|pid| {
        clock::cpu_time_ns(pid).with_context(|| format!("process {pid} has no CPU clock"))
    });
    times.sum()
}

/// The children of a process.
pub fn children_of(parent: libc::pid_t) -> Vec<libc::pid_t> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid, 1) == Some(parent.to_string())).collect()
}

/// Whether a signal has stopped a process.
pub fn is_stopped(pid: libc::pid_t) -> bool {
    stat(pid, 0).as_deref() == Some("T")
}

/// A field of `/proc/PID/stat` after the name, which may contain anything but ends in a bracket:
/// the first one is the state, the second one the parent.
fn stat(pid: libc::pid_t, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit(')').next()?;
    after_name.split_whitespace().nth(field).map(str::to_owned)
}
