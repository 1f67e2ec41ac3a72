// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab run`: one workload under some policies.

use crate::cli::RunArgs;
use crate::offered::chosen;
use crate::play::{Case, Played};
use crate::simulated;
use crate::table::{self, Cell, Format, Table};
use crate::timeline::Timeline;
use anyhow::{Context, Result, ensure};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;
use pandemonium_print::{print, print_error};
use pandemonium_sim::measure::GroupResult;
use pandemonium_sim::workload::Workload;
use std::process::ExitCode;

pub fn run(args: &RunArgs) -> Result<ExitCode> {
    ensure!(
        args.record.is_none() && args.trace.is_none() || args.policy.len() <= 1,
        "a file is of one policy: --record and --trace take one --policy"
    );
    let mut played = Vec::new();
    for policy in chosen(&args.policy) {
        let case = Case::new(&args.what, policy, args.seed)?;
        let result = watched(&case, args)?;
        played.push((case, result));
    }
    let (first, _) = &played[0];
    if args.format == Format::Text {
        let shape = &first.trial.setup.shape;
        let workload = &first.trial.workload;
        print(&format!("{}: {}", workload.name, workload.about));
        print(&format!(
            "{} CPUs, {} of simulated time, seed {}\n",
            shape.cpus, workload.duration, args.seed
        ));
    }
    table::print(&tables(&played), args.format);
    let mut failed = false;
    for (case, result) in &played {
        if let Err(violation) = &result.tried.verdict {
            failed = true;
            let (policy, checker) = (case.policy().name, violation.checker.name());
            let at = violation.at.since(pandemonium_sim::machine::START);
            print_error(&format!(
                "\n{policy}: the checker of {checker} complains after {at}: {}",
                violation.why
            ));
        }
        if args.format == Format::Text {
            let policy = case.policy().name;
            let us = result.took.as_micros().max(1) as u64;
            let rate = result.tried.counters.events * 1_000 / us;
            print_error(&format!(
                "{policy}: {} events, {rate} thousand a second",
                result.tried.counters.events
            ));
        }
    }
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Plays a case and writes the files that were asked for.
fn watched(case: &Case, args: &RunArgs) -> Result<Played> {
    let workload = &case.trial.workload;
    let mut timeline = args.trace.as_ref().map(|_| Timeline::new(Span::ZERO, workload.duration));
    let mut recorder = None;
    if let Some(path) = &args.record {
        recorder = Some(simulated::create(path, case, args.redact)?);
    }
    let played = case.play(&mut (&mut timeline, &mut recorder));
    if let (Some(recorder), Some(path)) = (recorder, &args.record) {
        recorder.finish().with_context(|| path.clone())?;
    }
    if let (Some(timeline), Some(path)) = (&mut timeline, &args.trace) {
        let names: Vec<String> =
            workload.groups.iter().map(|group| group.comm.to_string()).collect();
        timeline.write_perfetto(path, &names, case.trial.setup.shape.cpus)?;
        if timeline.cut {
            print_error(&format!(
                "{path} holds the beginning of the run: the rest would not fit a browser"
            ));
        }
    }
    Ok(played)
}

/// All tables about some runs of the same workload.
pub fn tables(played: &[(Case, Played)]) -> Vec<Table> {
    let mut tables = vec![overview(played), by_tier(played), by_task(played)];
    let measured = measured(played);
    tables.extend((!measured.rows.is_empty()).then_some(measured));
    tables
}

fn quantiles(lengths: &Durations) -> [Cell; 4] {
    if lengths.count() == 0 {
        return [0.into(), Cell::None, Cell::None, Cell::None];
    }
    let at = |permille| Cell::from(lengths.quantile(permille));
    [lengths.count().into(), at(500), at(990), at(999)]
}

fn overview(played: &[(Case, Played)]) -> Table {
    let mut table = Table::new(
        "policies: throughput in full CPUs, scheduler and idle time in percent of one CPU",
        &[
            "policy",
            "throughput",
            "own %",
            "idle %",
            "decisions",
            "kernel",
            "switches",
            "kicks",
            "rescues",
            "refused",
            "void",
            "verdict",
        ],
    );
    for (case, result) in played {
        let outcome = &result.tried.outcome;
        let percent = |part: Span| {
            Cell::Milli(part.scale(100_000, outcome.window.as_nanos().max(1)).as_nanos())
        };
        let verdict = match &result.tried.verdict {
            Ok(()) => "good".to_owned(),
            Err(violation) => violation.checker.name().to_owned(),
        };
        table.row(vec![
            case.policy().name.into(),
            Cell::Milli(outcome.throughput(&case.trial.workload)),
            percent(outcome.own),
            percent(outcome.idle),
            outcome.decisions.iter().sum::<u64>().into(),
            outcome.direct.into(),
            outcome.switches.into(),
            outcome.kicks.into(),
            outcome.rescues.into(),
            outcome.refused.into(),
            outcome.void.into(),
            verdict.into(),
        ]);
    }
    table
}

fn by_tier(played: &[(Case, Played)]) -> Table {
    let mut table = Table::new(
        "wakeup to running in us, by the tier in the policy's eyes",
        &["policy", "tier", "wakeups", "p50", "p99", "p99.9", "decisions"],
    );
    for (case, result) in played {
        for tier in Tier::ALL.into_iter().rev() {
            let lengths = &result.tried.outcome.wake[tier.index()];
            let decisions = result.tried.outcome.decisions[tier.index()];
            if lengths.count() + decisions > 0 {
                let mut row = vec![case.policy().name.into(), format!("{tier:?}").into()];
                row.extend(quantiles(lengths));
                row.push(decisions.into());
                table.row(row);
            }
        }
    }
    table
}

fn by_task(played: &[(Case, Played)]) -> Table {
    let mut table = Table::new(
        "tasks: wakeup to running in us, work in full CPUs, least over most served",
        &["policy", "task", "wakeups", "p50", "p99", "p99.9", "work", "share"],
    );
    for (case, result) in played {
        for (group, got) in groups(&case.trial.workload, result) {
            let mut row = vec![case.policy().name.into(), group.into()];
            row.extend(quantiles(&got.wake));
            let window = result.tried.outcome.window.as_nanos().max(1);
            row.push(Cell::Milli((u128::from(got.work) * 1_000 / u128::from(window)) as u64));
            row.push(match got.lived {
                0 | 1 => Cell::None,
                _ => Cell::Milli(got.least.saturating_mul(1_000) / got.most.max(1)),
            });
            table.row(row);
        }
    }
    table
}

fn measured(played: &[(Case, Played)]) -> Table {
    let mut table = Table::new(
        "what tasks measure themselves, in us: frames, round trips",
        &["policy", "task", "times", "p50", "p99", "p99.9", "missed %"],
    );
    for (case, result) in played {
        for (group, got) in groups(&case.trial.workload, result) {
            let Some(missed) = (got.missed * 100_000).checked_div(got.measured.count()) else {
                continue;
            };
            let mut row = vec![case.policy().name.into(), group.into()];
            row.extend(quantiles(&got.measured));
            row.push(Cell::Milli(missed));
            table.row(row);
        }
    }
    table
}

fn groups<'a>(
    workload: &'a Workload,
    result: &'a Played,
) -> impl Iterator<Item = (String, &'a GroupResult)> {
    let named = workload.groups.iter().map(|group| group.comm.to_string());
    named.zip(&result.tried.outcome.groups)
}
