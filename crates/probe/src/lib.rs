// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_probe`: the workloads of the benchmark, one program, one phase at a time.
//!
//! It measures the machine as it finds it, under whatever scheduler is loaded, prints one JSON
//! object and ends. It needs neither root nor sched_ext. `scx_pandemonium_user bench` runs it for
//! every phase; `scx_pandemonium_user probe` is the same by hand.

mod phases;
mod report;
mod setting;
pub mod tasks;

use anyhow::{Context, Result};
use clap::Parser;
use pandemonium_statistics::figure::Unit;
use phases::{PHASES, Phase};
use report::Report;
use setting::Setting;
use std::process::ExitCode;
use std::time::Duration;

/// The kernel has no larger one (`PID_MAX_LIMIT`).
const PID_MAX: i64 = 1 << 22;
/// Longest measurement of one phase.
const SECONDS: std::ops::RangeInclusive<f64> = 0.05..=3_600.0;

/// Tells the names of all phases, for `scx_pandemonium_user bench`.
const LIST: &str = "list";

/// Measures one workload under whatever scheduler is loaded, and prints what it found as JSON.
#[derive(Parser)]
#[command(
    name = "pandemonium_probe",
    max_term_width = 100,
    after_help = phase_help(),
    arg_required_else_help = true
)]
struct Arguments {
    /// Which workload; or calibrate, to find out how fast a CPU is while all of them work; or list
    #[arg(value_name = "PHASE", value_parser = phase_names())]
    phase: String,
    /// Measure for so long
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Let the load run for so long before anything is counted
    #[arg(long, value_name = "MS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    warm_up_ms: u64,
    /// What one CPU does in a millisecond, as `calibrate` says; measured first if it is not told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rounds_per_ms: Option<u64>,
    /// Of everything that is pseudo-random
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The process of the scheduler: report the CPU time that it takes, its children's included
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..=PID_MAX))]
    scheduler: Option<i32>,
}

/// Runs the program.
pub fn main() -> ExitCode {
    // Two lives that are started in their hundreds come first: what they do is what is measured.
    let mut words = std::env::args().skip(1);
    match words.next() {
        Some(word) if word.as_bytes() == tasks::launch::NOTHING.to_bytes() => {
            return ExitCode::SUCCESS;
        }
        Some(word) if word.as_bytes() == tasks::work::BURN.to_bytes() => {
            tasks::work::burn(words.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(0));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let outcome = match arguments.phase.as_str() {
        LIST => serde_json::to_string(&names().collect::<Vec<_>>()).map_err(Into::into),
        _ => measure(&arguments).and_then(|report| Ok(serde_json::to_string(&report)?)),
    };
    match outcome {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}: {error:#}", arguments.phase);
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<Report> {
    setting::become_real_time();
    let cpus = setting::cpus()?;
    let Some(phase) = find(&arguments.phase) else {
        let mut report = Report::default();
        let rounds = setting::calibrate(&cpus)?;
        report.higher("rounds_per_ms", Unit::Count, rounds as f64);
        return Ok(report);
    };
    let rounds_per_ms = match arguments.rounds_per_ms {
        Some(rounds) => rounds,
        None => setting::calibrate(&cpus).context("finding out how fast a CPU is")?,
    };
    let setting = Setting {
        cpus,
        run_ns: (arguments.seconds * 1e9) as u64,
        rounds_per_ms,
        warm_up: Duration::from_millis(arguments.warm_up_ms),
        seed: arguments.seed,
        scheduler: arguments.scheduler,
    };
    (phase.run)(&setting)
}

fn find(name: &str) -> Option<&'static Phase> {
    PHASES.iter().find(|phase| phase.name == name)
}

fn phase_names() -> Vec<&'static str> {
    names().chain(["calibrate", LIST]).collect()
}

fn names() -> impl Iterator<Item = &'static str> {
    PHASES.iter().map(|phase| phase.name)
}

fn phase_help() -> String {
    let lines = PHASES.iter().map(|phase| format!("\n  {:20} {}", phase.name, phase.about));
    format!("Phases:{}", lines.collect::<String>())
}

fn seconds(text: &str) -> Result<f64, String> {
    let (low, high) = (SECONDS.start(), SECONDS.end());
    match text.parse::<f64>() {
        Ok(seconds) if SECONDS.contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text} is not a number of seconds in {low}..={high}")),
    }
}

/// Help goes out as it is; a mistake becomes one sentence.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let sentence = text.lines().next().unwrap_or_default();
    eprintln!("{sentence} (see --help)");
    ExitCode::from(2)
}
