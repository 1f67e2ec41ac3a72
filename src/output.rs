// SPDX-License-Identifier: GPL-2.0-only

//! The standard output. If its reader has gone away, the scheduler goes on.

use std::io::Write;

/// Prints a line.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints text as it is.
pub fn print_bytes(text: &[u8]) {
    let _ = std::io::stdout().write_all(text);
}
