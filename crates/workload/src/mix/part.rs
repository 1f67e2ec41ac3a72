// SPDX-License-Identifier: GPL-2.0-only

//! One part of a mix: a table of the workload file.

use std::fmt::{Display, Write as _};

/// A table that is being written.
pub struct Part {
    /// What it is, for the sentence about the mix.
    pub about: &'static str,
    name: String,
    fields: String,
}

impl Part {
    /// A table with this name and kind.
    pub fn new(about: &'static str, name: &str, kind: &str) -> Part {
        Part { about, name: name.to_owned(), fields: format!("kind = \"{kind}\"\n") }
    }

    /// Adds a number or a truth value.
    pub fn with(mut self, field: &str, value: impl Display) -> Part {
        // Writing to a string cannot fail.
        let _ = writeln!(self.fields, "{field} = {value}");
        self
    }

    /// Adds a text.
    pub fn with_text(self, field: &str, value: &str) -> Part {
        self.with(field, format_args!("\"{value}\""))
    }

    /// Adds a length of time that is drawn anew each time.
    pub fn range(self, field: &str, low: u64, high: u64) -> Part {
        match low == high {
            true => self.with(field, low),
            false => self.with(field, format_args!("[{low}, {high}]")),
        }
    }

    /// Makes it a part that is measured by its lateness instead of its work.
    pub fn noticed(self) -> Part {
        self.with("counts", false)
    }

    /// The same with another name.
    pub fn named(self, name: &str) -> Part {
        Part { name: name.to_owned(), ..self }
    }

    /// The table.
    pub fn text(&self) -> String {
        format!("\n[[task]]\nname = \"{}\"\n{}", self.name, self.fields)
    }
}
