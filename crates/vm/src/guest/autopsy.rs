// SPDX-License-Identifier: GPL-2.0-only

//! Logs what a process that should have ended does instead, in the console log.

use super::{family, kernel, report};
use std::fs;

/// Files of a thread that tell where in the kernel it is.
const THREAD_FILES: [&str; 3] = ["wchan", "syscall", "stack"];
/// Fields of a thread's status that concern scheduling.
const STATUS_FIELDS: [&str; 6] = [
    "State",
    "SigPnd",
    "SigBlk",
    "SigCgt",
    "voluntary_ctxt_switches",
    "nonvoluntary_ctxt_switches",
];

/// Logs the state of every thread of a process and of its children.
pub fn log_family(pid: libc::pid_t) {
    report::log(&format!("sched_ext is {}", kernel::sched_ext_state().unwrap_or_default()));
    log_threads(pid);
    for child in family::children_of(pid) {
        log_threads(child);
    }
}

/// Logs every runnable task, its last CPU and its allowed CPUs. A task that stays in this list
/// while one of those CPUs is idle is lost.
pub fn log_runnable() {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Ok(threads) = fs::read_dir(process.path().join("task")) else { continue };
        for thread in threads.flatten().map(|entry| entry.path()) {
            let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().trim().to_string()
            };
            if !field("State:").starts_with('R') {
                continue;
            }
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            // After the bracket that ends the name, the CPU is the 37th field.
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            let cpu = after_name.split_whitespace().nth(36).unwrap_or("?");
            let (name, allowed) = (field("Name:"), field("Cpus_allowed_list:"));
            report::log(&format!(
                "runnable: {name} {} on CPU {cpu} of {allowed}",
                thread.display()
            ));
        }
    }
}

/// Logs state, signals, place in the kernel and scheduling figures.
fn log_threads(pid: libc::pid_t) {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for thread in threads.flatten().map(|entry| entry.path()) {
        let read = |name: &str| {
            fs::read_to_string(thread.join(name)).unwrap_or_default().trim().replace('\n', "; ")
        };
        report::log(&format!("thread {} {}", thread.display(), read("comm")));
        let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
        for line in
            status.lines().filter(|line| STATUS_FIELDS.iter().any(|field| line.starts_with(field)))
        {
            report::log(&format!("  {}", line.replace('\t', " ")));
        }
        for name in THREAD_FILES {
            report::log(&format!("  {name}: {}", read(name)));
        }
        let sched = fs::read_to_string(thread.join("sched")).unwrap_or_default();
        for line in sched.lines().filter(|line| line.contains("ext.") || line.starts_with("policy"))
        {
            report::log(&format!("  {}", line.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
}
