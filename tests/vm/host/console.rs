// SPDX-License-Identifier: GPL-2.0-only

//! Reads the kernel's console log: trouble that spoils a pass, and the last words of a guest that
//! died.

use std::path::Path;

/// Marks of a kernel in trouble.
const TROUBLE: &[&str] = &["BUG:", "WARNING:", "Oops", "Kernel panic", "general protection fault"];
/// Lines that the guest agent wrote there itself.
const OWN: &str = "vm| ";
const LAST_WORDS: usize = 6;

pub struct Console {
    lines: Vec<String>,
}

impl Console {
    pub fn read(path: &Path) -> Console {
        let bytes = std::fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let kernel_lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(OWN));
        Console { lines: kernel_lines.map(str::to_string).collect() }
    }

    /// The first line that must not be there.
    pub fn trouble(&self) -> Option<&str> {
        self.lines
            .iter()
            .map(String::as_str)
            .find(|line| TROUBLE.iter().any(|mark| line.contains(mark)))
    }

    /// What the kernel said in the end: its trouble if it had any, else its last lines.
    pub fn last_words(&self) -> String {
        let trouble: Vec<&str> = self
            .lines
            .iter()
            .map(String::as_str)
            .filter(|line| TROUBLE.iter().any(|mark| line.contains(mark)))
            .collect();
        if trouble.is_empty() {
            return match self.lines.len() {
                0 => "the kernel said nothing".into(),
                count => self.lines[count.saturating_sub(LAST_WORDS)..].join(" | "),
            };
        }
        trouble[..trouble.len().min(LAST_WORDS)].join(" | ")
    }
}
