// SPDX-License-Identifier: GPL-2.0-only

//! The command line.

use crate::offered::catalog;
use crate::search::metric::{Hold, Metric, hold};
use crate::shipped::MIX_CPUS;
use crate::table::Format;
use crate::what::What;
use clap::{Args, Parser, Subcommand};
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::PolicyType;
use pandemonium_policies::{Fifo, Vruntime};
use pandemonium_sim::observer::Fault;
use pandemonium_statistics::mix::Seeds;
use std::path::PathBuf;

/// Fewer runs than this say nothing about noise.
pub const SEEDS_MIN: u64 = 10;

/// Simulates, compares, replays and explains scheduling policies: without root, without a kernel.
///
/// The policies and the code that runs them are those that schedule a real machine
/// (scx_pandemonium_user); the machine is simulated. One seed repeats a run bit for bit.
#[derive(Debug, Parser)]
#[command(name = "pandemonium_lab", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload under one or more policies and print what they made of it
    Run(RunArgs),
    /// Compare policies over at least ten seeds; a verdict only outside the noise
    Compare(CompareArgs),
    /// Write an HTML file with pictures of a workload under some policies
    Report(ReportArgs),
    /// Run a workload for each value of a setting, or for many CPU counts
    Sweep(SweepArgs),
    /// Give a recording's arrivals to a policy again and compare what it decides
    Replay(ReplayArgs),
    /// Say in sentences what a task is to the policy, and why it waited
    Explain(ExplainArgs),
    /// Print the table of scores that is kept under review (tests/sim/scores.txt)
    Scores,
    /// Draw runs from seeds, with everything going wrong, and judge them
    Swarm(SwarmArgs),
    /// List the workloads that come with the lab
    Workloads,
    /// Print the workload file of a mix: a workload that a seed has drawn
    Mix(MixArgs),
    /// Run a set of mixes and compare policies with the first, part by part
    Mixes(MixesArgs),
    /// Switch each rule of a policy off (or on) over a set of mixes: what it is worth
    Rules(RulesArgs),
    /// Look for knobs that are better than the defaults, and say what is sure of them
    Search(SearchArgs),
    /// Write a crate with a policy of your own: policy, scheduler, lab, test
    New(NewArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub what: What,

    /// Policies to run, with commas in between
    #[arg(short, long, value_name = "P,P", value_delimiter = ',', value_parser = policy)]
    pub policy: Vec<PolicyInfo>,

    /// The seed from which all chance follows
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Write what the policy is told and decides to a file (FILE.rec), for replay and explain
    #[arg(long, value_name = "FILE")]
    pub record: Option<String>,

    /// Write a trace of which task ran on which CPU, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<String>,

    /// Replace the names of programs in the recording
    #[arg(long, requires = "record")]
    pub redact: bool,

    /// How to print the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A recording: `pandemonium_lab run --record FILE` or `scx_pandemonium_user --record FILE`
    #[arg(value_name = "FILE")]
    pub file: String,

    /// The policy to give it to; the recorded one if not given
    #[arg(short, long, value_name = "P", value_parser = policy)]
    pub policy: Option<PolicyInfo>,

    /// Change a setting, on top of the recorded ones
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A recording (FILE.rec), or a workload to simulate
    #[command(flatten)]
    pub what: What,

    /// The task: a name or a pid
    #[arg(short, long, value_name = "NAME|PID")]
    pub task: String,

    /// Tell of each wait that was longer, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1_000)]
    pub over_us: u64,

    /// The policy to simulate
    #[arg(short, long, value_name = "P", value_parser = policy)]
    pub policy: Option<PolicyInfo>,

    /// The seed to simulate
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// A comparison of policies over many seeds.
#[derive(Debug, Args)]
pub struct Comparison {
    #[command(flatten)]
    pub what: What,

    /// The policies, with commas in between; the others are compared with the first
    /// [default: vruntime, the default policy, fifo]
    #[arg(short, long, value_name = "P,P", value_delimiter = ',', value_parser = policy)]
    pub policy: Vec<PolicyInfo>,

    /// The first seed; what shows one run shows this one
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// How many seeds, at least 10
    #[arg(long, value_name = "N", default_value_t = SEEDS_MIN,
          value_parser = clap::value_parser!(u64).range(SEEDS_MIN..))]
    pub seeds: u64,
}

impl Comparison {
    /// The policies; without any named, the usual three.
    pub fn policies(&self) -> Vec<PolicyInfo> {
        if !self.policy.is_empty() {
            return self.policy.clone();
        }
        let usual = [Vruntime::NAME, catalog().default_policy().name, Fifo::NAME];
        usual.iter().filter_map(|name| catalog().find(name).ok()).collect()
    }
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub comparison: Comparison,

    /// How to print the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub comparison: Comparison,

    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub out: String,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub what: What,

    /// What to change: `cpus=2..1024` in doublings, or `batch_slice_us=1000,2000,4000`
    #[arg(short, long, value_name = "NAME=VALUES")]
    pub over: String,

    /// The policies, with commas in between
    #[arg(short, long, value_name = "P,P", value_delimiter = ',', value_parser = policy)]
    pub policy: Vec<PolicyInfo>,

    /// The seed from which all chance follows
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// How to print the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct SwarmArgs {
    /// How many seeds to try
    #[arg(value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,

    /// The first seed
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// The policy that is tried
    #[arg(short, long, value_name = "P", value_parser = policy)]
    pub policy: Option<PolicyInfo>,

    /// Faults to leave out, with commas in between
    #[arg(long, value_name = "FAULT,FAULT", value_delimiter = ',', value_parser = fault)]
    pub without: Vec<Fault>,

    /// Groups of the drawn workload to leave out, by number
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub drop: Vec<usize>,

    /// Most CPUs
    #[arg(short = 'n', long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Option<u32>,

    /// Longest time for which things go wrong, in microseconds
    #[arg(long, value_name = "US")]
    pub storm_us: Option<u64>,

    /// Threads; as many as there are CPUs if not given
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<usize>,

    /// Go on after a failure, and list all of them
    #[arg(long)]
    pub all: bool,

    /// Say what was drawn, and everything that happens from 20 ms before the complaint on
    #[arg(long)]
    pub trace: bool,
}

#[derive(Debug, Args)]
pub struct MixArgs {
    /// The seed; `run mix-SEED` runs the same workload
    #[arg(value_name = "SEED")]
    pub seed: u64,

    /// CPUs of the machine, 1 to 1024
    #[arg(short = 'n', long, value_name = "N", default_value_t = MIX_CPUS,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: u32,
}

#[derive(Debug, Args)]
pub struct MixesArgs {
    /// A seed, or the first and the last of every second one: 2..60 for 2, 4, 6 to 60
    #[arg(value_name = "SEED..SEED")]
    pub seeds: Seeds,

    /// CPUs of the machine, 1 to 1024
    #[arg(short = 'n', long, value_name = "N", default_value_t = MIX_CPUS,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: u32,

    /// The policies, with commas in between; the others are compared with the first
    /// [default: vruntime and the default policy]
    #[arg(short, long, value_name = "P,P", value_delimiter = ',', value_parser = policy)]
    pub policy: Vec<PolicyInfo>,

    /// Change a setting of the policies, as often as you like: `--set batch_slice_us=2000`
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub set: Vec<String>,

    /// Draw each mix as a dot and write the picture (SVG) of the last policy to a file
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,

    /// Print every part of every mix under each policy as JSON
    #[arg(long)]
    pub json: bool,
}

impl MixesArgs {
    /// The policies; without any named, the one that stands for the kernel's scheduler and ours.
    pub fn policies(&self) -> Vec<PolicyInfo> {
        if !self.policy.is_empty() {
            return self.policy.clone();
        }
        let usual = [Vruntime::NAME, catalog().default_policy().name];
        usual.iter().filter_map(|name| catalog().find(name).ok()).collect()
    }
}

#[derive(Debug, Args)]
pub struct RulesArgs {
    /// A seed, or the first and the last of every second one: 2..400 for 2, 4, 6 to 400
    #[arg(value_name = "SEED..SEED")]
    pub seeds: Seeds,

    /// CPUs of the machine, 1 to 1024; each mix is drawn for each number
    #[arg(short = 'n', long, value_name = "N,N", value_delimiter = ',', default_value = "2,4",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Vec<u32>,

    /// Play the workloads that come with the lab, too
    #[arg(long)]
    pub workloads: bool,

    /// Only these switches, with commas in between: rule.deficit,rule.rested
    #[arg(long, value_name = "RULE,RULE", value_delimiter = ',')]
    pub only: Vec<String>,

    /// The policy
    #[arg(short, long, value_name = "P", value_parser = policy)]
    pub policy: Option<PolicyInfo>,

    /// Change a setting of the policy in every run: `--set rule.orders=off`
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub set: Vec<String>,

    /// How to print the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Even seeds of mixes, such as 2..100, or workloads; the odd seeds behind them check what is
    /// found
    #[arg(value_name = "SEEDS|WORKLOAD", default_value = "2..100")]
    pub on: Vec<String>,

    /// What to make better
    #[arg(long, value_enum, value_name = "METRIC", default_value = "p99")]
    pub objective: Metric,

    /// Keep a metric no worse than so many times the defaults', as often as you like:
    /// `p99.9<=1.05`, `work>=0.99`
    #[arg(long, value_name = "METRIC<=X", value_parser = hold)]
    pub hold: Vec<Hold>,

    /// Knobs to change, with commas in between; all but the switches if not given
    #[arg(long, value_name = "KNOB,KNOB", value_delimiter = ',')]
    pub knobs: Vec<String>,

    /// CPUs of the machine, 1 to 1024; each seed is played on each number
    #[arg(short = 'n', long, value_name = "N,N", value_delimiter = ',', default_value = "1,2,4",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Vec<u32>,

    /// Settings of a round: all on a ninth of the seeds, the better third on a third, a ninth on
    /// all
    #[arg(long, value_name = "N", default_value_t = 54,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub settings: u32,

    /// Rounds; from the second on, half of the settings are near the best ones so far
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,

    /// The seed of the settings that are drawn
    #[arg(short, long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Keep what was played in a file, and go on from it: the result is the same
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// The policy
    #[arg(short, long, value_name = "P", value_parser = policy)]
    pub policy: Option<PolicyInfo>,

    /// How to print the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

fn fault(name: &str) -> Result<Fault, String> {
    let found = Fault::ALL.into_iter().find(|fault| fault.name() == name);
    let names = || Fault::ALL.map(Fault::name).join(", ");
    found.ok_or_else(|| format!("expected one of {}", names()))
}

fn policy(name: &str) -> Result<PolicyInfo, String> {
    catalog().find(name)
}

#[derive(Debug, Args)]
pub struct NewArgs {
    /// What the policy is called: lower-case letters, digits and _
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Where to write it [default: a new folder NAME]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Use the crates of this checkout of scx_pandemonium_user, not the published ones
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
}
