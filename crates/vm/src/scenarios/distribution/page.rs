// SPDX-License-Identifier: GPL-2.0-only

//! Every command of docs/operating.md, as it stands there.

use super::machine::{Ran, UNIT, run, shell, tail};
use super::service;
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("../../../../../docs/operating.md");
/// The folder in which they are run.
const FOLDER: &str = "/run/vm/guide";
/// How long a command is watched.
const WATCHED: Duration = Duration::from_secs(5);
/// From Ctrl-C to the end. Unloading takes seconds on a slow machine.
const END_LIMIT: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(150);
const GLANCE: Duration = Duration::from_millis(100);
/// The exit code of what a signal has interrupted.
const INTERRUPTED: i32 = 130;
/// How many commands are run at least.
const RUN_MIN: usize = 20;

/// When a command is run, and how. The order is that of the passes over the page, so that the unit is
/// stopped and started once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    /// While the unit runs, to its end.
    Beside,
    /// While the unit runs, for some seconds, until Ctrl-C.
    Watches,
    /// While no scheduler runs, for some seconds, until Ctrl-C.
    Measures,
    /// While no scheduler runs: it becomes one, until Ctrl-C.
    Schedules,
    /// After these, to its end.
    After,
    /// The same; it may end with this exit code too, for what it asks for is not there.
    OrEndsWith(i32),
    /// Last: the guide's removal.
    Removes,
    /// In another step, or in a test that has the sources.
    Elsewhere,
}

/// The first line that begins a command says how it is run.
const COMMANDS: [(&str, How); 25] = [
    ("make ", How::Elsewhere),
    ("sudo make ", How::Elsewhere),
    ("sudo apt install ", How::Elsewhere),
    ("sudo systemctl enable ", How::Elsewhere),
    ("sudo systemctl disable ", How::Removes),
    ("sudo rm -r /var/lib/scx_pandemonium_user", How::Removes),
    ("systemctl status ", How::Beside),
    ("journalctl ", How::Beside),
    ("sudo scx_pandemonium_user --stats ", How::Schedules),
    ("sudo scx_pandemonium_user --knobs ", How::Schedules),
    ("sudo scx_pandemonium_user --record ", How::Schedules),
    ("sudo scx_pandemonium_user --monitor ", How::Watches),
    ("sudo scx_pandemonium_user bench run", How::Measures),
    ("sudo scx_pandemonium_user check", How::Beside),
    ("sudo scx_pandemonium_user tune", How::Beside),
    ("sudo scx_pandemonium_user explain ", How::Beside),
    ("sudo scx_pandemonium_user procdb forget ", How::OrEndsWith(1)),
    ("scx_pandemonium_user procdb ", How::After),
    ("scx_pandemonium_user --help-stats", How::After),
    ("scx_pandemonium_user --version", How::After),
    ("scx_pandemonium_user completions ", How::After),
    ("scx_pandemonium_user man ", How::After),
    ("pandemonium_lab replay bad.rec --policy ", How::OrEndsWith(1)),
    ("pandemonium_lab replay ", How::After),
    ("pandemonium_lab explain ", How::OrEndsWith(2)),
];

/// The commands in blocks of shell, without their comments.
fn listed() -> impl Iterator<Item = &'static str> {
    let blocks = PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.split(" #").next());
    lines.map(str::trim).filter(|line| !line.is_empty())
}

fn how(command: &str) -> Option<How> {
    COMMANDS.iter().find(|(begin, _)| command.starts_with(begin)).map(|(_, how)| *how)
}

/// Runs all of them, in passes. The last one removes what the unit left, so it is started again
/// afterwards, and learns again.
pub fn commands(_: &Guest) -> Result<()> {
    fs::create_dir_all(FOLDER).context("a folder for the commands")?;
    fs::create_dir_all("/etc/bash_completion.d").context("the folder of completions")?;
    fs::write(format!("{FOLDER}/FILE"), "batch_slice_us=8000\n").context("a file of knobs")?;
    let mut commands = Vec::new();
    for command in listed() {
        commands.push((how(command).with_context(|| format!("no rule for `{command}`"))?, command));
    }
    commands.retain(|(how, _)| *how != How::Elsewhere);
    // Within a pass in the order of the page.
    commands.sort_by_key(|(how, _)| *how);
    for (how, command) in &commands {
        report::progress(*command);
        execute(command, *how).with_context(|| format!("`{command}` ({how:?})"))?;
    }
    ensure!(commands.len() >= RUN_MIN, "only {} commands are on the page", commands.len());
    report::note(format!("{} commands of docs/operating.md were run", commands.len()));
    fs::remove_dir_all("/etc/bash_completion.d").context("removing the completions")?;
    service::enable_again()
}

fn execute(command: &str, how: How) -> Result<()> {
    // A command for a process number needs one that exists; any does.
    let command = command.replace(" 4711", &format!(" {}", std::process::id()));
    let line = format!("export PATH=$PATH:/run/vm; cd {FOLDER} && {command}");
    let (ran, also) = match how {
        How::Elsewhere => return Ok(()),
        How::Beside | How::After | How::Removes => (run(&line)?, 0),
        How::OrEndsWith(code) => (run(&line)?, code),
        How::Watches => (until_ctrl_c(&line, || Ok(()))?, 0),
        How::Measures => {
            shell(&format!("systemctl stop {UNIT}"))?;
            (until_ctrl_c(&line, || Ok(()))?, INTERRUPTED)
        }
        How::Schedules => {
            let _ = fs::remove_file(format!("{FOLDER}/bad.rec"));
            let ran = until_ctrl_c(&line, || kernel::wait_for_state("enabled", START_LIMIT))?;
            kernel::wait_for_state("disabled", END_LIMIT)?;
            (ran, 0)
        }
    };
    let code = ran.code.unwrap_or(-1);
    ensure!(code == 0 || code == also, "it ended with {code}: {}", tail(&ran.output));
    let silent = command.starts_with("sudo rm") || command.contains(" > ");
    ensure!(silent || !ran.output.trim().is_empty(), "it printed nothing");
    ensure!(!ran.output.contains("panicked"), "{}", tail(&ran.output));
    Ok(())
}

/// Starts a line of shell, waits until it works, and some seconds, and presses Ctrl-C.
fn until_ctrl_c(line: &str, works: impl Fn() -> Result<()>) -> Result<Ran> {
    const OUTPUT: &str = "/run/vm/guide.out";
    let file = fs::File::create(OUTPUT).context("a file for what it prints")?;
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", &format!("exec 2>&1; {line}")]).stdin(Stdio::null()).stdout(file);
    // Ctrl-C reaches every process of a terminal's foreground, and not the agent.
    let mut child = shell.process_group(0).spawn().context("starting bash")?;
    let group = -libc::pid_t::try_from(child.id()).context("a process number")?;
    let worked = works();
    sleep(WATCHED);
    // SAFETY: a plain system call; the group's first process is a child that is not reaped yet.
    unsafe { libc::kill(group, libc::SIGINT) };
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for it")? {
            break status;
        }
        if start.elapsed() > END_LIMIT {
            // SAFETY: as above.
            unsafe { libc::kill(group, libc::SIGKILL) };
            bail!("it did not end within {} s of Ctrl-C", END_LIMIT.as_secs());
        }
        sleep(GLANCE);
    };
    let output = fs::read_to_string(OUTPUT).context("reading what it printed")?;
    worked.with_context(|| tail(&output))?;
    // A shell that Ctrl-C ends says so with 130, or ends by the signal.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(Ran { code, output })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_page_has_a_rule_and_every_rule_a_command() {
        let listed: Vec<&str> = listed().collect();
        let unknown: Vec<&&str> = listed.iter().filter(|line| how(line).is_none()).collect();
        assert!(unknown.is_empty(), "say in COMMANDS how to run {unknown:?}");
        let run = listed.iter().filter(|line| how(line) != Some(How::Elsewhere)).count();
        assert!(run >= RUN_MIN, "{run}");
        for (begin, _) in COMMANDS {
            assert!(listed.iter().any(|line| line.starts_with(begin)), "none begins {begin:?}");
        }
    }
}
