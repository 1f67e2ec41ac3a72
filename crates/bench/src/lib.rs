// SPDX-License-Identifier: GPL-2.0-only

//! `bench`: what was measured side by side, kept in one file, and what can be said about it.
//! docs/lab.md, "Reading the results", defines every word.

mod bars;
mod cli;
mod diff;
mod digest;
mod export;
#[cfg(test)]
mod fixture;
mod html;
mod ratios;
mod report;
mod results;
mod run;
mod table;

use clap::Parser;
use cli::{BenchArguments, BenchCommand};
use pandemonium_host::failure::Failure;
use std::process::ExitCode;

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = match BenchArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return pandemonium_host::usage::explain(&error),
    };
    run(&arguments).unwrap_or_else(|failure| {
        eprintln!("error: {failure}");
        failure.exit_code()
    })
}

/// Does what the command line asks for. What cannot be done is a [`Failure::Usage`], so that an
/// exit code of 1 can only be a verdict.
fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
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
