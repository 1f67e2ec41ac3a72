// SPDX-License-Identifier: GPL-2.0-only

//! Several values of one figure, and how likely chance makes two of them so different.

/// Up to so many values the test counts every way to divide them; beyond, the distribution is
/// normal to within a thousandth of the level.
const EXACT_MAX: usize = 40;

/// Values in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
}

/// What the test says of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// How likely a difference at least this large is if both come from one source.
    pub of_this: f64,
    /// The same for the largest difference that these values could show, however they were
    /// divided. Where that is not small, the test could not have spoken.
    pub at_best: f64,
}

impl Sample {
    pub fn new(mut values: Vec<f64>) -> Sample {
        values.sort_by(f64::total_cmp);
        Sample { sorted: values }
    }

    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The value that `share` of the others do not exceed, between two of them in proportion: 0 is
    /// the least, 0.5 the median, 1 the most. Zero if there is none.
    pub fn quantile(&self, share: f64) -> f64 {
        let at = share * self.sorted.len().saturating_sub(1) as f64;
        let (below, above) = (at.floor() as usize, at.ceil() as usize);
        match (self.sorted.get(below), self.sorted.get(above)) {
            (Some(low), Some(high)) => low + (high - low) * (at - below as f64),
            _ => 0.0,
        }
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn least(&self) -> f64 {
        self.quantile(0.0)
    }

    pub fn most(&self) -> f64 {
        self.quantile(1.0)
    }

    /// The test of Mann, Whitney and Wilcoxon, two-sided, with ties: how the ranks of all values
    /// together are divided between the two samples.
    pub fn chance(&self, other: &Sample) -> Chance {
        let (few, many) = match self.count() <= other.count() {
            true => (self, other),
            false => (other, self),
        };
        let ranks = Ranks::of(few, many);
        if ranks.all.len() <= EXACT_MAX { ranks.exact() } else { ranks.normal() }
    }

    /// Whether the other one lies lower.
    pub fn is_above(&self, other: &Sample) -> bool {
        let ranks = Ranks::of(self, other);
        ranks.sum > ranks.mean()
    }
}

/// The ranks of the values of two samples taken together, doubled so that those of equal values,
/// which share the mean of theirs, are whole.
struct Ranks {
    all: Vec<u64>,
    /// How many belong to the first sample, and their sum.
    first: usize,
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

    /// The sum that is to be expected, which is whole because the ranks are doubled.
    fn mean(&self) -> u64 {
        self.first as u64 * (self.all.len() as u64 + 1)
    }

    /// Counts the ways to choose as many ranks as the first sample has by their sum.
    fn exact(&self) -> Chance {
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
        Chance { of_this: beyond(distance(self.sum)), at_best: beyond(farthest) }
    }

    fn normal(&self) -> Chance {
        let (first, count) = (self.first as f64, self.all.len() as f64);
        let middle = count + 1.0;
        let squares: f64 = self.all.iter().map(|rank| (*rank as f64 - middle).powi(2)).sum();
        let deviation = (first * (count - first) * squares / (count * (count - 1.0))).sqrt();
        let beyond = |sum: u64| match deviation > 0.0 {
            true => libm::erfc(sum.abs_diff(self.mean()) as f64 / deviation / 2f64.sqrt()),
            false => 1.0,
        };
        let most = self.all.iter().rev().take(self.first).sum();
        Chance { of_this: beyond(self.sum), at_best: beyond(most) }
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
    fn quantiles_lie_between_the_values() {
        let four = sample(&[4, 1, 3, 2]);
        assert_eq!((four.median(), four.least(), four.most()), (2.5, 1.0, 4.0));
        assert_eq!((four.quantile(0.25), sample(&[3, 1, 2]).median()), (1.75, 2.0));
        assert_eq!((sample(&[]).median(), sample(&[7]).quantile(0.75)), (0.0, 7.0));
    }

    /// The probabilities of the tables in print: 2 / C(2n, n) for samples of n that do not touch.
    #[test]
    fn the_chance_of_small_samples_is_the_one_in_the_tables() {
        for (n, ways) in [(3, 20.0), (4, 70.0), (5, 252.0), (8, 12_870.0)] {
            let (low, high): (Vec<u32>, Vec<u32>) = ((0..n).collect(), (100..100 + n).collect());
            let chance = sample(&low).chance(&sample(&high));
            assert!((chance.of_this - 2.0 / ways).abs() < 1e-12, "{n}: {chance:?}");
            assert_eq!(chance.of_this, chance.at_best);
        }
        // U = 3 of 3 and 5: 0.25, from the tables of Mann and Whitney.
        let chance = sample(&[1, 2, 6]).chance(&sample(&[3, 4, 5, 7, 8]));
        assert!((chance.of_this - 0.25).abs() < 1e-12, "{chance:?}");
        assert_eq!(sample(&[5; 4]).chance(&sample(&[5; 4])), Chance { of_this: 1.0, at_best: 1.0 });
        assert_eq!(sample(&[]).chance(&sample(&[1, 2])).of_this, 1.0);
    }

    #[test]
    fn where_counting_ends_the_normal_distribution_goes_on() {
        let (low, high): (Vec<u32>, Vec<u32>) = ((0..20).collect(), (6..26).collect());
        let ranks = Ranks::of(&sample(&low), &sample(&high));
        let (exact, normal) = (ranks.exact().of_this, ranks.normal().of_this);
        assert!((exact - normal).abs() < 0.001 && exact < 0.01, "{exact} {normal}");
        let many = |from: u32| sample(&(from..from + 30).collect::<Vec<u32>>());
        assert!(many(0).chance(&many(100)).of_this < 1e-9);
        assert!(many(0).chance(&many(1)).of_this > 0.5);
    }

    fn some() -> impl Strategy<Value = Vec<f64>> {
        // Few different values, so that there are ties.
        proptest::collection::vec((0u32..12).prop_map(f64::from), 1..8)
    }

    proptest! {
        #[test]
        fn neither_order_nor_side_nor_scale_matters(a in some(), b in some(), by in 1u32..9) {
            let chance = Sample::new(a.clone()).chance(&Sample::new(b.clone()));
            prop_assert!(chance.at_best <= chance.of_this && chance.of_this <= 1.0 + 1e-12);
            let turned = Sample::new(b.iter().rev().copied().collect());
            let scaled = |values: &[f64]| {
                Sample::new(values.iter().map(|value| value * f64::from(by) - 3.0).collect())
            };
            for again in [
                turned.chance(&Sample::new(a.clone())),
                scaled(&a).chance(&scaled(&b)),
            ] {
                prop_assert!((again.of_this - chance.of_this).abs() < 1e-9);
            }
        }

        /// The prediction of every test: a level of one in twenty is kept, whatever the values are.
        /// Counted over all ways to divide them, not drawn.
        #[test]
        fn the_level_is_kept(values in proptest::collection::vec(0u32..9, 8)) {
            let mut alarms = 0;
            let mut ways = 0;
            for mask in 0u32..256 {
                if mask.count_ones() == 4 {
                    let side = |bit: u32| {
                        let all = values.iter().enumerate();
                        let mine = all.filter(|(at, _)| mask >> at & 1 == bit);
                        mine.map(|(_, value)| *value).collect::<Vec<u32>>()
                    };
                    let chance = sample(&side(0)).chance(&sample(&side(1)));
                    alarms += u32::from(chance.of_this <= 0.05);
                    ways += 1;
                }
            }
            prop_assert!(f64::from(alarms) <= 0.05 * f64::from(ways), "{alarms} of {ways}");
        }
    }
}
