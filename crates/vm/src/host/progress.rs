// SPDX-License-Identifier: GPL-2.0-only

//! The progress line: rewritten in place on a terminal, left out elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Announces a preparation that may take long.
pub fn step(text: &str) {
    clear();
    eprintln!("{text} ...");
}

/// Shows the state of a run; the next call into this module erases it.
pub fn show(name: &str, elapsed: Duration, text: &str) {
    if std::io::stderr().is_terminal() {
        let line: String =
            format!("{name}  {:>3} s  {text}", elapsed.as_secs()).chars().take(width()).collect();
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }
}

/// Prints a line that stays.
pub fn line(text: &str) {
    clear();
    println!("{text}");
    let _ = std::io::stdout().flush();
}

/// Erases the progress line.
pub fn clear() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// Columns of the terminal, less one so that nothing wraps.
fn width() -> usize {
    // SAFETY: winsize is plain data, and the call fills it or fails.
    let columns = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size);
        size.ws_col
    };
    usize::from(columns.max(80)) - 1
}
