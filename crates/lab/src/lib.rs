// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab`: simulates, compares, replays and explains scheduling policies.
//!
//! The policies, the round and the simulated machine are the library's; here are files, threads
//! and the terminal. Nothing of this program needs root, a kernel or BPF.
//!
//! A program with policies of its own is one line; here a built-in one stands for them:
//!
//! ```no_run
//! use pandemonium_policies::Vruntime;
//!
//! fn main() -> std::process::ExitCode {
//!     pandemonium_lab::main(pandemonium_lab::policies![Vruntime])
//! }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Those macros print what controls a terminal, and panic if the output has no reader.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod any_bytes;
mod cli;
mod compare;
mod explain;
mod history;
mod mean;
mod metric;
mod mix;
mod mixes;
mod new;
mod offered;
mod parallel;
mod play;
#[cfg(test)]
mod recordings;
mod replay;
mod report;
mod rules;
mod run;
mod search;
mod shipped;
mod simulated;
mod swarm;
mod table;
mod timeline;
mod what;

use anyhow::Result;
pub use pandemonium_engine::policies;
use pandemonium_engine::{PolicyInfo, PolicyType};
use pandemonium_sim::swarm::Cuts;
use std::ops::RangeInclusive;

use clap::Parser;
use cli::{Cli, Command};
use pandemonium_print::{print, print_error};
use std::process::ExitCode;

/// Runs the program with these policies besides the built-in ones; the first is the default.
pub fn main(policies: &'static [PolicyInfo]) -> ExitCode {
    offered::offer(policies);
    match command(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            print_error(&format!("pandemonium_lab: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn command(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::compare(args),
        Command::Report(args) => report::run(args),
        Command::Sweep(args) => compare::sweep(args),
        Command::Replay(args) => replay::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Scores => compare::scores(),
        Command::Swarm(args) => swarm::run(args),
        Command::Mix(args) => {
            print(pandemonium_workload::mix::text(args.seed, args.cpus).trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Command::Mixes(args) => mixes::run(args),
        Command::Rules(args) => rules::run(args),
        Command::Search(args) => search::run(args),
        Command::New(args) => new::run(args),
        Command::Workloads => {
            for (name, _) in shipped::ALL {
                let (workload, _) = shipped::load(name, None)?;
                print(&format!("{name:16} {}", workload.about));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs the policy on the machines that these seeds draw, with every fault.
///
/// # Panics
///
/// With the first seed after which a checker found a violation, and how to repeat it.
pub fn survives<P: PolicyType>(seeds: RangeInclusive<u64>) {
    let policy = PolicyInfo::of::<P>();
    for seed in seeds {
        let tried = pandemonium_sim::swarm::draw(seed, &Cuts::default(), policy).run(&mut ());
        if let Err(violation) = tried.verdict {
            panic!("`swarm 1 --seed {seed} --trace` of the lab repeats: {}", violation.why);
        }
    }
}
