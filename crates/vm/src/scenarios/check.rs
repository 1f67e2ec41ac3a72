// SPDX-License-Identifier: GPL-2.0-only

//! `scx_pandemonium_user check` says whether a start would succeed.

use super::errors::{NOBODY, UNPRIVILEGED};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, kernel, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use libc::c_ulong;
use serde_json::Value;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub const ALL: &[Scenario] = &[Scenario {
    name: "check",
    about: "`check` has no failure on a machine on which a start succeeds, beside a running \
        instance too, and names what an unprivileged user lacks, with the exit code of a start; \
        without CAP_SYS_NICE it warns of the start on a busy machine",
    run: check,
    ..USUAL
}];

/// The number of the capability (kernel ABI).
const CAP_SYS_NICE: c_ulong = 23;

fn check(guest: &Guest) -> Result<()> {
    expect_green(guest, "before a start")?;
    expect_refusal(guest)?;
    expect_warning(guest)?;
    let scheduler = Scheduler::start(guest, &[])?;
    expect_green(guest, "beside an instance")?;
    scheduler.finish()?;
    ensure!(kernel::sched_ext_state()? == "disabled", "a check left a scheduler behind");
    Ok(())
}

/// As root: exit code 0, and the findings of the backend and of every part are good.
fn expect_green(guest: &Guest, when: &str) -> Result<()> {
    let (code, text) = output(&mut scheduler::command(guest, &["check"]))?;
    for line in text.lines() {
        report::note(format!("{when}: {}", line.trim()));
    }
    ensure!(code == Some(0), "{when}: exit code {code:?}");
    ensure!(!text.contains("FAILED"), "{when}: a failure, yet exit code 0");
    ensure!(text.contains("can run scx_pandemonium_user"), "{when}: no verdict");

    let (code, json) = output(&mut scheduler::command(guest, &["check", "--json"]))?;
    let json: Value = serde_json::from_str(&json).with_context(|| format!("{when}: {json}"))?;
    ensure!(code == Some(0) && json["can_run"] == true, "{when}: as JSON: {json}");
    ensure!(json["kernel"] == kernel::release()?, "{when}: of another kernel: {json}");
    let everywhere = [
        "kernel",
        "types (BTF)",
        "backend",
        "fast path",
        "privileges",
        "process numbers",
        "other scheduler",
    ];
    let before_7 = match kernel::release()?.starts_with("6.") {
        true => [("newer kernels", "note"), ("deadline server", "warning")],
        false => [("newer kernels", "ok"), ("deadline server", "ok")],
    };
    for (topic, expected) in everywhere.map(|topic| (topic, "ok")).into_iter().chain(before_7) {
        let findings = json["findings"].as_array().context("findings are a list")?;
        let finding = findings.iter().find(|finding| finding["topic"] == topic);
        let level = finding.map(|finding| &finding["level"]);
        ensure!(level.is_some_and(|level| level == expected), "{when}: {topic}: {finding:?}");
    }
    Ok(())
}

/// Without privileges: the exit code of a start, and the names of what is missing.
fn expect_refusal(guest: &Guest) -> Result<()> {
    let mut unprivileged = scheduler::command(guest, &["check"]);
    unprivileged.uid(NOBODY).gid(NOBODY);
    let (code, text) = output(&mut unprivileged)?;
    let line = text.lines().find(|line| line.starts_with("FAILED")).unwrap_or_default();
    report::note(format!("without privileges: {line}"));
    ensure!(code == Some(UNPRIVILEGED), "without privileges: exit code {code:?}: {text}");
    for part in ["privileges", "CAP_SYS_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_RESOURCE"] {
        ensure!(line.contains(part), "without privileges it does not name {part}: {text}");
    }
    Ok(())
}

/// As root without the right to have real-time threads: a start succeeds, and its loss is named.
fn expect_warning(guest: &Guest) -> Result<()> {
    let mut check = scheduler::command(guest, &["check"]);
    // SAFETY: a plain system call.
    unsafe {
        check.pre_exec(|| match libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_NICE) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let (code, text) = output(&mut check)?;
    let line = text.lines().find(|line| line.contains("CAP_SYS_NICE")).unwrap_or_default();
    report::note(format!("without CAP_SYS_NICE: {line}"));
    ensure!(code == Some(0), "without CAP_SYS_NICE: exit code {code:?}: {text}");
    ensure!(line.starts_with("warning"), "without CAP_SYS_NICE it does not warn: {text}");
    Ok(())
}

fn output(command: &mut Command) -> Result<(Option<i32>, String)> {
    let output = command.output().context("running check")?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(error.is_empty(), "it printed an error besides: {error}");
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}
