// SPDX-License-Identifier: GPL-2.0-only

//! Runs scenarios on kernels, one boot each.

use super::assets::Assets;
use super::cli::SuiteArguments;
use super::kernel::{self, Kernel};
use super::progress;
use super::runner::{self, Boot, Outcome};
use super::table::{self, Row};
use crate::protocol::{Message, Mode};
use crate::scenario::{self, Expect, Scenario};
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
    let tolerated = rows.len().div_ceil(DISTURBED_ONE_IN);
    if disturbed > tolerated {
        println!("{disturbed} scenarios needed a second try, and {tolerated} are tolerated");
    }
    let passed = rows.iter().all(Row::passed) && disturbed <= tolerated;
    Ok(passed && !runner::was_interrupted())
}

/// Time in fast mode is the host's, so a host that stands still for seconds looks like a scheduler
/// that does: a scenario that failed there by its own judgement is tried once more, visibly, and in
/// exact time, where the host does not matter. More of them than one in so many are no accident.
const DISTURBED_ONE_IN: usize = 10;

fn run_one(
    assets: &Assets,
    kernel: &Kernel,
    scenario: &'static Scenario,
    arguments: &SuiteArguments,
) -> Result<Row> {
    let mode = if scenario.exact { Mode::Exact } else { arguments.mode };
    let mut boot = Boot {
        assets,
        kernel,
        scenario,
        cpus: scenario.cpus.unwrap_or(arguments.cpus),
        mode,
        // Only the suite's test of itself makes use of it.
        detail: "1",
        limit_s: scenario.limit_s,
    };
    let mut journal = Journal { live: arguments.tells_all(), held: Vec::new() };
    let mut row = try_once(scenario, &boot, &mut journal, None)?;
    let again = mode == Mode::Fast || scenario.expect == Expect::PassAgain;
    if !row.passed() && again && row.outcome.may_be_the_hosts() {
        let first = format!("{}: {}", row.outcome.name(), row.outcome.reason());
        journal.add(&format!("first try: {first}; once more, in exact time"));
        (boot.mode, boot.detail) = (Mode::Exact, "2");
        row = try_once(scenario, &boot, &mut journal, Some(first))?;
    }
    if !row.passed() || row.was_disturbed() {
        journal.reveal();
    }
    progress::line(&row.line());
    Ok(row)
}

/// What a scenario says: shown as it comes, or held back and shown only if it goes wrong.
struct Journal {
    live: bool,
    held: Vec<String>,
}

impl Journal {
    fn add(&mut self, text: &str) {
        let line = format!("    {text}");
        match self.live {
            true => progress::line(&line),
            false => self.held.push(line),
        }
    }

    fn hear(&mut self, message: &Message) {
        match message {
            Message::Note { text } => self.add(text),
            Message::Metric { name, value } => self.add(&format!("{name} = {value}")),
            Message::Telemetry { line } => self.add(&format!("| {line}")),
            _ => {}
        }
    }

    fn reveal(&mut self) {
        self.held.drain(..).for_each(|line| progress::line(&line));
    }
}

/// One boot. `first` is why the one before it failed.
fn try_once(
    scenario: &'static Scenario,
    boot: &Boot,
    journal: &mut Journal,
    first: Option<String>,
) -> Result<Row> {
    let start = Instant::now();
    let outcome = boot.run(&mut |message| journal.hear(message))?;
    let (kernel, took) = (boot.kernel.name.clone(), start.elapsed());
    let row = Row { kernel, scenario, outcome, first, took };
    if !row.passed() {
        // A second try would write over it.
        let kept = boot.console_path().with_extension(format!("{}.log", boot.detail));
        let _ = std::fs::rename(boot.console_path(), &kept);
        journal.add(&format!("console: {}", kept.display()));
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
