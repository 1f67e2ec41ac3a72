// SPDX-License-Identifier: GPL-2.0-only

//! Decides whether two schedulers differ in a figure.
//!
//! A difference counts if three conditions hold: the exact rank test finds it unlikely to be
//! chance, the Benjamini-Hochberg procedure keeps it among all comparisons made at once, and it is
//! large enough to matter. docs/lab.md, "Reading the results", gives the reasons for these three.

use crate::figure::Better;
use crate::sample::{PValue, Sample};

/// The false discovery rate: at most this share of the reported differences is chance.
pub const LEVEL: f64 = 0.05;
/// The smallest difference of medians that is reported, as a share of the larger. Chosen: twice the
/// difference between equal schedulers in exact mode, where the work done repeats to within 1 %.
pub const NOTICED: f64 = 0.02;

/// One figure under two schedulers, or under one scheduler before and after a change.
pub struct Pair<'a> {
    /// The values to compare with.
    pub base: &'a Sample,
    /// The values to judge.
    pub sample: &'a Sample,
    /// Which direction is an improvement.
    pub better: Better,
}

/// The outcome of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The sample is better than the base.
    Better,
    /// The sample is worse than the base.
    Worse,
    /// No difference is reported, for this reason.
    None(Why),
}

/// Why no difference is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// One side has no values.
    Missing,
    /// All values on both sides are equal.
    Same,
    /// There are too few values: even the clearest difference could be chance.
    Few,
    /// Chance explains the difference.
    Noise,
    /// The difference is real, but too small to matter.
    Small,
}

impl Verdict {
    /// The verdict's word in tables and exports.
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

/// Gives one verdict for each pair. Pass all comparisons that are made at once: the threshold
/// depends on how many there are.
pub fn judge(pairs: &[Pair]) -> Vec<Verdict> {
    let tests: Vec<PValue> = pairs.iter().map(|pair| pair.base.rank_test(pair.sample)).collect();
    let threshold = threshold(&tests);
    pairs.iter().zip(&tests).map(|(pair, test)| pair.verdict(*test, threshold)).collect()
}

/// The largest significant p-value by Benjamini and Hochberg: with m comparisons, the k-th smallest
/// p for the largest k with p <= LEVEL k / m. Comparisons that cannot reach the level, whatever was
/// measured, are left out of m. This is valid because it does not depend on the outcome of the
/// others.
fn threshold(tests: &[PValue]) -> f64 {
    let able = tests.iter().filter(|test| test.attainable <= LEVEL);
    let mut ordered: Vec<f64> = able.map(|test| test.observed).collect();
    ordered.sort_by(f64::total_cmp);
    let count = ordered.len() as f64;
    let kept = ordered.iter().zip(1u32..).filter(|(p, k)| **p <= LEVEL * f64::from(*k) / count);
    kept.last().map_or(0.0, |(p, _)| *p)
}

impl Pair<'_> {
    fn verdict(&self, test: PValue, threshold: f64) -> Verdict {
        let (base, mine) = (self.base, self.sample);
        if base.count() == 0 || mine.count() == 0 {
            return Verdict::None(Why::Missing);
        }
        if [base.least(), base.most(), mine.least()].iter().all(|end| *end == mine.most()) {
            return Verdict::None(Why::Same);
        }
        if test.attainable > LEVEL {
            return Verdict::None(Why::Few);
        }
        if test.observed > threshold {
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

/// The fewest iterations on both sides with which the only difference among `count` comparisons can
/// be significant. If all comparisons differ, `count` is 1.
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

    /// `iterations` values within 3 % of `factor`.
    fn noisy(noise: &mut Noise, iterations: usize, factor: f64) -> Sample {
        Sample::new((0..iterations).map(|_| factor * noise.factor()).collect())
    }

    #[test]
    fn a_missing_verdict_has_its_reason() {
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
    fn the_needed_iterations_suffice_and_one_fewer_does_not() {
        assert_eq!((iterations_needed(1), iterations_needed(6), iterations_needed(300)), (4, 5, 8));
        for count in [1, 6, 40, 300] {
            let n = iterations_needed(count) as usize;
            for (iterations, verdict) in [(n, Verdict::Worse), (n - 1, Verdict::None(Why::Noise))] {
                let mut noise = Noise(count as u64);
                let base = noisy(&mut noise, iterations, 1.0);
                let slow = noisy(&mut noise, iterations, 2.0);
                // The other pairs are equal.
                let mixed: Vec<f64> = (0..iterations).map(|at| at as f64).collect();
                let alike = Sample::new(mixed);
                let mut pairs = vec![pair(&base, &slow)];
                pairs.extend((1..count).map(|_| pair(&alike, &alike)));
                let found = judge(&pairs)[0];
                let few = count == 1 && found == Verdict::None(Why::Few);
                assert!(
                    found == verdict || few && iterations < n,
                    "{count} {iterations} {found:?}"
                );
            }
        }
    }

    /// The same scheduler twice, 60 figures, 500 times: files with any verdict are as rare as LEVEL
    /// says. The factor of 1.5 leaves room for chance in this test.
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
                let verdicts = judge(&pairs);
                alarms += u32::from(verdicts.iter().any(|one| !matches!(one, Verdict::None(_))));
            }
            let allowed = 1.5 * LEVEL * f64::from(files);
            assert!(f64::from(alarms) <= allowed, "{alarms} of {files} with {iterations}");
        }
    }

    proptest! {
        /// A shift well outside the noise is found, whichever figure has it.
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

        /// The order of iterations and of figures does not matter. Exchanging the two sides
        /// reverses the verdict.
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
            let verdicts = judge_all(plain.iter().map(pairs));
            let mut again = judge_all(turned.iter().rev().map(pairs));
            again.reverse();
            prop_assert_eq!(&verdicts, &again);
            let swapped = judge_all(plain.iter().map(pairs).map(|(a, b)| (b, a)));
            for (one, other) in verdicts.iter().zip(swapped) {
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
