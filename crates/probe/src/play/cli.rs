// SPDX-License-Identifier: GPL-2.0-only

//! The command line of `play`.

use anyhow::{Context, Result};
use clap::Parser;
use pandemonium_engine::time::Span;
use pandemonium_sim::workload::Workload;
use std::fs;
use std::path::PathBuf;

/// Plays a workload with real processes and threads, and prints what each part of it measured.
///
/// The workload is a file of `pandemonium_lab`, or a mix, which a seed has drawn. It takes root for
/// nice values below 0.
#[derive(Parser)]
#[command(name = "pandemonium_probe play", max_term_width = 100)]
pub struct PlayArguments {
    /// A workload file; docs/simulator.md explains the format
    #[arg(value_name = "FILE", required_unless_present = "mix")]
    file: Option<PathBuf>,
    /// Play the mix of this seed, drawn for the CPUs that may be used
    #[arg(long, value_name = "SEED", conflicts_with = "file")]
    mix: Option<u64>,
    /// How long to measure, instead of what the workload says
    #[arg(long, value_name = "S", value_parser = crate::seconds)]
    seconds: Option<f64>,
    /// How long the tasks run before anything is counted, instead of what the workload says
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    warm_up_ms: Option<u64>,
    /// Rounds of work that one CPU does in a millisecond, as `calibrate` prints them; without it
    /// this is measured first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rounds_per_ms: Option<u64>,
    /// Seed of what the tasks draw while they run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The scheduler process: report the CPU time that it and its children use
    #[arg(long, value_name = "PID",
          value_parser = clap::value_parser!(i32).range(1..=crate::PID_MAX))]
    pub scheduler: Option<i32>,
}

impl PlayArguments {
    /// The workload for so many CPUs, with the times of the command line.
    pub fn workload(&self, cpus: u32) -> Result<Workload> {
        let mut workload = match (&self.file, self.mix) {
            (Some(path), _) => {
                let text = fs::read_to_string(path);
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                let read = pandemonium_workload::read(&text, Some(cpus));
                read.with_context(|| path.display().to_string())?.0
            }
            (None, seed) => pandemonium_workload::mix::draw(seed.unwrap_or_default(), cpus),
        };
        let ns = workload.duration.as_nanos().saturating_sub(workload.warmup.as_nanos());
        let measured = Span::from_nanos(ns);
        let measured = self.seconds.map_or(measured, |s| Span::from_nanos((s * 1e9) as u64));
        workload.warmup = self.warm_up_ms.map_or(workload.warmup, Span::from_millis);
        workload.duration = workload.warmup + measured;
        Ok(workload)
    }
}
