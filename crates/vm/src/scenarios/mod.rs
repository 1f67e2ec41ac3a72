// SPDX-License-Identifier: GPL-2.0-only

//! The scenarios, one file for each topic.

mod bars;
mod change;
mod check;
mod classes;
mod control;
mod demo;
pub mod distribution;
mod domain;
mod ejection;
mod errors;
mod fast_path;
mod faults;
mod harness;
mod held_up;
mod hotplug;
mod lab;
mod lifecycle;
mod many_cpus;
mod mix;
mod modes;
mod offline;
mod orders;
mod output;
mod phases;
mod pipes;
mod planted;
mod pressure;
mod procdb;
mod profiles;
mod record;
mod rule_domain;
mod speeds;
mod stranger;
mod stress;
mod tiers;
mod top;
mod unit;
mod upgrade;
mod wakers;

use crate::scenario::Scenario;
pub use stranger::PROGRAMS as STRANGERS_PROGRAMS;

/// The scenarios of the suite, in their order.
pub const SUITE: &[&[Scenario]] = &[
    harness::ALL,
    lifecycle::ALL,
    errors::ALL,
    ejection::ALL,
    check::ALL,
    unit::ALL,
    held_up::ALL,
    output::ALL,
    planted::ALL,
    wakers::ALL,
    control::ALL,
    procdb::ALL,
    record::ALL,
    top::ALL,
    mix::ALL,
    classes::ALL,
    modes::ALL,
    domain::ALL,
    rule_domain::ALL,
    speeds::ALL,
    profiles::ALL,
    tiers::ALL,
    pipes::ALL,
    change::ALL,
    hotplug::ALL,
    offline::ALL,
    fast_path::ALL,
    many_cpus::ALL,
    phases::ALL,
    pressure::ALL,
    lab::ALL,
    orders::ALL,
    stranger::ALL,
    stress::ALL,
];

/// Scenarios that run only by name.
pub const APART: &[Scenario] = &[
    demo::DEMO,
    distribution::DISTRIBUTION,
    bars::BARS,
    lab::LAB,
    lab::BENCH_TRUST,
    faults::FAULTS,
    held_up::STALLED,
    held_up::STALLED_4_CPUS,
    held_up::TRACED_1_CPU,
    held_up::STALLED_60,
    held_up::STALLED_60_1_CPU,
    held_up::STALLED_60_4_CPUS,
    lifecycle::KERNEL_CHECK,
    many_cpus::MANY_CPUS,
    hotplug::HOTPLUG_100,
    pressure::OUT_OF_MEMORY,
    pressure::RUNNABLE_10000,
    pressure::THREADS_32768,
    pressure::SHORT_TASKS,
    pressure::SHORT_TASKS_1000000,
    pressure::CLOCK_JUMP,
    pressure::ONE_HOUR,
    pressure::TEN_MINUTES,
    record::RECORD_COST,
    upgrade::UPGRADE,
    upgrade::UPGRADE_100,
    upgrade::UPGRADE_FAILS,
];

/// Every scenario of the suite, the cheapest first.
pub fn suite() -> impl Iterator<Item = &'static Scenario> {
    SUITE.iter().copied().flatten()
}

/// A scenario by name, including those that the suite does not run by default.
pub fn find(name: &str) -> Option<&'static Scenario> {
    suite().chain(APART).find(|scenario| scenario.name == name)
}
