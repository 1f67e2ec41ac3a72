// SPDX-License-Identifier: GPL-2.0-only

//! Measures CPU schedulers side by side, stores the results in one JSON file, and reports which
//! differences are outside the noise. docs/lab.md, "Reading the results", defines every term.
//!
//! | module | content |
//! |---|---|
//! | `run` | `bench run` and `bench install`: loads schedulers, measures, saves |
//! | `results` | the results file |
//! | `digest` | the results as groups of rows of cells, with verdicts |
//! | `bars` | required values for figures, and which are met |
//! | `contents`, `report` | what a report shows, and the command that writes it |
//! | `terminal`, `html`, `export` | one module for each output format |
//! | `mixes` | a set of mixes, judged part by part |
//! | `diff` | which figures changed between two results files |
//!
//! The crate is the program `pandemonium_bench` as a library:
//!
//! ```
//! use std::process::ExitCode;
//!
//! // A file that does not exist is a usage error: one sentence on stderr and exit code 2.
//! let code = pandemonium_bench::run_from(["pandemonium_bench", "report", "no-such-file.json"]);
//! assert_eq!(code, ExitCode::from(2));
//! ```

#![warn(missing_docs)]
// Those macros print what controls a terminal, and panic if the output has no reader.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod any_bytes;
mod bars;
mod cli;
mod contents;
mod diff;
mod digest;
mod export;
#[cfg(test)]
mod fixture;
mod html;
mod mixes;
mod ratios;
mod report;
mod results;
mod run;
mod terminal;
mod words;

use clap::Parser;
use cli::{BenchArguments, BenchCommand};
use pandemonium_host::failure::Failure;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    run_from(std::env::args_os())
}

/// Runs the program with these arguments; the first is the program's name.
pub fn run_from<T: Into<OsString> + Clone>(words: impl IntoIterator<Item = T>) -> ExitCode {
    let arguments = match BenchArguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return pandemonium_host::usage::explain(&error),
    };
    run(&arguments).unwrap_or_else(|failure| {
        pandemonium_host::print::print_error(&format!("error: {failure}"));
        failure.exit_code()
    })
}

/// Runs the command. Errors of `report` and `diff` are a [`Failure::Usage`] (exit code 2), because
/// their exit code 1 means a missed bar or a regression.
fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    let result = match &arguments.command {
        BenchCommand::Run(arguments) => return run::run(arguments),
        BenchCommand::Install(arguments) => return install(arguments),
        BenchCommand::Report(arguments) => report::run(arguments),
        BenchCommand::Diff(arguments) => diff::run(arguments),
        BenchCommand::Mixes(arguments) => mixes::run(arguments),
    };
    result.map_err(|error| Failure::Usage(format!("{error:#}")))
}

/// A scheduler that cannot be built is not a usage error, so this is a [`Failure::Internal`].
fn install(arguments: &run::cli::InstallArguments) -> Result<ExitCode, Failure> {
    run::install::run(arguments).map(|()| ExitCode::SUCCESS).map_err(Failure::Internal)
}
