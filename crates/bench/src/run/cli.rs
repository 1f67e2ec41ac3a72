// SPDX-License-Identifier: GPL-2.0-only

//! The command line of `run` and `install`.

use super::contenders::Contender;
use clap::builder::RangedI64ValueParser;
use clap::{Args, value_parser};
use pandemonium_statistics::mix::Seeds;
use std::path::PathBuf;

/// Shortest and longest measurement of one phase, the same as the probe's.
const SECONDS: std::ops::RangeInclusive<f64> = 0.05..=3_600.0;

#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// Measure these phases only, comma-separated; `probe --help` lists all
    #[arg(long, value_name = "PHASE", value_delimiter = ',')]
    pub phases: Vec<String>,
    /// Measure these mixes, which seeds draw: one seed, or every second one of a range such as
    /// 2..60; without --phases, only these
    #[arg(long, value_name = "SEED..SEED")]
    pub mix: Option<Seeds>,
    /// Measure with these numbers of CPUs, comma-separated; the other CPUs go offline meanwhile
    /// [default: all that are online]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = cpus())]
    pub cpus: Vec<u32>,
    /// Number of iterations; with fewer than 4, no difference can be significant
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = value_parser!(u32).range(1..=999))]
    pub iterations: u32,
    /// Number of iterations before that which are not stored
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = value_parser!(u32).range(0..=99))]
    pub warm_up: u32,
    /// Measure each phase for this many seconds, 0.05 to 3600
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Other schedulers to measure, comma-separated: NAME, a path, or NAME=COMMAND WITH ARGUMENTS
    #[arg(long, value_name = "SCHEDULER", value_delimiter = ',', value_parser = Contender::parse)]
    pub with: Vec<Contender>,
    /// Options for scx_pandemonium_user, in one string
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    pub scheduler_args: String,
    /// Do not measure scx_pandemonium_user
    #[arg(long)]
    pub without_ours: bool,
    /// Measure the kernel's scheduler only, which needs neither root nor sched_ext
    #[arg(long, conflicts_with_all = ["with", "scheduler_args", "without_ours"])]
    pub kernel_only: bool,
    /// Write the results into this folder, as bench-TIME.json
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub output: PathBuf,
    /// Seed of everything that is pseudo-random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Look for schedulers in this folder before PATH, instead of the one of `bench install`
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
    /// The clock of this machine counts instructions, as in the VM of the tests
    #[arg(long, hide = true)]
    pub exact: bool,
}

#[derive(Args, Clone, Debug)]
pub struct InstallArguments {
    /// Names of crates, such as scx_rustland, scx_bpfland, scx_cosmos, scx_lavd or
    /// scx_pandemonium; NAME@VERSION for another version than the newest
    #[arg(value_name = "NAME", required = true, value_parser = crate_name)]
    pub names: Vec<String>,
    /// Put the programs into DIR/bin, for `bench run --peers DIR/bin` [default:
    /// ~/.cache/scx_pandemonium_user/peers]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

fn cpus() -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=4_096)
}

fn seconds(text: &str) -> Result<f64, String> {
    let (low, high) = (SECONDS.start(), SECONDS.end());
    match text.parse::<f64>() {
        Ok(seconds) if SECONDS.contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text} is not a number of seconds in {low}..={high}")),
    }
}

/// A name that crates.io allows. Nothing that cargo could take for an option passes.
fn crate_name(text: &str) -> Result<String, String> {
    let (name, version) = text.split_once('@').unwrap_or((text, "0"));
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let numbered = version.starts_with(|c: char| c.is_ascii_digit());
    let known = |c: char| fine(c) || c == '.' || c == '+';
    match begins && name.chars().all(fine) && numbered && version.chars().all(known) {
        true => Ok(text.into()),
        false => Err(format!("{text:?} is not the name of a crate")),
    }
}
