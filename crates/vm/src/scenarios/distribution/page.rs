// SPDX-License-Identifier: GPL-2.0-only

//! Every command of docs/operating.md, as it stands there.

use super::machine::{Ran, UNIT, run, shell, tail};
use super::service;
use crate::guest::{Guest, kernel, report};
use anyhow::{Context, Result, ensure};
use std::fs;

const PAGE: &str = include_str!("../../../../../docs/operating.md");
/// The folder in which they are run.
const FOLDER: &str = "/run/vm/guide";
/// How many commands are run at least.
const RUN_MIN: usize = 20;

/// How a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// To its end, while the unit runs.
    Beside,
    /// To its end, and nothing is known of what it needs. It may end with this exit code instead.
    OrEndsWith(i32),
    /// For some seconds, until Ctrl-C, while the unit runs.
    Watches,
    /// For some seconds, until Ctrl-C, while no scheduler runs.
    Alone,
    /// By another step or another test.
    Elsewhere,
}

/// The first line that begins a command says how it is run.
const COMMANDS: [(&str, How); 25] = [
    ("make ", How::Elsewhere),
    ("sudo make ", How::Elsewhere),
    ("sudo apt install ", How::Elsewhere),
    ("sudo systemctl enable ", How::Elsewhere),
    ("sudo systemctl disable ", How::Beside),
    ("sudo rm -r /var/lib/scx_pandemonium_user", How::Beside),
    ("systemctl status ", How::Beside),
    ("journalctl ", How::Beside),
    ("sudo scx_pandemonium_user --stats ", How::Alone),
    ("sudo scx_pandemonium_user --knobs ", How::Alone),
    ("sudo scx_pandemonium_user --record ", How::Alone),
    ("sudo scx_pandemonium_user --monitor ", How::Watches),
    ("sudo scx_pandemonium_user bench run", How::Alone),
    ("sudo scx_pandemonium_user check", How::Beside),
    ("sudo scx_pandemonium_user tune", How::Beside),
    ("sudo scx_pandemonium_user explain ", How::Beside),
    ("sudo scx_pandemonium_user procdb forget ", How::OrEndsWith(1)),
    ("scx_pandemonium_user procdb ", How::Beside),
    ("scx_pandemonium_user --help-stats", How::Beside),
    ("scx_pandemonium_user --version", How::Beside),
    ("scx_pandemonium_user completions ", How::Beside),
    ("scx_pandemonium_user man ", How::Beside),
    ("pandemonium_lab replay bad.rec --policy ", How::Beside),
    ("pandemonium_lab replay ", How::Beside),
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

/// Runs all of them in the order of the page. The last ones remove what the unit left, so it is
/// started again afterwards, and learns again.
pub fn commands(_: &Guest) -> Result<()> {
    fs::create_dir_all(FOLDER).context("a folder for the commands")?;
    fs::create_dir_all("/etc/bash_completion.d").context("the folder of completions")?;
    fs::write(format!("{FOLDER}/FILE"), "batch_slice_us=8000\n").context("a file of knobs")?;
    let mut count = 0;
    for command in listed() {
        let how = how(command).with_context(|| format!("no rule for `{command}`"))?;
        if how != How::Elsewhere {
            execute(command, how).with_context(|| format!("`{command}` ({how:?})"))?;
            count += 1;
        }
    }
    ensure!(count >= RUN_MIN, "only {count} commands were found on the page");
    report::note(format!("{count} commands of docs/operating.md were run"));
    fs::remove_dir_all("/etc/bash_completion.d").context("removing the completions")?;
    service::enable_again()
}

/// A command for a process number needs one that exists; any does.
fn with_a_task(command: &str) -> String {
    command.replace(" 4711", &format!(" {}", std::process::id()))
}

fn execute(command: &str, how: How) -> Result<()> {
    let command = with_a_task(command);
    // Ctrl-C in a terminal reaches every process of the command.
    let until_ctrl_c = format!("timeout --signal=INT --kill-after=20 8 {command}");
    let in_folder = |line: &str| run(&format!("export PATH=$PATH:/run/vm; cd {FOLDER} && {line}"));
    let (ran, codes): (Ran, &[i32]) = match how {
        How::Elsewhere => return Ok(()),
        How::Beside => (in_folder(&command)?, &[0]),
        How::OrEndsWith(code) => (in_folder(&command)?, &[0, code]),
        // 124: what timeout ends with when it had to send the signal.
        How::Watches => (in_folder(&until_ctrl_c)?, &[124]),
        How::Alone => {
            let was_active = shell(&format!("systemctl is-active {UNIT} || true"))?;
            shell(&format!("systemctl stop {UNIT}"))?;
            let _ = fs::remove_file(format!("{FOLDER}/bad.rec.new"));
            let ran = in_folder(&until_ctrl_c)?;
            kernel::wait_for_state("disabled", std::time::Duration::from_secs(1))?;
            if was_active.trim() == "active" {
                shell(&format!("systemctl start {UNIT}"))?;
                service::expect_in_charge()?;
            }
            (ran, &[124])
        }
    };
    let code = ran.code.unwrap_or(-1);
    ensure!(codes.contains(&code), "it ended with {code}: {}", tail(&ran.output));
    let silent = command.starts_with("sudo rm") || command.contains(" > ");
    ensure!(silent || !ran.output.trim().is_empty(), "it printed nothing");
    let panicked = ran.output.contains("panicked");
    ensure!(!panicked, "{}", tail(&ran.output));
    Ok(())
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
