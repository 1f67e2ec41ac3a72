// SPDX-License-Identifier: GPL-2.0-only

//! How long a task that wakes up, or is born, waits to run.

use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::burst;
use crate::tasks::load::Kind;
use anyhow::Result;
use pandemonium_statistics::figure::Figure;
use std::thread::sleep;

/// From burst to burst of births.
const BURST_NS: u64 = 100_000_000;
/// For how much of the phase the hogs of `longrun` run before.
const LONG_PART: f64 = 0.4;
/// CPU time of one program of a storm.
const PROGRAM_US: u64 = 10_000;
/// What `mixed` has beside the hogs, on any number of CPUs.
pub const STORMS: [Kind; 2] = [
    Kind::Storm { children: 8, period_us: 48_000 },
    Kind::Storm { children: 8, period_us: 53_000 },
];
pub const SLEEPERS: [Kind; 4] = [Kind::Periodic { period_us: 1_000 }; 4];

/// Wake-up latency beside a load.
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

/// First nothing at all, then the waking task alone.
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

/// Programs that are started together, twice a second, and want a fifth of the machine.
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

pub fn births(setting: &Setting) -> Result<Report> {
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
