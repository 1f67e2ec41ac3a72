// SPDX-License-Identifier: GPL-2.0-only

//! Name, range, meaning and default of every knob of a policy, and their values.

use super::numbers::{read_digits, read_micros};
use crate::time::Span;
use core::fmt;

/// Most knobs of one policy, since a [`KeySet`] is a word.
pub const KNOBS_MAX: usize = 64;

/// What a knob takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A time from the first to the second, in microseconds with up to three decimals.
    Time(Span, Span),
    /// A number from the first to the second.
    Count(u64, u64),
    /// One of these words; its place is its number.
    Choice(&'static [&'static str]),
    /// On or off.
    Switch,
}

impl Kind {
    /// A time between two numbers of microseconds.
    pub const fn micros(low: u64, high: u64) -> Kind {
        Kind::Time(Span::from_micros(low), Span::from_micros(high))
    }
}

/// One knob as a person knows it.
pub struct Knob {
    /// What it is called: `slice_us`, `rule.deficit`. The ending is the unit.
    pub name: &'static str,
    /// What it was called before: accepted, with a warning.
    pub aliases: &'static [&'static str],
    /// What it does, in one sentence.
    pub about: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its default, as a word.
    pub default: fn() -> u64,
}

impl Knob {
    /// What it does, in one sentence.
    pub fn about(&self) -> &'static str {
        self.about.trim()
    }

    /// Lowest and highest word that it takes.
    pub fn limits(&self) -> (u64, u64) {
        match self.kind {
            Kind::Time(low, high) => (low.as_nanos(), high.as_nanos()),
            Kind::Count(low, high) => (low, high),
            Kind::Choice(words) => (0, words.len() as u64 - 1),
            Kind::Switch => (0, 1),
        }
    }

    /// What it takes, in words.
    pub fn range(&'static self) -> Range {
        Range(self)
    }

    /// A word of this knob as a file of knobs spells it.
    pub fn show(&'static self, word: u64) -> Shown {
        Shown { knob: self, word }
    }

    /// The word that a person's text stands for, whatever its range.
    pub(super) fn read(&self, text: &str) -> Option<u64> {
        match self.kind {
            Kind::Time(..) => read_micros(text),
            Kind::Count(..) => read_digits(text),
            Kind::Choice(words) => words
                .iter()
                .position(|word| *word == text)
                .map(|number| number as u64)
                .or_else(|| read_digits(text)),
            Kind::Switch => match text {
                "on" | "true" | "1" => Some(1),
                "off" | "false" | "0" => Some(0),
                _ => None,
            },
        }
    }
}

/// The knobs of one policy, in groups that follow one another.
pub struct Table {
    groups: &'static [&'static [Knob]],
    /// Pairs of names: the first must not be above the second.
    pub(super) ordered: &'static [(&'static str, &'static str)],
}

impl Table {
    /// No knobs.
    pub const EMPTY: Table = Table::new(&[]);

    /// The knobs of some groups, at most [`KNOBS_MAX`].
    pub const fn new(groups: &'static [&'static [Knob]]) -> Table {
        Table::with_order(groups, &[])
    }

    /// The same, of which some must not be above others.
    pub const fn with_order(
        groups: &'static [&'static [Knob]],
        ordered: &'static [(&'static str, &'static str)],
    ) -> Table {
        let (mut count, mut group) = (0, 0);
        while group < groups.len() {
            count += groups[group].len();
            group += 1;
        }
        assert!(count <= KNOBS_MAX, "a policy has at most 64 knobs");
        Table { groups, ordered }
    }

    /// All knobs. The order is that of [`Values::words`].
    pub fn iter(&self) -> impl Iterator<Item = &'static Knob> + use<> {
        self.groups.iter().flat_map(|group| group.iter())
    }

    /// The knobs that are on or off.
    pub fn switches(&self) -> impl Iterator<Item = &'static Knob> + use<> {
        self.iter().filter(|knob| knob.kind == Kind::Switch)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|group| group.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The knob of this name, or of this older name.
    pub fn named(&self, name: &str) -> Option<&'static Knob> {
        self.position(name).and_then(|at| self.iter().nth(at))
    }

    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.iter().position(|knob| knob.name == name || knob.aliases.contains(&name))
    }

    /// All defaults.
    pub fn defaults(&'static self) -> Values {
        let mut words = [0; KNOBS_MAX];
        words.iter_mut().zip(self.iter()).for_each(|(word, knob)| *word = (knob.default)());
        Values { table: self, words }
    }

    /// The values that [`Values::raw`] wrote; `None` if they are no valid values of this table.
    pub fn values_of(&'static self, raw: &RawKnobs) -> Option<Values> {
        let fits = raw.len as usize == self.len();
        let mut words = [0; KNOBS_MAX];
        words[..self.len()].copy_from_slice(raw.words.get(..self.len())?);
        let values = Values { table: self, words };
        (fits && values.check().is_ok()).then_some(values)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|knob| knob.name)).finish()
    }
}

/// Values as plain words, for memory that processes share and for recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawKnobs {
    /// How many of the words count.
    pub len: u8,
    /// One word a knob; the rest is zero.
    pub words: [u64; KNOBS_MAX],
}

/// The values of all knobs of one policy.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    pub(super) table: &'static Table,
    pub(super) words: [u64; KNOBS_MAX],
}

impl PartialEq for Values {
    fn eq(&self, other: &Values) -> bool {
        self.words() == other.words()
    }
}

impl Eq for Values {}

impl Values {
    /// The knobs that these are the values of.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// One word a knob, in the order of the table.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.table.len()]
    }

    /// Replaces all words, which must be within their ranges: the typed struct of the same table
    /// writes them.
    pub fn with_words(&self, write: impl FnOnce(&mut dyn FnMut(u64))) -> Values {
        let (mut values, mut at) = (*self, 0);
        write(&mut |word| {
            values.words[at] = word;
            at += 1;
        });
        debug_assert_eq!(at, self.table.len(), "the struct belongs to another table");
        values
    }

    /// Values as plain words.
    pub fn raw(&self) -> RawKnobs {
        RawKnobs { len: self.table.len() as u8, words: self.words }
    }

    /// The word of the knob of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.table.position(name).map(|at| self.words[at])
    }

    /// Looks up one knob after another.
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup { values: self, next: 0 }
    }

    /// The time of the knob of this name, if there is such a one.
    pub fn time(&self, name: &str) -> Option<Span> {
        let at = self.table.position(name)?;
        let knob = self.table.iter().nth(at)?;
        matches!(knob.kind, Kind::Time(..)).then(|| Span::from_nanos(self.words[at]))
    }

    /// Sets the knob of this name. `false`, and nothing is changed, when there is none, or the word
    /// is out of its range.
    pub fn put(&mut self, name: &str, word: u64) -> bool {
        let Some(at) = self.table.position(name) else { return false };
        let Some(knob) = self.table.iter().nth(at) else { return false };
        let (low, high) = knob.limits();
        if !(low..=high).contains(&word) {
            return false;
        }
        self.words[at] = word;
        true
    }

    /// Each knob with its word.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Knob, u64)> + '_ {
        self.table.iter().zip(self.words().iter().copied())
    }
}

/// Finds words by name. It looks behind the last one first, because a policy reads all its knobs in
/// the order of the table.
pub struct Lookup<'v> {
    values: &'v Values,
    next: usize,
}

impl Lookup<'_> {
    /// The word of the knob of this name, if there is one.
    pub fn get(&mut self, name: &str) -> Option<u64> {
        let table = self.values.table;
        let is_next = table.iter().nth(self.next).is_some_and(|knob| knob.name == name);
        let at = if is_next { self.next } else { table.position(name)? };
        self.next = at + 1;
        Some(self.values.words[at])
    }
}

/// Prints what a knob takes: `100 to 100000 microseconds`.
#[derive(Clone, Copy)]
pub struct Range(&'static Knob);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            Kind::Time(low, high) => {
                write!(f, "{} to {} microseconds", low.as_micros(), high.as_micros())
            }
            Kind::Count(low, high) => write!(f, "{low} to {high}"),
            Kind::Choice(words) => {
                for (at, word) in words.iter().enumerate() {
                    let between = match at {
                        0 => "",
                        _ if at + 1 == words.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{between}{word}")?;
                }
                Ok(())
            }
            Kind::Switch => f.write_str("on or off"),
        }
    }
}

/// Prints a value of a knob: `562.5`, `weak`, `on`.
#[derive(Clone, Copy)]
pub struct Shown {
    knob: &'static Knob,
    word: u64,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word;
        match self.knob.kind {
            Kind::Time(..) if word.is_multiple_of(1_000) => write!(f, "{}", word / 1_000),
            Kind::Time(..) => {
                // An adaptive loop's steps are no whole microseconds, and a file must not lose
                // them.
                let (mut part, mut digits) = (word % 1_000, 3);
                while part % 10 == 0 {
                    (part, digits) = (part / 10, digits - 1);
                }
                write!(f, "{}.{part:0digits$}", word / 1_000)
            }
            Kind::Choice(words) => f.write_str(words.get(word as usize).copied().unwrap_or("?")),
            Kind::Switch => f.write_str(if word == 1 { "on" } else { "off" }),
            Kind::Count(..) => write!(f, "{word}"),
        }
    }
}

/// Some of the knobs of a table.
#[derive(Clone, Copy, Debug)]
pub struct KeySet {
    table: &'static Table,
    bits: u64,
}

impl PartialEq for KeySet {
    fn eq(&self, other: &KeySet) -> bool {
        self.bits == other.bits
    }
}

impl Eq for KeySet {}

impl KeySet {
    /// None of the knobs of this table.
    pub const fn none(table: &'static Table) -> KeySet {
        KeySet { table, bits: 0 }
    }

    /// All knobs of this table.
    pub fn all(table: &'static Table) -> KeySet {
        // At most 64 of them, and no shift by 64.
        KeySet { table, bits: u64::MAX.checked_shr(64 - table.len() as u32).unwrap_or(0) }
    }

    /// Whether the knob of this name is among them.
    pub fn holds(&self, name: &str) -> bool {
        self.table.position(name).is_some_and(|at| self.bits >> at & 1 == 1)
    }

    /// These and the one of this name, if there is one.
    pub fn with(self, name: &str) -> KeySet {
        let bit = self.table.position(name).map_or(0, |at| 1 << at);
        KeySet { bits: self.bits | bit, ..self }
    }

    /// These, and those.
    pub const fn union(self, other: KeySet) -> KeySet {
        KeySet { table: self.table, bits: self.bits | other.bits }
    }

    /// These, but not those.
    pub const fn without(self, other: KeySet) -> KeySet {
        KeySet { table: self.table, bits: self.bits & !other.bits }
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.bits.count_ones() as usize
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The knobs themselves.
    pub fn iter(self) -> impl Iterator<Item = &'static Knob> {
        self.table.iter().enumerate().filter(move |(at, _)| self.bits >> at & 1 == 1).map(|it| it.1)
    }
}
