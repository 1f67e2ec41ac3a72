// SPDX-License-Identifier: GPL-2.0-only

//! The seeds of a set of mixes.

use std::fmt;
use std::str::FromStr;

/// Most seeds of one set.
const SEEDS_MAX: u64 = 1_000;

/// One seed, or every second one of a range: even seeds are for work, and odd ones can be kept for
/// the last comparison.
///
/// ```
/// use pandemonium_statistics::mix::Seeds;
///
/// let seeds: Seeds = "2..8".parse().unwrap();
/// assert_eq!(seeds.iter().collect::<Vec<_>>(), [2, 4, 6, 8]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// The seeds in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (self.first..=self.last).step_by(2)
    }

    /// Whether it is a single seed.
    pub fn is_one(self) -> bool {
        self.last < self.first.saturating_add(2)
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u64>();
        match (number(first), number(last)) {
            (Ok(first), Ok(last)) if first <= last && (last - first) / 2 < SEEDS_MAX => {
                Ok(Seeds { first, last })
            }
            _ => Err(format!(
                "expected a seed, or the first and the last of at most {SEEDS_MAX}, such as 2..60 \
                 for 2, 4, 6 to 60"
            )),
        }
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_one() {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}..{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_every_second_seed_and_nonsense_is_refused() {
        let all = |text: &str| text.parse::<Seeds>().map(|seeds| seeds.iter().collect::<Vec<_>>());
        assert_eq!(all("7"), Ok(vec![7]));
        assert_eq!(all("2..7"), Ok(vec![2, 4, 6]));
        assert_eq!("2..60".parse::<Seeds>().unwrap().to_string(), "2..60");
        for wrong in ["", "x", "4..2", "1..", "..3", "0..4000", "-2"] {
            assert!(all(wrong).is_err_and(|why| why.contains("2..60")), "{wrong}");
        }
    }
}
