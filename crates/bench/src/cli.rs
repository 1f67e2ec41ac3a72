// SPDX-License-Identifier: GPL-2.0-only

//! The command line.

use super::run::cli::{InstallArguments, RunArguments};
use clap::{Args, Parser, Subcommand, value_parser};
use std::path::PathBuf;

/// Measures CPU schedulers side by side, and reports which differences are outside the noise
#[derive(Clone, Debug, Parser)]
#[command(name = "pandemonium_bench", version, max_term_width = 100)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure every workload under the kernel's scheduler, under scx_pandemonium_user, and others
    ///
    /// Takes CPUs offline and back online as --cpus says, and loads one scheduler after the other:
    /// run it on a machine that is otherwise idle. Results are saved after each phase. Exit code 0:
    /// everything was measured; 1: something failed, and the results say why; 130: a signal ended
    /// it.
    Run(RunArguments),
    /// Install other schedulers from crates.io, for `bench run --with`
    Install(InstallArguments),
    /// Show a results file: tables, and which differences are outside the noise
    Report(ReportArguments),
    /// Show which figures changed between two results files, outside the noise
    ///
    /// Exit code 0: nothing is worse; 1: something is worse; 2: the files cannot be compared.
    Diff(DiffArguments),
    /// Show the mixes of a results file: one line for each, and where the ratios lie
    Mixes(MixesArguments),
}

#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// The results file that `bench run` has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub format: Format,
    /// Compare with this scheduler instead of the kernel's
    #[arg(long, value_name = "NAME", conflicts_with = "bars")]
    pub beside: Option<String>,
    /// Width of the tables in columns [default: the width of the terminal]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub width: Option<u16>,
    /// Show which bars (required values of figures) are met and which are missed, and by how much;
    /// crates/bench/bars.toml is an example
    #[arg(long, value_name = "FILE")]
    pub bars: Option<PathBuf>,
    /// The scheduler that the bars are for [default: the first that is not the kernel's]
    #[arg(long, value_name = "NAME", requires = "bars")]
    pub scheduler: Option<String>,
    /// Exit with code 1 if a bar is missed
    #[arg(long, requires = "bars")]
    pub strict: bool,
    /// Write to the file PATH, which is replaced, instead of the terminal
    #[arg(short, long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// The output format; text tables if none is chosen.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct Format {
    /// Write one self-contained HTML file
    #[arg(long)]
    pub html: bool,
    /// Write comma-separated values: every figure of every iteration
    #[arg(long)]
    pub csv: bool,
    /// Write Prometheus text: medians, spreads and verdicts
    #[arg(long)]
    pub prometheus: bool,
    /// Write JSON: medians, spreads and verdicts
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// The results file before the change
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The results file after the change
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Compare this scheduler only; may be given several times
    #[arg(long, value_name = "NAME")]
    pub scheduler: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct MixesArguments {
    /// The results file that `bench run --mix` has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Compare with this scheduler instead of the kernel's
    #[arg(long, value_name = "NAME")]
    pub beside: Option<String>,
    /// Show this scheduler only; may be given several times
    #[arg(long, value_name = "NAME")]
    pub scheduler: Vec<String>,
    /// Draw each mix of the last scheduler shown as a dot, and write the picture (SVG) to a file,
    /// which is replaced
    #[arg(long, value_name = "PATH")]
    pub picture: Option<PathBuf>,
}
