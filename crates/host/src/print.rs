// SPDX-License-Identifier: GPL-2.0-only

//! Output to a terminal or a pipe.

use std::io::Write;

/// Prints a line. A closed pipe is not an error: the program goes on.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints bytes unchanged. A closed pipe is not an error.
pub fn print_bytes(text: &[u8]) {
    let _ = std::io::stdout().write_all(text);
}
