// SPDX-License-Identifier: GPL-2.0-only

//! Every command of the pages for users, as it stands there and in the order of the pages.

mod commands;
mod sources;
mod user;

use self::commands::{How, Listed, listed};
use super::machine::{Ran, UNIT, property, shell, tail, wait_for};
use super::service;
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The folder in which the commands are run.
const FOLDER: &str = "/run/vm/guide";
const RULES: &str = "/usr/share/scx_pandemonium_user/rules";
/// Where the output of a command goes.
const OUTPUT: &str = "/run/vm/guide.out";
const FLAGS: &str = "/etc/default/scx";
/// Folders that a command writes into, and that a Debian may lack.
const FOLDERS: [&str; 2] = ["/etc/bash_completion.d", "/var/lib/prometheus/node-exporter"];
/// How long a command is watched.
const WATCHED: Duration = Duration::from_secs(2);
/// How long a command may take that ends by itself.
const RUN_LIMIT: Duration = Duration::from_secs(180);
/// From Ctrl-C to the end. Unloading takes seconds on a slow machine.
const END_LIMIT: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(150);
const GLANCE: Duration = Duration::from_millis(100);
/// The exit code of what a signal has interrupted.
const INTERRUPTED: i32 = 130;
/// The recording of the pages.
const RECORDING: &str = "bad.rec";
/// Parts of commands that need not print anything.
const SILENT: [&str; 7] =
    ["sudo rm", "sudo mkdir", "sudo groupadd", "sudo usermod", "systemctl ", " > ", "--textfile"];

pub fn follow(_: &Guest) -> Result<()> {
    prepare()?;
    let (mut count, mut failed) = (0, Vec::new());
    for Listed { page, line, how } in listed() {
        let how = how.with_context(|| format!("{page}: no rule for `{line}`"))?;
        if let How::Not(reason) = how {
            report::note(format!("{page}: not run: `{line}`: {reason}"));
            continue;
        }
        report::progress(line.as_str());
        let start = Instant::now();
        // One that fails does not hide the others.
        if let Err(error) = execute(&line, how) {
            failed.push(format!("{page}: `{line}`: {error:#}"));
        }
        report::telemetry(format!("{:5.1} s  {page}: {line}", start.elapsed().as_secs_f64()));
        count += 1;
    }
    ensure!(
        failed.is_empty(),
        "{} of {count} commands failed: {}",
        failed.len(),
        failed.join("; ")
    );
    report::note(format!("{count} commands were run as the pages say"));
    want_unit(false)?;
    clean()
}

/// The command of a page that begins so.
pub fn command(begin: &str) -> Result<String> {
    let found = listed().into_iter().find(|command| command.line.starts_with(begin));
    found.map(|command| command.line).with_context(|| format!("no page has a command {begin:?}"))
}

/// What the pages take for granted: the folder that the sources are in with what was built, a user,
/// a file of knobs, and a scheduler that has rules when it is to read them again.
fn prepare() -> Result<()> {
    sources::write(Path::new(FOLDER))?;
    user::add()?;
    fs::write(format!("{FOLDER}/FILE"), "batch_slice_us=8000\n").context("a file of knobs")?;
    write_flags()?;
    FOLDERS.into_iter().try_for_each(fs::create_dir_all).context("folders for the commands")
}

fn write_flags() -> Result<()> {
    fs::write(FLAGS, format!("SCX_FLAGS='--rules {RULES}'\n")).context("writing the flags")
}

fn clean() -> Result<()> {
    fs::remove_file(FLAGS).context("removing the flags")?;
    sources::expect_uninstalled()?;
    for folder in FOLDERS {
        for entry in fs::read_dir(folder).context("looking for what was written")?.flatten() {
            if entry.file_name().to_string_lossy().contains("scx") {
                fs::remove_file(entry.path()).context("removing what was written")?;
            }
        }
    }
    // Fails if Debian has something in it.
    let _ = fs::remove_dir(FOLDERS[0]);
    Ok(())
}

fn execute(command: &str, how: How) -> Result<()> {
    match how {
        How::Beside | How::WatchesBeside | How::Upgrades => want_unit(true)?,
        How::Alone | How::Measures | How::Schedules => want_unit(false)?,
        How::Any(_) | How::Watches | How::Follows | How::Not(_) => {}
    }
    // A command for a process number needs one that exists; any does.
    let command = command.replace(" 4711", &format!(" {}", std::process::id()));
    let line = format!("cd {FOLDER} && {command}");
    let may_be_silent = SILENT.iter().any(|part| command.contains(part));
    let (ran, also) = match how {
        How::Not(_) => return Ok(()),
        How::Any(code) => (to_its_end(&line)?, code),
        How::Beside | How::Alone => (to_its_end(&line)?, 0),
        How::Upgrades => (upgrade(&line)?, 0),
        How::Follows => {
            let ran = user::follows(&command)?;
            // The other commands want other flags.
            write_flags()?;
            want_unit(false)?;
            (ran, 0)
        }
        How::Watches | How::WatchesBeside | How::Measures => {
            let says = || {
                let is_there = || Ok(may_be_silent || fs::metadata(OUTPUT)?.len() > 0);
                wait_for("a line of it", START_LIMIT, is_there).map(drop)
            };
            (until_ctrl_c(&line, says)?, INTERRUPTED)
        }
        How::Schedules => {
            if command.contains(RECORDING) {
                // The pages say that it must not exist.
                let _ = fs::remove_file(format!("{FOLDER}/{RECORDING}"));
            }
            let in_charge = || kernel::wait_for_state("enabled", START_LIMIT);
            let ran = until_ctrl_c(&line, in_charge)?;
            kernel::wait_for_state("disabled", END_LIMIT)?;
            (ran, 0)
        }
    };
    let code = ran.code.unwrap_or(-1);
    ensure!(code == 0 || code == also, "it ended with {code}: {}", tail(&ran.output));
    ensure!(may_be_silent || !ran.output.trim().is_empty(), "it printed nothing");
    ensure!(!ran.output.contains("panicked"), "{}", tail(&ran.output));
    Ok(())
}

/// Has the unit run, or no scheduler at all.
fn want_unit(running: bool) -> Result<()> {
    let is_active = property(UNIT, "ActiveState")? == "active";
    match running {
        true if !is_active => {
            // The pages start it more often than the unit's budget for an hour allows.
            shell(&format!("systemctl reset-failed {UNIT}; systemctl start {UNIT}"))?;
            service::expect_in_charge()
        }
        false if is_active => {
            shell(&format!("systemctl stop {UNIT}"))?;
            kernel::wait_for_state("disabled", END_LIMIT)
        }
        _ => Ok(()),
    }
}

/// Runs the line, and waits until the unit has upgraded itself.
fn upgrade(line: &str) -> Result<Ran> {
    let upgrades = || Statistics::ask().and_then(|statistics| statistics.count("upgrades"));
    let before = upgrades()?;
    let ran = to_its_end(line)?;
    // Between the two programs no statistics are served.
    wait_for("upgraded", START_LIMIT, || Ok(upgrades().is_ok_and(|now| now > before)))?;
    service::expect_in_charge()?;
    Ok(ran)
}

/// Runs a line of shell to its end.
fn to_its_end(line: &str) -> Result<Ran> {
    let (mut child, group) = spawn(line)?;
    ended(&mut child, group, RUN_LIMIT)
}

/// Starts a line of shell, waits until it works, and some seconds, and presses Ctrl-C.
fn until_ctrl_c(line: &str, works: impl Fn() -> Result<()>) -> Result<Ran> {
    let (mut child, group) = spawn(line)?;
    let worked = works();
    sleep(WATCHED);
    // SAFETY: a plain system call; the group's first process is a child that is not reaped yet.
    unsafe { libc::kill(group, libc::SIGINT) };
    let ran = ended(&mut child, group, END_LIMIT)?;
    worked.with_context(|| tail(&ran.output))?;
    Ok(ran)
}

/// Starts a line of shell as a process group of its own, and returns the number of that too. Ctrl-C
/// reaches every process of a terminal's foreground, and not the agent.
fn spawn(line: &str) -> Result<(Child, libc::pid_t)> {
    let file = fs::File::create(OUTPUT).context("a file for what it prints")?;
    let mut shell = Command::new("/bin/bash");
    shell.args(["-o", "pipefail", "-c", &format!("exec 2>&1; {line}")]);
    shell.stdin(Stdio::null()).stdout(file).process_group(0);
    let child = shell.spawn().context("starting bash")?;
    let group = -libc::pid_t::try_from(child.id()).context("a process number")?;
    Ok((child, group))
}

/// Waits for the end, and returns how it ended and what it printed.
fn ended(child: &mut Child, group: libc::pid_t, limit: Duration) -> Result<Ran> {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for it")? {
            break status;
        }
        if start.elapsed() > limit {
            // SAFETY: a plain system call; the group's first process is not reaped yet.
            unsafe { libc::kill(group, libc::SIGKILL) };
            child.wait().context("waiting for its end")?;
            bail!("it did not end within {} s: {}", limit.as_secs(), tail(&printed()?));
        }
        sleep(GLANCE);
    };
    // A shell that Ctrl-C ends says so with 130, or ends by the signal.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(Ran { code, output: printed()? })
}

fn printed() -> Result<String> {
    let bytes = fs::read(OUTPUT).context("reading what it printed")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
