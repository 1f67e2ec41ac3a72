// SPDX-License-Identifier: GPL-2.0-only

//! `bench mixes`: the mixes of a results file, judged part by part beside the first scheduler.

use super::cli::MixesArguments;
use super::report;
use super::results::{self, Clock, Results, Run};
use anyhow::{Context, Result, anyhow, ensure};
use pandemonium_host::print;
use pandemonium_statistics::mix::judge::{Line, Measured, judge};
use pandemonium_statistics::mix::report as drawn;
use std::process::ExitCode;

/// The begin of the name of a mix, as a phase; its seed follows.
const MIX: &str = "mix-";
/// Options of one word that change what a mix measures.
const KEPT: [&str; 3] = ["--seconds", "--seed", "--series"];

/// The name of the mix of this seed.
pub fn name(seed: u64) -> String {
    format!("{MIX}{seed}")
}

/// The seed of a mix; `None` if the phase is no mix.
pub fn seed(phase: &str) -> Option<u64> {
    phase.strip_prefix(MIX)?.parse().ok()
}

/// Runs the command.
pub fn run(arguments: &MixesArguments) -> Result<ExitCode> {
    let mut results = results::read(&arguments.file)?;
    if let Some(name) = &arguments.beside {
        report::put_first(&mut results, name)?;
    }
    let [base, others @ ..] = &results.schedulers[..] else { return Ok(ExitCode::SUCCESS) };
    let chosen =
        |name: &String| arguments.scheduler.is_empty() || arguments.scheduler.contains(name);
    let others: Vec<&String> = others.iter().map(|it| &it.name).filter(|it| chosen(it)).collect();
    ensure!(!others.is_empty(), "there is no such scheduler to compare {} with", base.name);
    let (mut text, mut last) = (String::new(), Vec::new());
    for scheduler in others {
        last = lines(&results, &base.name, scheduler)?;
        ensure!(!last.is_empty(), "the file has no mix of {} and {scheduler}", base.name);
        let title = format!("{scheduler} by {}, Linux {}", base.name, results.machine.kernel);
        let gap = if text.is_empty() { "" } else { "\n" };
        text += &format!("{gap}{}", drawn::text(&title, &last, |line| repeat(&results, line)));
    }
    for failure in results.failures.iter().filter(|it| it.phase.as_deref().is_none_or(is_mix)) {
        text += &format!("\nFAILED {}\n", failure.sentence());
    }
    print::print_bytes(print::printable(&text).as_bytes());
    if let Some(path) = &arguments.picture {
        let picture = drawn::picture(&last)?;
        let written = report::write(path, &picture);
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_mix(phase: &str) -> bool {
    seed(phase).is_some()
}

/// One line for each mix that both schedulers have, for each iteration.
fn lines(results: &Results, base: &str, scheduler: &str) -> Result<Vec<Line>> {
    let of = |name: &str| -> Vec<&Run> {
        let runs = results.runs.iter();
        runs.filter(|run| run.scheduler == name && !run.parts.is_empty()).collect()
    };
    let (base, judged) = (of(base), of(scheduler));
    let same = |one: &Run, other: &Run| {
        (&one.phase, one.cpus, one.iteration) == (&other.phase, other.cpus, other.iteration)
    };
    let pairs = base.iter().filter_map(|run| {
        let other = judged.iter().find(|other| same(run, other))?;
        Some(judge(measured(run), measured(other)))
    });
    pairs.collect::<Result<Vec<Line>, String>>().map_err(|error| anyhow!(error))
}

fn measured(run: &Run) -> Measured<'_> {
    Measured { mix: &run.phase, cpus: run.cpus, parts: &run.parts }
}

/// The command that repeats a mix.
fn repeat(results: &Results, line: &Line) -> String {
    let (seed, cpus) = (seed(&line.mix).unwrap_or_default(), line.cpus);
    let program = match results.machine.clock {
        Clock::Exact => "pandemonium_vm lab",
        Clock::Real => "pandemonium_bench run",
    };
    let more = kept(&results.command);
    format!("{program} --mix {seed} --cpus {cpus} --iterations 1{more}")
}

/// The options of a command line that change what a mix measures, to be given again.
fn kept(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let pairs = words.windows(2).filter(|pair| KEPT.contains(&pair[0]));
    pairs.map(|pair| format!(" {} {}", pair[0], pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_a_phase_with_a_seed() {
        assert_eq!(seed(&name(12)), Some(12));
        assert_eq!(["mixed", "mix-", "mix-x", "wake"].map(seed), [None; 4]);
    }

    #[test]
    fn what_repeats_a_mix_measures_it_as_long_on_the_same_kernel() {
        let command = "pandemonium_vm lab --mix 2..8 --seconds 4 --cpus 1,2 --series 7.3";
        assert_eq!(kept(command), " --seconds 4 --series 7.3");
        assert_eq!(kept("pandemonium_bench run --mix 2"), "");
    }
}
