// SPDX-License-Identifier: GPL-2.0-only

//! Shares of CPU time, compared exactly.

use core::cmp::Ordering;
use core::ops::Mul;
use pandemonium_engine::time::Span;

/// A share of the time of one CPU, as a fraction; more than one if it is of several CPUs. Two
/// shares compare by their cross products in 128 bits, so no comparison rounds.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    taken: u64,
    whole: u64,
}

impl Share {
    pub const HALF: Share = Share::one_in(2);

    /// `taken` of `whole`, which is more than zero.
    pub const fn of(taken: u64, whole: u64) -> Share {
        Share { taken, whole }
    }

    /// A CPU divided by `parts`.
    pub const fn one_in(parts: u64) -> Share {
        Share::of(1, parts)
    }

    /// So many whole CPUs.
    pub const fn of_cpus(cpus: u64) -> Share {
        Share::of(cpus, 1)
    }

    /// The CPU time `ran` as a share of `length`.
    pub const fn of_time(ran: Span, length: Span) -> Share {
        Share::of(ran.as_nanos(), length.as_nanos())
    }

    /// A third less. Of one in a whole number it is one in a whole number, rounded up.
    pub const fn less_a_third(self) -> Share {
        Share { whole: self.whole + self.whole / 2, ..self }
    }

    /// A third more. Of one in a whole number it is one in a whole number, rounded down.
    pub const fn plus_a_third(self) -> Share {
        Share { whole: self.whole - self.whole / 4, ..self }
    }
}

/// A part of a share. The limits that are multiplied are fractions of small numbers.
impl Mul for Share {
    type Output = Share;

    fn mul(self, other: Share) -> Share {
        Share { taken: self.taken * other.taken, whole: self.whole * other.whole }
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Share) -> Ordering {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        product(self.taken, other.whole).cmp(&product(other.taken, self.whole))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Share) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Share) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_compare_exactly() {
        assert!(Share::of(33, 100) < Share::one_in(3) && Share::one_in(3) < Share::of(34, 100));
        assert_eq!(Share::of(2, 4), Share::HALF);
        let most = Share::of(u64::MAX, u64::MAX - 1);
        assert!(most > Share::of(u64::MAX - 1, u64::MAX) && most < Share::of_cpus(2));
        let second = Span::from_millis(1_000);
        assert_eq!(Share::of_time(second, second.scale(4, 1)), Share::HALF * Share::HALF);
    }

    #[test]
    fn steps_of_a_third_keep_a_share_one_in_a_whole_number() {
        let mut share = Share::one_in(16);
        for parts in [24, 36, 54, 81, 121, 181] {
            share = share.less_a_third();
            assert_eq!((share.taken, share.whole), (1, parts));
        }
        for parts in [136, 102, 77, 58, 44, 33, 25, 19, 15] {
            share = share.plus_a_third();
            assert_eq!((share.taken, share.whole), (1, parts));
        }
    }
}
