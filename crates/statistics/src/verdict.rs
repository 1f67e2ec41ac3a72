// SPDX-License-Identifier: GPL-2.0-only

//! When a difference between two schedulers is one.
//!
//! Three things have to come together: the exact rank test finds it unlikely, the procedure of
//! Benjamini and Hochberg keeps it among all comparisons that are made at once, and it is large
//! enough to matter. docs/lab.md, "Reading the results", says why it is these.

use crate::figure::Better;
use crate::sample::{Chance, Sample};

/// Of the differences that are spoken of, chance brings at most this share.
pub const LEVEL: f64 = 0.05;
/// A smaller difference of the medians than this share is none. Chosen: twice what equal
/// schedulers differed by in exact mode, where the work done is repeated to within 1 %.
pub const NOTICED: f64 = 0.02;

/// One figure of two schedulers, or of one before and after.
pub struct Pair<'a> {
    pub base: &'a Sample,
    pub sample: &'a Sample,
    pub better: Better,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    /// No verdict.
    None(Why),
}

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// One side has no value.
    Missing,
    /// Every value on both sides is the same.
    Same,
    /// With so few iterations even the clearest difference could be chance.
    Few,
    /// Chance brings such a difference too often.
    Noise,
    /// It is there, and too small to matter.
    Small,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::None(Why::Missing) => "-",
            Verdict::None(Why::Same) => "same",
            Verdict::None(Why::Few) => "few",
            Verdict::None(Why::Noise) => "noise",
            Verdict::None(Why::Small) => "small",
        }
    }
}

/// One verdict for each pair. They belong together: what one is depends on all.
pub fn judge(pairs: &[Pair]) -> Vec<Verdict> {
    let chances: Vec<Chance> = pairs.iter().map(|pair| pair.base.chance(pair.sample)).collect();
    let threshold = threshold(&chances);
    pairs.iter().zip(&chances).map(|(pair, chance)| pair.verdict(*chance, threshold)).collect()
}

/// The largest chance that is small enough: with m comparisons, the largest p of which k are as
/// small and p <= LEVEL k / m. Comparisons that could not have come out so, whatever was measured,
/// do not count; that they are left out says nothing about how the others came out.
fn threshold(chances: &[Chance]) -> f64 {
    let able = chances.iter().filter(|chance| chance.at_best <= LEVEL);
    let mut ordered: Vec<f64> = able.map(|chance| chance.of_this).collect();
    ordered.sort_by(f64::total_cmp);
    let count = ordered.len() as f64;
    let kept = ordered.iter().zip(1u32..).filter(|(p, k)| **p <= LEVEL * f64::from(*k) / count);
    kept.last().map_or(0.0, |(p, _)| *p)
}

impl Pair<'_> {
    fn verdict(&self, chance: Chance, threshold: f64) -> Verdict {
        let (base, mine) = (self.base, self.sample);
        if base.count() == 0 || mine.count() == 0 {
            return Verdict::None(Why::Missing);
        }
        if [base.least(), base.most(), mine.least()].iter().all(|end| *end == mine.most()) {
            return Verdict::None(Why::Same);
        }
        if chance.at_best > LEVEL {
            return Verdict::None(Why::Few);
        }
        if chance.of_this > threshold {
            return Verdict::None(Why::Noise);
        }
        let (before, after) = (base.median(), mine.median());
        let difference = (after - before).abs();
        if difference <= NOTICED * before.abs().max(after.abs()) {
            return Verdict::None(Why::Small);
        }
        let good = mine.is_above(base) == (self.better == Better::Higher);
        if good { Verdict::Better } else { Verdict::Worse }
    }
}

/// The fewest iterations on both sides with which a difference that stands alone among `count`
/// comparisons can be told from chance; with as many differences as comparisons, `count` is 1.
pub fn iterations_needed(count: usize) -> u32 {
    let (mut n, mut ways) = (1u32, 2.0);
    while 2.0 / ways > LEVEL / count.max(1) as f64 {
        n += 1;
        // C(2n, n) from C(2n - 2, n - 1).
        ways *= f64::from(2 * (2 * n - 1)) / f64::from(n);
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;
    use proptest::prelude::*;

    fn pair<'a>(base: &'a Sample, sample: &'a Sample) -> Pair<'a> {
        Pair { base, sample, better: Better::Lower }
    }

    fn one(base: &[f64], sample: &[f64]) -> Verdict {
        let (base, sample) = (Sample::new(base.to_vec()), Sample::new(sample.to_vec()));
        judge(&[pair(&base, &sample)])[0]
    }

    fn judge_all(sides: impl Iterator<Item = (Sample, Sample)>) -> Vec<Verdict> {
        let sides: Vec<(Sample, Sample)> = sides.collect();
        judge(&sides.iter().map(|(a, b)| pair(a, b)).collect::<Vec<Pair>>())
    }

    /// So many values about 1, with a spread of some per cent.
    fn noisy(noise: &mut Noise, iterations: usize, factor: f64) -> Sample {
        Sample::new((0..iterations).map(|_| factor * noise.factor()).collect())
    }

    #[test]
    fn the_reason_for_silence_is_said() {
        assert_eq!(one(&[], &[1.0]), Verdict::None(Why::Missing));
        assert_eq!(one(&[0.0; 5], &[0.0; 5]), Verdict::None(Why::Same));
        assert_eq!(one(&[1.0, 1.1, 1.2], &[7.0, 7.1, 7.2]), Verdict::None(Why::Few));
        let (low, high) = ([1.0, 1.1, 1.2, 1.3, 1.4], [1.0, 1.1, 1.2, 1.3, 1.5]);
        assert_eq!(one(&low, &high), Verdict::None(Why::Noise));
        assert_eq!(
            one(&low.map(|x| 100.0 + x), &low.map(|x| 101.0 + x)),
            Verdict::None(Why::Small)
        );
        assert_eq!(one(&low, &low.map(|x| x * 2.0)), Verdict::Worse);
        assert_eq!(one(&low.map(|x| x * 2.0), &low), Verdict::Better);
        // From none at all to some: no ratio, and a difference all the same.
        assert_eq!(one(&[0.0; 5], &[1.0, 2.0, 1.0, 3.0, 1.0]), Verdict::Worse);
    }

    #[test]
    fn higher_may_be_better() {
        let (low, high) = (Sample::new(vec![1.0; 5]), Sample::new(vec![2.0; 5]));
        let more = Pair { base: &low, sample: &high, better: Better::Higher };
        assert_eq!(judge(&[more]), [Verdict::Better]);
    }

    #[test]
    fn it_is_known_how_many_iterations_are_needed() {
        assert_eq!((iterations_needed(1), iterations_needed(6), iterations_needed(300)), (4, 5, 8));
        for count in [1, 6, 40, 300] {
            let n = iterations_needed(count) as usize;
            for (iterations, verdict) in [(n, Verdict::Worse), (n - 1, Verdict::None(Why::Noise))] {
                let mut noise = Noise(count as u64);
                let base = noisy(&mut noise, iterations, 1.0);
                let slow = noisy(&mut noise, iterations, 2.0);
                // The others are as alike as they can be.
                let mixed: Vec<f64> = (0..iterations).map(|at| at as f64).collect();
                let alike = Sample::new(mixed);
                let mut pairs = vec![pair(&base, &slow)];
                pairs.extend((1..count).map(|_| pair(&alike, &alike)));
                let said = judge(&pairs)[0];
                let few = count == 1 && said == Verdict::None(Why::Few);
                assert!(said == verdict || few && iterations < n, "{count} {iterations} {said:?}");
            }
        }
    }

    /// The same scheduler twice, 60 figures, five hundred times: a file in which anything at all is
    /// said is as rare as the level promises. The factor leaves room for chance in the test.
    #[test]
    fn the_same_scheduler_twice_shows_no_difference() {
        for iterations in [4, 5, 8] {
            let mut noise = Noise(iterations as u64);
            let files = 500;
            let mut alarms = 0;
            for _ in 0..files {
                let sides: Vec<(Sample, Sample)> = (0..60)
                    .map(|_| {
                        let mut side = || noisy(&mut noise, iterations, 1.0);
                        (side(), side())
                    })
                    .collect();
                let pairs: Vec<Pair> = sides.iter().map(|(a, b)| pair(a, b)).collect();
                let said = judge(&pairs);
                alarms += u32::from(said.iter().any(|one| !matches!(one, Verdict::None(_))));
            }
            let allowed = 1.5 * LEVEL * f64::from(files);
            assert!(f64::from(alarms) <= allowed, "{alarms} of {files} with {iterations}");
        }
    }

    proptest! {
        /// A shift well outside the noise is found in whichever figures it was planted.
        #[test]
        fn a_planted_shift_is_found(
            seed: u64, planted in 0usize..40, factor in 1.1f64..9.0, slower: bool,
        ) {
            let mut noise = Noise(seed);
            let by = if slower { factor } else { 1.0 / factor };
            let sides: Vec<(Sample, Sample)> = (0..40)
                .map(|at| {
                    let base = noisy(&mut noise, 8, 1.0);
                    (base, noisy(&mut noise, 8, if at == planted { by } else { 1.0 }))
                })
                .collect();
            let pairs: Vec<Pair> = sides.iter().map(|(a, b)| pair(a, b)).collect();
            let expected = if slower { Verdict::Worse } else { Verdict::Better };
            prop_assert_eq!(judge(&pairs)[planted], expected);
        }

        /// Neither the order of iterations nor that of figures matters, and turned round the
        /// verdict is the opposite.
        #[test]
        fn order_does_not_matter(
            seed: u64, factors in proptest::collection::vec(0.9f64..1.2, 1..9),
        ) {
            let mut noise = Noise(seed);
            let mut side = |by: f64| (0..6).map(|_| by * noise.factor()).collect::<Vec<f64>>();
            let values: Vec<[Vec<f64>; 2]> =
                factors.iter().map(|factor| [1.0, *factor].map(&mut side)).collect();
            let samples = |turned: bool| -> Vec<[Sample; 2]> {
                let side = |values: &Vec<f64>| {
                    let mut values = values.clone();
                    if turned { values.reverse() }
                    Sample::new(values)
                };
                values.iter().map(|[a, b]| [side(a), side(b)]).collect()
            };
            let (plain, turned) = (samples(false), samples(true));
            let pairs = |[a, b]: &'_ [Sample; 2]| (a.clone(), b.clone());
            let said = judge_all(plain.iter().map(pairs));
            let mut again = judge_all(turned.iter().rev().map(pairs));
            again.reverse();
            prop_assert_eq!(&said, &again);
            let swapped = judge_all(plain.iter().map(pairs).map(|(a, b)| (b, a)));
            for (one, other) in said.iter().zip(swapped) {
                let opposite = match one {
                    Verdict::Better => Verdict::Worse,
                    Verdict::Worse => Verdict::Better,
                    none => *none,
                };
                prop_assert_eq!(opposite, other);
            }
        }
    }
}
