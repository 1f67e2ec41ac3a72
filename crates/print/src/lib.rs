// SPDX-License-Identifier: GPL-2.0-only

//! Output to a terminal or a pipe. Text may come from the kernel, from a file or from the name of a
//! task, and must not control the terminal.
//!
//! ```
//! use pandemonium_print::{one_line, printable};
//!
//! assert_eq!(printable("evil\x1b[2J\nname"), "evil?[2J\nname");
//! assert_eq!(one_line("evil\nname"), "evil?name");
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub use pandemonium_engine::text::is_unprintable;

use std::borrow::Cow;
use std::io::Write;

/// Prints a line, as [`printable`] text. A closed pipe is not an error: the program goes on.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", printable(text));
}

/// Prints bytes unchanged: text of this program's own. A closed pipe is not an error.
pub fn print_bytes(text: &[u8]) {
    let _ = std::io::stdout().write_all(text);
}

/// Prints a line to the standard error, as [`printable`] text. A closed pipe is not an error.
pub fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// The text with `?` for each [unprintable](is_unprintable) character but the newline and the tab.
pub fn printable(text: &str) -> Cow<'_, str> {
    without(text, |c| is_unprintable(c) && c != '\n' && c != '\t')
}

/// The text with `?` for each [unprintable](is_unprintable) character: one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    without(text, is_unprintable)
}

fn without(text: &str, is_odd: fn(char) -> bool) -> Cow<'_, str> {
    match text.contains(is_odd) {
        true => Cow::Owned(text.replace(is_odd, "?")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ESC, BEL, DEL, and CSI as one character.
    const HOSTILE: &str = "a\x1b[2J\x07\x7f\u{9b}31mé\n\tb\r";

    #[test]
    fn printable_text_has_no_control_characters_but_newlines_and_tabs() {
        assert_eq!(printable(HOSTILE), "a?[2J???31mé\n\tb?");
        assert_eq!(one_line(HOSTILE), "a?[2J???31mé??b?");
        assert!(matches!(printable("plain\n"), Cow::Borrowed("plain\n")));
    }

    #[test]
    fn no_character_reorders_or_hides_what_stands_beside_it() {
        let hostile = "a\u{202e}b\u{2066}c\u{200f}\u{2028}\u{feff}\u{200b}";
        assert_eq!(printable(hostile), "a?b?c????");
        assert_eq!(one_line(hostile), "a?b?c????");
    }
}
