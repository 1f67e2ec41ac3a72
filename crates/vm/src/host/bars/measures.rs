// SPDX-License-Identifier: GPL-2.0-only

//! What is measured, and the bar for each figure.

use crate::bars::{FRAMES, Phase};

/// One line of the table.
pub struct Measure {
    pub phase: Phase,
    /// Name of the metric, after the side and the phase.
    pub name: &'static str,
    pub label: &'static str,
    pub digits: usize,
    pub demand: Demand,
}

/// What a figure must be. Of two numbers the first is for up to two CPUs, the second for more.
#[derive(Clone, Copy)]
pub enum Demand {
    /// No bar: the figure is shown because it explains others.
    Shown,
    /// The ratio of our figure to the kernel's own.
    RatioAtMost([f64; 2]),
    RatioAtLeast(f64),
    /// Our figure.
    AtMost([f64; 2]),
    /// Our figure, in every round.
    Zero,
    AtLeast(f64),
    Near {
        wanted: f64,
        tolerance: f64,
    },
}

use Demand::{AtLeast, AtMost, Near, RatioAtLeast, RatioAtMost, Shown, Zero};

/// Weights of nice 0 and nice 5 in the kernel's own scheduler (`sched_prio_to_weight`).
const WEIGHT_NICE_0: f64 = 1024.0;
const WEIGHT_NICE_5: f64 = 335.0;

// A label below contains the number.
const _: () = assert!(FRAMES == 300);

/// In the order of the table.
#[rustfmt::skip]
pub const MEASURES: &[Measure] = &[
    measure(Phase::Wake, "p50_us", "wakeup p50, us", 0, Shown),
    measure(Phase::Wake, "p99_us", "wakeup p99, us", 0, RatioAtMost([0.10, 0.10])),
    measure(Phase::Wake, "p99_9_us", "wakeup p99.9, us", 0, RatioAtMost([0.20, 0.20])),
    measure(Phase::Wake, "work_per_s", "wake: hogs' work, units/s", 0, RatioAtLeast(0.99)),
    measure(Phase::Wake, "own_cpu_percent", "wake: own CPU time, %", 2, AtMost([4.0, 6.0])),
    measure(Phase::Long, "p50_us", "long p50, us", 0, Shown),
    measure(Phase::Long, "p99_us", "long p99, us", 0, RatioAtMost([0.10, 0.10])),
    measure(Phase::Long, "p99_9_us", "long p99.9, us", 0, Shown),
    measure(Phase::Long, "work_per_s", "long: hogs' work, units/s", 0, RatioAtLeast(0.99)),
    measure(Phase::Long, "own_cpu_percent", "long: own CPU time, %", 2, AtMost([4.0, 6.0])),
    measure(Phase::Mixed, "p50_us", "mixed p50, us", 0, Shown),
    measure(Phase::Mixed, "p99_us", "mixed p99, us", 0, RatioAtMost([0.15, 0.15])),
    measure(Phase::Mixed, "work_per_s", "mixed: hogs' work, units/s", 0, RatioAtLeast(0.99)),
    measure(Phase::Mixed, "own_cpu_percent", "mixed: own CPU time, %", 2, Shown),
    measure(Phase::Forks, "work_per_s", "forks: hogs' work, units/s", 0, RatioAtLeast(0.50)),
    measure(Phase::Forks, "own_cpu_percent", "forks: own CPU time, %", 2, Shown),
    measure(Phase::Burst, "p50_ms", "burst p50, ms", 1, Shown),
    measure(Phase::Burst, "p99_ms", "burst p99, ms", 1, RatioAtMost([0.75, 0.52])),
    measure(Phase::Burst, "own_p99_ms", "burst p99 from own fork, ms", 1, Shown),
    measure(Phase::Burst, "work_per_s", "burst: hogs' work, units/s", 0, Shown),
    measure(Phase::Frame, "missed", "frames late, of 300", 0, Zero),
    measure(Phase::Frame, "p50_ms", "frame time p50, ms", 1, Shown),
    measure(Phase::Frame, "p99_ms", "frame time p99, ms", 1, RatioAtMost([0.30, 0.30])),
    measure(Phase::Frame, "work_per_s", "frame: hogs' work, units/s", 0, Shown),
    measure(Phase::Pipe, "p50_us", "pipe p50, us", 0, RatioAtMost([1.6, 2.8])),
    measure(Phase::Pipe, "p99_us", "pipe p99, us", 0, RatioAtMost([0.10, 4.0])),
    measure(Phase::Pipe, "work_per_s", "pipe: hogs' work, units/s", 0, Shown),
    measure(Phase::Fair, "least_to_most", "least / most served hog", 3, AtLeast(0.95)),
    measure(Phase::Nice, "share_ratio", "share of nice 0 / nice 5", 2, Near {
        wanted: WEIGHT_NICE_0 / WEIGHT_NICE_5,
        tolerance: 0.10,
    }),
    measure(Phase::Idle, "own_cpu_percent", "idle: own CPU time, %", 2, AtMost([0.2, 0.2])),
];

const fn measure(
    phase: Phase,
    name: &'static str,
    label: &'static str,
    digits: usize,
    demand: Demand,
) -> Measure {
    Measure { phase, name, label, digits, demand }
}

impl Demand {
    /// By what part of the bar for so many CPUs a figure, or its ratio to the kernel's own, misses
    /// it, and by what number where the bar is zero; 0 if it does not.
    pub fn missed_by(self, cpus: u32, ours: f64, ratio: Option<f64>) -> Option<f64> {
        let ratio = ratio.unwrap_or(f64::NAN);
        let above = |value: f64, bar: f64| (value - bar) / bar;
        let missed = match self {
            Shown => return None,
            RatioAtMost(bars) => above(ratio, of_cpus(bars, cpus)),
            RatioAtLeast(bar) => -above(ratio, bar),
            AtMost(bars) => above(ours, of_cpus(bars, cpus)),
            Zero => ours,
            AtLeast(bar) => -above(ours, bar),
            Near { wanted, tolerance } => above(ours, wanted).abs() - tolerance,
        };
        // A ratio that could not be made is a miss of everything.
        Some(if missed.is_nan() { f64::INFINITY } else { missed.max(0.0) })
    }

    pub fn describe(self, cpus: u32) -> String {
        match self {
            Shown => String::new(),
            RatioAtMost(bars) => format!("x <= {:.2}", of_cpus(bars, cpus)),
            RatioAtLeast(bar) => format!("x >= {bar:.2}"),
            AtMost(bars) => format!("<= {}", of_cpus(bars, cpus)),
            Zero => "0".into(),
            AtLeast(bar) => format!(">= {bar}"),
            Near { wanted, tolerance } => format!("{wanted:.2} +-{:.0} %", tolerance * 100.0),
        }
    }

    /// For people, what `missed_by` found.
    pub fn describe_miss(self, missed_by: f64) -> String {
        match self {
            _ if missed_by == 0.0 => "ok".into(),
            _ if missed_by.is_infinite() => "MISSED: nothing to compare with".into(),
            Zero => format!("MISSED by {:.0}", missed_by.ceil()),
            _ => format!("MISSED by {:.0} %", (missed_by * 100.0).ceil()),
        }
    }
}

fn of_cpus(bars: [f64; 2], cpus: u32) -> f64 {
    bars[usize::from(cpus > 2)]
}
