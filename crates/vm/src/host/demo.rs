// SPDX-License-Identifier: GPL-2.0-only

//! The demonstration: one boot in exact mode with its progress on the screen, and a table of what
//! it measured.

use super::cli::Subject;
use super::image::Kernel;
use super::progress;
use super::runner::{Boot, Outcome};
use crate::protocol::{Message, Mode};
use crate::scenarios;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const CPUS: u32 = 2;

/// One line of the table: label, name of the metric, and whether less is better.
const MEASURES: [(&str, &str, bool); 3] = [
    ("wakeup p50, us", "wake_p50_us", true),
    ("wakeup p99, us", "wake_p99_us", true),
    ("hogs' work, units/s", "work_per_s", false),
];

/// Returns whether the demonstration reached its end.
pub fn run(subject: &Subject) -> Result<bool> {
    let (assets, kernel) = subject.find()?;
    introduce(&kernel);
    let scenario = scenarios::find("demo").context("the scenario of the demonstration")?;
    let boot = Boot {
        assets: &assets,
        kernel: &kernel,
        scenario,
        cpus: CPUS,
        mode: Mode::Exact,
        detail: "",
        limit_s: scenario.limit_s,
    };
    let mut metrics = BTreeMap::new();
    let outcome = boot.run(&mut |message| match message {
        Message::Note { text } => progress::line(text),
        Message::Telemetry { line } => progress::line(&format!("  {line}")),
        Message::Metric { name, value } => {
            metrics.insert(name.clone(), *value);
        }
        _ => {}
    })?;
    if outcome != Outcome::Passed {
        println!("\nThe demonstration did not finish: {}: {}", outcome.name(), outcome.reason());
        println!("The kernel's console: {}", boot.console_path().display());
        return Ok(false);
    }
    print_table(&assets.scheduler_name()?, &metrics);
    Ok(true)
}

fn introduce(kernel: &Kernel) {
    println!(
        "Booting Linux {} with {CPUS} virtual CPUs in QEMU; nothing on this machine is changed.",
        kernel.name
    );
    println!(
        "Time in the guest counts instructions, 1 ns each, so other load here changes no figure."
    );
    println!("It takes about half a minute.\n");
}

fn print_table(scheduler: &str, metrics: &BTreeMap<String, f64>) {
    let title = "kernel's own (EEVDF)";
    let width = scheduler.len().max(title.len());
    println!("\n{:21}  {title:>width$}  {scheduler:>width$}  ratio", "");
    for (label, name, less_is_better) in MEASURES {
        let value = |side: &str| metrics.get(&format!("{side}.{name}")).copied();
        if let (Some(theirs), Some(ours)) = (value("kernel"), value("ours")) {
            let ratio = ours / theirs.max(f64::MIN_POSITIVE);
            let better = if (ratio < 1.0) == less_is_better { "better" } else { "worse" };
            let verdict = if (0.98..=1.02).contains(&ratio) { "same" } else { better };
            println!("{label:21}  {theirs:>width$.0}  {ours:>width$.0}  {ratio:.2} ({verdict})");
        }
    }
}
