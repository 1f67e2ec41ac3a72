// SPDX-License-Identifier: GPL-2.0-only

//! The command line, and the exit codes: 0 all well, 1 something failed, 2 wrong use or no way to
//! run, 130 interrupted.

use super::assets::{self, Assets};
use super::cache::Cache;
use super::{demo, kernel, kernel_build, runner, suite};
use crate::protocol::Mode;
use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Boots real kernels in QEMU and runs the scheduler in them.
#[derive(Parser)]
#[command(
    name = "vm",
    bin_name = "cargo test --release --test vm --",
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
    Demo(DemoArguments),
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

/// More than 8 virtual CPUs on a small host show waiting for the host, not scheduling.
fn cpus() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=8)
}

#[derive(Args)]
struct DemoArguments {
    /// A kernel image of your own instead of Debian's.
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// The scheduler to show, instead of the one that cargo built.
    #[arg(long, value_name = "PATH")]
    scheduler: Option<PathBuf>,
}

pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
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
        What::Demo(arguments) => {
            demo::run(arguments.scheduler.as_deref(), arguments.kernel.as_deref())
        }
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

/// Help goes out as it is; a mistake becomes one sentence.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    eprintln!("vm: {sentence} (see --help)");
    ExitCode::from(2)
}
