// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab mixes`: workloads that seeds have drawn, under two policies or more, judged
//! part by part.

use crate::cli::{MixesArgs, What};
use crate::parallel;
use crate::play::{Case, Played};
use anyhow::{Context, Result, anyhow};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::time::Span;
use pandemonium_print::{print, print_error};
use pandemonium_sim::measure::Outcome;
use pandemonium_sim::workload::Workload;
use pandemonium_statistics::mix::judge::{Line, Measured, judge};
use pandemonium_statistics::mix::{Notice, Part, report};
use serde::Serialize;
use std::fs;
use std::process::ExitCode;

/// The seed of what the tasks of a mix draw while they run; the mix itself has its own.
const SEED: u64 = 1;

pub fn run(args: &MixesArgs) -> Result<ExitCode> {
    let policies = args.policies();
    let mut cases = Vec::new();
    for seed in args.seeds.iter() {
        let what = What { set: args.set.clone(), ..What::named(&format!("mix-{seed}"), args.cpus) };
        for policy in &policies {
            cases.push(Case::new(&what, *policy, SEED)?);
        }
    }
    let played = parallel::play_all(&cases);
    let measured: Vec<Mix> = cases.iter().zip(&played).map(|(case, got)| mix(case, got)).collect();
    if args.json {
        print(&serde_json::to_string(&measured)?);
    } else {
        let sets: Vec<&[Mix]> = measured.chunks(policies.len()).collect();
        let last = print_sets(args, &sets)?;
        if let Some(path) = &args.picture {
            let picture = report::picture(&last)?;
            fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    let mut failed = false;
    for (case, got) in cases.iter().zip(&played) {
        if let Err(violation) = &got.tried.verdict {
            failed = true;
            let (mix, policy) = (&case.trial.workload.name, case.policy().name);
            let (checker, why) = (violation.checker.name(), &violation.why);
            print_error(&format!("{mix}, {policy}: {checker} complains: {why}"));
        }
    }
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// A mix under one policy.
#[derive(Serialize)]
pub struct Mix {
    mix: String,
    cpus: u32,
    policy: &'static str,
    parts: Vec<Part>,
}

impl Mix {
    pub fn measured(&self) -> Measured<'_> {
        Measured { mix: &self.mix, cpus: self.cpus, parts: &self.parts }
    }
}

/// What a run measured of the parts of a mix.
pub fn mix(case: &Case, played: &Played) -> Mix {
    let workload = &case.trial.workload;
    Mix {
        mix: workload.name.clone(),
        cpus: case.trial.setup.shape.cpus,
        policy: case.policy().name,
        parts: measured(workload, &played.tried.outcome),
    }
}

/// The parts of a workload with what a run measured of them.
fn measured(workload: &Workload, outcome: &Outcome) -> Vec<Part> {
    let window = outcome.window.as_nanos().max(1) as f64;
    let filled = pandemonium_workload::parts(workload).into_iter().map(|(number, mut part)| {
        let got = &outcome.groups[number];
        match part.notice {
            Notice::Work => {}
            Notice::Wakeup => times(&mut part, &got.wake),
            Notice::Frame | Notice::Request | Notice::Fork => times(&mut part, &got.measured),
        }
        part.missed = got.missed.min(part.count);
        part.work = got.work as f64 / window;
        if part.equals && got.lived > 1 {
            part.least_to_most = Some(got.least as f64 / got.most.max(1) as f64);
        }
        part
    });
    filled.collect()
}

fn times(part: &mut Part, lengths: &Durations) {
    let us = |span: Span| span.as_nanos() as f64 / 1_000.0;
    part.count = lengths.count();
    part.p50_us = us(lengths.quantile(500));
    part.p99_us = us(lengths.quantile(990));
    part.p999_us = us(lengths.quantile(999));
    part.worst_us = us(lengths.longest());
}

/// Prints a table for each policy but the first, and returns the lines of the last.
fn print_sets(args: &MixesArgs, sets: &[&[Mix]]) -> Result<Vec<Line>> {
    let policies = args.policies();
    let mut last = Vec::new();
    if policies.len() < 2 {
        return Err(anyhow!(
            "expected two policies or more: the others are compared with the first"
        ));
    }
    for (number, policy) in policies.iter().enumerate().skip(1) {
        let one = |set: &&[Mix]| judge(set[0].measured(), set[number].measured());
        last =
            sets.iter().map(one).collect::<Result<Vec<Line>, String>>().map_err(|e| anyhow!(e))?;
        let title = format!("{} by {}, simulated", policy.name, policies[0].name);
        let names = format!("{},{}", policies[0].name, policy.name);
        let set: String = args.set.iter().map(|set| format!(" --set {set}")).collect();
        let repeat = |line: &Line| {
            format!("pandemonium_lab run {} -n {} -p {names}{set}", line.mix, line.cpus)
        };
        let gap = if number > 1 { "\n" } else { "" };
        print(&format!("{gap}{}", report::text(&title, &last, repeat).trim_end()));
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::catalog;

    #[test]
    fn every_part_that_is_noticed_is_measured_often_enough_for_a_p99() {
        for seed in (2..=40).step_by(2) {
            let what = What::named(&format!("mix-{seed}"), 2);
            let case = Case::new(&what, catalog().default_policy(), SEED).unwrap();
            let played = case.play(&mut ());
            let mix = mix(&case, &played);
            let (noticed, loads): (Vec<&Part>, Vec<&Part>) =
                mix.parts.iter().partition(|part| part.notice != Notice::Work);
            assert!(mix.parts.iter().all(Part::is_sound), "{seed}: {:?}", mix.parts);
            assert!(noticed.iter().all(|part| part.count >= 100), "{seed}: {noticed:?}");
            assert!(loads.iter().all(|part| part.work > 0.0), "{seed}: {loads:?}");
            let line = judge(mix.measured(), mix.measured()).unwrap();
            assert!(line.p99.iter().all(|pair| pair.ratio() == 1.0) && !line.p99.is_empty());
        }
    }
}
