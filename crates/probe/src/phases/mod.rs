// SPDX-License-Identifier: GPL-2.0-only

//! The phases, a function each. docs/lab.md defines every figure.

mod compile;
mod contention;
mod latency;
mod per_cpu;
mod rhythm;
mod shares;
mod traffic;

use crate::report::Report;
use crate::setting::Setting;
use anyhow::Result;

/// One workload with what is measured beside it.
pub struct Phase {
    pub name: &'static str,
    /// For people, in a few words.
    pub about: &'static str,
    pub run: fn(&Setting) -> Result<Report>,
}

const fn phase(
    name: &'static str,
    about: &'static str,
    run: fn(&Setting) -> Result<Report>,
) -> Phase {
    Phase { name, about, run }
}

/// All of them, in the order of the tables.
pub const PHASES: &[Phase] = &[
    phase("wake", "wake-up latency while every CPU is busy", latency::wake),
    phase("burst", "wake-up latency during storms of new programs", latency::burst),
    phase("longrun", "wake-up latency beside tasks that have run for long", latency::longrun),
    phase("mixed", "wake-up latency beside hogs, forks and sleepers", latency::mixed),
    phase("births", "how long new tasks wait for their first instruction", latency::births),
    phase("idle", "wake-up latency and the scheduler's own cost while nothing runs", latency::idle),
    phase("deadline", "frames of 16.67 ms: how many are late", rhythm::deadline),
    phase("audio", "buffers of 2.9 ms: how many run dry", rhythm::audio),
    phase("ipc", "round trips through pipe, socket, eventfd and futex", traffic::ipc),
    phase("messaging", "many-to-many messages over sockets", traffic::messaging),
    phase("launch", "from fork to the end of a small program", traffic::launch),
    phase("forks", "births of tasks beside hogs, and what is left for these", traffic::forks),
    phase("throughput", "a fixed amount of work: how long it takes", shares::throughput),
    phase("compile", "a tree of C files through the machine's compiler", compile::compile),
    phase("fairness", "how alike tasks are served that all want everything", shares::fairness),
    phase("nice", "how near shares come to what nice values ask for", shares::nice),
    phase("regime-sweep", "contention: idle, loaded and overloaded by turns", contention::sweep),
    phase("deficit-storm", "contention: many short sleepers beside hogs", contention::deficit),
    phase("sojourn-pressure", "contention: four hogs for each CPU", contention::sojourn),
    phase("longrun-interactive", "contention: few long runners", contention::longrun),
    phase("burst-recovery", "contention: before, in and after a burst", contention::recovery),
    phase("mixed-storm", "contention: everything at once, and frames", contention::storm),
    phase("burst-starvation", "per CPU: a hundred jobs at once", per_cpu::starvation),
    phase("work-stealing", "per CPU: jobs born on one CPU, half the CPUs busy", per_cpu::stealing),
    phase("sojourn-ceiling", "per CPU: waves of fifty jobs", per_cpu::ceiling),
];
