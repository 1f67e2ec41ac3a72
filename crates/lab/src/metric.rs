// SPDX-License-Identifier: GPL-2.0-only

//! The numbers by which runs are compared.

use pandemonium_engine::durations::Durations;
use pandemonium_sim::measure::Outcome;
use pandemonium_sim::workload::Workload;
use pandemonium_statistics::figure::Better;

/// A number that a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub value: f64,
    pub better: Better,
}

/// What a run is judged by. Wakeups are those of the tasks that do not count for the throughput:
/// probes, whose latency is what a workload is there to measure. If all count, all are meant.
pub fn of(outcome: &Outcome, workload: &Workload) -> Vec<Metric> {
    let throughput = outcome.throughput(workload) as f64 / 1_000.0;
    let wake = wakes(outcome, workload);
    let us = |lengths: &Durations, permille| lengths.quantile(permille).as_nanos() as f64 / 1_000.0;
    let window = outcome.window.as_nanos().max(1) as f64;
    let lower = |name, value| Metric { name, value, better: Better::Lower };
    let mut metrics =
        vec![Metric { name: "throughput", value: throughput, better: Better::Higher }];
    if wake.count() > 0 {
        metrics.push(lower("wake p50 us", us(&wake, 500)));
        metrics.push(lower("wake p99 us", us(&wake, 990)));
        metrics.push(lower("wake p99.9 us", us(&wake, 999)));
    }
    let mut measured = Durations::default();
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

/// Wakeup latency of the probes, or of all tasks where there are none.
pub fn wakes(outcome: &Outcome, workload: &Workload) -> Durations {
    let mut wake = Durations::default();
    let groups = || outcome.groups.iter().zip(&workload.groups);
    groups().filter(|(_, group)| !group.counts).for_each(|(got, _)| wake.merge(&got.wake));
    if wake.count() == 0 {
        groups().for_each(|(got, _)| wake.merge(&got.wake));
    }
    wake
}
