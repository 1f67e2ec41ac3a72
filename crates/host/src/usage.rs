// SPDX-License-Identifier: GPL-2.0-only

//! Errors of clap, shortened to one line.

use super::print::print_error;
use std::process::ExitCode;

/// Prints help unchanged, and an error as one line without the usage text, which would hide it.
/// Returns the exit code: 0 after help, 2 after an error.
pub fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let sentence = text.lines().map(str::trim);
    let sentence = sentence.take_while(|line| !line.starts_with("Usage:"));
    let sentence: Vec<&str> =
        sentence.filter(|line| !line.is_empty() && !line.starts_with("For more info")).collect();
    print_error(&format!("{} (see --help)", sentence.join(" ")));
    ExitCode::from(2)
}
