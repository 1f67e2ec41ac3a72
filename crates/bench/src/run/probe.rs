// SPDX-License-Identifier: GPL-2.0-only

//! Runs `pandemonium_probe`, the program that measures, and reads its results.

use super::guard::Process;
use crate::mixes;
use anyhow::{Context, Result, ensure};
use pandemonium_host::program;
use pandemonium_statistics::figure::{Curve, Figure};
use pandemonium_statistics::mix::Part;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

const NAME: &str = "pandemonium_probe";
/// Time limit of a phase, as a multiple of its seconds and a number of seconds on top. Fixed work
/// takes longer than planned under a slow scheduler.
const LIMIT_FACTOR: f64 = 10.0;
const LIMIT_EXTRA: f64 = 120.0;

/// The probe program.
#[derive(Clone)]
pub struct Probe {
    path: PathBuf,
}

/// Options of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Length of the measurement.
    pub seconds: f64,
    pub seed: u64,
    /// Speed of one CPU: rounds of work in a millisecond.
    pub rounds_per_ms: u64,
    /// The scheduler's process, to measure its CPU time.
    pub scheduler: Option<libc::pid_t>,
}

/// The result of one phase.
#[derive(Debug, Deserialize)]
pub struct PhaseResult {
    pub figures: Vec<Figure>,
    pub curves: Vec<Curve>,
    /// The parts of a mix.
    #[serde(default)]
    pub parts: Vec<Part>,
}

impl Probe {
    /// Finds the program beside this one, else in PATH.
    pub fn find() -> Result<Probe> {
        let path = program::beside(NAME)?;
        Ok(Probe { path })
    }

    /// The names of all phases, in the order of the tables.
    pub fn phases(&self) -> Result<Vec<String>> {
        self.query(&["list".into()], Duration::from_secs(10))
    }

    /// Measures the speed of one CPU while all CPUs work, in rounds of work per millisecond.
    pub fn calibrate(&self) -> Result<u64> {
        let result: PhaseResult = self.query(&["calibrate".into()], Duration::from_secs(60))?;
        let rounds = result.figures.first().map_or(0.0, |figure| figure.value);
        ensure!(rounds >= 1.0, "{NAME} could not measure the speed of a CPU");
        Ok(rounds as u64)
    }

    /// Measures one phase, or a mix.
    pub fn measure(&self, phase: &str, options: &Options) -> Result<PhaseResult> {
        let mut arguments: Vec<String> = match mixes::seed(phase) {
            Some(seed) => vec!["play".into(), "--mix".into(), seed.to_string()],
            None => vec![phase.into()],
        };
        let mut add = |option: &str, value: String| arguments.extend([option.to_string(), value]);
        add("--seconds", options.seconds.to_string());
        add("--seed", options.seed.to_string());
        add("--rounds-per-ms", options.rounds_per_ms.to_string());
        if let Some(pid) = options.scheduler {
            add("--scheduler", pid.to_string());
        }
        let limit = Duration::from_secs_f64(options.seconds * LIMIT_FACTOR + LIMIT_EXTRA);
        self.query(&arguments, limit)
    }

    /// Runs the program with these arguments and parses its output.
    fn query<T: DeserializeOwned>(&self, arguments: &[String], limit: Duration) -> Result<T> {
        let mut command = program::command(&self.path)?;
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(NAME, &mut command)?;
        let output = reader(process.child().stdout.take());
        let error = reader(process.child().stderr.take());
        let status = process.wait(limit)?;
        let output = output.join().unwrap_or_default();
        let error = error.join().unwrap_or_default();
        let error = error.trim().trim_start_matches("error: ");
        ensure!(status.success(), "{error} ({status})");
        serde_json::from_str(&output).with_context(|| format!("{NAME} printed {output:?}"))
    }
}

/// Reads a stream in a thread until it closes, so that the pipe never fills.
fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, what was read until then is the output.
        let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
