// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_probe`: the workloads of the benchmark, one phase a run.
//!
//! A phase measures under whatever scheduler the kernel runs, prints one JSON object and exits. It
//! needs neither root nor sched_ext. `scx_pandemonium_user bench` starts the program once for each
//! phase; `scx_pandemonium_user probe` runs one phase by hand.
//!
//! The tasks of the workloads are a library, for other measurements:
//!
//! ```
//! use pandemonium_probe::tasks::{clock, work};
//! use std::time::Duration;
//!
//! let start = clock::now_ns();
//! std::thread::sleep(Duration::from_millis(5));
//! let late_us = (clock::now_ns() - start).saturating_sub(5_000_000) / 1_000;
//! println!("woke up {late_us} us late; {} CPUs are allowed", work::allowed_cpus().len());
//! ```

#![warn(missing_docs)]

mod phases;
mod play;
mod report;
mod setting;
pub mod tasks;

use anyhow::{Context, Result};
use clap::Parser;
use clap::builder::PossibleValue;
use pandemonium_statistics::figure::Unit;
use phases::{PHASES, Phase, RENAMED};
use report::Report;
use setting::Setting;
use std::process::ExitCode;
use std::time::Duration;

/// The kernel's largest process id (`PID_MAX_LIMIT`).
const PID_MAX: i64 = 1 << 22;
/// How long a phase may measure.
const SECONDS: std::ops::RangeInclusive<f64> = 0.05..=3_600.0;

/// Prints the names of all phases as JSON, for `scx_pandemonium_user bench`.
const LIST: &str = "list";

/// Measures one workload under whatever scheduler is loaded, and prints its figures as JSON.
#[derive(Parser)]
#[command(
    name = "pandemonium_probe",
    version,
    max_term_width = 100,
    after_help = phase_help(),
    arg_required_else_help = true
)]
struct Arguments {
    /// The workload; or calibrate, to measure how fast a CPU is while all of them work; or list, to
    /// print the names of all workloads
    #[arg(value_name = "PHASE", value_parser = phase_names())]
    phase: String,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// How long the load runs before anything is counted
    #[arg(long, value_name = "MS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    warm_up_ms: u64,
    /// Rounds of work that one CPU does in a millisecond, as `calibrate` prints them; without it
    /// the phase calibrates first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rounds_per_ms: Option<u64>,
    /// Seed of everything pseudo-random
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The scheduler process: report the CPU time that it and its children use
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..=PID_MAX))]
    scheduler: Option<i32>,
}

/// Runs the program.
pub fn main() -> ExitCode {
    // Phases start these by the hundred and measure them, so they come before anything else.
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some(word) if word.as_bytes() == tasks::launch::NOTHING.to_bytes() => {
            return ExitCode::SUCCESS;
        }
        Some(word) if word.as_bytes() == tasks::work::BURN.to_bytes() => {
            tasks::work::burn(words.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(0));
            return ExitCode::SUCCESS;
        }
        Some(play::EXECUTED) => return finish(play::EXECUTED, play::executed(words)),
        Some(play::PLAY) => {
            return match play::PlayArguments::try_parse_from(std::env::args().skip(1)) {
                Ok(arguments) => finish(play::PLAY, play::run(&arguments).and_then(print)),
                Err(error) => refuse(&error),
            };
        }
        _ => {}
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let name = current_name(&arguments.phase);
    match name {
        LIST => finish(name, print(names().collect::<Vec<_>>())),
        _ => finish(name, measure(name, &arguments).and_then(print)),
    }
}

/// Prints a result as one line of JSON.
fn print(result: impl serde::Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}

fn finish(name: &str, outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(name: &str, arguments: &Arguments) -> Result<Report> {
    setting::become_real_time();
    let cpus = setting::cpus()?;
    let Some(phase) = find(name) else {
        let mut report = Report::default();
        let rounds = setting::calibrate(&cpus)?;
        report.higher("rounds_per_ms", Unit::Count, rounds as f64);
        return Ok(report);
    };
    let rounds_per_ms = match arguments.rounds_per_ms {
        Some(rounds) => rounds,
        None => setting::calibrate(&cpus).context("measuring how fast a CPU is")?,
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

/// The name under which a phase is known now. The old one still works, with a warning.
fn current_name(given: &str) -> &str {
    match RENAMED.iter().find(|(old, _)| *old == given) {
        Some((old, new)) => {
            eprintln!("warning: the phase {old} is now named {new}");
            new
        }
        None => given,
    }
}

/// What the argument PHASE may be.
fn phase_names() -> Vec<PossibleValue> {
    let shown = names().chain(["calibrate", LIST]).map(PossibleValue::new);
    let hidden = RENAMED.iter().map(|(old, _)| PossibleValue::new(*old).hide(true));
    shown.chain(hidden).collect()
}

fn names() -> impl Iterator<Item = &'static str> {
    PHASES.iter().map(|phase| phase.name)
}

fn phase_help() -> String {
    let lines = PHASES.iter().map(|phase| format!("\n  {:20} {}", phase.name, phase.about));
    format!(
        "Phases:{}\n\n`play --help` tells how to play a workload file or a mix.",
        lines.collect::<String>()
    )
}

fn seconds(text: &str) -> Result<f64, String> {
    let (low, high) = (SECONDS.start(), SECONDS.end());
    match text.parse::<f64>() {
        Ok(seconds) if SECONDS.contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text} is not a number of seconds in {low}..={high}")),
    }
}

/// Prints help as it is, and an error as one sentence.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let mut lines = text.lines();
    let mut sentence = lines.next().unwrap_or_default().to_owned();
    if sentence.ends_with(':') {
        sentence = format!("{sentence} {}", lines.next().unwrap_or_default().trim());
    }
    eprintln!("{sentence} (see --help)");
    ExitCode::from(2)
}
