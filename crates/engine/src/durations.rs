// SPDX-License-Identifier: GPL-2.0-only

//! A histogram of durations with buckets that grow in proportion to the duration.

use crate::time::Span;
use alloc::vec::Vec;

/// Buckets for each doubling: an error of at most one part in 32.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// The number of buckets. They cover lengths of up to 2^40 ns, 18 minutes; the last one holds
/// longer ones too.
pub const BUCKETS: usize = ((41 - STEP_BITS) as usize) * STEPS as usize;

/// The bucket of a length, below [`BUCKETS`].
pub const fn bucket(length: Span) -> usize {
    let ns = length.as_nanos();
    if ns < STEPS {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    let bucket = ((shift as u64) << STEP_BITS) + (ns >> shift);
    if bucket < BUCKETS as u64 { bucket as usize } else { BUCKETS - 1 }
}

/// The longest length that a bucket holds.
const fn edge(bucket: usize) -> Span {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return Span::from_nanos(bucket);
    }
    let shift = (bucket >> STEP_BITS) - 1;
    let mantissa = bucket - (shift << STEP_BITS);
    Span::from_nanos(((mantissa + 1) << shift) - 1)
}

/// The length that `permille` of a thousand do not exceed; zero if nothing was counted. `counts`
/// has the count of each bucket, in their order, and `longest` is the longest length among them.
pub fn quantile(counts: impl Iterator<Item = u64> + Clone, longest: Span, permille: u64) -> Span {
    let total: u64 = counts.clone().sum();
    let rank = (total * permille).div_ceil(1000).max(1);
    let mut seen = 0;
    for (bucket, count) in counts.enumerate() {
        seen += count;
        if seen >= rank {
            return edge(bucket).min(longest);
        }
    }
    Span::ZERO
}

/// Counts how often each length of time occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    counts: Vec<u64>,
    total: u64,
    sum: u64,
    longest: Span,
}

impl Default for Durations {
    fn default() -> Self {
        Durations { counts: alloc::vec![0; BUCKETS], total: 0, sum: 0, longest: Span::ZERO }
    }
}

impl Durations {
    /// Counts one length.
    pub fn add(&mut self, length: Span) {
        self.counts[bucket(length)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(length.as_nanos());
        self.longest = self.longest.max(length);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Durations) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.total += other.total;
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
    }

    /// The number of counted lengths.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The longest counted length.
    pub fn longest(&self) -> Span {
        self.longest
    }

    /// The mean; zero if nothing was counted.
    pub fn mean(&self) -> Span {
        Span::from_nanos(self.sum.checked_div(self.total).unwrap_or(0))
    }

    /// The length that `permille` of a thousand do not exceed; zero if nothing was counted.
    pub fn quantile(&self, permille: u64) -> Span {
        quantile(self.counts.iter().copied(), self.longest, permille)
    }

    /// The non-empty buckets, as upper edge and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (edge(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_edge_exceeds_each_length_by_at_most_one_part_in_32() {
        for ns in (0..4000).chain((1..40).flat_map(|bit| [(1 << bit) - 1, 1 << bit, 3 << bit])) {
            let edge = edge(bucket(Span::from_nanos(ns))).as_nanos();
            if ns < 1 << 40 {
                assert!(ns <= edge && edge - ns <= ns / 32 + 1, "{ns} {edge}");
            }
        }
    }

    #[test]
    fn quantiles_never_exceed_the_longest_length() {
        let mut lengths = Durations::default();
        (1..=1000).for_each(|us| lengths.add(Span::from_micros(us)));
        let near = |found: Span, us: u64| {
            let found = found.as_micros();
            assert!((us..=us + us / 30 + 1).contains(&found), "{found} for {us}");
        };
        near(lengths.quantile(500), 500);
        near(lengths.quantile(990), 990);
        assert_eq!(lengths.quantile(1000), Span::from_micros(1000));
        assert_eq!(lengths.count(), 1000);
        assert_eq!(lengths.mean(), Span::from_nanos(500_500));
        assert_eq!(Durations::default().quantile(990), Span::ZERO);
    }
}
