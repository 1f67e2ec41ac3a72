// SPDX-License-Identifier: GPL-2.0-only

//! The command line and its exit codes.

use super::assets::Assets;
use super::image::Kernel;
use super::kernel;
use crate::bars::Phase;
use crate::protocol::Mode;
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use pandemonium_statistics::mix::Seeds;
use std::path::PathBuf;

/// Boots real Linux kernels in QEMU and runs scx_pandemonium_user in them.
///
/// Without a command it runs the suite. It needs neither root nor sched_ext on this machine, and
/// installs nothing.
#[derive(Parser)]
#[command(
    name = "pandemonium_vm",
    version,
    max_term_width = 100,
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<What>,
    #[command(flatten)]
    pub suite: SuiteArguments,
}

/// Shown below the options.
const AFTER_HELP: &str = "\
Exit codes:
  0    all well
  1    something failed
  2    wrong use, or no way to run
  130  interrupted

Environment:
  SCX_VM_CACHE   Folder of kernels and programs, else ~/.cache/scx_pandemonium_user/vm
  SCX_VM_MIRROR  Debian mirror, else the one in /etc/apt";

#[derive(Subcommand)]
pub enum What {
    /// Run scenarios, one boot each, and print a table of outcomes (the default)
    Suite(SuiteArguments),
    /// Show one load under the kernel's own scheduler and under this one (half a minute)
    Demo(Subject),
    /// Install a package in a whole Debian and use it there as a user does (minutes)
    Distribution(DistributionArguments),
    /// Measure the workloads of the bars under the kernel's own scheduler and under this one
    Bars(BarsArguments),
    /// Run `bench run` in exact mode, beside the kernel's own scheduler and others
    Lab(LabArguments),
    /// Build Linux 6.12, the oldest kernel with sched_ext, into the cache (once)
    BuildKernel,
    /// Fill the cache, so that later runs need no network
    Fetch(SuiteArguments),
}

#[derive(Args, Clone)]
pub struct SuiteArguments {
    /// Boot this kernel image instead of Debian's kernels; may be repeated
    #[arg(long, value_name = "PATH")]
    pub kernel: Vec<PathBuf>,
    /// Kernel series, comma-separated: 6.12 is the built kernel, others are Debian's
    #[arg(long, value_delimiter = ',', default_values_t = kernel::SERIES.map(String::from))]
    pub series: Vec<String>,
    /// Run this scenario only; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Print the scenarios and what each one checks
    #[arg(long)]
    pub list: bool,
    /// Show the messages of every scenario, not only of those that fail; --only implies it
    #[arg(long)]
    pub verbose: bool,
    /// Test this scheduler instead of the one beside this program
    #[arg(long, value_name = "PATH")]
    pub scheduler: Option<PathBuf>,
    /// Number of virtual CPUs, for scenarios that do not fix it
    #[arg(long, value_name = "1..8", default_value_t = 2, value_parser = cpus())]
    pub cpus: u32,
    /// How time passes in the guest
    #[arg(long, value_enum, default_value_t = Mode::Fast)]
    pub mode: Mode,
}

impl SuiteArguments {
    /// Whether scenarios that pass show their messages too.
    pub fn shows_all(&self) -> bool {
        self.verbose || !self.only.is_empty()
    }
}

/// With more than 8 virtual CPUs on a small host, tasks wait for the host more than for the
/// scheduler.
fn cpus() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=8)
}

/// Which scheduler is measured, on which kernel.
#[derive(Args)]
pub struct Subject {
    /// Kernel series
    #[arg(long, default_value = kernel::SERIES[0])]
    series: String,
    /// Boot this kernel image instead of Debian's kernel
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// Measure this scheduler instead of the one beside this program
    #[arg(long, value_name = "PATH")]
    scheduler: Option<PathBuf>,
}

impl Subject {
    /// Everything that a boot needs, fetched if the cache lacks it.
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
pub struct DistributionArguments {
    /// The Debian package of the scheduler; `make deb` builds both
    #[arg(value_name = "PACKAGE")]
    pub package: PathBuf,
    /// That of the tools
    #[arg(value_name = "TOOLS")]
    pub tools: PathBuf,
    /// The scheduler's package of an earlier version, to upgrade from. Without it that is the same
    /// program
    #[arg(long, value_name = "PACKAGE")]
    pub earlier: Option<PathBuf>,
    #[command(flatten)]
    pub subject: Subject,
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
    /// Measure each phase N times in the same boot; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repeat: u32,
    /// Fail if a bar is missed.
    #[arg(long)]
    pub strict: bool,
    /// Write the figures to this file too
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
    /// Measure these mixes, which seeds draw: one seed, or every second one of a range such as
    /// 2..60; without --phases, only these
    #[arg(long, value_name = "SEED..SEED")]
    pub mix: Option<Seeds>,
    /// Measure each phase for S seconds of the guest
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    pub seconds: f64,
    /// Measure everything N times
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=99))]
    pub iterations: u32,
    /// Measure everything N times before that, without counting it
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=9))]
    pub warm_up: u32,
    /// Seed of everything pseudo-random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Measure every program scx_* in this folder too
    #[arg(long, value_name = "DIR")]
    pub with: Option<PathBuf>,
    /// Measure this too: NAME=COMMAND WITH ARGUMENTS, in the guest; may be repeated
    #[arg(long, value_name = "CONTENDER")]
    pub contender: Vec<String>,
    /// Measure the kernel's own scheduler only
    #[arg(long)]
    pub kernel_only: bool,
    #[command(flatten)]
    pub subject: Subject,
    /// Options for the scheduler, in one string: "--policy fifo --no-preempt".
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    pub scheduler_args: String,
    /// Print which of these bars are met, in the format of crates/bench/bars.toml
    #[arg(long, value_name = "FILE")]
    pub bars: Option<PathBuf>,
    /// Fail if a bar is missed.
    #[arg(long, requires = "bars")]
    pub strict: bool,
    /// Folder of the results, lab-TIME.json
    #[arg(long, value_name = "DIR", default_value = "target/lab")]
    pub output: PathBuf,
}
