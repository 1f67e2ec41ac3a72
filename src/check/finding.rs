// SPDX-License-Identifier: GPL-2.0-only

//! One finding.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Worth knowing.
    Note,
    /// The scheduler runs, with a loss.
    Warning,
    /// A start would fail.
    Failure,
}

impl Level {
    /// The word in front of a line.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Failure => "FAILED",
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub topic: &'static str,
    pub level: Level,
    /// What was found, and what it means.
    pub found: String,
    /// What to do, if anything.
    pub advice: Option<String>,
}
