// SPDX-License-Identifier: GPL-2.0-only

//! The schedulers to compare: their names, how to load and unload them, and the check that each one
//! stays loaded while it is measured.

use super::guard::{self, Process};
use crate::results::{KERNEL, Scheduler};
use anyhow::{Context, Result, anyhow, bail, ensure};
use pandemonium_host::program;
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The scheduler of this project.
pub const OURS: &str = "scx_pandemonium_user";
/// `disabled`, `enabling`, `enabled` or `disabling`.
const STATE: &str = "/sys/kernel/sched_ext/state";
/// The name of the loaded scheduler.
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
/// Longest wait for a scheduler to load. The verifier takes a second or two, more on a slow
/// machine.
const LOAD_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait, after SIGTERM, for the end of the process and for the kernel's scheduler.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for `--version`.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// How often the state is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of last lines of a scheduler's output that an error shows.
const TAIL_LINES: usize = 20;

/// One scheduler to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    pub name: String,
    /// Program and arguments; empty for the kernel's scheduler.
    words: Vec<String>,
}

impl Contender {
    /// The kernel's scheduler.
    pub fn kernel() -> Contender {
        Contender { name: KERNEL.into(), words: Vec::new() }
    }

    /// The scheduler of this project, with these options.
    pub fn ours(options: &str) -> Contender {
        let words = std::iter::once(OURS).chain(options.split_whitespace());
        Contender { name: OURS.into(), words: words.map(str::to_string).collect() }
    }

    /// `NAME`, a path, or `NAME=COMMAND WITH ARGUMENTS`.
    pub fn parse(text: &str) -> Result<Contender, String> {
        // Only a name without these characters ends at the `=`: in `x --set=1` and `/a=b`, the `=`
        // belongs to the command.
        let (name, command) = match text.split_once('=') {
            Some((name, command)) if !name.contains(['/', ' ', '-']) => (Some(name), command),
            _ => (None, text),
        };
        let words: Vec<String> = command.split_whitespace().map(str::to_string).collect();
        let Some(program) = words.first() else { return Err("it names no program".into()) };
        let base = Path::new(program).file_name().and_then(|name| name.to_str());
        let name = name.or(base).unwrap_or_default().to_string();
        let fine = |c: char| c.is_ascii_alphanumeric() || "_.-+".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
            return Err(format!("{name:?} is not a name of letters, digits and _.-+"));
        }
        Ok(Contender { name, words })
    }

    /// Whether this is the kernel's scheduler.
    pub fn is_kernel(&self) -> bool {
        self.words.is_empty()
    }

    /// Its entry in the results. A missing program has the version `unknown`; the failure to load
    /// it later has the reason.
    pub fn describe(&self, peers: &Path) -> Scheduler {
        let version = if self.is_kernel() {
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into()
        } else {
            self.version(peers).unwrap_or_else(|| "unknown".into())
        };
        Scheduler { name: self.name.clone(), version, command: self.words.join(" ") }
    }

    fn version(&self, peers: &Path) -> Option<String> {
        let mut command = program::command(&self.program(peers).ok()?).ok()?;
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        let mut process = Process::start(&self.name, &mut command).ok()?;
        let mut text = String::new();
        process.wait(VERSION_LIMIT).ok()?;
        process.child().stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
        Some(text.lines().next()?.trim().to_string())
    }

    /// The path of its program. This project's scheduler is beside this program; another name is
    /// searched in the folder `peers`, then in PATH.
    fn program(&self, peers: &Path) -> Result<PathBuf> {
        let word = self.words.first().context("the kernel's scheduler has no program")?;
        if word == OURS {
            return program::beside(OURS);
        }
        if word.contains('/') {
            return Ok(word.into());
        }
        program::find(word, peers).with_context(|| {
            format!(
                "{word} is neither in PATH nor installed: `scx_pandemonium_user bench install \
                 {word}` gets it"
            )
        })
    }

    /// Starts it and waits until the kernel has loaded it. For the kernel's scheduler there is
    /// nothing to do. An error has the scheduler's last output.
    pub fn load(&self, peers: &Path) -> Result<Loaded> {
        ensure!(state() != "enabled", "a scheduler is loaded already: {}", ops());
        if self.is_kernel() {
            return Ok(Loaded { running: None });
        }
        let mut command = program::command(&self.program(peers)?)?;
        command.args(&self.words[1..]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(&self.name, &mut command)?;
        let output = OutputTail::of(&mut process);
        let mut running = Running { process, output, ops: String::new() };
        let start = Instant::now();
        while state() != "enabled" {
            if let Some(status) = running.process.ended()? {
                bail!("it did not load ({status}): {}", running.output.text());
            }
            if start.elapsed() > LOAD_LIMIT {
                let limit = LOAD_LIMIT.as_secs();
                bail!("it was not loaded after {limit} s: {}", running.output.text());
            }
            guard::check_interrupt()?;
            thread::sleep(POLL_INTERVAL);
        }
        running.ops = ops();
        Ok(Loaded { running: Some(running) })
    }
}

/// A loaded scheduler. Dropping it unloads it, and the kernel's scheduler takes over.
pub struct Loaded {
    running: Option<Running>,
}

/// The process of a loaded scheduler.
struct Running {
    process: Process,
    output: OutputTail,
    /// Its name in the kernel.
    ops: String,
}

impl Loaded {
    /// The scheduler's process; its CPU time is the cost of the scheduler.
    pub fn pid(&self) -> Option<libc::pid_t> {
        self.running.as_ref().map(|running| running.process.pid())
    }

    /// Fails if the scheduler was not loaded during the whole measurement.
    pub fn check(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else {
            ensure!(state() != "enabled", "another scheduler was loaded meanwhile: {}", ops());
            return Ok(());
        };
        if let Some(status) = running.process.ended()? {
            bail!("it ended while it was measured ({status}): {}", running.output.text());
        }
        let (state, ops) = (state(), ops());
        ensure!(
            state == "enabled" && ops == running.ops,
            "it was unloaded while it was measured, sched_ext is {state}: {}",
            running.output.text()
        );
        Ok(())
    }

    /// Stops it with SIGTERM. It is a failure if only SIGKILL ends it.
    pub fn unload(mut self) -> Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let ended = running.process.stop(STOP_LIMIT);
        let start = Instant::now();
        while state() == "enabled" && start.elapsed() < STOP_LIMIT {
            thread::sleep(POLL_INTERVAL);
        }
        ensure!(state() != "enabled", "its process has ended, but the kernel still runs {}", ops());
        ensure!(
            ended,
            "it did not end within {} s after SIGTERM: {}",
            STOP_LIMIT.as_secs(),
            running.output.text()
        );
        Ok(())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            running.process.stop(STOP_LIMIT);
        }
    }
}

/// The last lines of a program's output.
#[derive(Clone)]
struct OutputTail(Arc<Mutex<VecDeque<String>>>);

impl OutputTail {
    /// Starts threads that read stdout and stderr until they close, so that the pipes never fill.
    fn of(process: &mut Process) -> OutputTail {
        let tail = OutputTail(Arc::new(Mutex::new(VecDeque::new())));
        let child = process.child();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let tail = tail.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    tail.add(String::from_utf8_lossy(&line).trim_end().to_string());
                }
            });
        }
        tail
    }

    fn add(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The lines as one line, for an error message.
    fn text(&self) -> String {
        // The threads may read the last lines after the process has ended.
        thread::sleep(10 * POLL_INTERVAL);
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return "it printed nothing".into();
        }
        lines.iter().filter(|line| !line.is_empty()).cloned().collect::<Vec<_>>().join(" | ")
    }
}

/// The content of [`STATE`]; empty if the kernel has no sched_ext.
fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().to_string()
}

/// The content of [`OPS`]; empty if no scheduler is loaded.
fn ops() -> String {
    fs::read_to_string(OPS).unwrap_or_default().trim().to_string()
}

/// The folder into which `bench install` puts schedulers.
pub fn peers() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache =
        cache.or_else(home).ok_or_else(|| anyhow!("neither HOME nor XDG_CACHE_HOME is set"));
    Ok(cache?.join(OURS).join("peers/bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_is_a_name_a_path_or_a_named_command() {
        let of = |text: &str| {
            let contender = Contender::parse(text).unwrap();
            (contender.name, contender.words.join(" "))
        };
        let pair = |name: &str, words: &str| (name.to_string(), words.to_string());
        assert_eq!(of("scx_lavd"), pair("scx_lavd", "scx_lavd"));
        assert_eq!(
            of("/opt/x/scx_lavd --autopilot"),
            pair("scx_lavd", "/opt/x/scx_lavd --autopilot")
        );
        assert_eq!(of("fast=scx_lavd --performance"), pair("fast", "scx_lavd --performance"));
        assert_eq!(of("scx_x --set=1"), pair("scx_x", "scx_x --set=1"));
        for wrong in ["", "a=", "a*b", "./"] {
            assert!(Contender::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_error_for_a_missing_program_says_how_to_install_it() {
        let contender = Contender::parse("scx_does_not_exist").unwrap();
        let error = contender.program(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("bench install scx_does_not_exist"), "{error}");
        let described = contender.describe(Path::new("/nowhere"));
        assert_eq!((described.version.as_str(), described.name), ("unknown", contender.name));
    }
}
