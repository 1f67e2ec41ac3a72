// SPDX-License-Identifier: GPL-2.0-only

//! The CPUs that a rule demands, by number or by kind.

use pandemonium_engine::topology::{CpuMask, Domain};
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::fmt;
use std::str::FromStr;

/// The CPUs of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuKinds {
    /// Those that are online.
    pub online: CpuMask,
    /// The slower ones of a hybrid machine; none if all CPUs are of one kind.
    pub slow: CpuMask,
}

/// A domain as the author of a rule names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainWish {
    /// The faster CPUs of a hybrid machine.
    Performance,
    /// The slower ones, which use less power.
    Powersave,
    /// These, and their text.
    Cpus(Box<CpuMask>, String),
}

impl DomainWish {
    /// Its CPUs on this machine, online or not.
    pub fn cpus(&self, machine: &CpuKinds) -> CpuMask {
        match self {
            DomainWish::Performance => machine.online.without(&machine.slow),
            DomainWish::Powersave => machine.slow,
            DomainWish::Cpus(cpus, _) => **cpus,
        }
    }

    /// The domain on this machine. `None` if no such CPU is online, or if all of them are meant:
    /// then any CPU will do.
    pub fn on(&self, machine: &CpuKinds, strict: bool) -> Option<Domain> {
        let cpus = self.cpus(machine).and(&machine.online);
        (!cpus.is_empty() && cpus != machine.online).then_some(Domain { cpus, strict })
    }
}

impl fmt::Display for DomainWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DomainWish::Performance => "performance",
            DomainWish::Powersave => "powersave",
            DomainWish::Cpus(_, text) => text,
        })
    }
}

impl FromStr for DomainWish {
    type Err = String;

    fn from_str(text: &str) -> Result<DomainWish, String> {
        match text {
            "performance" => Ok(DomainWish::Performance),
            "powersave" => Ok(DomainWish::Powersave),
            _ => match CpuMask::parse(text) {
                Ok(cpus) => Ok(DomainWish::Cpus(Box::new(cpus), text.into())),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

impl<'de> Deserialize<'de> for DomainWish {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|error| {
            let takes = "domain takes performance, powersave or a list of CPUs";
            de::Error::custom(format!("{takes}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_the_machine_cannot_grant_or_that_excludes_no_cpu_is_none() {
        let cpus = |text: &str| CpuMask::parse(text).unwrap();
        let numbers = |text: &str| DomainWish::Cpus(Box::new(cpus(text)), text.into());
        let hybrid = CpuKinds { online: cpus("0-7"), slow: cpus("4-8") };
        let uniform = CpuKinds { online: cpus("0-3"), slow: CpuMask::EMPTY };
        for (wish, machine, granted) in [
            (DomainWish::Performance, hybrid, Some("0-3")),
            (DomainWish::Powersave, hybrid, Some("4-7")),
            (DomainWish::Performance, uniform, None),
            (DomainWish::Powersave, uniform, None),
            (numbers("2-9"), uniform, Some("2-3")),
            (numbers("0-9"), uniform, None),
            (numbers("9"), uniform, None),
        ] {
            let granted = granted.map(|text| Domain { cpus: cpus(text), strict: true });
            assert_eq!(wish.on(&machine, true), granted, "{wish} of {machine:?}");
        }
    }
}
