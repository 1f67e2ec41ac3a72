// SPDX-License-Identifier: GPL-2.0-only

//! Errors that name line, column and what was expected.

use std::fmt;

/// Why and where a file is refused.
#[derive(Debug)]
pub struct FileError {
    line: usize,
    column: usize,
    why: String,
    text: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line, self.column);
        write!(f, "line {line}, column {column}: {}\n{line:5} | {}\n", self.why, self.text)?;
        write!(f, "      | {:>column$}", "^")
    }
}

impl std::error::Error for FileError {}

impl FileError {
    pub(crate) fn new(source: &str, at: usize, why: impl Into<String>) -> FileError {
        let at = at.min(source.len());
        let before = source.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FileError {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            why: why.into(),
            text: source[start..].lines().next().unwrap_or_default().to_owned(),
        }
    }
}
