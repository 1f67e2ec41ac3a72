// SPDX-License-Identifier: GPL-2.0-only

//! The command line, and the exit codes: 0 all well, 1 something failed, 2 wrong use or no way to
//! run, 130 interrupted.

use super::assets::{self, Assets};
use super::cache::Cache;
use super::kernel::{self, Kernel};
use super::{bars, demo, kernel_build, lab, runner, suite};
use crate::bars::Phase;
use crate::protocol::Mode;
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Boots real kernels in QEMU and runs the scheduler in them.
#[derive(Parser)]
#[command(
    name = "pandemonium_vm",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<What>,
    #[command(flatten)]
    suite: SuiteArguments,
}

#[derive(Subcommand)]
enum What {
    /// Run scenarios and print a table (the default).
    Suite(SuiteArguments),
    /// Show the scheduler at work, beside the kernel's own.
    Demo(Subject),
    /// Measure every workload of the bars under the kernel's own scheduler and under ours.
    Bars(BarsArguments),
    /// Run the benchmark in exact time, beside the kernel's own scheduler and others.
    Lab(LabArguments),
    /// Build Linux 6.12, the oldest kernel with sched_ext, into the cache.
    BuildKernel,
    /// Fill the cache, so that later runs need no network.
    Fetch(SuiteArguments),
}

#[derive(Args, Clone)]
pub struct SuiteArguments {
    /// A kernel image of your own instead of Debian's; may be repeated.
    #[arg(long, value_name = "PATH")]
    pub kernel: Vec<PathBuf>,
    /// Kernel series, comma-separated: 6.12 is the built one, others are Debian's.
    #[arg(long, value_delimiter = ',', default_values_t = kernel::SERIES.map(String::from))]
    pub series: Vec<String>,
    /// Run this scenario only; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Name the scenarios and what each one checks.
    #[arg(long)]
    pub list: bool,
    /// Show what every scenario says, not only of those that fail; with --only that is so anyway.
    #[arg(long)]
    pub verbose: bool,
    /// The scheduler to test, instead of the one that cargo built.
    #[arg(long, value_name = "PATH")]
    pub scheduler: Option<PathBuf>,
    /// Virtual CPUs, where a scenario does not fix them.
    #[arg(long, value_name = "1..8", default_value_t = 2, value_parser = cpus())]
    pub cpus: u32,
    /// How time passes in the guest.
    #[arg(long, value_enum, default_value_t = Mode::Fast)]
    pub mode: Mode,
}

impl SuiteArguments {
    pub fn tells_all(&self) -> bool {
        self.verbose || !self.only.is_empty()
    }
}

/// More than 8 virtual CPUs on a small host show waiting for the host, not scheduling.
fn cpus() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=8)
}

/// What is measured, and where.
#[derive(Args)]
pub struct Subject {
    /// Kernel series.
    #[arg(long, default_value = kernel::SERIES[0])]
    series: String,
    /// A kernel image of your own instead of Debian's.
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// The scheduler to measure, instead of the one that cargo built.
    #[arg(long, value_name = "PATH")]
    scheduler: Option<PathBuf>,
}

impl Subject {
    /// Everything that a boot needs, fetched if need be.
    pub fn find(&self) -> Result<(Assets, Kernel)> {
        let assets = Assets::find(self.scheduler.as_deref())?;
        let kernel = match &self.kernel {
            Some(path) => kernel::of_user(path)?,
            None => kernel::of_series(&assets, &self.series)?,
        };
        Ok((assets, kernel))
    }
}

#[derive(Args)]
pub struct BarsArguments {
    /// Numbers of virtual CPUs, comma-separated, one boot each. They share one stream of
    /// instructions, so more would only show slower machines.
    #[arg(long, value_name = "1..4", value_delimiter = ',', default_values_t = [2, 4],
        value_parser = clap::value_parser!(u32).range(1..=4))]
    pub cpus: Vec<u32>,
    /// Measure these phases only, comma-separated.
    #[arg(long, value_name = "PHASE", value_enum, value_delimiter = ',')]
    pub only: Vec<Phase>,
    #[command(flatten)]
    pub subject: Subject,
    /// Options for the scheduler, in one string: "--policy fifo --no-preempt".
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    pub scheduler_args: String,
    /// Measure each phase so often, in the same boot; the table shows medians.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repeat: u32,
    /// Fail if a bar is missed.
    #[arg(long)]
    pub strict: bool,
    /// Write the figures here too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabArguments {
    /// Numbers of virtual CPUs, comma-separated, one boot each. They share one stream of
    /// instructions, so more would only show slower machines.
    #[arg(long, value_name = "1..4", value_delimiter = ',', default_values_t = [1, 2, 4],
        value_parser = clap::value_parser!(u32).range(1..=4))]
    pub cpus: Vec<u32>,
    /// Measure these phases only, comma-separated; all of them take long.
    #[arg(long, value_name = "PHASE", value_delimiter = ',')]
    pub phases: Vec<String>,
    /// Measure each phase for so many seconds of the guest.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    pub seconds: f64,
    /// Measure everything so often.
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=99))]
    pub iterations: u32,
    /// Go through everything so often before, without counting it.
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=9))]
    pub warm_up: u32,
    /// Of everything that is pseudo-random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Measure every program scx_* in this folder too.
    #[arg(long, value_name = "DIR")]
    pub with: Option<PathBuf>,
    /// Measure this too: NAME=COMMAND WITH ARGUMENTS, in the guest; may be repeated.
    #[arg(long, value_name = "CONTENDER")]
    pub contender: Vec<String>,
    /// Measure the kernel's own scheduler only.
    #[arg(long)]
    pub kernel_only: bool,
    #[command(flatten)]
    pub subject: Subject,
    /// Options for the scheduler, in one string: "--policy fifo --no-preempt".
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    pub scheduler_args: String,
    /// Say which of these bars are met, as crates/bench/bars.toml has them.
    #[arg(long, value_name = "FILE")]
    pub bars: Option<PathBuf>,
    /// Fail if a bar is missed.
    #[arg(long, requires = "bars")]
    pub strict: bool,
    /// Where the results go, as lab-TIME.json.
    #[arg(long, value_name = "DIR", default_value = "target/lab")]
    pub output: PathBuf,
}

pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return pandemonium_host::usage::explain(&error),
    };
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) if runner::was_interrupted() => ExitCode::from(130),
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vm: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<bool> {
    let what = arguments.command.unwrap_or(What::Suite(arguments.suite));
    if !matches!(what, What::BuildKernel) {
        runner::catch_interrupts();
    }
    match what {
        What::Suite(arguments) => suite::run(&arguments),
        What::Demo(subject) => demo::run(&subject),
        What::Bars(arguments) => bars::run(&arguments),
        What::Lab(arguments) => lab::run(&arguments),
        What::BuildKernel => {
            let kernel = kernel_build::build(&Cache::open()?)?;
            println!("linux {} is at {}", kernel.name, kernel.image.display());
            Ok(true)
        }
        What::Fetch(arguments) => fetch(&arguments),
    }
}

/// Kernels are fetched with their check, which needs a scheduler: that is what tells a good one.
fn fetch(arguments: &SuiteArguments) -> Result<bool> {
    let assets = Assets::find(arguments.scheduler.as_deref())?;
    assets::fetch_programs(&assets.cache)?;
    for series in &arguments.series {
        let kernel = kernel::of_series(&assets, series)?;
        println!("linux {} is at {}", kernel.name, kernel.image.display());
    }
    Ok(true)
}
