// SPDX-License-Identifier: GPL-2.0-only

//! The bars: every workload in one boot in exact mode, first under the kernel's own scheduler, then
//! under ours; one boot for each number of CPUs.

mod measures;
mod results;

use super::assets::Assets;
use super::cli::BarsArguments;
use super::image::Kernel;
use super::progress;
use super::runner::{self, Boot, Outcome};
use crate::bars::{PHASES, Plan};
use crate::protocol::{Message, Mode};
use crate::scenarios;
use anyhow::{Context, Result};
use results::{Figures, Results};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Limit for the boot, the BPF verifier and the waits for an idle machine, in seconds of fast mode.
const LIMIT_S: u64 = 60;
/// Limit for a phase under both schedulers, likewise.
const LIMIT_S_PHASE: u64 = 25;

/// Returns whether every boot reached its end, and with `--strict` whether the bars are met.
pub fn run(arguments: &BarsArguments) -> Result<bool> {
    let plan = plan(arguments);
    // Checks the options before anything boots.
    plan.to_word()?;
    let (assets, kernel) = arguments.subject.find()?;
    let mut all: Vec<Results> = Vec::new();
    for &cpus in &arguments.cpus {
        let results = run_one(&assets, &kernel, &plan, cpus)?;
        results.print();
        all.push(results);
        // After each boot, so that a later failure loses no figures.
        if let Some(path) = &arguments.json {
            write(path, &all)?;
        }
        if runner::was_interrupted() {
            return Ok(false);
        }
    }
    let finished = all.iter().all(|results| results.trouble.is_none());
    Ok(finished && (!arguments.strict || all.iter().all(Results::meets_all)))
}

fn plan(arguments: &BarsArguments) -> Plan {
    let chosen = |phase: &_| arguments.only.is_empty() || arguments.only.contains(phase);
    Plan {
        phases: PHASES.into_iter().filter(chosen).collect(),
        rounds: arguments.repeat,
        options: arguments.scheduler_args.split_whitespace().map(str::to_string).collect(),
    }
}

fn run_one(assets: &Assets, kernel: &Kernel, plan: &Plan, cpus: u32) -> Result<Results> {
    progress::line(&format!("Linux {}, {cpus} CPUs: booting", kernel.name));
    let boot = Boot {
        assets,
        kernel,
        scenario: scenarios::find("bars").context("the scenario of the bars")?,
        cpus,
        mode: Mode::Exact,
        detail: &plan.to_word()?,
        limit_s: LIMIT_S + LIMIT_S_PHASE * plan.phases.len() as u64 * u64::from(plan.rounds),
    };
    let start = Instant::now();
    let mut figures = Figures::default();
    let outcome = boot.run(&mut |message| match message {
        Message::Note { text } => {
            progress::line(&format!("{:4} s  {text}", start.elapsed().as_secs()));
        }
        Message::Metric { name, value } => figures.add(name, *value),
        _ => {}
    })?;
    let trouble =
        (outcome != Outcome::Passed).then(|| format!("{}: {}", outcome.name(), outcome.reason()));
    if let Some(trouble) = &trouble {
        progress::line(&format!("{trouble}\nconsole: {}", boot.console_path().display()));
    }
    Ok(Results {
        kernel: kernel.name.clone(),
        cpus,
        scheduler: assets.scheduler_name()?,
        scheduler_args: plan.options.clone(),
        trouble,
        rows: figures.judge(&plan.phases, cpus),
    })
}

fn write(path: &Path, all: &[Results]) -> Result<()> {
    let text = serde_json::to_string_pretty(all).context("figures are finite numbers")?;
    fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
