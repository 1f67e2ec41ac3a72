// SPDX-License-Identifier: GPL-2.0-only

//! `bench run`: measures every phase under each scheduler by turns, with the CPUs that were asked
//! for, on the machine it runs on.
//!
//! ```text
//! for each number of CPUs: calibrate; for each iteration: for each scheduler, the kernel's first:
//!     load, settle, measure every phase and save after each, unload
//! ```
//!
//! So neighbours in time are what is compared (A B A B), and whatever drifts, drifts for all.

pub mod cli;
mod contenders;
mod facts;
mod guard;
pub mod install;
mod probe;
mod progress;

use super::results::{self, Clock, Results, Run, Store};
use anyhow::{Context, Result, ensure};
use cli::RunArguments;
use contenders::{Contender, Loaded};
use guard::Cpus;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use probe::{Course, Found, Probe};
use progress::Progress;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// After a scheduler has taken over, tasks settle for so long.
const SETTLE: Duration = Duration::from_secs(1);
/// Shells say so of a program that a SIGINT has ended.
const INTERRUPTED: u8 = 130;

/// Runs the benchmark and says where the results are.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    if !arguments.kernel_only {
        preflight::check()?;
    }
    let mut bench = Bench::prepare(arguments)?;
    let outcome = bench.measure_all();
    progress::say(&format!("results: {}", bench.path.display()));
    if guard::was_interrupted() {
        eprintln!("error: interrupted; what was measured until then is in the results");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    outcome.map_err(Failure::Internal)?;
    let path = bench.path.display();
    progress::say(&format!("`scx_pandemonium_user bench report {path}` shows them"));
    match bench.results.failures.len() {
        0 => Ok(ExitCode::SUCCESS),
        failures => {
            eprintln!("error: {failures} failures, which are in the results with their words");
            Ok(ExitCode::FAILURE)
        }
    }
}

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
    /// Where installed peers are.
    peers: PathBuf,
    path: PathBuf,
    results: Results,
    store: Store,
}

/// Where a measurement stands.
#[derive(Clone, Copy)]
struct Round {
    cpus: usize,
    rounds_per_ms: u64,
    /// `None` in a warm-up, which is not counted.
    iteration: Option<u32>,
}

impl Bench {
    /// Everything that can be refused is refused here, before anything is touched.
    fn prepare(arguments: &RunArguments) -> Result<Bench, Failure> {
        let usage = |error: anyhow::Error| Failure::Usage(format!("{error:#}"));
        guard::catch_signals().map_err(Failure::Internal)?;
        let probe = Probe::find().map_err(usage)?;
        let phases = phases(&probe, &arguments.phases).map_err(usage)?;
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
            // One that does not load once does not load, and has said so.
            let mut willing = self.contenders.clone();
            for number in 0..self.warm_up + self.iterations {
                let iteration = number.checked_sub(self.warm_up);
                let round = Round { cpus, rounds_per_ms, iteration };
                for contender in willing.clone() {
                    if !self.measure_one(&contender, round, &mut progress)? {
                        willing.retain(|other| *other != contender);
                        let missing = self.warm_up + self.iterations - number - 1;
                        progress.pass(missing as usize * self.phases.len());
                    }
                }
            }
        }
        self.results.complete = true;
        self.store.save(&self.results)
    }

    /// Every phase under one scheduler, once. False if it could not be loaded.
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
                progress.pass(self.phases.len());
                return Ok(false);
            }
        };
        guard::pause(SETTLE)?;
        for phase in self.phases.clone() {
            if loaded.is_none() {
                // It was thrown out in the phase before; the next one deserves its own chance.
                loaded = contender.load(&self.peers).ok();
            }
            let Some(running) = &mut loaded else {
                let gone = anyhow::anyhow!("it could not be loaded again");
                self.fail(contender, round, Some(&phase), &gone)?;
                progress.pass(1);
                continue;
            };
            let outcome = self.measure(running, round, &phase);
            let what = round.describe(self.iterations, &contender.name, &phase);
            match outcome {
                Ok(found) => {
                    let line = progress.line(&what, &progress::some(&found.figures));
                    self.keep(contender, round, phase, found)?;
                    progress::say(&line);
                }
                Err(error) => {
                    self.fail(contender, round, Some(&phase), &error)?;
                    progress.pass(1);
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

    /// What was measured counts only if the scheduler was there until the end.
    fn measure(&self, loaded: &mut Loaded, round: Round, phase: &str) -> Result<Found> {
        let course = Course {
            seconds: self.seconds,
            // Equal iterations of two schedulers meet the same numbers.
            seed: self.results.seed.wrapping_add(u64::from(round.iteration.unwrap_or(0))),
            rounds_per_ms: round.rounds_per_ms,
            scheduler: loaded.pid(),
        };
        let found = self.probe.measure(phase, &course);
        guard::check_interrupt()?;
        loaded.check()?;
        found
    }

    fn keep(&mut self, one: &Contender, round: Round, phase: String, found: Found) -> Result<()> {
        let Some(iteration) = round.iteration else { return Ok(()) };
        let Found { figures, curves } = found;
        let (cpus, scheduler) = (round.cpus as u32, one.name.clone());
        self.results.runs.push(Run { cpus, phase, scheduler, iteration, figures, curves });
        self.store.save(&self.results)
    }

    /// Saved, then said; only an interruption ends everything.
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
        progress::say(&line);
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

/// The phases that were asked for, in the order of the tables; all of them if none was.
fn phases(probe: &Probe, wanted: &[String]) -> Result<Vec<String>> {
    let mut all = probe.phases()?;
    for name in wanted {
        let names = all.join(", ");
        ensure!(all.contains(name), "there is no phase {name:?}; there are: {names}");
    }
    all.retain(|name| wanted.is_empty() || wanted.contains(name));
    Ok(all)
}

/// Numbers of CPUs, each once, from the smallest on.
fn counts(wanted: &[u32], there_are: usize) -> Result<Vec<usize>> {
    let mut counts: Vec<usize> = wanted.iter().map(|&count| count as usize).collect();
    if counts.is_empty() {
        counts.push(there_are);
    }
    counts.sort_unstable();
    counts.dedup();
    for &count in &counts {
        ensure!(count <= there_are, "{there_are} CPUs are online, so {count} cannot be used");
    }
    Ok(counts)
}

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

/// What a person has to type to do it again.
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
    fn numbers_of_cpus_ascend_and_are_there() {
        assert_eq!(counts(&[], 4).unwrap(), [4]);
        assert_eq!(counts(&[4, 1, 2, 2], 4).unwrap(), [1, 2, 4]);
        let error = counts(&[8], 4).unwrap_err().to_string();
        assert!(error.contains("4 CPUs are online"), "{error}");
    }
}
