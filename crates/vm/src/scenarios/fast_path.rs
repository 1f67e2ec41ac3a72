// SPDX-License-Identifier: GPL-2.0-only

//! The fast path: what still works when the kernel refuses a part of it, and what it costs.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::statistics::Statistics;
use crate::guest::{Guest, report, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use libbpf_rs::query::ProgInfoIter;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "fast-path-parts",
        about: "the kernel refuses one part of the fast path after the other, then all of them: \
            the rest still works, and a warning, the statistics and health say what is lost",
        limit_s: 240,
        run: parts,
        ..USUAL
    },
    Scenario {
        name: "fast-path-cost",
        about: "the cost of each BPF program for each call, by the kernel's count; all together \
            take less than a tenth of the time",
        limit_s: 90,
        once: true,
        run: cost,
        ..USUAL
    },
];

/// Each part, one of its programs, what health says about its loss, and a statistic that stays zero
/// without it.
const PARTS: [(&str, &str, &str, Option<&str>); 6] = [
    ("wakeups", "fp_wakeup", "wakeups wait for a tick", None),
    ("new-tasks", "fp_wakeup_new", "new tasks wait for a tick", None),
    ("switches", "fp_switch", "no CPU is kicked", Some("nr_kicks")),
    ("execs", "fp_exec", "keeps the record of the program", None),
    ("timers", "fp_prepare", "slices end at ticks", Some("nr_timers")),
    ("asking", "fp_kick", "cannot kick a CPU", Some("nr_kicks_asked")),
];

/// What the kicks of the load were for, and what else needed no decision.
const COUNTS: [&str; 10] = [
    "nr_kicks",
    "nr_kicks_asked",
    "nr_kicks_idle",
    "nr_kicks_again",
    "nr_kicks_slice",
    "nr_kicks_bound",
    "nr_kicks_requeued",
    "nr_timers",
    "nr_orders",
    "nr_continued",
];

/// A load that uses every part: sleepers among hogs, forks, execs.
fn load(guest: &Guest) -> Result<Load> {
    let others = [
        Kind::Periodic { period_us: 5_000 },
        Kind::PipePair,
        Kind::Execer { period_us: 0 },
        Kind::Storm { children: 4, period_us: 50_000 },
    ];
    Load::start(&[vec![Kind::Hog; guest.cpus], others.to_vec()].concat())
}

fn parts(guest: &Guest) -> Result<()> {
    let whole = try_without(guest, &[])?;
    let refused = missing(&whole);
    report::note(format!("refused by the kernel itself: {refused:?}; {}", whole.warnings));
    ensure!(refused.is_empty(), "the unbroken fast path is {}", whole.fast_path);
    ensure!(!whole.health.contains("refused"), "health says {}", whole.health);
    for (part, program, lost, silent) in PARTS {
        let found = try_without(guest, &[part]).with_context(|| format!("without {part}"))?;
        let said = format!("{} / {} / {}", found.fast_path, found.health, found.warnings);
        report::note(format!("without {part}: {said}"));
        ensure!(missing(&found) == BTreeSet::from([part]), "without {part}: {said}");
        ensure!(found.health.contains(lost), "health does not say what is lost: {said}");
        ensure!(found.warnings.contains(program) && found.warnings.contains(lost), "{said}");
        if let Some(field) = silent {
            ensure!(found.statistics.count(field)? == 0, "{field} without {part}");
        }
    }
    let none = try_without(guest, &PARTS.map(|(part, ..)| part)).context("without any part")?;
    ensure!(none.fast_path == "refused", "without any part: {}", none.fast_path);
    ensure!(none.health.contains("wakeups wait for a tick"), "health says {}", none.health);
    Ok(())
}

/// The parts that the statistics report as missing.
fn missing(found: &Found) -> BTreeSet<&str> {
    found.fast_path.split(" -").skip(1).collect()
}

/// What a scheduler without some parts reports while it schedules.
struct Found {
    fast_path: String,
    health: String,
    warnings: String,
    statistics: Statistics,
}

fn try_without(guest: &Guest, parts: &[&str]) -> Result<Found> {
    let options: Vec<&str> = parts.iter().flat_map(|part| ["--break-fast-path", *part]).collect();
    let scheduler = Scheduler::start(guest, &options)?;
    let load = load(guest)?;
    watch::every_worker_moves(&load, 3, |_| Ok(()))?;
    drop(load);
    let statistics = scheduler.statistics()?;
    let said = scheduler.printed().into_iter().filter(|line| line.starts_with("warning"));
    let found = Found {
        fast_path: statistics.text("fast_path")?.into(),
        health: statistics.text("health")?.into(),
        warnings: said.collect::<Vec<_>>().join(" | "),
        statistics,
    };
    scheduler.finish()?;
    Ok(found)
}

fn cost(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = load(guest)?;
    std::thread::sleep(Duration::from_secs(1));
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1").context("enabling statistics of BPF")?;
    let (before, start) = (runs(), Instant::now());
    watch::every_worker_moves(&load, 5, |_| Ok(()))?;
    let (after, elapsed) = (runs(), start.elapsed());
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "0")?;
    drop(load);
    let (mut ours, mut switches) = (0, 0);
    for (name, (count, ns)) in after {
        let (count_before, ns_before) = before.get(&name).copied().unwrap_or_default();
        let (count, ns) = (count - count_before, ns - ns_before);
        if count == 0 {
            continue;
        }
        report::note(format!("{name}: {count} runs, {} ns each", ns / count));
        if name.starts_with("fp_") {
            ours += ns;
        }
        if name == "fp_switch" {
            switches = count;
        }
    }
    let capacity = elapsed.as_nanos() as u64 * guest.cpus as u64;
    report::note(format!("the whole fast path: {} us/s on each CPU", ours * 1_000_000 / capacity));
    let statistics = scheduler.statistics()?;
    let counts = COUNTS.iter().map(|name| Ok(format!("{name} {}", statistics.count(name)?)));
    report::note(counts.collect::<Result<Vec<_>>>()?.join(", "));
    ensure!(switches > 1_000, "only {switches} switches were counted");
    ensure!(ours < capacity / 10, "the fast path took {ours} ns of {capacity}");
    scheduler.finish()?;
    Ok(())
}

/// How often each BPF program has run, and for how long.
fn runs() -> BTreeMap<String, (u64, u64)> {
    let mut runs = BTreeMap::<String, (u64, u64)>::new();
    for program in ProgInfoIter::default() {
        let entry = runs.entry(program.name.to_string_lossy().into_owned()).or_default();
        *entry = (entry.0 + program.run_cnt, entry.1 + program.run_time_ns);
    }
    runs
}
