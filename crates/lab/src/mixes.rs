// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab mixes`: workloads that seeds have drawn, under two policies or more, judged
//! part by part.

use crate::cli::MixesArgs;
use crate::mix::{Mix, mix};
use crate::parallel;
use crate::play::Case;
use crate::what::What;
use anyhow::{Context, Result, anyhow};
use pandemonium_print::{print, print_error};
use pandemonium_statistics::mix::judge::{Line, judge};
use pandemonium_statistics::mix::report;
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
