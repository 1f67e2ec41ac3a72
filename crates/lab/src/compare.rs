// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab compare`, `sweep` and `scores`: many runs, and what can be said about them.

use crate::cli::{CompareArgs, Comparison, SweepArgs};
use crate::metric::{self, Metric};
use crate::offered::{catalog, chosen};
use crate::parallel::play_all;
use crate::play::{Case, Played};
use crate::table::{self, Cell, Format, Table};
use crate::what::What;
use anyhow::{Context, Result, bail};
use pandemonium_engine::PolicyType;
use pandemonium_engine::time::Span;
use pandemonium_policies::{Fifo, Pandemonium, Vruntime};
use pandemonium_statistics::sample::Sample;
use pandemonium_statistics::verdict::{self, Pair, Verdict};
use std::process::ExitCode;

pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let policies = &args.comparison.policies();
    let twice = |(at, policy)| policies[..at].contains(policy);
    if policies.len() < 2 || policies.iter().enumerate().any(twice) {
        bail!("expected two or more different policies, as in --policy pandemonium,vruntime");
    }
    let table = compared(&args.comparison)?;
    table::print(&[table], args.format);
    Ok(ExitCode::SUCCESS)
}

/// Every metric of every policy over some seeds, and a verdict beside the first policy.
pub fn compared(asked: &Comparison) -> Result<Table> {
    let Comparison { what, seed, seeds, .. } = asked;
    let policies = &asked.policies();
    let mut cases = Vec::new();
    for &policy in policies.iter() {
        for number in 0..*seeds {
            cases.push(Case::new(what, policy, seed.wrapping_add(number))?);
        }
    }
    let played = play_all(&cases);
    let workload = &cases[0].trial.workload;
    let cpus = cases[0].trial.setup.shape.cpus;
    let title = format!("{} on {cpus} CPUs, {seeds} seeds from {seed}", workload.name);
    let columns = ["metric", "policy", "median", "least", "most", "beside the first"];
    let mut table = Table::new(title, &columns);
    let values: Vec<Vec<Metric>> =
        played.iter().map(|one| metric::of(&one.tried.outcome, workload)).collect();
    let runs = *seeds as usize;
    let samples = samples(&values, *seeds as usize);
    let verdicts = verdicts(&values[0], &samples);
    for (number, metric) in values[0].iter().enumerate() {
        for (at, policy) in policies.iter().enumerate() {
            let mine = &samples[number][at];
            let verdict = match at {
                0 => Cell::None,
                _ => verdicts[number * (policies.len() - 1) + at - 1].word().into(),
            };
            let milli = |value: f64| Cell::Milli((value * 1_000.0).round() as u64);
            table.row(vec![
                metric.name.into(),
                policy.name.into(),
                milli(mine.median()),
                milli(mine.least()),
                milli(mine.most()),
                verdict,
            ]);
        }
    }
    for (at, policy) in policies.iter().enumerate() {
        let failed = played[at * runs..(at + 1) * runs]
            .iter()
            .filter(|played| played.tried.verdict.is_err())
            .count();
        let none = || Cell::None;
        let violations = format!("{failed} of {runs}");
        table.row(vec![
            "complaints".into(),
            policy.name.into(),
            violations.into(),
            none(),
            none(),
            none(),
        ]);
    }
    Ok(table)
}

/// The values of each metric of the first run, by policy: `runs` runs of each, one policy after the
/// other. A run without a single wakeup has a metric less.
fn samples(values: &[Vec<Metric>], runs: usize) -> Vec<Vec<Sample>> {
    let of = |metric: &Metric, mine: &[Vec<Metric>]| {
        let found = |all: &Vec<Metric>| all.iter().find(|one| one.name == metric.name).copied();
        Sample::new(mine.iter().filter_map(found).map(|metric| metric.value).collect())
    };
    values[0]
        .iter()
        .map(|metric| values.chunks(runs).map(|mine| of(metric, mine)).collect())
        .collect()
}

/// What the policies after the first are beside it: for each metric, one verdict a policy.
fn verdicts(metrics: &[Metric], samples: &[Vec<Sample>]) -> Vec<Verdict> {
    let pairs = metrics.iter().zip(samples).flat_map(|(metric, samples)| {
        let base = &samples[0];
        samples[1..].iter().map(|sample| Pair { base, sample, better: metric.better })
    });
    verdict::judge(&pairs.collect::<Vec<Pair>>())
}

/// What is swept: a name and its values, as text.
fn values(over: &str) -> Result<(&str, Vec<String>)> {
    let form = "expected NAME=VALUE,VALUE or NAME=FROM..TO, as in cpus=2..64";
    let (name, values) = over.split_once('=').context(form)?;
    let Some((from, to)) = values.split_once("..") else {
        return Ok((name, values.split(',').map(str::to_owned).collect()));
    };
    let (from, to): (u64, u64) = (from.parse().context(form)?, to.parse().context(form)?);
    if from == 0 || from > to {
        bail!("{form}; a range goes upwards from more than 0");
    }
    // In doublings: what matters about a range of CPUs or slices is its order of magnitude.
    let doubled = std::iter::successors(Some(from), |value| value.checked_mul(2));
    let mut list: Vec<u64> = doubled.take_while(|value| *value < to).collect();
    list.push(to);
    Ok((name, list.iter().map(u64::to_string).collect()))
}

pub fn sweep(args: &SweepArgs) -> Result<ExitCode> {
    let (name, values) = values(&args.over)?;
    let policies = chosen(&args.policy);
    let mut cases = Vec::new();
    for value in &values {
        for &policy in &policies {
            let mut what = args.what.clone();
            if name == "cpus" {
                what.cpus = Some(value.parse().with_context(|| format!("cpus={value}"))?);
            } else {
                what.set.push(format!("{name}={value}"));
            }
            cases.push(Case::new(&what, policy, args.seed)?);
        }
    }
    let played = play_all(&cases);
    let title = format!("{} over {name}, seed {}", cases[0].trial.workload.name, args.seed);
    let mut table = rows("value", title);
    for (number, (case, played)) in cases.iter().zip(&played).enumerate() {
        let value = &values[number / policies.len()];
        table.row(row(value.as_str().into(), case, played));
    }
    table::print(&[table], args.format);
    Ok(ExitCode::SUCCESS)
}

/// A table with one run in each row.
fn rows(first: &'static str, title: impl Into<String>) -> Table {
    let figures = ["throughput", "wake p50", "wake p99", "wake p99.9", "missed %", "own %"];
    let columns = [&[first, "policy"][..], &figures, &["verdict"]].concat();
    Table::new(title, &columns)
}

/// One run in one row.
fn row(first: Cell, case: &Case, played: &Played) -> Vec<Cell> {
    let metrics = metric::of(&played.tried.outcome, &case.trial.workload);
    let cell = |name: &str| {
        let found = metrics.iter().find(|metric| metric.name == name);
        found.map_or(Cell::None, |metric| match name.ends_with(" us") {
            true => Cell::Micros(Span::from_nanos((metric.value * 1_000.0).round() as u64)),
            false => Cell::Milli((metric.value * 1_000.0).round() as u64),
        })
    };
    let verdict = match &played.tried.verdict {
        Ok(()) => "good",
        Err(violation) => violation.checker.name(),
    };
    vec![
        first,
        case.policy().name.into(),
        cell("throughput"),
        cell("wake p50 us"),
        cell("wake p99 us"),
        cell("wake p99.9 us"),
        cell("missed %"),
        cell("own %"),
        verdict.into(),
    ]
}

/// What the table under review is made of.
const SCORED: [&str; 8] =
    ["wake", "frame", "desktop", "burst", "longrun", "mixed-storm", "deadline", "ipc"];
const SCORED_CPUS: [u32; 3] = [2, 8, 64];
const SCORED_TIME: Span = Span::from_millis(2_000);

/// The table under review: a change of a number is a change of behaviour.
pub fn scores() -> Result<ExitCode> {
    let mut cases = Vec::new();
    let policies = [Pandemonium::NAME, Vruntime::NAME, Fifo::NAME];
    for workload in SCORED {
        for cpus in SCORED_CPUS {
            for policy in policies {
                let what = What::named(workload, cpus);
                let policy = catalog().find(policy).map_err(anyhow::Error::msg)?;
                let mut case = Case::new(&what, policy, 1)?;
                let workload = &mut case.trial.workload;
                workload.duration = workload.duration.min(workload.warmup + SCORED_TIME);
                cases.push(case);
            }
        }
    }
    let played = play_all(&cases);
    let title = "one seed, 2 s after the warm-up; throughput in full CPUs, times in us";
    let mut table = rows("workload", title);
    for (case, played) in cases.iter().zip(&played) {
        let (name, cpus) = (&case.trial.workload.name, case.trial.setup.shape.cpus);
        table.row(row(format!("{name} {cpus}").into(), case, played));
    }
    table::print(&[table], Format::Text);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::values;

    #[test]
    fn a_range_goes_in_doublings_and_ends_where_it_says() {
        assert_eq!(values("cpus=2..12").unwrap().1, ["2", "4", "8", "12"]);
        assert_eq!(values("x=3,1").unwrap(), ("x", vec!["3".to_owned(), "1".to_owned()]));
        for wrong in ["cpus", "cpus=8..2", "cpus=0..4", "cpus=a..b"] {
            assert!(values(wrong).is_err(), "{wrong}");
        }
    }
}
