// SPDX-License-Identifier: GPL-2.0-only

//! Counts by length of time in buckets fine enough that one wait in a thousand means something:
//! four to each doubling, from a microsecond to four seconds.

use crate::histogram::Histogram;
use crate::time::Span;

/// The first bucket is for everything below 2^10 ns, the last for everything from 2^32 ns on.
const FIRST: u32 = 10;
const LAST: u32 = 32;
/// Each doubling has four buckets.
const STEPS_LOG2: u32 = 2;

/// Counts in fine buckets.
pub type Fine = Histogram<{ 2 + (((LAST - FIRST) as usize) << STEPS_LOG2) }>;

impl Fine {
    /// Counts one length.
    pub fn record(&mut self, length: Span) {
        let count = &mut self.counts[bucket(length.as_nanos())];
        *count = count.saturating_add(1);
    }

    /// What `share` of `whole` did not exceed, rounded up to the edge of its bucket, which is at
    /// most a fifth more; zero when nothing was counted, and of the last bucket its lower edge.
    pub fn quantile(&self, share: u32, whole: u32) -> Span {
        let found = self.bucket_at(share, whole);
        found.map_or(Span::ZERO, |bucket| Span::from_nanos(upper_edge(bucket)))
    }

    /// What half, 99 in 100 and 999 in 1000 did not exceed.
    pub fn tail(&self) -> [Span; 3] {
        [self.quantile(1, 2), self.quantile(99, 100), self.quantile(999, 1000)]
    }
}

/// The fast path counts in the same buckets (`fine_bucket` in `src/bpf/records.bpf.h`).
fn bucket(ns: u64) -> usize {
    let Some(octave) = ns.checked_ilog2().filter(|&octave| octave >= FIRST) else { return 0 };
    if octave >= LAST {
        return Fine::BUCKETS - 1;
    }
    let step = (ns >> (octave - STEPS_LOG2)) as usize & ((1 << STEPS_LOG2) - 1);
    1 + (((octave - FIRST) as usize) << STEPS_LOG2) + step
}

fn upper_edge(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(1).filter(|&above| above < Fine::BUCKETS - 2) else {
        return 1 << if bucket == 0 { FIRST } else { LAST };
    };
    let (octave, step) = (FIRST as usize + (above >> STEPS_LOG2), above & ((1 << STEPS_LOG2) - 1));
    ((1 << STEPS_LOG2) + step as u64 + 1) << (octave - STEPS_LOG2 as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_none_is_wider_than_a_quarter() {
        for at in 1..Fine::BUCKETS - 1 {
            let (below, edge) = (upper_edge(at - 1), upper_edge(at));
            assert_eq!((bucket(below), bucket(edge - 1)), (at, at), "{below}..{edge}");
            assert!((edge - below) * 4 <= below, "{below}..{edge}");
        }
        assert_eq!((bucket(0), bucket(1023)), (0, 0));
        assert_eq!((bucket(1 << 32), bucket(u64::MAX)), (Fine::BUCKETS - 1, Fine::BUCKETS - 1));
    }

    #[test]
    fn a_quantile_is_the_edge_above_it() {
        let mut fine = Fine::default();
        assert_eq!(fine.tail(), [Span::ZERO; 3]);
        (0..998).for_each(|_| fine.record(Span::from_micros(50)));
        (0..2).for_each(|_| fine.record(Span::from_millis(4)));
        let [p50, p99, p999] = fine.tail();
        assert_eq!((p50.as_nanos(), p99.as_nanos()), (57_344, 57_344));
        assert_eq!(p999.as_nanos(), 4_194_304);
        fine.record(Span::from_millis(60_000));
        assert_eq!(fine.quantile(1, 1).as_nanos(), 1 << 32);
    }
}
