// SPDX-License-Identifier: GPL-2.0-only

//! The numbers by which runs are compared, and when a difference is one.

#[path = "../../bench/sample.rs"]
mod sample;

pub use sample::Sample;
use scx_pandemonium_user::sim::measure::{Lengths, Outcome};
use scx_pandemonium_user::sim::workload::Workload;

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
}

/// A number that a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub value: f64,
    pub better: Better,
}

/// What a run is judged by. Wake-ups are those of the tasks that do not count for the throughput:
/// probes, whose latency is what a workload is there to measure. If all count, all are meant.
pub fn of(outcome: &Outcome, workload: &Workload) -> Vec<Metric> {
    let throughput = outcome.throughput(workload) as f64 / 1_000.0;
    let wake = wakes(outcome, workload);
    let us = |lengths: &Lengths, permille| lengths.quantile(permille).as_nanos() as f64 / 1_000.0;
    let window = outcome.window.as_nanos().max(1) as f64;
    let lower = |name, value| Metric { name, value, better: Better::Lower };
    let mut metrics =
        vec![Metric { name: "throughput", value: throughput, better: Better::Higher }];
    if wake.count() > 0 {
        metrics.push(lower("wake p50 us", us(&wake, 500)));
        metrics.push(lower("wake p99 us", us(&wake, 990)));
        metrics.push(lower("wake p99.9 us", us(&wake, 999)));
    }
    let mut measured = Lengths::default();
    let groups = outcome.groups.iter().zip(&workload.groups);
    groups.clone().for_each(|(got, _)| measured.merge(&got.measured));
    if measured.count() > 0 {
        metrics.push(lower("measured p99 us", us(&measured, 990)));
    }
    if workload.groups.iter().any(|group| group.deadline.is_some()) {
        let timed = groups.filter(|(_, group)| group.deadline.is_some());
        let (missed, times) = timed.fold((0, 0), |(missed, times), (got, _)| {
            (missed + got.missed, times + got.measured.count())
        });
        metrics.push(lower("missed %", missed as f64 * 100.0 / f64::max(times as f64, 1.0)));
    }
    metrics.push(lower("own %", outcome.own.as_nanos() as f64 * 100.0 / window));
    metrics
}

/// Wake-up latency of the probes, or of everybody where there are none.
pub fn wakes(outcome: &Outcome, workload: &Workload) -> Lengths {
    let mut wake = Lengths::default();
    let groups = || outcome.groups.iter().zip(&workload.groups);
    groups().filter(|(_, group)| !group.counts).for_each(|(got, _)| wake.merge(&got.wake));
    if wake.count() == 0 {
        groups().for_each(|(got, _)| wake.merge(&got.wake));
    }
    wake
}

impl Sample {
    /// What this sample is beside `base`: better or worse only if chance would bring such a
    /// difference once in a thousand times, and it is one that somebody would notice.
    pub fn verdict(&self, base: &Sample, better: Better) -> &'static str {
        let (mine, theirs) = (self.median(), base.median());
        let noticed = (mine - theirs).abs() > NOTICED * mine.abs().max(theirs.abs());
        if !noticed || self.chance(base).of_this > ONCE_IN_A_THOUSAND {
            return "same";
        }
        if self.is_above(base) == (better == Better::Higher) { "better" } else { "worse" }
    }
}

/// A smaller difference than this share is none.
const NOTICED: f64 = 0.01;
const ONCE_IN_A_THOUSAND: f64 = 0.001;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: impl IntoIterator<Item = u32>) -> Sample {
        Sample::new(values.into_iter().map(f64::from).collect())
    }

    #[test]
    fn only_what_is_outside_the_noise_gets_a_verdict() {
        let (low, high) = (sample(100..110), sample(200..210));
        assert_eq!(low.verdict(&high, Better::Lower), "better");
        assert_eq!(high.verdict(&low, Better::Lower), "worse");
        assert_eq!(high.verdict(&low, Better::Higher), "better");
        let noisy = sample([90, 95, 150, 99, 103, 104, 105, 180, 101, 102]);
        assert_eq!(low.verdict(&noisy, Better::Lower), "same");
        assert_eq!(sample(1000..1010).verdict(&sample(1001..1011), Better::Lower), "same");
        assert_eq!(sample([5; 10]).verdict(&sample([5; 10]), Better::Lower), "same");
        assert_eq!(sample([5; 10]).verdict(&sample([6; 10]), Better::Lower), "better");
        // Too few to say anything.
        assert_eq!(sample([5; 3]).verdict(&sample([6; 3]), Better::Lower), "same");
    }
}
