// SPDX-License-Identifier: GPL-2.0-only

//! Runs scenarios on kernels, one boot each.

use super::assets::Assets;
use super::cli::SuiteArguments;
use super::kernel::{self, Kernel};
use super::progress;
use super::runner::{self, Boot, Outcome};
use super::table::{self, Row};
use crate::protocol::{Message, Mode};
use crate::scenario::{self, Scenario};
use anyhow::{Result, bail};
use std::time::Instant;

/// Whether everything passed; errors are about the set-up, never about a scenario.
pub fn run(arguments: &SuiteArguments) -> Result<bool> {
    if arguments.list {
        list();
        return Ok(true);
    }
    let scenarios = choose(&arguments.only)?;
    let assets = Assets::find(arguments.scheduler.as_deref())?;
    let kernels = kernels(&assets, arguments)?;
    let mut rows: Vec<Row> = Vec::new();
    'all: for (number, kernel) in kernels.iter().enumerate() {
        for &scenario in scenarios.iter().filter(|scenario| number == 0 || !scenario.once) {
            match run_one(&assets, kernel, scenario, arguments)? {
                Row { outcome: Outcome::Interrupted, .. } => break 'all,
                row => rows.push(row),
            }
        }
    }
    table::print(&rows);
    let disturbed = rows.iter().filter(|row| row.was_disturbed()).count();
    if disturbed > DISTURBED_MAX {
        println!("{disturbed} scenarios needed a second try, and {DISTURBED_MAX} are tolerated");
    }
    let passed = rows.iter().all(Row::passed) && disturbed <= DISTURBED_MAX;
    Ok(passed && !runner::was_interrupted())
}

/// Time in fast mode is the host's, so a host that stands still for seconds looks like a scheduler
/// that does: a scenario that failed there by its own judgement is tried once more, visibly. More
/// of them in one suite than this are no accident.
const DISTURBED_MAX: usize = 2;

fn run_one(
    assets: &Assets,
    kernel: &Kernel,
    scenario: &'static Scenario,
    arguments: &SuiteArguments,
) -> Result<Row> {
    let first = try_once(assets, kernel, scenario, arguments, None)?;
    let again = first.outcome.may_be_the_hosts() && !scenario.exact;
    if first.passed() || !again || arguments.mode == Mode::Exact {
        return Ok(first);
    }
    let failed = format!("{}: {}", first.outcome.name(), first.outcome.reason());
    try_once(assets, kernel, scenario, arguments, Some(failed))
}

/// One boot. `first` is why the one before it failed.
fn try_once(
    assets: &Assets,
    kernel: &Kernel,
    scenario: &'static Scenario,
    arguments: &SuiteArguments,
    first: Option<String>,
) -> Result<Row> {
    progress::line(&format!("{} {}: starting", kernel.name, scenario.name));
    // Only the suite's test of itself makes use of it.
    let attempt = if first.is_none() { "1" } else { "2" };
    let boot = Boot {
        assets,
        kernel,
        scenario,
        cpus: scenario.cpus.unwrap_or(arguments.cpus),
        mode: if scenario.exact { Mode::Exact } else { arguments.mode },
        detail: attempt,
        limit_s: scenario.limit_s,
    };
    let start = Instant::now();
    let outcome = boot.run(&mut |message| match message {
        Message::Note { text } => progress::line(&format!("    {text}")),
        Message::Metric { name, value } => progress::line(&format!("    {name} = {value}")),
        Message::Telemetry { line } => progress::line(&format!("    | {line}")),
        _ => {}
    })?;
    let (kernel, took) = (kernel.name.clone(), start.elapsed());
    let row = Row { kernel, scenario, outcome, first, took };
    progress::line(&format!(
        "{} {}: {} in {} s",
        row.kernel,
        scenario.name,
        row.verdict(),
        row.took.as_secs()
    ));
    if !row.outcome.reason().is_empty() {
        progress::line(&format!("    {}", row.outcome.reason()));
    }
    if !row.passed() {
        // A second try would write over it.
        let kept = boot.console_path().with_extension(format!("{attempt}.log"));
        let _ = std::fs::rename(boot.console_path(), &kept);
        progress::line(&format!("    console: {}", kept.display()));
    }
    Ok(row)
}

fn kernels(assets: &Assets, arguments: &SuiteArguments) -> Result<Vec<Kernel>> {
    if !arguments.kernel.is_empty() {
        return arguments.kernel.iter().map(|path| kernel::of_user(path)).collect();
    }
    arguments.series.iter().map(|series| kernel::of_series(assets, series)).collect()
}

fn choose(only: &[String]) -> Result<Vec<&'static Scenario>> {
    if let Some(unknown) = only.iter().find(|name| scenario::find(name).is_none()) {
        bail!("there is no scenario named {unknown}: --list names them");
    }
    if only.is_empty() {
        return Ok(scenario::suite().collect());
    }
    Ok(only.iter().filter_map(|name| scenario::find(name)).collect())
}

fn list() {
    let width = scenario::suite().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    for scenario in scenario::suite() {
        println!("{:width$}  {}", scenario.name, scenario.about);
    }
}
