// SPDX-License-Identifier: GPL-2.0-only

//! How long a task that wakes up, or a new task, waits for a CPU.

use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::burst;
use crate::tasks::load::Kind;
use anyhow::Result;
use pandemonium_statistics::figure::Figure;
use std::thread::sleep;

/// The mean time between two bursts of forks.
const BURST_NS: u64 = 100_000_000;
/// The part of the phase for which the hogs of `longrun` run before the measurement.
const LONG_PART: f64 = 0.4;
/// CPU time of each program of a storm.
const PROGRAM_US: u64 = 10_000;
/// The load of `mixed` beside the hogs, on any number of CPUs.
pub const STORMS: [Kind; 2] = [
    Kind::Storm { children: 8, period_us: 48_000 },
    Kind::Storm { children: 8, period_us: 53_000 },
];
/// The sleepers of the same load.
pub const SLEEPERS: [Kind; 4] = [Kind::Periodic { period_us: 1_000 }; 4];

/// Wakeup latency beside a load.
pub fn beside(setting: &Setting, plan: &[Kind]) -> Result<Report> {
    let load = setting.load(plan)?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let late = setting.waking(1.0).start()?.finish()?;
    meter.finish(&mut report)?;
    report.latency("", &late);
    Ok(report)
}

pub fn wake(setting: &Setting) -> Result<Report> {
    beside(setting, &setting.hogs())
}

pub fn mixed(setting: &Setting) -> Result<Report> {
    beside(setting, &[setting.hogs(), STORMS.to_vec(), SLEEPERS.to_vec()].concat())
}

/// First without any task, then with the waking task alone.
pub fn idle(setting: &Setting) -> Result<Report> {
    let mut rest = Report::default();
    let load = setting.load(&[])?;
    let meter = Meter::start(setting, &load)?;
    sleep(setting.run_time());
    meter.finish(&mut rest)?;
    let mut report = beside(setting, &[])?;
    for figure in rest.figures {
        let name = format!("rest_{}", figure.name);
        report.figures.push(Figure { name, ..figure });
    }
    Ok(report)
}

/// Programs that start together, twice a second, and together need a fifth of the machine.
pub fn storm_of_programs(setting: &Setting) -> Kind {
    let children = (4 * setting.n()).max(8) as u32;
    Kind::ExecStorm { children, period_us: 500_000, rounds: setting.rounds(PROGRAM_US) }
}

pub fn burst(setting: &Setting) -> Result<Report> {
    beside(setting, &[setting.hogs(), vec![storm_of_programs(setting)]].concat())
}

pub fn longrun(setting: &Setting) -> Result<Report> {
    let load = setting.load(&setting.hogs())?;
    sleep(setting.run_time().mul_f64(LONG_PART));
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let late = setting.waking(1.0 - LONG_PART).start()?.finish()?;
    meter.finish(&mut report)?;
    report.latency("", &late);
    Ok(report)
}

/// How long each child of a burst of forks waits for its first instruction.
pub fn new_tasks(setting: &Setting) -> Result<Report> {
    let load = setting.load(&setting.hogs())?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let bursts = (setting.run_ns / BURST_NS).max(1) as usize;
    let probe = burst::start_seeded(bursts, setting.seed)?;
    let [from_first, own] = probe.finish_parts::<{ burst::PARTS }>()?;
    meter.finish(&mut report)?;
    report.latency("", &from_first);
    report.latency("own", &own);
    Ok(report)
}
