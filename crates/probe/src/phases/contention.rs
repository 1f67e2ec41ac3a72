// SPDX-License-Identifier: GPL-2.0-only

//! The six contention phases of PANDEMONIUM. It runs loops of Python; these phases ask the same
//! questions with the tasks of the other phases.

use super::latency::{SLEEPERS, STORMS, storm_of_programs};
use super::rhythm::FRAMES;
use super::shares::spread;
use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::jobs::Jobs;
use crate::tasks::load::{Kind, Load};
use crate::tasks::probe::Samples;
use crate::tasks::wakeups::Waking;
use anyhow::{Context, Result};
use pandemonium_statistics::figure::Unit;
use std::thread::sleep;

/// How often the sweep repeats idle, loaded and overloaded.
const CYCLES: u64 = 3;
/// The sleepers of the deficit storm.
const SHORT_SLEEP_NS: u64 = 1_000_000;
const SHORT_WORK_US: u64 = 20;
/// The part of `longrun` for which the hogs run alone.
const LONG_PART: f64 = 0.3;
/// CPU time of each task of the burst in `recovery`.
const BURST_TASK_US: u64 = 20_000;

/// Does the scheduler follow the load? Each level returns several times.
pub fn sweep(setting: &Setting) -> Result<Report> {
    let levels = [("idle", 0), ("loaded", setting.n()), ("overloaded", 2 * setting.n())];
    let mut late: [Option<Samples>; 3] = [None, None, None];
    let part = 1.0 / (CYCLES as f64 * levels.len() as f64);
    for cycle in 0..CYCLES {
        for (level, (_, hogs)) in levels.iter().enumerate() {
            let load = setting.load(&vec![Kind::Hog; *hogs])?;
            let waking = Waking { seed: setting.seed ^ (cycle << 8), ..setting.waking(part) };
            let samples = waking.start()?.finish()?;
            late[level] = Some(match late[level].take() {
                Some(before) => before.merged(samples),
                None => samples,
            });
            drop(load);
        }
    }
    let mut report = Report::default();
    for ((name, _), samples) in levels.iter().zip(late) {
        report.latency(name, &samples.context("every level was measured")?);
    }
    Ok(report)
}

/// One sleeper for each CPU, each waking every millisecond, beside two hogs for each CPU: neither
/// may starve the other.
pub fn deficit(setting: &Setting) -> Result<Report> {
    let load = setting.load(&setting.hogs())?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let sleeper = |number: usize| Waking {
        gap_ns_min: SHORT_SLEEP_NS,
        gap_ns_spread: SHORT_SLEEP_NS / 10,
        work_rounds: setting.rounds(SHORT_WORK_US),
        seed: setting.seed ^ ((number as u64) << 8),
        ..setting.waking(1.0)
    };
    let probes: Vec<_> =
        (0..setting.n()).map(|number| sleeper(number).start()).collect::<Result<_>>()?;
    let mut all: Option<Samples> = None;
    for probe in probes {
        let samples = probe.finish()?;
        all = Some(match all {
            Some(before) => before.merged(samples),
            None => samples,
        });
    }
    meter.finish(&mut report)?;
    report.latency("", &all.context("there is a sleeper for each CPU")?);
    Ok(report)
}

/// Four timed hogs for each CPU: the wakeup latency, and the longest time that a hog waited.
pub fn sojourn(setting: &Setting) -> Result<Report> {
    let load = setting.load(&vec![Kind::TimedHog; 4 * setting.n()])?;
    with_spread(setting, &load, 1.0)
}

/// One hog for every two CPUs, at least two: with many CPUs some are idle.
pub fn longrun(setting: &Setting) -> Result<Report> {
    let load = setting.load(&vec![Kind::TimedHog; (setting.n() / 2).max(2)])?;
    sleep(setting.run_time().mul_f64(LONG_PART));
    with_spread(setting, &load, 1.0 - LONG_PART)
}

fn with_spread(setting: &Setting, load: &Load, part: f64) -> Result<Report> {
    let mut report = Report::default();
    let meter = Meter::start(setting, load)?;
    let before = load.steps();
    let late = setting.waking(part).start()?.finish()?;
    spread(&mut report, load, &before)?;
    meter.finish(&mut report)?;
    report.latency("", &late);
    Ok(report)
}

/// Wakeup latency before, during and after a burst of eight tasks for each CPU.
pub fn recovery(setting: &Setting) -> Result<Report> {
    let load = setting.load(&setting.hogs())?;
    let third = setting.waking(1.0 / 3.0);
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let before = third.start()?.finish()?;
    let rounds = setting.rounds(BURST_TASK_US);
    let jobs = Jobs { count: 8 * setting.n(), rounds, waves: 1, forked_on: None };
    let burst = jobs.start()?;
    let during = third.start()?.finish()?;
    let ended = burst.finish()?;
    let after = third.start()?.finish()?;
    meter.finish(&mut report)?;
    report.latency("before", &before);
    report.latency("in", &during);
    report.latency("after", &after);
    report.lower("burst_time", Unit::Ms, ended.worst_us() / 1e3);
    Ok(report)
}

/// Hogs, forks, programs and sleepers, beside frames with deadlines.
pub fn storm(setting: &Setting) -> Result<Report> {
    let storms = [STORMS.to_vec(), SLEEPERS.to_vec(), vec![storm_of_programs(setting)]].concat();
    let load = setting.load(&[setting.hogs(), storms].concat())?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let frames = FRAMES.start(setting)?;
    let late = setting.waking(1.0).start()?.finish()?;
    frames.finish(&mut report)?;
    meter.finish(&mut report)?;
    report.latency("", &late);
    Ok(report)
}
