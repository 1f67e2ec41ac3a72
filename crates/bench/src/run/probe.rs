// SPDX-License-Identifier: GPL-2.0-only

//! The program that measures, `pandemonium_probe`: found, asked, and read.

use super::guard::Process;
use anyhow::{Context, Result, ensure};
use pandemonium_host::program;
use pandemonium_statistics::figure::{Curve, Figure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const NAME: &str = "pandemonium_probe";
/// What a phase may take beyond the seconds that it measures, by a factor and by an amount: fixed
/// work takes longer than planned under a scheduler that loses some of it.
const LIMIT_FACTOR: f64 = 10.0;
const LIMIT_MORE: f64 = 120.0;

/// The program, beside our own or in PATH.
#[derive(Clone)]
pub struct Probe {
    path: PathBuf,
}

/// How every phase is measured.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    pub seconds: f64,
    pub seed: u64,
    /// What one CPU does in a millisecond.
    pub rounds_per_ms: u64,
    pub scheduler: Option<libc::pid_t>,
}

/// What a phase has found.
#[derive(Debug, Deserialize)]
pub struct Found {
    pub figures: Vec<Figure>,
    pub curves: Vec<Curve>,
}

impl Probe {
    pub fn find() -> Result<Probe> {
        let path = program::beside(NAME)?;
        Ok(Probe { path })
    }

    /// The program itself, to be run by hand.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }

    /// Names of all phases, in the order of the tables.
    pub fn phases(&self) -> Result<Vec<String>> {
        self.ask(&["list".into()], Duration::from_secs(10))
    }

    /// What one CPU does in a millisecond while all of them work.
    pub fn calibrate(&self) -> Result<u64> {
        let found: Found = self.ask(&["calibrate".into()], Duration::from_secs(60))?;
        let rounds = found.figures.first().map_or(0.0, |figure| figure.value);
        ensure!(rounds >= 1.0, "{NAME} could not find out how fast a CPU is");
        Ok(rounds as u64)
    }

    pub fn measure(&self, phase: &str, course: &Course) -> Result<Found> {
        let mut arguments: Vec<String> = vec![phase.into()];
        let mut add = |option: &str, value: String| arguments.extend([option.to_string(), value]);
        add("--seconds", course.seconds.to_string());
        add("--seed", course.seed.to_string());
        add("--rounds-per-ms", course.rounds_per_ms.to_string());
        if let Some(pid) = course.scheduler {
            add("--scheduler", pid.to_string());
        }
        let limit = Duration::from_secs_f64(course.seconds * LIMIT_FACTOR + LIMIT_MORE);
        self.ask(&arguments, limit)
    }

    fn ask<T: DeserializeOwned>(&self, arguments: &[String], limit: Duration) -> Result<T> {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(NAME, &mut command)?;
        let answer = reader(process.child().stdout.take());
        let complaint = reader(process.child().stderr.take());
        let status = process.wait(limit)?;
        let answer = answer.join().unwrap_or_default();
        let complaint = complaint.join().unwrap_or_default();
        let complaint = complaint.trim().trim_start_matches("error: ");
        ensure!(status.success(), "{complaint} ({status})");
        serde_json::from_str(&answer).with_context(|| format!("{NAME} answered {answer:?}"))
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read until an error is all there is to tell.
        let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
