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
    /// The argument that selects it.
    pub name: &'static str,
    /// What it measures, for the help.
    pub about: &'static str,
    /// Measures it.
    pub run: fn(&Setting) -> Result<Report>,
}

const fn phase(
    name: &'static str,
    about: &'static str,
    run: fn(&Setting) -> Result<Report>,
) -> Phase {
    Phase { name, about, run }
}

/// Old names of phases that are still accepted, and their names now.
pub const RENAMED: [(&str, &str); 1] = [("births", "new-tasks")];

/// All phases, in the order of the tables.
pub const PHASES: &[Phase] = &[
    phase("wake", "wakeup latency while every CPU is busy", latency::wake),
    phase("burst", "wakeup latency during storms of new programs", latency::burst),
    phase("longrun", "wakeup latency beside tasks that have run for long", latency::longrun),
    phase("mixed", "wakeup latency beside hogs, forks and sleepers", latency::mixed),
    phase("new-tasks", "how long new tasks wait for their first instruction", latency::new_tasks),
    phase("idle", "wakeup latency and the scheduler's CPU time on an idle machine", latency::idle),
    phase("deadline", "frames of 16.67 ms: how many are late", rhythm::deadline),
    phase("audio", "buffers of 2.9 ms: how many run dry", rhythm::audio),
    phase("ipc", "round trips through pipe, socket, eventfd and futex", traffic::ipc),
    phase("messaging", "many-to-many messages over sockets", traffic::messaging),
    phase("launch", "from fork to the end of a small program", traffic::launch),
    phase(
        "forks",
        "fork loops beside hogs: forks a second, and the work of the hogs",
        traffic::forks,
    ),
    phase("throughput", "a fixed amount of work: how long it takes", shares::throughput),
    phase("compile", "a tree of C files through the machine's compiler", compile::compile),
    phase("fairness", "how equally tasks that never sleep share the CPUs", shares::fairness),
    phase("nice", "how near shares come to the weights of their nice values", shares::nice),
    phase("regime-sweep", "contention: idle, loaded and overloaded in turn", contention::sweep),
    phase("deficit-storm", "contention: many short sleepers beside hogs", contention::deficit),
    phase("sojourn-pressure", "contention: four hogs for each CPU", contention::sojourn),
    phase("longrun-interactive", "contention: few hogs that run for long", contention::longrun),
    phase("burst-recovery", "contention: before, during and after a burst", contention::recovery),
    phase(
        "mixed-storm",
        "contention: hogs, storms, sleepers and frames at once",
        contention::storm,
    ),
    phase("burst-starvation", "per CPU: a hundred jobs at once", per_cpu::starvation),
    phase(
        "work-stealing",
        "per CPU: jobs forked on one CPU; half the CPUs busy",
        per_cpu::stealing,
    ),
    phase("sojourn-ceiling", "per CPU: waves of fifty jobs", per_cpu::ceiling),
];
