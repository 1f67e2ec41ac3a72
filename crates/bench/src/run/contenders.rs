// SPDX-License-Identifier: GPL-2.0-only

//! The schedulers that are compared: what they are called, how they are started, and that they
//! really are in charge while they are measured.

use super::guard::{self, Process};
use crate::results::{KERNEL, Scheduler};
use anyhow::{Context, Result, anyhow, bail, ensure};
use pandemonium_host::program;
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Our own program, as users call it.
pub const OURS: &str = "scx_pandemonium_user";
/// Where the kernel shows sched_ext.
const STATE: &str = "/sys/kernel/sched_ext/state";
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
/// Loading takes a second or two of verifier time, more on a slow machine.
const LOAD_LIMIT: Duration = Duration::from_secs(60);
/// From signal to the kernel's own scheduler and the end of the process.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// A program asked for its version has nothing else to do.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(20);
/// Of what a scheduler prints, the last lines are kept.
const LINES: usize = 20;

/// One scheduler to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    pub name: String,
    /// Program and arguments; empty for the kernel's own.
    words: Vec<String>,
}

impl Contender {
    pub fn kernel() -> Contender {
        Contender { name: KERNEL.into(), words: Vec::new() }
    }

    /// This very program.
    pub fn ours(options: &str) -> Contender {
        let words = std::iter::once(OURS).chain(options.split_whitespace());
        Contender { name: OURS.into(), words: words.map(str::to_string).collect() }
    }

    /// `NAME`, a path, or `NAME=COMMAND WITH ARGUMENTS`.
    pub fn parse(text: &str) -> Result<Contender, String> {
        // A path may have any character, a name comes before the first of those.
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
            return Err(format!("{name:?} is no name of letters, digits and _.-+"));
        }
        Ok(Contender { name, words })
    }

    pub fn is_kernel(&self) -> bool {
        self.words.is_empty()
    }

    /// What the results say of it. A program that is missing has no version, and fails to load
    /// later, with its own words.
    pub fn describe(&self, peers: &Path) -> Scheduler {
        let version = if self.is_kernel() {
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into()
        } else {
            self.version(peers).unwrap_or_else(|| "unknown".into())
        };
        Scheduler { name: self.name.clone(), version, command: self.words.join(" ") }
    }

    fn version(&self, peers: &Path) -> Option<String> {
        let mut command = Command::new(self.program(peers).ok()?);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        let mut process = Process::start(&self.name, &mut command).ok()?;
        let mut text = String::new();
        process.wait(VERSION_LIMIT).ok()?;
        process.child().stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
        Some(text.lines().next()?.trim().to_string())
    }

    /// Our own is the program that runs now; a name is looked for among the installed peers, then
    /// in PATH.
    fn program(&self, peers: &Path) -> Result<PathBuf> {
        let word = self.words.first().context("the kernel's own has no program")?;
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

    /// Loads it and waits until the kernel runs under it; for the kernel's own there is nothing to
    /// do. The error has the scheduler's own words.
    pub fn load(&self, peers: &Path) -> Result<Loaded> {
        ensure!(state() != "enabled", "a scheduler is loaded already: {}", ops());
        if self.is_kernel() {
            return Ok(Loaded { running: None });
        }
        let mut command = Command::new(self.program(peers)?);
        command.args(&self.words[1..]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(&self.name, &mut command)?;
        let said = Said::listen(&mut process);
        let mut running = Running { process, said, ops: String::new() };
        let start = Instant::now();
        while state() != "enabled" {
            if let Some(status) = running.process.ended()? {
                bail!("it did not load ({status}): {}", running.said.words());
            }
            if start.elapsed() > LOAD_LIMIT {
                let limit = LOAD_LIMIT.as_secs();
                bail!("it was not loaded after {limit} s: {}", running.said.words());
            }
            guard::check_interrupt()?;
            thread::sleep(GLANCE);
        }
        running.ops = ops();
        Ok(Loaded { running: Some(running) })
    }
}

/// A scheduler in charge; the kernel's own takes over when this is dropped.
pub struct Loaded {
    running: Option<Running>,
}

struct Running {
    process: Process,
    said: Said,
    /// What the kernel calls it.
    ops: String,
}

impl Loaded {
    /// The process whose CPU time is its cost.
    pub fn pid(&self) -> Option<libc::pid_t> {
        self.running.as_ref().map(|running| running.process.pid())
    }

    /// Whether what has just been measured was measured under it.
    pub fn check(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else {
            ensure!(state() != "enabled", "another scheduler was loaded meanwhile: {}", ops());
            return Ok(());
        };
        if let Some(status) = running.process.ended()? {
            bail!("it ended while it was measured ({status}): {}", running.said.words());
        }
        let (state, ops) = (state(), ops());
        ensure!(
            state == "enabled" && ops == running.ops,
            "it was thrown out while it was measured, sched_ext is {state}: {}",
            running.said.words()
        );
        Ok(())
    }

    /// Asks it to leave. One that has to be made to is a failure of its own.
    pub fn unload(mut self) -> Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let left = running.process.stop(STOP_LIMIT);
        let start = Instant::now();
        while state() == "enabled" && start.elapsed() < STOP_LIMIT {
            thread::sleep(GLANCE);
        }
        ensure!(state() != "enabled", "it is gone, and the kernel still runs under {}", ops());
        ensure!(
            left,
            "asked to end it did not within {} s: {}",
            STOP_LIMIT.as_secs(),
            running.said.words()
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

/// The last lines of a program.
#[derive(Clone)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    /// Reads both streams until they close, so that they never fill.
    fn listen(process: &mut Process) -> Said {
        let said = Said(Arc::new(Mutex::new(VecDeque::new())));
        let child = process.child();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let said = said.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    said.add(String::from_utf8_lossy(&line).trim_end().to_string());
                }
            });
        }
        said
    }

    fn add(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// For a sentence.
    fn words(&self) -> String {
        // The readers get the last lines after the process is gone.
        thread::sleep(10 * GLANCE);
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return "it said nothing".into();
        }
        lines.iter().filter(|line| !line.is_empty()).cloned().collect::<Vec<_>>().join(" | ")
    }
}

/// `disabled`, `enabling`, `enabled` or `disabling`; empty without sched_ext.
fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().to_string()
}

fn ops() -> String {
    fs::read_to_string(OPS).unwrap_or_default().trim().to_string()
}

/// The folder of installed peers.
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
    fn a_contender_is_a_name_a_path_or_both() {
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
    fn a_program_that_is_not_there_is_named_with_the_way_to_get_it() {
        let contender = Contender::parse("scx_nobody_has_this").unwrap();
        let error = contender.program(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("bench install scx_nobody_has_this"), "{error}");
        let described = contender.describe(Path::new("/nowhere"));
        assert_eq!((described.version.as_str(), described.name), ("unknown", contender.name));
    }
}
