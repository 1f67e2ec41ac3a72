// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_probe play`: plays a workload file or a mix with real processes and threads.
//!
//! The simulator plays the same files. A row of tasks is a process with a thread for each of them;
//! they wake each other through pipes or futexes, fork and execute this very program, and draw the
//! same numbers as the simulator's tasks.

mod cli;
mod executed;
mod player;
mod seat;
mod shared;
mod spawn;

pub use cli::PlayArguments;
pub use executed::{EXECUTED, executed};

use crate::report::Report;
use crate::setting;
use crate::tasks::memory::Shared;
use crate::tasks::{clock, family};
use anyhow::{Context, Result, ensure};
use pandemonium_statistics::figure::Unit;
use pandemonium_statistics::mix::{Notice, Part};
use player::World;
use shared::{Control, Recorder, Work};
use spawn::Processes;
use std::sync::atomic::Ordering::Relaxed;

/// The argument that selects this.
pub const PLAY: &str = "play";
/// From the opening of the gate to the start of the tasks: time for all of them to pass it.
const OPENING_NS: u64 = 20_000_000;
/// Longest wait for the processes to reach the gate.
const GATHERING_NS: u64 = 30_000_000_000;

/// Plays the workload and reports each part of it.
///
/// # Errors
///
/// If the file is no workload, or if its tasks cannot be started.
pub fn run(arguments: &PlayArguments) -> Result<Report> {
    setting::become_real_time();
    let cpus = setting::cpus()?;
    let workload = arguments.workload(cpus.len() as u32)?;
    let rounds_per_ms = match arguments.rounds_per_ms {
        Some(rounds) => rounds,
        None => setting::calibrate(&cpus).context("measuring how fast a CPU is")?,
    };
    let control = Shared::<Control>::new(1)?;
    let recorders = Shared::<Recorder>::new(workload.groups.len())?;
    let work = Shared::<Work>::new(workload.tasks() as usize)?;
    let mut notices = vec![None; workload.groups.len()];
    let parts = pandemonium_workload::parts(&workload);
    parts.iter().for_each(|(number, part)| notices[*number] = Some(part.notice));
    let tasks = workload.groups.iter().map(|group| group.tasks() as usize);
    let first = tasks.scan(0, |next, tasks| Some(std::mem::replace(next, *next + tasks)));
    let world = World {
        notices,
        control: &control[0],
        recorders: &recorders,
        work: &work,
        first: first.collect(),
        rounds_per_ms,
        seed: arguments.seed,
        cpus: &cpus,
        workload: &workload,
    };
    let taken = measure(&world, arguments.scheduler)?;
    let (refused, failed) = world.control.troubles();
    ensure!(
        failed == 0,
        "{failed} tasks could not be started: is there memory, and room for them?"
    );
    if refused > 0 {
        eprintln!("warning: the kernel refused {refused} tasks their nice value, class or CPUs");
    }
    Ok(report(&world, parts, &taken))
}

/// What was read at the begin and at the end of the measured time.
struct Taken {
    took_ns: u64,
    /// Rounds that each task did.
    rounds: Vec<u64>,
    /// CPU time of the scheduler, if it was asked for.
    scheduler_ns: Option<u64>,
}

/// Starts all tasks, and reads the counters at both ends of the measured time.
fn measure(world: &World, scheduler: Option<libc::pid_t>) -> Result<Taken> {
    let workload = world.workload;
    // SAFETY: takes a number. A task becomes a child of this process when its parent is killed.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut groups = Vec::new();
    for number in 0..workload.groups.len() {
        groups.push(Some(spawn::start(world, number)?));
    }
    gather(world, groups.iter().flatten().map(Processes::count).sum())?;
    let start = clock::now_ns() + OPENING_NS;
    let (from, until) = (start + workload.warmup.as_nanos(), start + workload.duration.as_nanos());
    world.control.open(start, from, until);
    // The groups that end before the others do.
    let stops = workload.groups.iter().enumerate();
    let stops = stops.filter_map(|(number, group)| Some((start + group.stop?.as_nanos(), number)));
    let mut stops: Vec<(u64, usize)> = stops.filter(|(at, _)| *at < until).collect();
    stops.sort_unstable();
    let mut stop_until = |end: u64| {
        while let Some((at, number)) = stops.first().copied().filter(|(at, _)| *at < end) {
            clock::sleep_until(at);
            groups[number] = None;
            stops.remove(0);
        }
        clock::sleep_until(end);
    };
    let used = || {
        let used = scheduler.map(family::cpu_time_ns).transpose();
        used.context("reading the CPU time of the scheduler process")
    };
    stop_until(from);
    let (began, before, own) = (clock::now_ns(), rounds(world), used()?);
    stop_until(until);
    let (ended, after, own_after) = (clock::now_ns(), rounds(world), used()?);
    drop(groups);
    // SAFETY: waits for every child that is left, all of them killed with their parents.
    while unsafe { libc::wait(std::ptr::null_mut()) } > 0 {}
    Ok(Taken {
        took_ns: (ended - began).max(1),
        rounds: after.iter().zip(before).map(|(after, before)| after - before).collect(),
        scheduler_ns: own_after.zip(own).map(|(after, before)| after.saturating_sub(before)),
    })
}

/// Waits until all processes wait at the gate.
fn gather(world: &World, processes: usize) -> Result<()> {
    let limit = clock::now_ns() + GATHERING_NS;
    while !world.control.are_ready(processes) {
        ensure!(clock::now_ns() < limit, "{processes} processes did not all start in time");
        shared::nap();
    }
    Ok(())
}

fn rounds(world: &World) -> Vec<u64> {
    world.work.iter().map(|work| work.0.load(Relaxed)).collect()
}

fn report(world: &World, parts: Vec<(usize, Part)>, taken: &Taken) -> Report {
    let mut report = Report::default();
    for (number, part) in parts {
        let part = filled(world, number, part, taken);
        if part.notice != Notice::Work {
            let name = figure_name(number, &part.name);
            report.lower(format!("{name}.p99"), Unit::Us, part.p99_us);
            if part.notice == Notice::Frame {
                report.lower(format!("{name}.missed"), Unit::Count, part.missed as f64);
            }
        }
        report.parts.push(part);
    }
    let work: f64 = report.parts.iter().map(|part| part.work).sum();
    report.higher("work", Unit::Percent, work * 100.0);
    if let Some(ns) = taken.scheduler_ns {
        report.lower("own_cpu", Unit::Percent, ns as f64 * 100.0 / taken.took_ns as f64);
    }
    report
}

/// A part with what was measured of it.
fn filled(world: &World, number: usize, part: Part, taken: &Taken) -> Part {
    let recorder = &world.recorders[number];
    let first = world.first[number];
    let each = &taken.rounds[first..first + world.workload.groups[number].tasks() as usize];
    let (least, most) = (each.iter().min(), each.iter().max());
    let spread = least.zip(most).filter(|(_, most)| part.equals && each.len() > 1 && **most > 0);
    let all = world.rounds_per_ms as f64 * taken.took_ns as f64 / 1e6;
    Part {
        count: recorder.count(),
        p50_us: recorder.quantile_us(500),
        p99_us: recorder.quantile_us(990),
        p999_us: recorder.quantile_us(999),
        worst_us: recorder.quantile_us(1_000),
        missed: recorder.missed(),
        work: each.iter().sum::<u64>() as f64 / all,
        least_to_most: spread.map(|(least, most)| *least as f64 / *most as f64),
        ..part
    }
}

/// The name of a part's figures: names in a results file have few characters.
fn figure_name(number: usize, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{number}.{}", name.chars().map(plain).collect::<String>())
}
