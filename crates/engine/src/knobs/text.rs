// SPDX-License-Identifier: GPL-2.0-only

//! Knobs as a person writes and reads them.

use super::table::{KeySet, Knob, Table, Values};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Values that a text has changed.
#[derive(Clone, Debug)]
pub struct Amended {
    /// All values, with the changes.
    pub values: Values,
    /// The knobs that the text names.
    pub named: KeySet,
    /// Older names that it used, and the names that they have now.
    pub renamed: Vec<(&'static str, &'static str)>,
}

impl Values {
    /// Changes one knob, given as `KEY=VALUE`. On an error nothing is changed.
    pub fn set(&mut self, assignment: &str) -> Result<(), KnobError> {
        let mut changed = *self;
        changed.assign(assignment)?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// These values, changed by lines `KEY=VALUE`; what follows a `#` is a comment. Whether values
    /// go together is asked when all are known, so their order does not matter.
    pub fn amended(&self, text: &str) -> Result<Amended, FileError> {
        let amended = self.amended_alone(text)?;
        amended.values.check().map_err(|error| FileError { line: None, error })?;
        Ok(amended)
    }

    /// The same, without asking whether the values go together.
    pub(super) fn amended_alone(&self, text: &str) -> Result<Amended, FileError> {
        let (mut values, mut named) = (*self, KeySet::none(self.table));
        let mut renamed = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let at = |error| FileError { line: Some(index + 1), error };
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (knob, old) = values.assign(line).map_err(at)?;
            if named.holds(knob.name) {
                return Err(at(KnobError::Twice(knob.name)));
            }
            named = named.with(knob.name);
            renamed.extend(old.map(|old| (old, knob.name)));
        }
        Ok(Amended { values, named, renamed })
    }

    /// Whether every knob is within its range and none contradicts another.
    pub fn check(&self) -> Result<(), KnobError> {
        for (knob, word) in self.iter() {
            let (low, high) = knob.limits();
            if !(low..=high).contains(&word) {
                return Err(KnobError::Value { knob, given: knob.show(word).to_string() });
            }
        }
        let knob = |name| Some((self.table.named(name)?, self.get(name)?));
        for (low, high) in self.table.ordered {
            let (Some(low), Some(high)) = (knob(low), knob(high)) else { continue };
            if low.1 > high.1 {
                return Err(KnobError::Order { low, high });
            }
        }
        Ok(())
    }

    /// The knob that was set, and the older name by which it was called, if it was.
    fn assign(
        &mut self,
        assignment: &str,
    ) -> Result<(&'static Knob, Option<&'static str>), KnobError> {
        let form = || KnobError::Form(clip(assignment));
        let (name, text) = assignment.split_once('=').ok_or_else(form)?;
        let (name, text) = (name.trim(), text.trim());
        let unknown = || KnobError::Unknown(clip(name));
        let knob = self.table.named(name).ok_or_else(unknown)?;
        let word = knob.read(text);
        if !word.is_some_and(|word| self.put(knob.name, word)) {
            return Err(KnobError::Value { knob, given: clip(text) });
        }
        Ok((knob, knob.aliases.iter().find(|alias| **alias == name).copied()))
    }
}

impl Table {
    /// A file that [`Values::amended`] reads as these very values, with an explanation of each
    /// knob.
    pub fn file_of(values: &Values) -> impl fmt::Display + '_ {
        File(values)
    }
}

struct File<'v>(&'v Values);

impl fmt::Display for File<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (knob, word) in self.0.iter() {
            let value = knob.show(word);
            writeln!(f, "# {} Takes {}.\n{}={value}", knob.about(), knob.range(), knob.name)?;
        }
        Ok(())
    }
}

/// As much of what a person wrote as belongs into a message.
fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Why a knob was not changed.
#[derive(Clone)]
pub enum KnobError {
    /// There is no `=` in it.
    Form(String),
    /// No knob has this name.
    Unknown(String),
    /// The value is no value of this knob, or out of its range.
    Value {
        /// Which knob.
        knob: &'static Knob,
        /// What it was given.
        given: String,
    },
    /// One value must not be above another.
    Order {
        /// The one that must be lower, and its word.
        low: (&'static Knob, u64),
        /// The one that must be higher, and its word.
        high: (&'static Knob, u64),
    },
    /// A file names the knob twice.
    Twice(&'static str),
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobError::Form(text) => write!(f, "{text:?} is not of the form KEY=VALUE"),
            KnobError::Unknown(name) => write!(f, "there is no knob {name:?}"),
            KnobError::Twice(name) => write!(f, "{name} is given twice"),
            KnobError::Value { knob, given } => {
                write!(f, "{} takes {}, not {given:?}", knob.name, knob.range())
            }
            KnobError::Order { low, high } => write!(
                f,
                "{} ({}) must not be above {} ({})",
                low.0.name,
                low.0.show(low.1),
                high.0.name,
                high.0.show(high.1)
            ),
        }
    }
}

impl PartialEq for KnobError {
    /// Two errors are equal if they say the same.
    fn eq(&self, other: &KnobError) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Debug for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for KnobError {}

/// Why a file of knobs was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct FileError {
    /// In which line, counted from 1; `None` when lines contradict each other.
    pub line: Option<usize>,
    /// What is wrong.
    pub error: KnobError,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl core::error::Error for FileError {}
