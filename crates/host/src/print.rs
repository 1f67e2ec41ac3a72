// SPDX-License-Identifier: GPL-2.0-only

//! Lines for a person or a pipe.

use std::io::Write;

/// Prints a line. A reader that has gone away is no reason to end.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints bytes as they are.
pub fn print_bytes(text: &[u8]) {
    let _ = std::io::stdout().write_all(text);
}
