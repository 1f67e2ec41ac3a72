// SPDX-License-Identifier: GPL-2.0-only

//! Tasks that never sleep: how much work they do together, and how much each of them.

use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::jobs::Jobs;
use crate::tasks::load::{Kind, Load};
use anyhow::{Result, ensure};
use pandemonium_statistics::figure::Unit;
use std::thread::sleep;

/// Jobs for each CPU.
const JOBS: usize = 4;
/// Nice value of the second of two hogs.
const NICER: i32 = 5;
/// The kernel's weights of nice 0 and nice 5 (`sched_prio_to_weight`).
const WANTED: f64 = 1024.0 / 335.0;

/// Jobs that fill the machine for the time of the phase if no CPU time is lost. Nothing else runs.
pub fn throughput(setting: &Setting) -> Result<Report> {
    let load = setting.load(&[])?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let rounds = setting.rounds(setting.run_ns / 1_000 / JOBS as u64);
    let jobs = Jobs { count: JOBS * setting.n(), rounds, waves: 1, forked_on: None };
    let ended = jobs.start()?.finish()?;
    meter.finish(&mut report)?;
    report.lower("time", Unit::Ms, ended.worst_us() / 1e3);
    Ok(report)
}

pub fn fairness(setting: &Setting) -> Result<Report> {
    let load = setting.load(&vec![Kind::TimedHog; 2 * setting.n()])?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let before = load.steps();
    sleep(setting.run_time());
    spread(&mut report, &load, &before)?;
    meter.finish(&mut report)?;
    Ok(report)
}

/// The least work of a hog by the most since `before`, and the longest time that a hog waited.
pub fn spread(report: &mut Report, load: &Load, before: &[u64]) -> Result<()> {
    let done: Vec<u64> =
        load.steps().iter().zip(before).map(|(after, before)| after - before).collect();
    let (least, most) = (done.iter().min().copied(), done.iter().max().copied());
    let most = most.unwrap_or(0);
    ensure!(most > 0, "the hogs did nothing");
    report.higher("least_to_most", Unit::Ratio, least.unwrap_or(0) as f64 / most as f64);
    let longest_ns = load.longest_ns().into_iter().max().unwrap_or(0);
    report.lower("longest_wait", Unit::Ms, longest_ns as f64 / 1e6);
    Ok(())
}

pub fn nice(setting: &Setting) -> Result<Report> {
    let pair = [Kind::NiceHog { nice: 0 }, Kind::NiceHog { nice: NICER }];
    let load = setting.load(&pair.repeat(setting.n()))?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let done = load.steps_in(setting.run_time());
    meter.finish(&mut report)?;
    let sum = |first: usize| done.iter().skip(first).step_by(2).sum::<u64>();
    ensure!(sum(0) > 0 && sum(1) > 0, "the hogs did nothing");
    let ratio = sum(0) as f64 / sum(1) as f64;
    report.lower("share_error", Unit::Percent, (ratio / WANTED - 1.0).abs() * 100.0);
    Ok(report)
}
