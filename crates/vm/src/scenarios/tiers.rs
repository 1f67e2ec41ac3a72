// SPDX-License-Identifier: GPL-2.0-only

//! How the scheduler classifies tasks: by behaviour at first, by name at the next start.

use super::control::ask;
use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::{Ended, Scheduler};
use crate::guest::{Guest, boot, clock, family, report, wakeups, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::CStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "tiers",
        about: "a frame loop, audio, a compiler storm, hogs and a shell get their tiers, and their \
            names are known at the next start. In exact mode: a host that stops a virtual CPU in \
            the middle of a frame would change the task's behaviour",
        limit_s: 90,
        exact: true,
        once: true,
        run: tiers,
        ..USUAL
    },
    Scenario {
        name: "sudden-load",
        about: "eight hogs for each CPU start on an idle machine, where a task has found idle CPUs \
            and was never queued to user space: at its first queued wakeup it must be classified \
            by its behaviour, and not wait in line with the new tasks",
        cpus: Some(2),
        exact: true,
        once: true,
        run: sudden_load,
        ..USUAL
    },
];

const FILE: &str = "/var/lib/scx_pandemonium_user/tiers.bin";
const FIRST_S: u64 = 5;
const SECOND_S: u64 = 2;
const TIERS: [&str; 3] = ["batch", "interactive", "lat-critical"];
/// From this CPU time on a compiler must be Batch. A new child runs four times
/// `cpu_bound_thresh_us` (2.5 ms) before the policy calls it Batch, and the policy notices only at
/// the end of a slice.
const COMPILES_FROM_MS: u64 = 20;
/// CPU time at which a compiler is old enough in the policy's counters too, which lag by a slice,
/// and still runs when the scheduler stops: the shortest takes 80 ms.
const COMPILES_NOW_MS: std::ops::Range<u64> = 42..60;
/// One reaches that time several times a second.
const COMPILES_LIMIT: Duration = Duration::from_secs(10);

/// Names, what they do, and the tiers in which they may be.
const LIVES: [(&CStr, Life, &[&str]); 4] = [
    (
        c"frames60",
        Life::Periodic { period_us: 16_667, work_us: 4_000 },
        &["interactive", "lat-critical"],
    ),
    (c"audio5ms", Life::Periodic { period_us: 5_000, work_us: 300 }, &["lat-critical"]),
    (c"shell", Life::Periodic { period_us: 200_000, work_us: 300 }, &["interactive"]),
    (c"hog", Life::Hog, &["batch"]),
];

/// One task in the table at the end.
struct Known {
    name: String,
    tier: String,
    run_ms: u64,
}

const QUIET: Duration = Duration::from_millis(1_500);
/// Beside the new hogs for half of the time.
const SUDDEN_S: u64 = 3;
/// The wakee was 0.8 and 1.2 ms late in two runs, a slice. It was 7 to 16 ms late when it counted
/// as a new task.
const SUDDEN_MAX_US: f64 = 3_000.0;

fn sudden_load(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let probe = wakeups::start(SUDDEN_S)?;
    sleep(QUIET);
    let load = boot::as_ordinary_task(|| Load::start(&vec![Kind::Hog; 8 * guest.cpus]))?;
    let late = probe.finish()?;
    let said = format!("of {} wakeups the worst was {} us late", late.count(), late.worst_us());
    report::note(said.as_str());
    ensure!(late.worst_us() <= SUDDEN_MAX_US, "{said}");
    drop(load);
    scheduler.finish().map(drop)
}

fn tiers(guest: &Guest) -> Result<()> {
    let arguments = ["--dump-tasks", "--procdb", FILE];
    let known = run(guest, &arguments, FIRST_S)?.0;
    for (name, _, allowed) in LIVES {
        let name = name.to_str()?;
        let alike: Vec<&Known> = known.iter().filter(|task| task.name == name).collect();
        ensure!(!alike.is_empty(), "the table has no task named {name}");
        for task in alike {
            ensure!(allowed.contains(&task.tier.as_str()), "{name} was {}", task.tier);
        }
    }
    let compilers: Vec<&Known> =
        known.iter().filter(|task| task.name == "cc1" && task.run_ms >= COMPILES_FROM_MS).collect();
    ensure!(!compilers.is_empty(), "the table has no compiler");
    if let Some(task) = compilers.iter().find(|task| task.tier != "batch") {
        bail!("of {} compilers one was {} after {} ms", compilers.len(), task.tier, task.run_ms);
    }

    let table = ask(guest, &["procdb", "--procdb", FILE, "show"])?;
    for name in ["hog", "cc1"] {
        let line = table.lines().find(|line| line.starts_with(name));
        let line = line.with_context(|| format!("{name} was not learned: {table}"))?;
        report::note(line);
        // A question mark follows a tier that is not learned well enough.
        ensure!(line.split_whitespace().nth(2) == Some("batch"), "{name} is not known: {line}");
    }
    let predictions = run(guest, &arguments, SECOND_S)?.1;
    report::note(format!("in the second run {predictions} tasks were known by name"));
    ensure!(predictions > 0, "the second run knew no task by name");
    Ok(())
}

/// The tasks in the table at the end of a run, and how many tasks were known by name when they
/// appeared.
fn run(guest: &Guest, arguments: &[&str], seconds: u64) -> Result<(Vec<Known>, u64)> {
    let scheduler = Scheduler::start(guest, arguments)?;
    let load = Load::start(&plan(guest.cpus))?;
    watch::every_worker_moves(&load, seconds, |_| scheduler.expect_in_charge())?;
    let predictions = scheduler.statistics()?.count("procdb_hits")?;
    wait_for_compiler(&load)?;
    // The load still runs, so the table shows no task in the middle of its exit.
    let ended = scheduler.finish()?;
    drop(load);
    Ok((known(&ended)?, predictions))
}

/// Waits until a child is in the middle of its compilation.
fn wait_for_compiler(load: &Load) -> Result<()> {
    let start = Instant::now();
    let is_make = |kind| matches!(kind, Kind::Named { life: Life::Make { .. }, .. });
    let makes: Vec<_> = load.workers().iter().filter(|worker| is_make(worker.kind)).collect();
    let compiles = |pid| {
        let used_ms = clock::cpu_time_ns(pid).map(|ns| ns / 1_000_000);
        used_ms.is_some_and(|ms| COMPILES_NOW_MS.contains(&ms))
    };
    while !makes.iter().any(|make| family::children_of(make.pid).into_iter().any(compiles)) {
        ensure!(start.elapsed() < COMPILES_LIMIT, "no child compiles");
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn plan(cpus: usize) -> Vec<Kind> {
    let named = |(name, life, _): &(&'static CStr, Life, _)| Kind::Named { name, life: *life };
    let mut plan: Vec<Kind> = LIVES.iter().map(named).collect();
    plan.extend(vec![Kind::Named { name: c"hog", life: Life::Hog }; 2 * cpus - 1]);
    plan.extend(vec![Kind::Named { name: c"make", life: Life::Make { child: c"cc1" } }; cpus]);
    plan
}

/// Reads the table of `--dump-tasks`, and reports its lines about the tasks of the load.
fn known(ended: &Ended) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    let lines = ended.output.iter().skip_while(|line| !line.contains("USUAL RUN"));
    for line in lines.skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A name may have several words.
        let [_, name @ .., tier, run] = words.as_slice() else { continue };
        if !TIERS.contains(tier) {
            continue;
        }
        let name = name.join(" ");
        if name == "make"
            || name == "cc1"
            || LIVES.iter().any(|life| life.0.to_bytes() == name.as_bytes())
        {
            report::note(line.as_str());
        }
        known.push(Known { name, tier: tier.to_string(), run_ms: milliseconds(run) });
    }
    ensure!(!known.is_empty(), "--dump-tasks printed no task: {}", ended.describe());
    Ok(known)
}

fn milliseconds(span: &str) -> u64 {
    let number = |unit| span.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    match (number("ms"), number("s")) {
        (Some(ms), _) => ms,
        (_, Some(s)) => s * 1_000,
        _ => 0,
    }
}
