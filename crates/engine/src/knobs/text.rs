// SPDX-License-Identifier: GPL-2.0-only

//! Knobs as a person writes and reads them.

use super::registry::{Key, KeySet, Shown, keys};
use super::{KEYS, Knobs};
use alloc::string::{String, ToString};
use core::fmt;

pub(super) fn read_digits(word: &str) -> Option<u64> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

/// Nanoseconds, of microseconds with up to three decimals.
pub(super) fn read_micros(word: &str) -> Option<u64> {
    let (whole, part) = match word.split_once('.') {
        Some((whole, part)) if (1..=3).contains(&part.len()) => (whole, part),
        Some(_) => return None,
        None => (word, "0"),
    };
    let padding = 10u64.pow(3 - part.len() as u32);
    read_digits(whole)?.checked_mul(1_000)?.checked_add(read_digits(part)? * padding)
}

impl Knobs {
    /// Changes one knob, given as `KEY=VALUE`. On an error nothing is changed.
    pub fn set(&mut self, assignment: &str) -> Result<(), KnobError> {
        let mut changed = *self;
        changed.assign(assignment)?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// The defaults, changed by a file: lines `KEY=VALUE`; what follows a `#` is a comment.
    pub fn parse_file(text: &str) -> Result<(Knobs, KeySet), FileError> {
        Knobs::default().amended(text)
    }

    /// These knobs, changed by such a file, and which keys it named. Whether values go together is
    /// asked when all are known, so their order does not matter.
    pub fn amended(&self, text: &str) -> Result<(Knobs, KeySet), FileError> {
        let (mut knobs, mut named) = (*self, KeySet::EMPTY);
        for (index, line) in text.lines().enumerate() {
            let at = |error| FileError { line: Some(index + 1), error };
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let key = knobs.assign(line).map_err(at)?;
            if named.holds(key.name) {
                return Err(at(KnobError::Twice(key.name)));
            }
            named = named.with(key.name);
        }
        knobs.check().map_err(|error| FileError { line: None, error })?;
        Ok((knobs, named))
    }

    /// Whether every knob is within its range and none contradicts another.
    pub fn check(&self) -> Result<(), KnobError> {
        for key in keys() {
            let (low, high) = key.limits();
            if !(low..=high).contains(&key.get(self)) {
                let given = key.show(self).to_string();
                return Err(KnobError::Value { key: key.name, given });
            }
        }
        let ordered = [
            ("slice_min_us", "slice_us"),
            ("slice_min_us", "batch_slice_us"),
            ("slice_min_us", "burst_slice_us"),
            ("lat_cri_low", "lat_cri_high"),
        ];
        for (low, high) in ordered {
            let (Some(low), Some(high)) = (Key::named(low), Key::named(high)) else { continue };
            let values = (low.get(self), high.get(self));
            if values.0 > values.1 {
                return Err(KnobError::Order { low: low.name, high: high.name, values });
            }
        }
        Ok(())
    }

    /// All values as numbers, for memory that is shared between processes.
    pub fn to_raw(&self) -> [u64; KEYS] {
        let mut raw = [0; KEYS];
        for (cell, key) in raw.iter_mut().zip(keys()) {
            *cell = key.get(self);
        }
        raw
    }

    /// The knobs that [`to_raw`](Knobs::to_raw) wrote; `None` if they are no valid ones.
    pub fn from_raw(raw: &[u64; KEYS]) -> Option<Knobs> {
        let mut knobs = Knobs::default();
        let in_range = raw.iter().zip(keys()).all(|(&raw, key)| key.set(&mut knobs, raw));
        (in_range && knobs.check().is_ok()).then_some(knobs)
    }

    fn assign(&mut self, assignment: &str) -> Result<&'static Key, KnobError> {
        let form = || KnobError::Form(clip(assignment));
        let (name, word) = assignment.split_once('=').ok_or_else(form)?;
        let (name, word) = (name.trim(), word.trim());
        let key = Key::named(name).ok_or_else(|| KnobError::Unknown(clip(name)))?;
        let raw = key.read(word);
        match raw.is_some_and(|raw| key.set(self, raw)) {
            true => Ok(key),
            false => Err(KnobError::Value { key: key.name, given: clip(word) }),
        }
    }
}

/// As much of what a person wrote as belongs into a message.
fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

impl fmt::Display for Knobs {
    /// A file that [`Knobs::parse_file`] reads as these very knobs, with an explanation of each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in keys() {
            let value = key.show(self);
            writeln!(f, "# {} Takes {}.\n{}={value}", key.doc, key.range(), key.name)?;
        }
        Ok(())
    }
}

/// Why a knob was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnobError {
    /// There is no `=` in it.
    Form(String),
    /// No knob has this name.
    Unknown(String),
    /// The value is no value of this knob, or out of its range.
    Value {
        /// Which knob.
        key: &'static str,
        /// What it was given.
        given: String,
    },
    /// One value must not be above another.
    Order {
        /// The one that must be lower.
        low: &'static str,
        /// The one that must be higher.
        high: &'static str,
        /// Their numbers, as [`Key::get`] gives them.
        values: (u64, u64),
    },
    /// A file names the knob twice.
    Twice(&'static str),
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobError::Form(text) => write!(f, "{text:?} is not of the form KEY=VALUE"),
            KnobError::Unknown(name) => write!(f, "there is no knob {name:?}"),
            KnobError::Twice(key) => write!(f, "{key} is given twice"),
            KnobError::Value { key, given } => match Key::named(key) {
                Some(it) => write!(f, "{key} takes {}, not {given:?}", it.range()),
                None => write!(f, "{key} does not take {given:?}"),
            },
            KnobError::Order { low, high, values } => {
                let show = |f: &mut fmt::Formatter<'_>, name, raw| match Key::named(name) {
                    Some(key) => write!(f, "{name} ({})", Shown { key, raw }),
                    None => f.write_str(name),
                };
                show(f, low, values.0)?;
                f.write_str(" must not be above ")?;
                show(f, high, values.1)
            }
        }
    }
}

impl core::error::Error for KnobError {}

/// Why a file of knobs was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
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
