// SPDX-License-Identifier: GPL-2.0-only

//! Text of a file, for a terminal.

/// The text with `?` for each control character except the newline: a file must not control the
/// terminal.
pub fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "?")
}
