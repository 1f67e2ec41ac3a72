// SPDX-License-Identifier: GPL-2.0-only

//! `bench`: what was measured side by side, kept in one file, and what can be said about it.
//! docs/lab.md, "Reading the results", defines every word.

mod bars;
pub mod cli;
mod diff;
mod digest;
mod export;
mod figure;
#[cfg(test)]
mod fixture;
mod grid;
mod html;
mod page;
mod picture;
mod ratios;
mod report;
pub mod results;
pub mod run;
mod sample;
mod table;
mod verdict;

use crate::driver::failure::Failure;
use cli::{BenchArguments, BenchCommand};
use std::process::ExitCode;

/// Does what the command line asks for. What cannot be done is a [`Failure::Usage`], so that an
/// exit code of 1 can only be a verdict.
pub fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    let done = match &arguments.command {
        BenchCommand::Run(arguments) => return run::run(arguments),
        BenchCommand::Install(arguments) => return install(arguments),
        BenchCommand::Report(arguments) => report::run(arguments),
        BenchCommand::Diff(arguments) => diff::run(arguments),
    };
    done.map_err(|error| Failure::Usage(format!("{error:#}")))
}

/// One that cannot be built is no mistake of the caller's.
fn install(arguments: &run::cli::InstallArguments) -> Result<ExitCode, Failure> {
    run::install::run(arguments).map(|()| ExitCode::SUCCESS).map_err(Failure::Internal)
}
