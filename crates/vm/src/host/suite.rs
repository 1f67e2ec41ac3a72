// SPDX-License-Identifier: GPL-2.0-only

//! Runs scenarios on kernels, one boot each.

use super::assets::Assets;
use super::cli::SuiteArguments;
use super::image::Kernel;
use super::kernel;
use super::progress;
use super::runner::{self, Boot, Outcome};
use super::table::{self, Row};
use crate::protocol::{Message, Mode};
use crate::scenario::{Expect, Scenario};
use crate::scenarios;
use anyhow::{Result, anyhow, bail};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Returns whether everything passed. An error means that the suite could not run.
pub fn run(arguments: &SuiteArguments) -> Result<bool> {
    if arguments.list {
        list();
        return Ok(true);
    }
    let scenarios = choose(&arguments.only)?;
    let assets = Assets::find(arguments.scheduler.as_deref())?;
    let kernels = kernels(&assets, arguments)?;
    let boots = kernels.iter().enumerate().flat_map(|(number, kernel)| {
        let wanted = scenarios.iter().filter(move |scenario| number == 0 || !scenario.once);
        wanted.map(move |&scenario| (kernel, scenario))
    });
    let is_exact = |scenario: &Scenario| mode(scenario, arguments) == Mode::Exact;
    let (mut exact, fast): (Vec<_>, Vec<_>) = boots.partition(|(_, scenario)| is_exact(scenario));
    // Several boots run at once: start the longest first, so that it does not run alone at the end.
    exact.sort_by_key(|(_, scenario)| Reverse(scenario.limit_s));
    let rows = run_all(&assets, &fast, &exact, arguments)?;
    table::print(&rows);
    let disturbed = rows.iter().filter(|row| row.was_disturbed()).count();
    let tolerated = rows.len().div_ceil(DISTURBED_ONE_IN);
    if disturbed > tolerated {
        println!("{disturbed} scenarios needed a second try, more than the {tolerated} allowed");
    }
    let passed = rows.iter().all(Row::passed) && disturbed <= tolerated;
    Ok(passed && !runner::was_interrupted())
}

/// In fast mode a host that stops for seconds looks like a scheduler that stops. So a scenario that
/// fails in fast mode by its own verdict gets a second try in exact mode, where the host's load
/// does not matter, and the table says so. If more than one in so many need it, the suite fails.
const DISTURBED_ONE_IN: usize = 10;

fn mode(scenario: &Scenario, arguments: &SuiteArguments) -> Mode {
    if scenario.exact { Mode::Exact } else { arguments.mode }
}

/// Boots of one mode; each worker thread takes the next one when it is free.
struct Queue<'a> {
    boots: &'a [(&'a Kernel, &'static Scenario)],
    taken: AtomicUsize,
}

impl<'a> Queue<'a> {
    fn new(boots: &'a [(&'a Kernel, &'static Scenario)]) -> Self {
        Queue { boots, taken: AtomicUsize::new(0) }
    }

    fn take(&self) -> Option<&'a (&'a Kernel, &'static Scenario)> {
        self.boots.get(self.taken.fetch_add(1, Ordering::Relaxed))
    }
}

/// Runs all boots, or until an interrupt. One worker runs the boots in fast mode one after the
/// other, because they depend on the host's speed. The other workers run boots in exact mode
/// meanwhile, at a lower priority.
fn run_all(
    assets: &Assets,
    fast: &[(&Kernel, &'static Scenario)],
    exact: &[(&Kernel, &'static Scenario)],
    arguments: &SuiteArguments,
) -> Result<Vec<Row>> {
    // Make the archives now: two workers would make the same one at once.
    for (_, scenario) in fast.iter().chain(exact) {
        assets.initramfs(scenario.stress_ng)?;
    }
    let (fast, exact) = (Queue::new(fast), Queue::new(exact));
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let workers = at_once.min(exact.boots.len() + fast.boots.len().min(1));
    let work = &|worker: usize| -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let queues: &[&Queue] = if worker == 0 { &[&fast, &exact] } else { &[&exact] };
        while let Some((kernel, scenario)) = queues.iter().find_map(|queue| queue.take()) {
            match run_one(assets, kernel, scenario, arguments, workers == 1)? {
                Row { outcome: Outcome::Interrupted, .. } => break,
                row => rows.push(row),
            }
        }
        Ok(rows)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|n| scope.spawn(move || work(n))).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow!("a boot's thread panicked"))??);
        }
        Ok(all)
    })
}

fn run_one(
    assets: &Assets,
    kernel: &Kernel,
    scenario: &'static Scenario,
    arguments: &SuiteArguments,
    alone: bool,
) -> Result<Row> {
    let mode = mode(scenario, arguments);
    let mut boot = Boot {
        assets,
        kernel,
        scenario,
        cpus: scenario.cpus.unwrap_or(arguments.cpus),
        mode,
        // The number of the try, which only the scenarios of harness.rs read.
        detail: "1",
        limit_s: scenario.limit_s,
    };
    let mut journal = Journal { live: alone && arguments.shows_all(), held: Vec::new() };
    let mut row = try_once(&boot, &mut journal, None)?;
    let again = mode == Mode::Fast || scenario.expect == Expect::PassAgain;
    if !row.passed() && again && row.outcome.may_be_the_hosts() {
        let first = format!("{}: {}", row.outcome.name(), row.outcome.reason());
        journal.add(&format!("first try: {first}; second try in exact mode"));
        (boot.mode, boot.detail) = (Mode::Exact, "2");
        row = try_once(&boot, &mut journal, Some(first))?;
    }
    let shows = arguments.shows_all() || !row.passed() || row.was_disturbed();
    let mut lines = if shows { journal.held } else { Vec::new() };
    lines.push(row.line());
    // In one call, because another boot may print at the same time.
    progress::line(&lines.join("\n"));
    Ok(row)
}

/// The messages of a scenario: shown at once, or held until it ends.
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

    fn add_message(&mut self, message: &Message) {
        match message {
            Message::Note { text } => self.add(text),
            Message::Metric { name, value } => self.add(&format!("{name} = {value}")),
            Message::Telemetry { line } => self.add(&format!("| {line}")),
            _ => {}
        }
    }
}

/// One boot. `first` is the reason why the first try failed.
fn try_once(boot: &Boot, journal: &mut Journal, first: Option<String>) -> Result<Row> {
    let start = Instant::now();
    let outcome = boot.run(&mut |message| journal.add_message(message))?;
    let (kernel, took) = (boot.kernel.name.clone(), start.elapsed());
    let row = Row { kernel, scenario: boot.scenario, outcome, first, took };
    if !row.passed() {
        // A second try would overwrite it.
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
    if let Some(unknown) = only.iter().find(|name| scenarios::find(name).is_none()) {
        bail!("there is no scenario named {unknown}: `suite --list` prints all names");
    }
    if only.is_empty() {
        return Ok(scenarios::suite().collect());
    }
    Ok(only.iter().filter_map(|name| scenarios::find(name)).collect())
}

fn list() {
    let width = scenarios::suite().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    for scenario in scenarios::suite() {
        println!("{:width$}  {}", scenario.name, scenario.about);
    }
}
