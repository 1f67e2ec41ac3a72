// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab swarm`: many drawn runs on all cores, and the smallest form of the first that
//! fails.

use crate::cli::SwarmArgs;
use crate::offered::catalog;
use crate::parallel;
use crate::play::Case;
use anyhow::Result;
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::knobs::Knob;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_print::print;
use pandemonium_sim::checkers::{Checker, Violation};
use pandemonium_sim::machine::START;
use pandemonium_sim::observer::{Event, Fault, Observer};
use pandemonium_sim::swarm::{self, Cuts};
use pandemonium_sim::trial::Trial;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// What a trace shows before the complaint.
const TRACE_BEFORE: Span = Span::from_millis(20);

pub fn run(args: &SwarmArgs) -> Result<ExitCode> {
    let policy = args.policy.unwrap_or_else(|| catalog().default_policy());
    let cuts = Cuts {
        faults: args.without.clone(),
        groups: args.drop.clone(),
        cpus: args.cpus,
        storm: args.storm_us.map(Span::from_micros),
    };
    let last = args.seed.saturating_add(args.runs.saturating_sub(1));
    print(&format!("seeds {} to {last}, policy {}", args.seed, policy.name));
    if args.trace {
        describe(&swarm::draw(args.seed, &cuts, policy));
    }
    let (failures, events) = search(args, policy, &cuts);
    for (seed, violation) in failures.iter().filter(|_| args.all) {
        print(&format!("seed {seed}: {}: {}", violation.checker.name(), violation.why));
    }
    let Some((seed, violation)) = failures.first() else {
        print(&format!("{} runs, {events} events: no complaint", args.runs));
        return Ok(ExitCode::SUCCESS);
    };
    if args.all {
        print(&format!("{} of {} runs fail", failures.len(), args.runs));
        return Ok(ExitCode::from(1));
    }
    let (seed, at) = (*seed, violation.at.since(START));
    let checker = violation.checker;
    print(&format!("seed {seed}: the checker of {} complains after {at}:", checker.name()));
    print(&format!("  {}", violation.why));
    print(&format!("repeat: {}", command(seed, policy, &cuts)));
    if args.trace {
        trace(&Case { trial: swarm::draw(seed, &cuts, policy) }, violation.at);
        return Ok(ExitCode::from(1));
    }
    print("looking for a smaller run that fails alike ...");
    let small = swarm::shrink(seed, policy, checker, cuts, caught_by);
    print(&format!("smaller: {} --trace", command(seed, policy, &small)));
    describe(&swarm::draw(seed, &small, policy));
    Ok(ExitCode::from(1))
}

fn caught_by(trial: &Trial) -> Option<Checker> {
    let played = Case { trial: trial.clone() }.play(&mut ());
    played.tried.verdict.err().map(|violation| violation.checker)
}

/// Tries the seeds on all cores, until one fails or to the end. The lowest comes first, whichever
/// finds it when.
fn search(args: &SwarmArgs, policy: PolicyInfo, cuts: &Cuts) -> (Vec<(u64, Violation)>, u64) {
    let available = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.jobs.unwrap_or(available).max(1);
    let (next, events) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures: Mutex<Vec<(u64, Violation)>> = Mutex::new(Vec::new());
    let bar = parallel::bar(args.runs);
    let found = || failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let seed = args.seed.wrapping_add(number);
                    if number >= args.runs || !args.all && !found().is_empty() {
                        return;
                    }
                    let played = Case { trial: swarm::draw(seed, cuts, policy) }.play(&mut ());
                    events.fetch_add(played.tried.counters.events, Ordering::Relaxed);
                    bar.inc(1);
                    if let Err(violation) = played.tried.verdict {
                        found().push((seed, violation));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut failures = std::mem::take(&mut *found());
    failures.sort_by_key(|(seed, _)| *seed);
    (failures, events.into_inner())
}

/// What repeats a run.
fn command(seed: u64, policy: PolicyInfo, cuts: &Cuts) -> String {
    let mut command = format!("pandemonium_lab swarm 1 --seed {seed}");
    if policy != catalog().default_policy() {
        command += &format!(" --policy {}", policy.name);
    }
    let list = |names: Vec<String>| names.join(",");
    if !cuts.faults.is_empty() {
        let names = cuts.faults.iter().map(|fault| fault.name().to_owned()).collect();
        command += &format!(" --without {}", list(names));
    }
    if !cuts.groups.is_empty() {
        let numbers = cuts.groups.iter().map(usize::to_string).collect();
        command += &format!(" --drop {}", list(numbers));
    }
    if let Some(cpus) = cuts.cpus {
        command += &format!(" --cpus {cpus}");
    }
    if let Some(storm) = cuts.storm {
        command += &format!(" --storm-us {}", storm.as_micros());
    }
    command
}

fn describe(trial: &Trial) {
    print(&format!("machine: {:?}", trial.setup.shape));
    let (fast, idle) = (trial.setup.fast_path, trial.setup.builtin_idle);
    print(&format!("  fast path {fast}, idle CPUs found by the backend {idle}"));
    let defaults = trial.policy.knobs.defaults();
    let turned_over = |(knob, word): &(&Knob, u64)| defaults.get(knob.name) != Some(*word);
    for (knob, word) in trial.values.iter().filter(turned_over) {
        print(&format!("knob: {} {}", knob.name, knob.show(word)));
    }
    for group in &trial.workload.groups {
        let (rows, row, nice) = (group.rows, group.row, group.nice);
        let place = group.place;
        print(&format!(
            "tasks: {rows} x {row} {} nice {nice} {place:?} {:?}",
            group.comm, group.programs
        ));
    }
    let plan = &trial.setup.faults;
    let faults: Vec<String> = Fault::ALL
        .iter()
        .filter(|fault| plan.of(**fault) > 0)
        .map(|fault| format!("{} {}", fault.name(), plan.of(*fault)))
        .collect();
    let storm = trial.storm.unwrap_or_default();
    print(&format!("faults for {storm}, in parts of a million: {}", faults.join(", ")));
}

/// Prints events around a moment.
struct Around {
    from: Stamp,
    until: Stamp,
}

impl Observer for Around {
    fn saw(&mut self, now: Stamp, event: &Event) {
        if (self.from..=self.until).contains(&now) {
            print(&format!("{:>12} {event:?}", now.since(START).as_nanos()));
        }
    }
}

fn trace(case: &Case, at: Stamp) {
    let before = at.since(START + TRACE_BEFORE);
    case.play(&mut Around { from: START + before, until: at });
}
