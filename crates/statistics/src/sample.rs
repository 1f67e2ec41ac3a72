// SPDX-License-Identifier: GPL-2.0-only

//! Repeated values of one figure, and the rank test that compares two such samples.

/// Up to this many values in both samples together, the test counts every way to divide them.
/// Beyond, it uses the normal distribution, which then differs by less than a thousandth.
const EXACT_MAX: usize = 40;

/// Repeated measurements of one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// In ascending order.
    sorted: Vec<f64>,
}

/// The result of the rank test on two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PValue {
    /// The probability of a difference at least this large if both samples come from the same
    /// distribution.
    pub observed: f64,
    /// The smallest p-value that any division of these values into two samples of these sizes can
    /// reach. If this is above the significance level, the test cannot find a difference.
    pub attainable: f64,
}

impl Sample {
    /// A sample of these values, in any order.
    pub fn new(mut values: Vec<f64>) -> Sample {
        values.sort_by(f64::total_cmp);
        Sample { sorted: values }
    }

    /// The number of values.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The quantile at `share`, with linear interpolation: 0 is the minimum, 0.5 the median, 1 the
    /// maximum. Zero if the sample is empty.
    pub fn quantile(&self, share: f64) -> f64 {
        let at = share * self.sorted.len().saturating_sub(1) as f64;
        let (below, above) = (at.floor() as usize, at.ceil() as usize);
        match (self.sorted.get(below), self.sorted.get(above)) {
            (Some(low), Some(high)) => low + (high - low) * (at - below as f64),
            _ => 0.0,
        }
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The minimum.
    pub fn least(&self) -> f64 {
        self.quantile(0.0)
    }

    /// The maximum.
    pub fn most(&self) -> f64 {
        self.quantile(1.0)
    }

    /// The two-sided Mann-Whitney-Wilcoxon rank test, with ties.
    pub fn rank_test(&self, other: &Sample) -> PValue {
        let (few, many) = match self.count() <= other.count() {
            true => (self, other),
            false => (other, self),
        };
        let ranks = Ranks::of(few, many);
        if ranks.all.len() <= EXACT_MAX { ranks.exact() } else { ranks.normal() }
    }

    /// Whether the values of this sample rank above those of the other.
    pub fn is_above(&self, other: &Sample) -> bool {
        let ranks = Ranks::of(self, other);
        ranks.sum > ranks.mean()
    }
}

/// The ranks of the values of two samples taken together. Equal values share the mean of their
/// ranks; all ranks are doubled, so that these means are integers.
struct Ranks {
    all: Vec<u64>,
    /// The number of values in the first sample.
    first: usize,
    /// The sum of the ranks of the first sample.
    sum: u64,
}

impl Ranks {
    fn of(first: &Sample, second: &Sample) -> Ranks {
        let mut all = [&first.sorted[..], &second.sorted].concat();
        all.sort_by(f64::total_cmp);
        let rank = |value: f64| {
            let below = all.partition_point(|other| other.total_cmp(&value).is_lt());
            let until = all.partition_point(|other| other.total_cmp(&value).is_le());
            (below + until + 1) as u64
        };
        let sum = first.sorted.iter().map(|value| rank(*value)).sum();
        let ranks = all.iter().map(|value| rank(*value)).collect();
        Ranks { all: ranks, first: first.count(), sum }
    }

    /// The expected rank sum of the first sample. It is an integer because the ranks are doubled.
    fn mean(&self) -> u64 {
        self.first as u64 * (self.all.len() as u64 + 1)
    }

    /// Counts, for each rank sum, the ways to choose as many ranks as the first sample has.
    fn exact(&self) -> PValue {
        let most: u64 = self.all.iter().rev().take(self.first).sum();
        let width = most as usize + 1;
        let mut ways = vec![0.0; (self.first + 1) * width];
        ways[0] = 1.0;
        for &rank in &self.all {
            for chosen in (0..self.first).rev() {
                let (from, to) = (chosen * width, (chosen + 1) * width);
                for sum in 0..width.saturating_sub(rank as usize) {
                    ways[to + sum + rank as usize] += ways[from + sum];
                }
            }
        }
        let distance = |sum: u64| sum.abs_diff(self.mean());
        let counted = || (0u64..).zip(&ways[self.first * width..]).filter(|(_, ways)| **ways > 0.0);
        let total: f64 = counted().map(|(_, ways)| ways).sum();
        let beyond = |least: u64| {
            let far = counted().filter(|(sum, _)| distance(*sum) >= least);
            far.map(|(_, ways)| ways).sum::<f64>() / total
        };
        let farthest = counted().map(|(sum, _)| distance(sum)).max().unwrap_or(0);
        PValue { observed: beyond(distance(self.sum)), attainable: beyond(farthest) }
    }

    /// The normal approximation, for samples too large to count.
    fn normal(&self) -> PValue {
        let (first, count) = (self.first as f64, self.all.len() as f64);
        let middle = count + 1.0;
        let squares: f64 = self.all.iter().map(|rank| (*rank as f64 - middle).powi(2)).sum();
        let deviation = (first * (count - first) * squares / (count * (count - 1.0))).sqrt();
        let beyond = |sum: u64| match deviation > 0.0 {
            true => libm::erfc(sum.abs_diff(self.mean()) as f64 / deviation / 2f64.sqrt()),
            false => 1.0,
        };
        let most = self.all.iter().rev().take(self.first).sum();
        PValue { observed: beyond(self.sum), attainable: beyond(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(values: &[u32]) -> Sample {
        Sample::new(values.iter().copied().map(f64::from).collect())
    }

    #[test]
    fn quantiles_interpolate_between_values() {
        let four = sample(&[4, 1, 3, 2]);
        assert_eq!((four.median(), four.least(), four.most()), (2.5, 1.0, 4.0));
        assert_eq!((four.quantile(0.25), sample(&[3, 1, 2]).median()), (1.75, 2.0));
        assert_eq!((sample(&[]).median(), sample(&[7]).quantile(0.75)), (0.0, 7.0));
    }

    /// The published values: 2 / C(2n, n) for two samples of n values that do not overlap.
    #[test]
    fn p_values_of_small_samples_equal_the_published_tables() {
        for (n, ways) in [(3, 20.0), (4, 70.0), (5, 252.0), (8, 12_870.0)] {
            let (low, high): (Vec<u32>, Vec<u32>) = ((0..n).collect(), (100..100 + n).collect());
            let p = sample(&low).rank_test(&sample(&high));
            assert!((p.observed - 2.0 / ways).abs() < 1e-12, "{n}: {p:?}");
            assert_eq!(p.observed, p.attainable);
        }
        // U = 3 for samples of 3 and 5 values: 0.25, from the tables of Mann and Whitney.
        let p = sample(&[1, 2, 6]).rank_test(&sample(&[3, 4, 5, 7, 8]));
        assert!((p.observed - 0.25).abs() < 1e-12, "{p:?}");
        let same = sample(&[5; 4]);
        assert_eq!(same.rank_test(&same), PValue { observed: 1.0, attainable: 1.0 });
        assert_eq!(sample(&[]).rank_test(&sample(&[1, 2])).observed, 1.0);
    }

    #[test]
    fn the_normal_approximation_agrees_with_the_exact_test() {
        let (low, high): (Vec<u32>, Vec<u32>) = ((0..20).collect(), (6..26).collect());
        let ranks = Ranks::of(&sample(&low), &sample(&high));
        let (exact, normal) = (ranks.exact().observed, ranks.normal().observed);
        assert!((exact - normal).abs() < 0.001 && exact < 0.01, "{exact} {normal}");
        let many = |from: u32| sample(&(from..from + 30).collect::<Vec<u32>>());
        assert!(many(0).rank_test(&many(100)).observed < 1e-9);
        assert!(many(0).rank_test(&many(1)).observed > 0.5);
    }

    fn some() -> impl Strategy<Value = Vec<f64>> {
        // Few distinct values, so that there are ties.
        proptest::collection::vec((0u32..12).prop_map(f64::from), 1..8)
    }

    proptest! {
        #[test]
        fn the_p_value_depends_on_neither_order_nor_side_nor_scale(
            a in some(), b in some(), by in 1u32..9,
        ) {
            let p = Sample::new(a.clone()).rank_test(&Sample::new(b.clone()));
            prop_assert!(p.attainable <= p.observed && p.observed <= 1.0 + 1e-12);
            let swapped = Sample::new(b.iter().rev().copied().collect());
            let scaled = |values: &[f64]| {
                Sample::new(values.iter().map(|value| value * f64::from(by) - 3.0).collect())
            };
            for again in [
                swapped.rank_test(&Sample::new(a.clone())),
                scaled(&a).rank_test(&scaled(&b)),
            ] {
                prop_assert!((again.observed - p.observed).abs() < 1e-9);
            }
        }

        /// At a level of 0.05, at most one division in twenty is significant, whatever the values
        /// are. All divisions are counted, none is drawn at random.
        #[test]
        fn the_false_positive_rate_stays_below_the_level(
            values in proptest::collection::vec(0u32..9, 8),
        ) {
            let mut alarms = 0;
            let mut ways = 0;
            for mask in 0u32..256 {
                if mask.count_ones() == 4 {
                    let side = |bit: u32| {
                        let all = values.iter().enumerate();
                        let mine = all.filter(|(at, _)| mask >> at & 1 == bit);
                        mine.map(|(_, value)| *value).collect::<Vec<u32>>()
                    };
                    let p = sample(&side(0)).rank_test(&sample(&side(1)));
                    alarms += u32::from(p.observed <= 0.05);
                    ways += 1;
                }
            }
            prop_assert!(f64::from(alarms) <= 0.05 * f64::from(ways), "{alarms} of {ways}");
        }
    }
}
