// SPDX-License-Identifier: GPL-2.0-only

//! Name, range, meaning and place of every knob, in one table.

use super::text::{read_digits, read_micros};
use super::{Affinity, Knobs, RULES};
use crate::time::Span;
use core::fmt;

/// What a key refers to, and what it takes.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// Lowest, highest, where.
    Span(Span, Span, fn(&mut Knobs) -> &mut Span),
    /// Lowest, highest, where.
    Count(u32, u32, fn(&mut Knobs) -> &mut u32),
    Affinity,
    Switch(fn(&mut Knobs) -> &mut bool),
}

/// One knob as a person knows it.
pub struct Key {
    /// What it is called: `slice_us`, `rule.deficit`. The ending is the unit.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub doc: &'static str,
    pub(super) field: Field,
}

const fn span(name: &'static str, us: (u64, u64), at: fn(&mut Knobs) -> &mut Span) -> Key {
    let field = Field::Span(Span::from_micros(us.0), Span::from_micros(us.1), at);
    Key { name, doc: "", field }
}

const fn count(name: &'static str, range: (u32, u32), at: fn(&mut Knobs) -> &mut u32) -> Key {
    Key { name, doc: "", field: Field::Count(range.0, range.1, at) }
}

impl Key {
    const fn doc(self, doc: &'static str) -> Key {
        Key { doc, ..self }
    }
}

/// Slices: below 100 us a CPU would mostly switch tasks; beyond 100 ms a person sees the machine
/// stutter. A score ends at 255, so 256 as a limit is one that nobody reaches.
static VALUES: &[Key] = &[
    span("slice_us", (100, 100_000), |k| &mut k.slice)
        .doc("Longest slice of Interactive and LatCritical tasks."),
    span("slice_min_us", (100, 100_000), |k| &mut k.slice_min).doc("Shortest slice of any task."),
    span("preempt_thresh_us", (0, 100_000), |k| &mut k.preempt_thresh)
        .doc("How long a Batch task runs before it gives way to Interactive ones."),
    count("lag_scale", (1, 64), |k| &mut k.lag_scale)
        .doc("How much credit sleep earns a task that wakes often."),
    span("batch_slice_us", (100, 100_000), |k| &mut k.batch_slice)
        .doc("Longest slice of Batch tasks."),
    span("burst_slice_us", (100, 100_000), |k| &mut k.burst_slice)
        .doc("Longest slice during a burst or sustained batch pressure."),
    span("cpu_bound_thresh_us", (100, 100_000), |k| &mut k.cpu_bound_thresh)
        .doc("Usual run without a sleep that makes an Interactive task Batch."),
    count("lat_cri_high", (1, 256), |k| &mut k.lat_cri_high)
        .doc("Score from which on a task is LatCritical."),
    count("lat_cri_low", (0, 256), |k| &mut k.lat_cri_low)
        .doc("Score from which on a task is Interactive."),
    Key {
        name: "affinity",
        doc: "Placement near the cache of the last run.",
        field: Field::Affinity,
    },
    span("sojourn_thresh_us", (500, 500_000), |k| &mut k.sojourn_thresh)
        .doc("Wait after which Batch work is rescued."),
    Key {
        name: "percpu_local",
        doc: "Tasks bound to one CPU go into its own queue.",
        field: Field::Switch(|knobs| &mut knobs.percpu_local),
    },
];

/// The number of keys. At most 64, since [`KeySet`] is a word.
pub const KEYS: usize = VALUES.len() + RULES.len();
const _: () = assert!(KEYS <= u64::BITS as usize);

/// All keys: values first, then rules. The order is that of [`Knobs::to_raw`].
pub fn keys() -> impl Iterator<Item = &'static Key> {
    VALUES.iter().chain(RULES)
}

fn position(name: &str) -> Option<usize> {
    keys().position(|key| key.name == name)
}

impl Key {
    /// The key of this name.
    pub fn named(name: &str) -> Option<&'static Key> {
        keys().find(|key| key.name == name)
    }

    /// The value as a number: nanoseconds, a count, the number of a mode, 0 or 1.
    pub fn get(&self, knobs: &Knobs) -> u64 {
        let mut copy = *knobs;
        match self.field {
            Field::Span(_, _, at) => at(&mut copy).as_nanos(),
            Field::Count(_, _, at) => *at(&mut copy) as u64,
            Field::Affinity => copy.affinity as u64,
            Field::Switch(at) => *at(&mut copy) as u64,
        }
    }

    /// Sets the value from such a number. `false`, and nothing is changed, when it is out of range.
    pub fn set(&self, knobs: &mut Knobs, raw: u64) -> bool {
        let (low, high) = self.limits();
        if !(low..=high).contains(&raw) {
            return false;
        }
        match self.field {
            Field::Span(_, _, at) => *at(knobs) = Span::from_nanos(raw),
            Field::Count(_, _, at) => *at(knobs) = raw as u32,
            Field::Affinity => knobs.affinity = Affinity::ALL[raw as usize],
            Field::Switch(at) => *at(knobs) = raw == 1,
        }
        true
    }

    /// Lowest and highest number that [`set`](Key::set) takes.
    pub fn limits(&self) -> (u64, u64) {
        match self.field {
            Field::Span(low, high, _) => (low.as_nanos(), high.as_nanos()),
            Field::Count(low, high, _) => (low as u64, high as u64),
            Field::Affinity => (0, Affinity::ALL.len() as u64 - 1),
            Field::Switch(_) => (0, 1),
        }
    }

    /// What it takes, in words.
    pub fn range(&'static self) -> Range {
        Range(self)
    }

    /// The value as a file of knobs spells it.
    pub fn show(&'static self, knobs: &Knobs) -> Shown {
        Shown { key: self, raw: self.get(knobs) }
    }

    /// The number that a person's word stands for, whatever its range.
    pub(super) fn read(&self, word: &str) -> Option<u64> {
        match self.field {
            Field::Span(..) => read_micros(word),
            Field::Count(..) => read_digits(word),
            Field::Affinity => Affinity::ALL
                .iter()
                .position(|mode| mode.name() == word)
                .map(|mode| mode as u64)
                .or_else(|| read_digits(word)),
            Field::Switch(_) => match word {
                "on" | "true" | "1" => Some(1),
                "off" | "false" | "0" => Some(0),
                _ => None,
            },
        }
    }
}

/// Prints what a key takes: `100 to 100000 microseconds`.
#[derive(Clone, Copy)]
pub struct Range(&'static Key);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.field {
            Field::Span(low, high, _) => {
                write!(f, "{} to {} microseconds", low.as_micros(), high.as_micros())
            }
            Field::Count(low, high, _) => write!(f, "{low} to {high}"),
            Field::Affinity => f.write_str("off, weak or strong"),
            Field::Switch(_) => f.write_str("on or off"),
        }
    }
}

/// Prints a value of a key: `562.5`, `weak`, `on`.
#[derive(Clone, Copy)]
pub struct Shown {
    pub(super) key: &'static Key,
    pub(super) raw: u64,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.raw;
        match self.key.field {
            Field::Span(..) if raw.is_multiple_of(1_000) => write!(f, "{}", raw / 1_000),
            Field::Span(..) => {
                // The controller's steps are no whole microseconds, and a file must not lose them.
                let (mut part, mut digits) = (raw % 1_000, 3);
                while part % 10 == 0 {
                    (part, digits) = (part / 10, digits - 1);
                }
                write!(f, "{}.{part:0digits$}", raw / 1_000)
            }
            Field::Affinity => f.write_str(Affinity::ALL[raw as usize].name()),
            Field::Switch(_) => f.write_str(if raw == 1 { "on" } else { "off" }),
            Field::Count(..) => write!(f, "{raw}"),
        }
    }
}

/// Some of the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySet(u64);

impl KeySet {
    /// None of them.
    pub const EMPTY: KeySet = KeySet(0);

    /// The keys whose bits are set, in the order of [`keys`].
    pub const fn from_bits(bits: u64) -> KeySet {
        KeySet(bits & (u64::MAX >> (u64::BITS as usize - KEYS)))
    }

    /// One bit a key, in the order of [`keys`].
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether the key of this name is among them.
    pub fn holds(self, name: &str) -> bool {
        position(name).is_some_and(|at| self.0 >> at & 1 == 1)
    }

    /// These and the one of this name, if there is one.
    pub fn with(self, name: &str) -> KeySet {
        KeySet(self.0 | position(name).map_or(0, |at| 1 << at))
    }

    /// These, and those.
    pub const fn union(self, other: KeySet) -> KeySet {
        KeySet(self.0 | other.0)
    }

    /// These, but not those.
    pub const fn without(self, other: KeySet) -> KeySet {
        KeySet(self.0 & !other.0)
    }

    /// The keys themselves.
    pub fn iter(self) -> impl Iterator<Item = &'static Key> {
        keys().enumerate().filter(move |(at, _)| self.0 >> at & 1 == 1).map(|(_, key)| key)
    }
}
