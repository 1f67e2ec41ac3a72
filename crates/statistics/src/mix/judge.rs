// SPDX-License-Identifier: GPL-2.0-only

//! Compares two schedulers on a mix, and on a set of mixes.

use super::{Notice, Part};
use crate::sample::Sample;

/// So many times must be measured before a p99 or a p99.9 is compared: fewer have none, only a
/// worst case. One of the two schedulers is enough, so that none can hide a part by starving it.
const P99_MIN: u64 = 100;
const P999_MIN: u64 = 1_000;
/// The shortest time that a ratio divides by, in microseconds: below it is the cost of a clock.
const TIME_MIN_US: f64 = 1.0;
/// What counts for a part that was not served at all, in microseconds: longer than any mix lasts.
const STARVED_US: f64 = 1e7;

/// A mix under one scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Its name: `mix-2`.
    pub mix: &'a str,
    /// Number of CPUs.
    pub cpus: u32,
    /// Its parts, the same under every scheduler.
    pub parts: &'a [Part],
}

/// A quantile of a part under both schedulers, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The part's name.
    pub part: String,
    /// What is measured.
    pub notice: Notice,
    /// Under the scheduler that is compared with.
    pub base_us: f64,
    /// Under the scheduler that is judged.
    pub us: f64,
}

impl Pair {
    /// The judged scheduler's by the other's: below 1 is better.
    pub fn ratio(&self) -> f64 {
        self.us.max(TIME_MIN_US) / self.base_us.max(TIME_MIN_US)
    }
}

/// The verdict on one mix. Every ratio is the judged scheduler's by the base's.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub mix: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// The p99 of each part that is noticed.
    pub p99: Vec<Pair>,
    /// The p99.9 of each part that has enough times.
    pub p999: Vec<Pair>,
    /// Missed deadlines under the base and under the judged scheduler.
    pub missed: [u64; 2],
    /// Work of the parts of which only the work counts; `None` if there are none.
    pub work: Option<f64>,
    /// The least work of a task by the most among equals, under both; the worst part counts.
    pub fairness: Option<[f64; 2]>,
    /// The largest change of a part's share among hogs of different weight: 0.1 is a tenth more or
    /// less than under the base.
    pub weights: Option<f64>,
}

/// Compares a mix under two schedulers.
///
/// # Errors
///
/// One sentence if the two are not the same mix.
pub fn judge(base: Measured, judged: Measured) -> Result<Line, String> {
    let same = |one: &Part, other: &Part| one.name == other.name && one.notice == other.notice;
    let pairs = || base.parts.iter().zip(judged.parts);
    if base.parts.len() != judged.parts.len() || !pairs().all(|(one, other)| same(one, other)) {
        return Err(format!("{}: the two schedulers were given different parts", base.mix));
    }
    let compared = |least: u64, us: fn(&Part) -> f64| {
        let both = pairs().filter(|(one, other)| {
            one.notice != Notice::Work && one.count.max(other.count) >= least
        });
        let us = |part: &Part| if part.count > 0 { us(part) } else { STARVED_US };
        both.map(|(one, other)| Pair {
            part: one.name.clone(),
            notice: one.notice,
            base_us: us(one),
            us: us(other),
        })
        .collect()
    };
    let missed = |parts: &[Part]| parts.iter().map(|part| part.missed).sum();
    Ok(Line {
        mix: base.mix.into(),
        cpus: base.cpus,
        p99: compared(P99_MIN, |part| part.p99_us),
        p999: compared(P999_MIN, |part| part.p999_us),
        missed: [missed(base.parts), missed(judged.parts)],
        work: work(base.parts).map(|before| work(judged.parts).unwrap_or(0.0) / before),
        fairness: fairness(base.parts).zip(fairness(judged.parts)).map(|(one, two)| [one, two]),
        weights: weights(base.parts, judged.parts),
    })
}

/// The work of all loads; `None` if they did nothing.
fn work(parts: &[Part]) -> Option<f64> {
    let loads = parts.iter().filter(|part| part.notice == Notice::Work);
    let work: f64 = loads.map(|part| part.work).sum();
    (work > 0.0).then_some(work)
}

fn fairness(parts: &[Part]) -> Option<f64> {
    parts.iter().filter_map(|part| part.least_to_most).reduce(f64::min)
}

/// Shares are compared with the base's, because a weight alone does not say them: a task cannot
/// use more than one CPU.
fn weights(base: &[Part], judged: &[Part]) -> Option<f64> {
    let equals = |parts: &[Part]| -> Vec<(u32, f64)> {
        let hogs = parts.iter().filter(|part| part.equals);
        hogs.map(|part| (part.weight, part.work)).collect()
    };
    let (base, judged) = (equals(base), equals(judged));
    let differ = base.windows(2).any(|pair| pair[0].0 != pair[1].0);
    let total = |parts: &[(u32, f64)]| parts.iter().map(|(_, work)| work).sum::<f64>();
    let (before, after) = (total(&base), total(&judged));
    if !differ || before <= 0.0 || after <= 0.0 {
        return None;
    }
    let shares = base.iter().zip(&judged).filter(|((_, work), _)| *work > 0.0);
    let change = shares.map(|((_, one), (_, two))| ((two / after) / (one / before) - 1.0).abs());
    change.reduce(f64::max)
}

impl Line {
    /// The part with the worst ratio of p99.
    pub fn worst(&self) -> Option<&Pair> {
        worst(&self.p99)
    }

    /// The part with the worst ratio of p99.9.
    pub fn worst_p999(&self) -> Option<&Pair> {
        worst(&self.p999)
    }
}

fn worst(pairs: &[Pair]) -> Option<&Pair> {
    pairs.iter().max_by(|one, other| one.ratio().total_cmp(&other.ratio()))
}

/// Where the ratios of many parts or mixes lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    /// How many there are.
    pub count: usize,
    /// The middle one.
    pub median: f64,
    /// Nine of ten are at least as good as this.
    pub nine_of_ten: f64,
    /// The worst.
    pub worst: f64,
}

impl Distribution {
    /// Of values of which less is better; `None` if there are none.
    pub fn lower(values: impl Iterator<Item = f64>) -> Option<Distribution> {
        Distribution::of(values, |sample, share| sample.quantile(share))
    }

    /// Of values of which more is better.
    pub fn higher(values: impl Iterator<Item = f64>) -> Option<Distribution> {
        Distribution::of(values, |sample, share| sample.quantile(1.0 - share))
    }

    fn of(
        values: impl Iterator<Item = f64>,
        at: impl Fn(&Sample, f64) -> f64,
    ) -> Option<Distribution> {
        let sample = Sample::new(values.collect());
        (sample.count() > 0).then(|| Distribution {
            count: sample.count(),
            median: at(&sample, 0.5),
            nine_of_ten: at(&sample, 0.9),
            worst: at(&sample, 1.0),
        })
    }
}

/// The verdict on a set of mixes.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Ratios of p99 of every noticed part of every mix.
    pub p99: Option<Distribution>,
    /// The same of p99.9.
    pub p999: Option<Distribution>,
    /// Sums of the missed deadlines under the base and under the judged scheduler.
    pub missed: [u64; 2],
    /// Ratios of the work, one for each mix.
    pub work: Option<Distribution>,
    /// The least by the most work among equals under the judged scheduler, one for each mix.
    pub fairness: Option<Distribution>,
    /// Changes of shares among hogs of different weight, one for each mix.
    pub weights: Option<Distribution>,
}

/// Sums up the lines of a set of mixes.
pub fn summary(lines: &[Line]) -> Summary {
    let ratios = |pairs: fn(&Line) -> &Vec<Pair>| {
        Distribution::lower(lines.iter().flat_map(pairs).map(Pair::ratio))
    };
    let missed = |side: usize| lines.iter().map(|line| line.missed[side]).sum();
    Summary {
        p99: ratios(|line| &line.p99),
        p999: ratios(|line| &line.p999),
        missed: [missed(0), missed(1)],
        work: Distribution::higher(lines.iter().filter_map(|line| line.work)),
        fairness: Distribution::higher(
            lines.iter().filter_map(|line| line.fairness).map(|it| it[1]),
        ),
        weights: Distribution::lower(lines.iter().filter_map(|line| line.weights)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn part(name: &str, notice: Notice, p99_us: f64, work: f64) -> Part {
        Part {
            name: name.into(),
            notice,
            tasks: 2,
            weight: 1024,
            equals: notice == Notice::Work,
            count: 1_000,
            p50_us: p99_us / 2.0,
            p99_us,
            p999_us: p99_us * 2.0,
            worst_us: p99_us * 3.0,
            missed: 0,
            work,
            least_to_most: (notice == Notice::Work).then_some(0.9),
        }
    }

    pub(crate) fn measured<'a>(mix: &'a str, parts: &'a [Part]) -> Measured<'a> {
        Measured { mix, cpus: 2, parts }
    }

    #[test]
    fn each_noticed_part_gets_a_ratio_and_loads_one_of_their_work() {
        let mut base =
            [part("editor", Notice::Wakeup, 4_000.0, 0.1), part("hog", Notice::Work, 0.0, 2.0)];
        let mut ours = base.clone();
        (ours[0].p99_us, ours[0].missed) = (400.0, 3);
        (ours[1].work, ours[1].least_to_most) = (1.9, Some(0.5));
        let line = judge(measured("mix-2", &base), measured("mix-2", &ours)).unwrap();
        assert_eq!(line.p99.len(), 1);
        assert!((line.worst().unwrap().ratio() - 0.1).abs() < 1e-9);
        assert_eq!((line.work, line.missed, line.fairness), (Some(0.95), [0, 3], Some([0.9, 0.5])));
        assert_eq!(line.weights, None);
        ours[0].count = 0;
        let starved = judge(measured("mix-2", &base), measured("mix-2", &ours)).unwrap();
        assert_eq!(starved.worst().unwrap().us, STARVED_US);
        (ours[0].count, base[0].count) = (P99_MIN - 1, P99_MIN - 1);
        let few = judge(measured("mix-2", &base), measured("mix-2", &ours)).unwrap();
        assert_eq!((few.p99.len(), few.p999.len()), (0, 0));
        assert!(judge(measured("mix-2", &base), measured("mix-2", &ours[1..])).is_err());
    }

    #[test]
    fn a_share_among_weights_is_compared_with_the_base() {
        let heavy = part("heavy", Notice::Work, 0.0, 1.5);
        let light = Part { weight: 335, work: 0.5, ..heavy.clone() };
        let base = [heavy, light];
        let mut ours = base.clone();
        assert_eq!(weights(&base, &ours), Some(0.0));
        (ours[0].work, ours[1].work) = (1.0, 1.0);
        assert!((weights(&base, &ours).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nine_of_ten_is_on_the_worse_side_of_either_direction() {
        let values = || (0..=10).map(f64::from);
        let (lower, higher) = (Distribution::lower(values()), Distribution::higher(values()));
        let of = |it: Option<Distribution>| {
            it.map(|it| [it.median, it.nine_of_ten, it.worst].map(|value| (value * 10.0).round()))
        };
        assert_eq!(of(lower), Some([50.0, 90.0, 100.0]));
        assert_eq!(of(higher), Some([50.0, 10.0, 0.0]));
        assert_eq!(Distribution::lower(std::iter::empty()), None);
    }

    #[test]
    fn a_summary_counts_parts_for_latencies_and_mixes_for_work() {
        let line = |p99: f64, work: f64, missed: u64| {
            let base = [
                part("a", Notice::Wakeup, 1_000.0, 0.0),
                part("b", Notice::Frame, 1_000.0, 0.0),
                part("hog", Notice::Work, 0.0, 1.0),
            ];
            let mut ours = base.clone();
            (ours[0].p99_us, ours[2].work, ours[1].missed) = (p99, work, missed);
            judge(measured("mix-2", &base), measured("mix-2", &ours)).unwrap()
        };
        let sum = summary(&[line(100.0, 0.9, 1), line(2_000.0, 1.0, 2)]);
        let p99 = sum.p99.unwrap();
        assert_eq!((p99.count, p99.median, p99.worst), (4, 1.0, 2.0));
        assert_eq!((sum.missed, sum.work.unwrap().worst), ([0, 3], 0.9));
    }
}
