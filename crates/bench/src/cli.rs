// SPDX-License-Identifier: GPL-2.0-only

//! The command line of `bench`.

use super::run::cli::{InstallArguments, RunArguments};
use clap::{Args, Parser, Subcommand, value_parser};
use std::path::PathBuf;

/// Measures CPU schedulers side by side, and says what differs beyond the noise.
#[derive(Clone, Debug, Parser)]
#[command(name = "pandemonium_bench", version, max_term_width = 100)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure every workload under the kernel's own scheduler, under ours, and under others
    ///
    /// Takes CPUs away and gives them back as --cpus says, and loads one scheduler after the other:
    /// for a machine that has nothing else to do meanwhile. Results are saved after each phase.
    /// Exit code 0: everything was measured; 1: some failed, and the results say why; 130: a signal
    /// ended it.
    Run(RunArguments),
    /// Get other schedulers from crates.io, for `bench run --with`
    Install(InstallArguments),
    /// Show what a results file says: tables, and which differences are outside the noise
    Report(ReportArguments),
    /// Say which figures changed between two results files, outside the noise
    ///
    /// Exit code 0: nothing got worse; 1: something did; 2: the files cannot be compared.
    Diff(DiffArguments),
}

#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// What `bench run` has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub format: Format,
    /// Compare with this scheduler, not with the kernel's own
    #[arg(long, value_name = "NAME", conflicts_with = "bars")]
    pub beside: Option<String>,
    /// Lay the tables out for so many columns [default: as many as the terminal has]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub width: Option<u16>,
    /// Say which bars are met and which missed, and by how much; crates/bench/bars.toml shows how they are
    /// written
    #[arg(long, value_name = "FILE")]
    pub bars: Option<PathBuf>,
    /// Whom the bars are for [default: the first that is not the kernel's own]
    #[arg(long, value_name = "NAME", requires = "bars")]
    pub scheduler: Option<String>,
    /// Exit with 1 if a bar is missed
    #[arg(long, requires = "bars")]
    pub strict: bool,
    /// Write into PATH, which is replaced, instead of the terminal
    #[arg(short, long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// In which form; as tables for a person if none is chosen.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct Format {
    /// As one HTML file that needs nothing else
    #[arg(long)]
    pub html: bool,
    /// As comma-separated values: every figure of every iteration
    #[arg(long)]
    pub csv: bool,
    /// As Prometheus text: medians, spreads and verdicts
    #[arg(long)]
    pub prometheus: bool,
    /// As JSON: medians, spreads and verdicts
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// The results before
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The results after
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Look at this scheduler only; may be given several times
    #[arg(long, value_name = "NAME")]
    pub scheduler: Vec<String>,
}
