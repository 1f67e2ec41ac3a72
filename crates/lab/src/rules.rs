// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab rules`: each switch of a policy turned over on a set of mixes, and how far that
//! moves what a person notices.

use crate::cli::RulesArgs;
use crate::mean::{Mean, USUAL};
use crate::mix::{Mix, mix, ratio};
use crate::offered::catalog;
use crate::parallel::play_each;
use crate::play::{Case, Played};
use crate::shipped;
use crate::table::{self, Cell, Table};
use crate::what::What;
use anyhow::{Result, anyhow, bail};
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::knobs::Knob;
use pandemonium_engine::time::Span;
use pandemonium_statistics::mix::judge::{Line, judge};
use pandemonium_statistics::sample::Sample;
use std::process::ExitCode;

/// The seed of what the tasks of a mix draw while they run, and one that shows what chance does.
const SEEDS: [u64; 2] = [1, 2];
/// What the first row is called.
const CHANCE: &str = "(another seed)";

pub fn run(args: &RulesArgs) -> Result<ExitCode> {
    let policy = args.policy.unwrap_or_else(|| catalog().default_policy());
    let switches = switches(policy, &args.only)?;
    let mut cases = Vec::new();
    for what in whats(args) {
        for seed in SEEDS {
            cases.push(Case::new(&what, policy, seed)?);
        }
        for knob in &switches {
            let mut what = what.clone();
            what.set.push(turned(knob));
            cases.push(Case::new(&what, policy, SEEDS[0])?);
        }
    }
    let runs = play_each(&cases, |_, case, played| Ran::of(case, played));
    let mixes: Vec<&[Ran]> = runs.chunks(switches.len() + SEEDS.len()).collect();
    let title = format!("{}: each rule turned over on {} mixes", policy.name, mixes.len());
    let mut table = Table::new(title, &COLUMNS);
    let names = [CHANCE.to_owned()].into_iter().chain(switches.iter().map(|knob| turned(knob)));
    for (number, name) in names.enumerate() {
        table.row(Worth::of(&mixes, number + 1)?.row(name));
    }
    table::print(&[table], args.format);
    Ok(ExitCode::SUCCESS)
}

/// The switches of the policy that are asked for; without any asked for, all of them.
fn switches(policy: PolicyInfo, only: &[String]) -> Result<Vec<&'static Knob>> {
    let all = || policy.knobs.switches();
    if let Some(name) = only.iter().find(|name| !all().any(|knob| knob.name == *name)) {
        let names: Vec<&str> = all().map(|knob| knob.name).collect();
        bail!("there is no switch {name:?} of {}; there are {}", policy.name, names.join(", "));
    }
    Ok(all().filter(|knob| only.is_empty() || only.iter().any(|it| it == knob.name)).collect())
}

/// The setting that turns the switch over.
fn turned(knob: &Knob) -> String {
    format!("{}={}", knob.name, if (knob.default)() == 1 { "off" } else { "on" })
}

/// All mixes, and the workloads of the lab if they are asked for.
fn whats(args: &RulesArgs) -> Vec<What> {
    let mixes = args.seeds.iter().map(|seed| format!("mix-{seed}"));
    let shipped = shipped::ALL.iter().filter(|_| args.workloads).map(|(name, _)| name.to_string());
    let names: Vec<String> = mixes.chain(shipped).collect();
    let each = |name: &String| {
        let what = |cpus: &u32| What { set: args.set.clone(), ..What::named(name, *cpus) };
        args.cpus.iter().map(what).collect::<Vec<_>>()
    };
    names.iter().flat_map(each).collect()
}

/// What is kept of a run.
struct Ran {
    mix: Mix,
    /// Whether all checkers were content.
    is_good: bool,
    /// Figures that are equal only if the runs are: switches, rounds, and time that was idle.
    trail: (u64, u64, Span),
}

impl Ran {
    fn of(case: &Case, played: Played) -> Ran {
        let outcome = &played.tried.outcome;
        Ran {
            mix: mix(case, &played),
            is_good: played.tried.verdict.is_ok(),
            trail: (outcome.switches, outcome.rounds, outcome.idle),
        }
    }
}

const COLUMNS: [&str; 15] = [
    "turned over",
    "acts in",
    "p99",
    "from",
    "to",
    "best",
    "nine of ten",
    "worst",
    "missed",
    "work",
    "from",
    "to",
    "fair",
    "shares",
    "complaints",
];

/// What turning a rule over does. Ratios are of the policy with the rule turned over by the policy
/// as it is.
struct Worth {
    /// Mixes in which anything differs.
    acts: u64,
    /// Ratios of the p99 of each noticed part.
    p99: Sample,
    /// Their mean by mix, and that of the work of the loads.
    means: [Mean; 2],
    missed: [u64; 2],
    /// The mean of the least by the most work among equals, as it is and turned over.
    fair: [Option<Mean>; 2],
    /// The mean change of a part's share among hogs of different weight.
    shares: Option<Mean>,
    complaints: u64,
}

impl Worth {
    /// Compares the run `number` of each mix with its first.
    fn of(mixes: &[&[Ran]], number: usize) -> Result<Worth> {
        let lines = mixes.iter().map(|runs| {
            judge(runs[0].mix.measured(), runs[number].mix.measured()).map_err(|e| anyhow!(e))
        });
        let lines: Vec<Line> = lines.collect::<Result<_>>()?;
        let count = |is: &dyn Fn(&[Ran]) -> bool| mixes.iter().filter(|runs| is(runs)).count();
        let p99 = lines.iter().flat_map(|line| line.p99.iter().map(ratio)).collect();
        let by_mix = lines.iter().filter_map(|line| {
            Mean::of(&line.p99.iter().map(|pair| ratio(pair).ln()).collect::<Vec<_>>(), USUAL)
        });
        let by_mix: Vec<f64> = by_mix.map(|mean| mean.of).collect();
        let work: Vec<f64> = lines.iter().filter_map(|line| Some(line.work?.ln())).collect();
        let fair = |side: usize| lines.iter().filter_map(move |line| Some(line.fairness?[side]));
        let fair = [0, 1].map(|side| Mean::of(&fair(side).collect::<Vec<_>>(), USUAL));
        let shares: Vec<f64> = lines.iter().filter_map(|line| line.weights).collect();
        let missed = |side: usize| lines.iter().map(|line| line.missed[side]).sum();
        Ok(Worth {
            acts: count(&|runs| runs[0].trail != runs[number].trail) as u64,
            p99: Sample::new(p99),
            means: [by_mix, work].map(|logs| Mean::of(&logs, USUAL).unwrap_or_default()),
            missed: [missed(0), missed(1)],
            fair,
            shares: Mean::of(&shares, USUAL),
            complaints: count(&|runs| !runs[number].is_good) as u64,
        })
    }

    fn row(&self, name: String) -> Vec<Cell> {
        let cell = |value: f64| Cell::Milli((value * 1_000.0).round() as u64);
        let at = |share: f64| match self.p99.count() {
            0 => Cell::None,
            _ => cell(self.p99.quantile(share)),
        };
        let [p99, work] = self.means.map(|mean| {
            let ends = [mean.of, mean.of - mean.spread, mean.of + mean.spread];
            ends.map(|log| cell(log.exp()))
        });
        let mut row = vec![Cell::Text(name), self.acts.into()];
        row.extend(p99);
        row.extend([at(0.0), at(0.9), at(1.0)]);
        row.push(format!("{} -> {}", self.missed[0], self.missed[1]).into());
        row.extend(work);
        row.push(match self.fair {
            [Some(base), Some(turned)] => format!("{:.3} -> {:.3}", base.of, turned.of).into(),
            _ => Cell::None,
        });
        row.push(self.shares.map_or(Cell::None, |mean| cell(mean.of)));
        row.push(self.complaints.into());
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_switches_are_turned_over_or_those_that_are_named() {
        let policy = catalog().default_policy();
        let all = switches(policy, &[]).unwrap();
        let settings: Vec<String> = all.iter().map(|knob| turned(knob)).collect();
        assert!(settings.contains(&"rule.classifier=off".to_owned()));
        assert!(settings.contains(&"rule.low_power=on".to_owned()));
        let one = switches(policy, &["rule.deficit".to_owned()]).unwrap();
        assert!(one.len() == 1 && one[0].name == "rule.deficit");
        let error = switches(policy, &["rule.luck".to_owned()]).err().unwrap().to_string();
        assert!(error.starts_with("there is no switch \"rule.luck\" of pandemonium; there are "));
    }
}
