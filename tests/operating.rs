// SPDX-License-Identifier: GPL-2.0-only

//! The commands of docs/operating.md do what they are there for. A test of `src/cli.rs` parses
//! those that would need a running scheduler or start one; here the others are run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const PAGE: &str = include_str!("../docs/operating.md");
const MAKEFILE: &str = include_str!("../Makefile");
const OURS: &str = "scx_pandemonium_user";
/// Programs of the system.
const FOREIGN: [&str; 11] = [
    "apt",
    "echo",
    "groupadd",
    "journalctl",
    "man",
    "mkdir",
    "printf",
    "rm",
    "systemctl",
    "tee",
    "usermod",
];
/// Exit codes of a check: no privileges, no sched_ext, another scheduler, refused.
const CHECKED: [i32; 5] = [0, 3, 4, 5, 6];

/// The commands in blocks of shell, without `sudo` and comments, split at pipes.
fn commands() -> Vec<Vec<&'static str>> {
    let blocks = PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.split(" #").next());
    let commands = lines.flat_map(|line| line.split('|'));
    let words = commands.map(|command| {
        let words = command.split_whitespace().filter(|word| *word != "sudo");
        words.take_while(|word| *word != ">").collect::<Vec<_>>()
    });
    words.filter(|words| !words.is_empty()).collect()
}

/// What a command of ours may end with, if it does no more than read.
fn harmless(words: &[&str]) -> Option<&'static [i32]> {
    match words {
        ["check", ..] => Some(&CHECKED),
        ["procdb", "show" | "export"]
        | ["rules", "test", "--rules", "packaging/rules"]
        | ["completions" | "man", ..] => Some(&[0]),
        ["--help" | "--help-stats" | "--version"] => Some(&[0]),
        _ => None,
    }
}

#[test]
fn every_command_is_known_and_those_that_only_read_succeed() {
    let scheduler = Path::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
    let lab = scheduler.with_file_name("pandemonium_lab");
    let (mut run, mut parsed) = (0, 0);
    for words in commands() {
        let (program, arguments) = (words[0], &words[1..]);
        match program {
            OURS => {
                let Some(codes) = harmless(arguments) else {
                    parsed += 1;
                    continue;
                };
                let output = Command::new(scheduler).args(arguments).output().expect("it runs");
                let code = output.status.code().unwrap_or(-1);
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(codes.contains(&code), "{words:?}: {code}: {error}");
                assert!(!output.stdout.is_empty(), "{words:?} prints nothing");
                run += 1;
            }
            "pandemonium_lab" => {
                let help = Command::new(&lab).args([arguments[0], "--help"]).output();
                let output = help.expect("the lab is built beside: build with --workspace");
                assert!(output.status.success(), "{words:?}");
                run += 1;
            }
            "make" => {
                let targets = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
                let mut targets =
                    MAKEFILE.lines().filter(|line| !line.starts_with('\t')).map(targets);
                let exists = targets.any(|line| line.split(' ').any(|name| name == arguments[0]));
                assert!(exists, "the Makefile has no {}", arguments[0]);
            }
            _ => {
                assert!(FOREIGN.contains(&program), "{program} is unknown here: {words:?}");
                let ours = |word: &&str| word.contains("pandemonium") || word.contains("scx");
                let is_about_us = words.iter().any(|word| ours(&word.to_lowercase().as_str()));
                let is_general =
                    ["man", "apt"].contains(&program) || words.contains(&"daemon-reload");
                assert!(is_about_us || is_general, "{words:?}");
            }
        }
    }
    assert!(run >= 8 && parsed >= 8, "{run} commands were run, {parsed} are left to the parser");
}

#[test]
fn monitor_says_that_it_waits() {
    // Beside a scheduler there is nothing to wait for.
    if Path::new("/var/run/scx/root/stats").exists() {
        return;
    }
    let mut monitor = Command::new(env!("CARGO_BIN_EXE_scx_pandemonium_user"));
    let monitor = monitor.args(["--monitor", "1"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waiting = monitor.spawn().expect("it runs");
    let mut line = String::new();
    let read = waiting.stderr.take().map(|stderr| BufReader::new(stderr).read_line(&mut line));
    let still_runs = waiting.try_wait().expect("a child").is_none();
    waiting.kill().expect("it runs");
    waiting.wait().expect("a child");
    assert!(matches!(read, Some(Ok(_))) && still_runs, "it ended: {line}");
    assert!(line.contains("waiting") && line.contains("sudo scx_pandemonium_user"), "{line}");
}

#[test]
fn the_page_links_its_own_sections() {
    let anchor = |title: &str| {
        let plain = |c: char| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' => Some(c.to_ascii_lowercase()),
            _ => None,
        };
        title.chars().filter_map(plain).collect::<String>()
    };
    let titles: Vec<String> = PAGE
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' '))
        .map(anchor)
        .collect();
    let links = PAGE.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    for link in links {
        assert!(titles.iter().any(|title| title == link), "no section is called {link}");
    }
}
