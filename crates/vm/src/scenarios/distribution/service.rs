// SPDX-License-Identifier: GPL-2.0-only

//! The unit: started, loaded, read, restarted, killed and stopped, as systemd does and sees it.

use super::machine::{UNIT, main_pid, property, run, shell, tail, wait_for, worker_pid};
use crate::guest::statistics::Statistics;
use crate::guest::terminal::Terminal;
use crate::guest::{Guest, kernel, report};
use crate::scenarios::top::{UP_LIMIT, VIEWS};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

pub const PROCDB: &str = "/var/lib/scx_pandemonium_user/procdb.bin";
const OPS: &str = "pandemonium_user";
/// From the command of systemctl to the scheduler in charge.
const START_LIMIT: Duration = Duration::from_secs(150);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The first two delays of the unit, in seconds: they grow in five steps from 10 s to five minutes.
/// So systemd prints them.
const DELAYS: [(&str, f64); 2] = [("10s", 10.0), ("19.7", 19.7)];
/// A short look at the load, in seconds.
const LOAD_S: u64 = 3;
/// How long each of the tasks that never sleep must have run meanwhile at least, in nanoseconds.
/// Their fair share is more than half a second.
const HOG_NS_MIN: u64 = 100_000_000;

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
pub fn expect_in_charge() -> Result<()> {
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
    look()?;
    let statistics = Statistics::ask()?;
    report::note(format!("health under load: {}", statistics.text("health")?));
    ensure!(statistics.text("fast_path")? == "loaded", "{}", statistics.text("fast_path")?);
    expect_in_charge()?;
    shell(&format!("systemctl stop {}", hogs.join(" "))).map(drop)
}

/// The first look of a user: a view has figures soon.
fn look() -> Result<()> {
    for (arguments, shown, _) in VIEWS {
        let what = arguments.join(" ");
        let mut command = Command::new("scx_pandemonium_user");
        command.args(arguments);
        let up =
            Terminal::start(command)?.await_text(shown, UP_LIMIT).with_context(|| what.clone())?;
        report::note(format!("{what} is up {} ms after the command", up.as_millis()));
    }
    Ok(())
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

/// The main process starts it again, and systemd counts no failure.
pub fn worker_killed(_: &Guest) -> Result<()> {
    let main = main_pid()?;
    shell(&format!("kill -KILL {}", worker_pid()?))?;
    kernel::wait_for_state("disabled", STOP_LIMIT)?;
    let waited = wait_for_charge()?;
    report::note(format!("in charge again after {:.1} s", waited.as_secs_f64()));
    ensure!(main_pid()? == main, "the main process is another one");
    let restarts = property(UNIT, "NRestarts")?;
    ensure!(restarts == "0", "systemd counts {restarts} restarts");
    expect_in_charge()
}

/// systemd starts it again by itself, after the first delay. The next delay is longer, and the user
/// does not wait for it.
pub fn main_killed(_: &Guest) -> Result<()> {
    let (printed, delay) = DELAYS[0];
    let took = killed(main_pid()?, printed)?;
    let waited = wait_for_charge()?;
    // It was noticed a moment after systemd began to count.
    let least = delay - took.as_secs_f64() - 2.0;
    ensure!(waited.as_secs_f64() > least, "systemd waited {waited:?}, not {delay} s");
    let restarts = property(UNIT, "NRestarts")?;
    ensure!(restarts == "1", "systemd counts {restarts} restarts, not one");
    expect_in_charge()?;
    killed(main_pid()?, DELAYS[1].0)?;
    shell(&format!("sudo systemctl restart {UNIT}"))?;
    expect_in_charge()
}

/// Kills the main process of the unit. The kernel's own scheduler takes over, and systemd says
/// after which delay it starts the unit again. Returns how long it took to notice.
fn killed(pid: u32, delay: &str) -> Result<Duration> {
    shell(&format!("kill -KILL {pid}"))?;
    kernel::wait_for_state("disabled", STOP_LIMIT)?;
    let took = wait_for("an automatic restart", STOP_LIMIT, || {
        Ok(property(UNIT, "SubState")?.starts_with("auto-restart"))
    })?;
    let next = property(UNIT, "RestartUSecNext")?;
    report::note(format!("noticed after {:.1} s, restarts in {next}", took.as_secs_f64()));
    ensure!(next.starts_with(delay), "systemd restarts it in {next}, not in {delay}");
    Ok(took)
}

/// The names of the programs that are known. The scheduler writes them when it ends.
pub fn learned() -> Result<BTreeSet<String>> {
    let text = shell("scx_pandemonium_user procdb export")?;
    let json: Value = serde_json::from_str(&text).context("the export is JSON")?;
    let mut names = BTreeSet::new();
    collect_names(&json, &mut names);
    Ok(names)
}

fn collect_names(json: &Value, names: &mut BTreeSet<String>) {
    match json {
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Object(fields) => {
            names.extend(fields.get("name").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| collect_names(field, names));
        }
        _ => {}
    }
}

/// Nothing but the link of `systemctl enable` has started it.
pub fn started(_: &Guest) -> Result<()> {
    expect_in_charge()?;
    let boot = shell("systemctl is-system-running --wait || true")?;
    report::note(format!("after the reboot: {}", boot.trim()));
    ensure!(!learned()?.is_empty(), "what was learned is gone with the reboot");
    Ok(())
}

/// The file that all sched_ext schedulers share.
pub fn flags(_: &Guest) -> Result<()> {
    const FILE: &str = "/etc/default/scx";
    let with = |text: &str| -> Result<String> {
        fs::write(FILE, text).context("writing the flags")?;
        shell(&format!("sudo systemctl restart {UNIT}"))?;
        expect_in_charge()?;
        let line = fs::read(format!("/proc/{}/cmdline", main_pid()?)).context("its arguments")?;
        Ok(String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned())
    };
    let ours = with("SCX_SCHEDULER=scx_pandemonium_user\nSCX_FLAGS='--low-power --stats 60'\n")?;
    ensure!(ours.ends_with("scx_pandemonium_user --low-power --stats 60"), "it runs as {ours}");
    let others = with("SCX_SCHEDULER=scx_cosmos\nSCX_FLAGS='--low-power'\n")?;
    ensure!(others.ends_with("scx_pandemonium_user"), "with flags of another: {others}");
    fs::remove_file(FILE).context("removing the flags")
}

pub fn stop(_: &Guest) -> Result<()> {
    shell(&format!("sudo systemctl stop {UNIT}"))?;
    kernel::wait_for_state("disabled", Duration::from_secs(1))?;
    let result = property(UNIT, "Result")?;
    let code = property(UNIT, "ExecMainStatus")?;
    ensure!(result == "success" && code == "0", "the unit ended with {result}, exit code {code}");
    // Nothing starts it again.
    sleep(Duration::from_secs(3));
    let active = property(UNIT, "ActiveState")?;
    ensure!(active == "inactive", "after the stop the unit is {active}");
    ensure!(fs::exists(PROCDB)?, "the stop saved nothing");
    Ok(())
}
