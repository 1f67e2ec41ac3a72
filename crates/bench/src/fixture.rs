// SPDX-License-Identifier: GPL-2.0-only

//! Invented results for tests.

use super::results::{Clock, KERNEL, Machine, Results, Run, Scheduler};
use pandemonium_statistics::figure::{Better, Curve, Figure, Unit};
use pandemonium_statistics::noise::Noise;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs of `wake` and `burst` on two CPUs under the kernel's scheduler and two others. The
/// latencies of `ours` are the kernel's times `ratio`; those of `peer` are the kernel's. All have
/// up to 3 % of noise, which is the same for equal seeds.
pub fn results(iterations: u32, ratio: f64, seed: u64) -> Results {
    let scheduler = |name: &str, command: &str| Scheduler {
        name: name.into(),
        version: "1.2.3".into(),
        command: command.into(),
    };
    let machine = Machine {
        kernel: "7.3.4-cloud".into(),
        config: vec!["CONFIG_PREEMPT=y".into()],
        hz: 250,
        cpu_model: "A <CPU> & more".into(),
        cpus: 4,
        clock: Clock::Exact,
        versions: BTreeMap::from([("qemu".into(), "10.0.2".into())]),
    };
    let schedulers =
        vec![scheduler(KERNEL, ""), scheduler("ours", "ours --fast"), scheduler("peer", "peer")];
    let mut all = Results::new("bench run".into(), seed, 1_700_000_000, machine, schedulers);
    let mut noise = Noise(seed);
    for iteration in 0..iterations {
        for (phase, typical) in [("wake", 1_000.0), ("burst", 16_000.0)] {
            for (scheduler, factor) in [(KERNEL, 1.0), ("ours", ratio), ("peer", 1.0)] {
                let p99 = typical * factor * noise.factor();
                all.runs.push(run(phase, scheduler, iteration, p99, noise.factor()));
            }
        }
    }
    all.complete = true;
    all
}

fn run(phase: &str, scheduler: &str, iteration: u32, p99: f64, work: f64) -> Run {
    let figure =
        |name: &str, unit, better, value| Figure { name: name.into(), unit, better, value };
    let edge = |share: f64| (p99 * share * 1_000.0) as u64;
    Run {
        cpus: 2,
        phase: phase.into(),
        scheduler: scheduler.into(),
        iteration,
        figures: vec![
            figure("p50", Unit::Us, Better::Lower, p99 / 10.0),
            figure("p99", Unit::Us, Better::Lower, p99),
            figure("work", Unit::PerSecond, Better::Higher, 4_480.0 * work),
            figure("missed", Unit::Count, Better::Lower, 0.0),
        ],
        curves: vec![Curve {
            name: "latency".into(),
            unit: Unit::Ns,
            buckets: vec![(edge(0.1), 900), (edge(0.5), 80), (edge(1.0), 15), (edge(1.5), 5)],
        }],
        parts: Vec::new(),
    }
}

/// A temporary directory for one test, removed on drop.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("scx-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory for the test");
        Scratch(path)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
