// SPDX-License-Identifier: GPL-2.0-only

//! A rules file as its author writes it.

use crate::domain::DomainWish;
use crate::pattern::{OneOf, Pattern};
use crate::process::SchedClass;
use pandemonium_engine::task::{Tier, Weight};
use pandemonium_engine::time::Span;
use pandemonium_engine::treatment::{TierDemand, Treatment};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;

/// Slices, in microseconds, as the knobs of slices take them.
const SLICE_US: RangeInclusive<u64> = 100..=100_000;
/// Weights. The lowest, 1, is that of a task that lets every other one pass.
const WEIGHT: RangeInclusive<u64> = 1..=10_000;

/// A whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFile {
    /// The users whose processes may be raised.
    #[serde(default)]
    pub raise_users: Option<OneOf<String>>,
    #[serde(default)]
    pub rule: Vec<Spanned<RawRule>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TierName {
    Batch,
    Interactive,
    LatCritical,
}

impl From<TierName> for Tier {
    fn from(name: TierName) -> Tier {
        match name {
            TierName::Batch => Tier::Batch,
            TierName::Interactive => Tier::Interactive,
            TierName::LatCritical => Tier::LatCritical,
        }
    }
}

/// One rule: all conditions that are given must hold, each by one of its values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    pub about: String,
    pub name: Option<OneOf<Pattern>>,
    pub executable: Option<OneOf<Pattern>>,
    pub command: Option<OneOf<Pattern>>,
    pub cgroup: Option<OneOf<Pattern>>,
    pub unit: Option<OneOf<Pattern>>,
    pub user: Option<OneOf<String>>,
    pub nice: Option<NiceRange>,
    pub class: Option<OneOf<SchedClass>>,
    pub parent: Option<OneOf<Pattern>>,
    pub ancestor: Option<OneOf<Pattern>>,
    tier: Option<TierName>,
    tier_at_least: Option<TierName>,
    tier_at_most: Option<TierName>,
    #[serde(default, deserialize_with = "slice")]
    slice_us: Option<u64>,
    #[serde(default, deserialize_with = "weight")]
    weight: Option<u64>,
    domain: Option<DomainWish>,
    #[serde(default)]
    domain_strict: bool,
}

impl RawRule {
    /// The domain that the rule demands, and whether it is strict; a sentence if only the latter
    /// is given.
    pub fn domain(&self) -> Result<Option<(DomainWish, bool)>, String> {
        match &self.domain {
            None if self.domain_strict => Err("domain_strict goes with a domain".into()),
            wish => Ok(wish.clone().map(|wish| (wish, self.domain_strict))),
        }
    }

    /// What else it demands; a sentence if it demands nothing at all, or two tiers.
    pub fn treatment(&self) -> Result<Treatment, String> {
        let fixed = self.tier.map(|tier| TierDemand::Fixed(tier.into()));
        let least = self.tier_at_least.map(|tier| TierDemand::AtLeast(tier.into()));
        let most = self.tier_at_most.map(|tier| TierDemand::AtMost(tier.into()));
        let demands: Vec<TierDemand> = [fixed, least, most].into_iter().flatten().collect();
        if demands.len() > 1 {
            return Err("give one of tier, tier_at_least and tier_at_most".into());
        }
        let treatment = Treatment {
            tier: demands.first().copied().unwrap_or_default(),
            slice: Span::from_micros(self.slice_us.unwrap_or_default()),
            weight: self.weight.map(Weight::new),
            domain: None,
        };
        if treatment == Treatment::default() && self.domain.is_none() {
            return Err("the rule demands nothing: add tier, tier_at_least, tier_at_most, \
                        slice_us, weight or domain"
                .into());
        }
        Ok(treatment)
    }

    /// Whether it has no condition at all.
    pub fn is_unconditional(&self) -> bool {
        let patterns = [&self.name, &self.executable, &self.command, &self.cgroup, &self.unit];
        let others = [&self.parent, &self.ancestor];
        patterns.into_iter().chain(others).all(Option::is_none)
            && self.user.is_none()
            && self.nice.is_none()
            && self.class.is_none()
    }
}

fn within<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: RangeInclusive<u64>,
) -> Result<Option<u64>, D::Error> {
    let number = i64::deserialize(deserializer)?;
    match u64::try_from(number).ok().filter(|number| range.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let (low, high) = (range.start(), range.end());
            Err(de::Error::custom(format!("{number} is not within {low} to {high}")))
        }
    }
}

fn slice<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    within(deserializer, SLICE_US)
}

fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    within(deserializer, WEIGHT)
}

/// Nice values: `5`, or `"-20..-1"` with both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NiceRange(pub i64, pub i64);

impl NiceRange {
    fn new(low: i64, high: i64) -> Result<NiceRange, String> {
        let valid = -20..=19;
        match valid.contains(&low) && valid.contains(&high) && low <= high {
            true => Ok(NiceRange(low, high)),
            false => Err("nice takes a value from -20 to 19, or a text like \"-20..-1\"".into()),
        }
    }
}

impl<'de> Deserialize<'de> for NiceRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = NiceRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a nice value, or a text like \"-20..-1\"")
            }

            fn visit_i64<E: de::Error>(self, nice: i64) -> Result<NiceRange, E> {
                NiceRange::new(nice, nice).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<NiceRange, E> {
                let ends = text.split_once("..");
                let ends = ends.and_then(|(low, high)| Some((low.parse(), high.parse().ok()?)));
                match ends {
                    Some((Ok(low), high)) => NiceRange::new(low, high).map_err(E::custom),
                    _ => NiceRange::new(1, 0).map_err(E::custom),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Parses a file. An error names the file, the line and the column.
pub fn parse(file: &str, text: &str) -> Result<RawFile, String> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', ", ");
        complain(file, text, error.span().unwrap_or_default(), &message)
    })
}

/// An error at a place in a file, in one sentence.
pub fn complain(file: &str, text: &str, at: Range<usize>, what: &str) -> String {
    let (line, column) = place(text, at.start);
    format!("{file}: line {line}, column {column}: {what}")
}

/// Line and column of a byte, from 1.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    (line, last.chars().count() + 1)
}
