// SPDX-License-Identifier: GPL-2.0-only

//! `bench run`: measures every phase under each scheduler on this machine.
//!
//! ```text
//! for each number of CPUs: calibrate; for each iteration: for each scheduler, the kernel's first:
//!     load, settle, measure every phase and save after each, unload
//! ```
//!
//! The schedulers alternate (A B A B), so that a slow drift of the machine affects all of them
//! alike.

pub mod cli;
mod contenders;
mod facts;
mod guard;
pub mod install;
mod probe;
mod progress;

use super::mixes;
use super::results::{self, Clock, Results, Run, Store};
use anyhow::{Context, Result, ensure};
use cli::RunArguments;
use contenders::{Contender, Loaded};
use guard::Cpus;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use pandemonium_host::print::{print, print_error};
use pandemonium_statistics::mix::Seeds;
use probe::{Options, PhaseResult, Probe};
use progress::Progress;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Wait after a scheduler is loaded or CPUs change, so that tasks settle.
const SETTLE: Duration = Duration::from_secs(1);
/// The exit code that shells report for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Runs the benchmark and prints where the results are.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    if !arguments.kernel_only {
        preflight::check()?;
    }
    let mut bench = Bench::prepare(arguments)?;
    let outcome = bench.measure_all();
    print(&format!("results: {}", bench.path.display()));
    if guard::was_interrupted() {
        print_error("error: interrupted; the results have what was measured until then");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    outcome.map_err(Failure::Internal)?;
    let path = bench.path.display();
    print(&format!("`scx_pandemonium_user bench report {path}` shows them"));
    match bench.results.failures.len() {
        0 => Ok(ExitCode::SUCCESS),
        failures => {
            print_error(&format!("error: {failures} failures; the results have the reasons"));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A benchmark in progress.
struct Bench {
    probe: Probe,
    cpus: Cpus,
    /// Numbers of CPUs to measure with.
    counts: Vec<usize>,
    contenders: Vec<Contender>,
    phases: Vec<String>,
    iterations: u32,
    warm_up: u32,
    seconds: f64,
    /// The folder of installed schedulers.
    peers: PathBuf,
    path: PathBuf,
    results: Results,
    store: Store,
}

/// The position in the loops of [`Bench::measure_all`].
#[derive(Clone, Copy)]
struct Round {
    cpus: usize,
    /// Speed of one CPU: rounds of the probe's work in a millisecond.
    rounds_per_ms: u64,
    /// `None` in a warm-up, which is not stored.
    iteration: Option<u32>,
}

impl Bench {
    /// Checks everything that can fail before anything on the machine changes.
    fn prepare(arguments: &RunArguments) -> Result<Bench, Failure> {
        let usage = |error: anyhow::Error| Failure::Usage(format!("{error:#}"));
        guard::catch_signals().map_err(Failure::Internal)?;
        let probe = Probe::find().map_err(usage)?;
        let phases = phases(&probe, arguments).map_err(usage)?;
        let cpus = Cpus::of_this_machine().map_err(usage)?;
        let counts = counts(&arguments.cpus, cpus.count()).map_err(usage)?;
        let contenders = contenders(arguments).map_err(usage)?;
        let peers = match &arguments.peers {
            Some(folder) => folder.clone(),
            None => contenders::peers().map_err(usage)?,
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = now.map_or(0, |since| since.as_secs());
        let path = arguments.output.join(format!("bench-{started}.json"));
        let clock = if arguments.exact { Clock::Exact } else { Clock::Real };
        let machine = facts::observe(cpus.count(), clock);
        let described = contenders.iter().map(|one| one.describe(&peers)).collect();
        let results = Results::new(command_line(), arguments.seed, started, machine, described);
        let store = Store::create(&path, &results).map_err(usage)?;
        Ok(Bench {
            probe,
            cpus,
            counts,
            contenders,
            phases,
            iterations: arguments.iterations,
            warm_up: arguments.warm_up,
            seconds: arguments.seconds,
            peers,
            path,
            results,
            store,
        })
    }

    fn measure_all(&mut self) -> Result<()> {
        let rounds = (self.warm_up + self.iterations) as usize * self.counts.len();
        let phases = rounds * self.contenders.len() * self.phases.len();
        let mut progress = Progress::new(phases, self.results.machine.clock);
        for cpus in self.counts.clone() {
            self.cpus.use_first(cpus)?;
            guard::pause(SETTLE)?;
            let rounds_per_ms = self.probe.calibrate().context("calibrating")?;
            // A scheduler that fails to load once is not tried again with these CPUs.
            let mut loadable = self.contenders.clone();
            for number in 0..self.warm_up + self.iterations {
                let iteration = number.checked_sub(self.warm_up);
                let round = Round { cpus, rounds_per_ms, iteration };
                for contender in loadable.clone() {
                    if !self.measure_one(&contender, round, &mut progress)? {
                        loadable.retain(|other| *other != contender);
                        let missing = self.warm_up + self.iterations - number - 1;
                        progress.skip(missing as usize * self.phases.len());
                    }
                }
            }
        }
        self.results.complete = true;
        self.store.save(&self.results)
    }

    /// Measures every phase once under one scheduler. False if the scheduler could not be loaded.
    fn measure_one(
        &mut self,
        contender: &Contender,
        round: Round,
        progress: &mut Progress,
    ) -> Result<bool> {
        let mut loaded = match contender.load(&self.peers) {
            Ok(loaded) => Some(loaded),
            Err(error) => {
                self.fail(contender, round, None, &error)?;
                progress.skip(self.phases.len());
                return Ok(false);
            }
        };
        guard::pause(SETTLE)?;
        for phase in self.phases.clone() {
            if loaded.is_none() {
                // The kernel ejected it in the previous phase: load it again for this one.
                loaded = contender.load(&self.peers).ok();
            }
            let Some(running) = &mut loaded else {
                let error = anyhow::anyhow!("it could not be loaded again");
                self.fail(contender, round, Some(&phase), &error)?;
                progress.skip(1);
                continue;
            };
            let outcome = self.measure(running, round, &phase);
            let what = round.describe(self.iterations, &contender.name, &phase);
            match outcome {
                Ok(result) => {
                    let line = progress.line(&what, &progress::summary(&result.figures));
                    self.keep(contender, round, phase, result)?;
                    print(&line);
                }
                Err(error) => {
                    self.fail(contender, round, Some(&phase), &error)?;
                    progress.skip(1);
                    if running.check().is_err() {
                        loaded = None;
                    }
                }
            }
        }
        if let Some(Err(error)) = loaded.map(Loaded::unload) {
            self.fail(contender, round, None, &error)?;
        }
        Ok(true)
    }

    /// Measures one phase. The result counts only if the scheduler stayed loaded until the end.
    fn measure(&self, loaded: &mut Loaded, round: Round, phase: &str) -> Result<PhaseResult> {
        let options = Options {
            seconds: self.seconds,
            // The same iteration has the same seed under every scheduler.
            seed: self.results.seed.wrapping_add(u64::from(round.iteration.unwrap_or(0))),
            rounds_per_ms: round.rounds_per_ms,
            scheduler: loaded.pid(),
        };
        let result = self.probe.measure(phase, &options);
        guard::check_interrupt()?;
        loaded.check()?;
        result
    }

    /// Stores and saves a result, unless it is of a warm-up.
    fn keep(
        &mut self,
        contender: &Contender,
        round: Round,
        phase: String,
        result: PhaseResult,
    ) -> Result<()> {
        let Some(iteration) = round.iteration else { return Ok(()) };
        let PhaseResult { figures, curves, parts } = result;
        let (cpus, scheduler) = (round.cpus as u32, contender.name.clone());
        self.results.runs.push(Run { cpus, phase, scheduler, iteration, figures, curves, parts });
        self.store.save(&self.results)
    }

    /// Saves and prints a failure. The benchmark goes on, unless a signal interrupted it.
    fn fail(
        &mut self,
        contender: &Contender,
        round: Round,
        phase: Option<&str>,
        error: &anyhow::Error,
    ) -> Result<()> {
        guard::check_interrupt()?;
        let words = format!("{error:#}");
        let what = round.describe(self.iterations, &contender.name, phase.unwrap_or("loading"));
        let line = format!("FAILED {what}: {words}");
        self.results.failures.push(results::Failure {
            scheduler: contender.name.clone(),
            cpus: Some(round.cpus as u32),
            phase: phase.map(str::to_string),
            words,
        });
        self.store.save(&self.results)?;
        print(&line);
        Ok(())
    }
}

impl Round {
    fn describe(self, iterations: u32, scheduler: &str, phase: &str) -> String {
        let number = match self.iteration {
            Some(number) => format!("iteration {} of {iterations}", number + 1),
            None => "warm-up".into(),
        };
        format!("{} CPUs, {number}, {scheduler}, {phase}", self.cpus)
    }
}

/// The phases to measure, in the order of the tables, and the mixes. Without any named, all phases.
fn phases(probe: &Probe, arguments: &RunArguments) -> Result<Vec<String>> {
    let mixes = arguments.mix.into_iter().flat_map(Seeds::iter).map(mixes::name);
    if arguments.phases.is_empty() && arguments.mix.is_some() {
        return Ok(mixes.collect());
    }
    let mut all = probe.phases()?;
    let wanted: Vec<&str> =
        arguments.phases.iter().map(|name| results::current_phase(name)).collect();
    for name in &wanted {
        let names = all.join(", ");
        ensure!(all.iter().any(|it| it == name), "there is no phase {name:?}; there are: {names}");
    }
    all.retain(|name| wanted.is_empty() || wanted.contains(&name.as_str()));
    all.extend(mixes);
    Ok(all)
}

/// Distinct numbers of CPUs in ascending order; all CPUs if `wanted` is empty.
fn counts(wanted: &[u32], online: usize) -> Result<Vec<usize>> {
    let mut counts: Vec<usize> = wanted.iter().map(|&count| count as usize).collect();
    if counts.is_empty() {
        counts.push(online);
    }
    counts.sort_unstable();
    counts.dedup();
    for &count in &counts {
        ensure!(count <= online, "{online} CPUs are online, so {count} cannot be used");
    }
    Ok(counts)
}

/// The schedulers to measure, the kernel's first.
fn contenders(arguments: &RunArguments) -> Result<Vec<Contender>> {
    let mut all = vec![Contender::kernel()];
    if !arguments.kernel_only {
        if !arguments.without_ours {
            all.push(Contender::ours(&arguments.scheduler_args));
        }
        all.extend(arguments.with.iter().cloned());
    }
    for (number, one) in all.iter().enumerate() {
        let twice = all[..number].iter().any(|other| other.name == one.name);
        ensure!(!twice, "two schedulers are named {}: give one another name, x=COMMAND", one.name);
    }
    Ok(all)
}

/// The command line that repeats this run.
fn command_line() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().and_then(|name| name.to_str());
    let first = program.unwrap_or(contenders::OURS).to_string();
    let quoted = words.map(|word| match word.contains([' ', '"', '\'']) {
        true => format!("'{word}'"),
        false => word,
    });
    std::iter::once(first).chain(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cpus_are_sorted_distinct_and_online() {
        assert_eq!(counts(&[], 4).unwrap(), [4]);
        assert_eq!(counts(&[4, 1, 2, 2], 4).unwrap(), [1, 2, 4]);
        let error = counts(&[8], 4).unwrap_err().to_string();
        assert!(error.contains("4 CPUs are online"), "{error}");
    }
}
