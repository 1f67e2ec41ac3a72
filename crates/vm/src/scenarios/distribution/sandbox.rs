// SPDX-License-Identifier: GPL-2.0-only

//! scx_loader starts schedulers as its children, so they have its sandbox: here a unit has the same
//! settings.

use super::machine::{property, shell, tail, wait_for};
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, kernel, report};
use crate::scenarios::procdb::DATABASE;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

const UNIT: &str = "vm-scx-loader.service";
/// The settings of `services/scx_loader.service` in scx-loader of 2026-05-28, one a line.
const SETTINGS: &str = "\
KillSignal=SIGINT
ProtectSystem=full
PrivateTmp=disconnected
PrivateMounts=true
ProtectKernelModules=true
ProtectKernelLogs=true
ProtectControlGroups=true
LockPersonality=true
RestrictRealtime=true
ProtectClock=true
MemoryDenyWriteExecute=true
RestrictAddressFamilies=AF_UNIX
SocketBindDeny=ipv4:tcp
SocketBindDeny=ipv4:udp
SocketBindDeny=ipv6:tcp
SocketBindDeny=ipv6:udp
CapabilityBoundingSet=~CAP_BLOCK_SUSPEND CAP_CHOWN CAP_MKNOD CAP_NET_RAW CAP_SYS_BOOT \
    CAP_SYS_CHROOT CAP_SYS_MODULE CAP_SYS_PACCT CAP_SYS_PTRACE CAP_SYS_TIME CAP_SYSLOG \
    CAP_WAKE_ALARM
SystemCallFilter=~@aio:EPERM @chown:EPERM @clock:EPERM @cpu-emulation:EPERM @debug:EPERM \
    @keyring:EPERM @module:EPERM @mount:EPERM @obsolete:EPERM @pkey:EPERM @raw-io:EPERM \
    @reboot:EPERM @setuid:EPERM @swap:EPERM @sync:EPERM @timer:EPERM
SystemCallFilter=perf_event_open
";
const START_LIMIT: Duration = Duration::from_secs(150);
/// How long it schedules a load, in seconds.
const RUNS_S: usize = 6;
/// After 3 s the scheduler kills its worker; the rest is for a slow machine.
const END_LIMIT: Duration = Duration::from_secs(20);

pub fn runs(guest: &Guest) -> Result<()> {
    let unit = format!(
        "[Service]\nType=exec\nExecStart=/usr/bin/scx_pandemonium_user --stats 1\n{SETTINGS}"
    );
    let (path, began) = (format!("/run/systemd/system/{UNIT}"), SystemTime::now());
    fs::write(&path, unit).context("writing the unit")?;
    shell(&format!("systemctl daemon-reload && systemctl start {UNIT}"))?;
    let journal = || shell(&format!("journalctl --unit={UNIT} --output=cat --no-pager"));
    wait_for("sched_ext enabled in the sandbox", START_LIMIT, || {
        let failed = property(UNIT, "ActiveState")? == "failed";
        ensure!(!failed, "it failed in the sandbox: {}", tail(&journal()?));
        Ok(kernel::sched_ext_state()? == "enabled")
    })?;
    let hogs = format!("systemd-run --quiet --unit=vm-hogs -- /bin/sh -c '{}'", {
        "while :; do :; done & ".repeat(2 * guest.cpus) + "wait"
    });
    shell(&hogs)?;
    expect_told()?;
    let statistics = Statistics::ask()?;
    ensure!(statistics.text("fast_path")? == "loaded", "{}", statistics.text("fast_path")?);
    ensure!(kernel::sched_ext_state()? == "enabled", "{}", tail(&journal()?));
    let start = Instant::now();
    shell(&format!("systemctl stop {UNIT}"))?;
    kernel::wait_for_state("disabled", END_LIMIT)?;
    report::note(format!("ended {:.1} s after SIGINT", start.elapsed().as_secs_f64()));
    shell("systemctl stop vm-hogs")?;
    let (result, code) = (property(UNIT, "Result")?, property(UNIT, "ExecMainStatus")?);
    ensure!(result == "success" && code == "0", "it ended with {result}, exit code {code}");
    let journal = journal()?;
    ensure!(!journal.contains("cannot save"), "in the sandbox: {}", tail(&journal));
    let saved = fs::metadata(DATABASE).and_then(|file| file.modified()).context(DATABASE)?;
    ensure!(saved >= began, "the sandbox kept it from saving what it learned");
    fs::remove_file(&path).context("removing the unit")?;
    shell("systemctl daemon-reload").map(drop)
}

/// While it schedules, health tells what the sandbox forbids. A fault that passes comes before it.
fn expect_told() -> Result<()> {
    let mut told = Vec::new();
    for _ in 0..RUNS_S {
        sleep(Duration::from_secs(1));
        told.push(Statistics::ask()?.text("health")?.to_owned());
    }
    report::note(format!("health in the sandbox: {told:?}"));
    let is_told = told.iter().any(|health| health.contains("are not real-time"));
    ensure!(is_told, "health does not tell that no thread is real-time: {told:?}");
    Ok(())
}
