// SPDX-License-Identifier: GPL-2.0-only

//! The per-CPU phases of PANDEMONIUM: does work wait for one CPU while others are idle?

use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::jobs::Jobs;
use crate::tasks::load::Kind;
use crate::tasks::probe::Samples;
use anyhow::{Context, Result};
use pandemonium_statistics::figure::Unit;

/// CPU time of a job.
const JOB_US: u64 = 10_000;
/// Jobs in a wave of `ceiling`, and the number of waves.
const WAVE: usize = 50;
const WAVES: usize = 5;
/// Jobs of `stealing` for each CPU.
const STOLEN: usize = 8;

/// Many jobs at once beside a task that wakes up: how much later than in the ideal case does the
/// last job end?
pub fn starvation(setting: &Setting) -> Result<Report> {
    let count = (20 * setting.n()).max(100);
    let (mut report, ended) = jobs_beside_a_waking_task(setting, count, 1, None)?;
    report.lower("extra", Unit::Ms, (ended.worst_us() - ideal_us(setting, count)) / 1e3);
    Ok(report)
}

/// Waves of jobs: the longest time from the start of a wave to the end of a job.
pub fn ceiling(setting: &Setting) -> Result<Report> {
    let (mut report, ended) = jobs_beside_a_waking_task(setting, WAVE, WAVES, None)?;
    report.lower("job_worst", Unit::Ms, ended.worst_us() / 1e3);
    report.lower("extra", Unit::Ms, (ended.worst_us() - ideal_us(setting, WAVE)) / 1e3);
    Ok(report)
}

/// Jobs that are forked on one CPU and may leave it: how much do the other CPUs help? With hogs on
/// half of the CPUs, does a wakee find the other half?
pub fn stealing(setting: &Setting) -> Result<Report> {
    let count = STOLEN * setting.n();
    let first = setting.cpus.first().copied().context("there is a CPU")?;
    let (mut report, ended) = jobs_beside_a_waking_task(setting, count, 1, Some(first))?;
    report.lower("spread", Unit::Ratio, ended.worst_us() / ideal_us(setting, count));
    let load = setting.load(&vec![Kind::Hog; setting.n() / 2])?;
    let half = setting.waking(0.5).start()?.finish()?;
    drop(load);
    report.latency("half_loaded", &half);
    Ok(report)
}

/// How long so many jobs take if no CPU is idle before the last one ends.
fn ideal_us(setting: &Setting, jobs: usize) -> f64 {
    (jobs as u64 * JOB_US) as f64 / setting.n() as f64
}

fn jobs_beside_a_waking_task(
    setting: &Setting,
    count: usize,
    waves: usize,
    forked_on: Option<usize>,
) -> Result<(Report, Samples)> {
    let load = setting.load(&[])?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let jobs = Jobs { count, rounds: setting.rounds(JOB_US), waves, forked_on }.start()?;
    // The ideal time of the jobs, so that the task measures nothing after them.
    let run_ns = (ideal_us(setting, count) * 1_000.0) as u64 * waves as u64;
    let waking = crate::tasks::wakeups::Waking { run_ns, ..setting.waking(1.0) };
    let late = waking.start()?.finish()?;
    let ended = jobs.finish()?;
    meter.finish(&mut report)?;
    report.latency("", &late);
    Ok((report, ended))
}
