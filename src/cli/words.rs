// SPDX-License-Identifier: GPL-2.0-only

//! Parsers of values on the command line.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};
use pandemonium_engine::task::{Comm, Tier};
use pandemonium_engine::topology::CpuMask;
use pandemonium_rules::DomainWish as CpuWish;
use pandemonium_view::tasks::Key;
use std::ffi::OsStr;
use std::str::FromStr;

/// A parser that also tells completions which words there are. The refusal of any other word is
/// that of `parse`.
#[derive(Clone, Copy)]
pub struct OneOf<T> {
    pub parse: fn(&str) -> Result<T, String>,
    pub names: fn() -> Vec<&'static str>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for OneOf<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, of: Option<&Arg>, text: &OsStr) -> Result<T, Error> {
        self.parse.parse_ref(command, of, text)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// How tasks are sorted.
pub const SORT_KEYS: OneOf<Key> =
    OneOf { parse: sort_key, names: || Key::ALL.map(Key::name).into() };

/// A program with a fixed tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boost {
    /// The beginning of its name.
    pub name: Comm,
    /// Its tier.
    pub tier: Tier,
}

impl FromStr for Boost {
    type Err = String;

    fn from_str(text: &str) -> Result<Boost, String> {
        let Some((begins, word)) = text.rsplit_once(':') else {
            return Ok(Boost { name: name(text)?, tier: Tier::LatCritical });
        };
        let tier = match word {
            "lat-critical" => Tier::LatCritical,
            "interactive" => Tier::Interactive,
            "batch" => Tier::Batch,
            _ => {
                return Err(format!(
                    "after the last colon stands a tier, lat-critical, interactive or batch, not \
                     {word:?}"
                ));
            }
        };
        Ok(Boost { name: name(begins)?, tier })
    }
}

/// Parses the beginning of a program's name.
pub fn name(text: &str) -> Result<Comm, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("a program name has at least one letter".into());
    }
    Ok(Comm::from_text(text))
}

/// Parses what tasks are sorted by.
fn sort_key(text: &str) -> Result<Key, String> {
    let names = || Key::ALL.map(Key::name).join(", ");
    Key::named(text).ok_or_else(|| format!("tasks are sorted by one of {}", names()))
}

/// The value of --primary-domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainWish {
    /// No preference.
    All,
    /// These CPUs.
    Of(CpuWish),
}

impl FromStr for DomainWish {
    type Err = String;

    fn from_str(text: &str) -> Result<DomainWish, String> {
        match text {
            "all" => Ok(DomainWish::All),
            _ => text.parse().map(DomainWish::Of),
        }
    }
}

/// The value of --urgent-cpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrgentWish {
    /// What the machine suggests.
    Auto,
    /// No preference.
    None,
    /// These, and their text on the command line.
    Cpus(Box<CpuMask>, String),
}

impl FromStr for UrgentWish {
    type Err = String;

    fn from_str(text: &str) -> Result<UrgentWish, String> {
        match text {
            "auto" => Ok(UrgentWish::Auto),
            "none" => Ok(UrgentWish::None),
            _ => match CpuMask::parse(text) {
                Ok(cpus) => Ok(UrgentWish::Cpus(Box::new(cpus), text.into())),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boost_is_a_name_and_optionally_a_tier() {
        let boost = |text: &str| text.parse::<Boost>();
        let of = |name, tier| Ok(Boost { name: Comm::from_text(name), tier });
        assert_eq!(boost("vpp_main"), of("vpp_main", Tier::LatCritical));
        assert_eq!(boost("dpdk:interactive"), of("dpdk", Tier::Interactive));
        assert_eq!(boost("ffmpeg:batch"), of("ffmpeg", Tier::Batch));
        assert_eq!(boost("kworker/u8:3:batch"), of("kworker/u8:3", Tier::Batch));
        assert!(boost("kworker/u8:3").unwrap_err().contains("not \"3\""));
        assert!(boost("").is_err() && boost(":batch").is_err());
    }

    #[test]
    fn a_domain_is_a_word_a_list_or_a_mask() {
        let domain = |text: &str| text.parse::<DomainWish>();
        assert_eq!(domain("powersave"), Ok(DomainWish::Of(CpuWish::Powersave)));
        let even = |text| match domain(text) {
            Ok(DomainWish::Of(CpuWish::Cpus(cpus, _))) => {
                cpus.iter().map(|cpu| cpu.as_raw()).collect()
            }
            _ => vec![],
        };
        assert_eq!(even("0-7:2"), [0, 2, 4, 6]);
        assert_eq!(even("0x55"), [0, 2, 4, 6]);
        assert_eq!(even("0x1_00000000_00000000"), [64]);
        assert!(domain("turbo").is_err() && domain("").is_err() && domain("0x0").is_err());
    }
}
