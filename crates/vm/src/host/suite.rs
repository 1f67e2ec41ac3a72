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
use anyhow::{Result, anyhow, bail};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
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
    let boots = kernels.iter().enumerate().flat_map(|(number, kernel)| {
        let wanted = scenarios.iter().filter(move |scenario| number == 0 || !scenario.once);
        wanted.map(move |&scenario| (kernel, scenario))
    });
    let is_exact = |scenario: &Scenario| mode(scenario, arguments) == Mode::Exact;
    let (mut exact, fast): (Vec<_>, Vec<_>) = boots.partition(|(_, scenario)| is_exact(scenario));
    // Several run at once, and a long one that begins last would run alone.
    exact.sort_by_key(|(_, scenario)| Reverse(scenario.limit_s));
    let rows = run_all(&assets, &fast, &exact, arguments)?;
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

fn mode(scenario: &Scenario, arguments: &SuiteArguments) -> Mode {
    if scenario.exact { Mode::Exact } else { arguments.mode }
}

/// Boots of one mode, taken one after the other by whoever is free.
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

/// Boots all of them until somebody interrupts. Those in fast mode go one after the other: their
/// time is the host's. A machine in exact mode does not mind how much of the host it gets, so
/// meanwhile the host's other CPUs have those, which make way for the fast ones.
fn run_all(
    assets: &Assets,
    fast: &[(&Kernel, &'static Scenario)],
    exact: &[(&Kernel, &'static Scenario)],
    arguments: &SuiteArguments,
) -> Result<Vec<Row>> {
    // Made at the first use, which must not be that of two.
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
        // Only the suite's test of itself makes use of it.
        detail: "1",
        limit_s: scenario.limit_s,
    };
    let mut journal = Journal { live: alone && arguments.tells_all(), held: Vec::new() };
    let mut row = try_once(&boot, &mut journal, None)?;
    let again = mode == Mode::Fast || scenario.expect == Expect::PassAgain;
    if !row.passed() && again && row.outcome.may_be_the_hosts() {
        let first = format!("{}: {}", row.outcome.name(), row.outcome.reason());
        journal.add(&format!("first try: {first}; once more, in exact time"));
        (boot.mode, boot.detail) = (Mode::Exact, "2");
        row = try_once(&boot, &mut journal, Some(first))?;
    }
    let tells = arguments.tells_all() || !row.passed() || row.was_disturbed();
    let mut told = if tells { journal.held } else { Vec::new() };
    told.push(row.line());
    // At once, since another boot may have something to say.
    progress::line(&told.join("\n"));
    Ok(row)
}

/// What a scenario says: shown as it comes, or held back until it is through.
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
}

/// One boot. `first` is why the one before it failed.
fn try_once(boot: &Boot, journal: &mut Journal, first: Option<String>) -> Result<Row> {
    let start = Instant::now();
    let outcome = boot.run(&mut |message| journal.hear(message))?;
    let (kernel, took) = (boot.kernel.name.clone(), start.elapsed());
    let row = Row { kernel, scenario: boot.scenario, outcome, first, took };
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
