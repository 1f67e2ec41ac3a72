// SPDX-License-Identifier: GPL-2.0-only

//! Tasks that pass messages to each other, and tasks that fork and exec all the time.

use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::load::Kind;
use crate::tasks::messages::{self, FAN};
use crate::tasks::round_trips::{self, Via};
use crate::tasks::{clock, launch};
use anyhow::Result;
use pandemonium_statistics::figure::Unit;
use std::thread::sleep;

/// The channels of `ipc`, and their names.
const WAYS: [(Via, &str); 4] = [
    (Via::Pipe, "pipe"),
    (Via::Socket, "socket"),
    (Via::Eventfd, "eventfd"),
    (Via::Futex, "futex"),
];
/// Messages from each sender to each receiver for each second of the phase. Where a message costs
/// 10 us the phase takes about its planned time.
const ROUNDS_PER_S: f64 = 2_000.0;

/// With one hog for each CPU a wakeup that keeps the CPU differs from one that waits for it.
pub fn ipc(setting: &Setting) -> Result<Report> {
    let load = setting.load(&vec![Kind::Hog; setting.n()])?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    for (via, name) in WAYS {
        let run_ns = setting.run_ns / WAYS.len() as u64;
        let took = round_trips::start_via(via, setting.n(), run_ns)?.finish()?;
        report.lower(format!("{name}_p50"), Unit::Us, took.quantile_us(500));
        report.lower(format!("{name}_p99"), Unit::Us, took.quantile_us(990));
        report.lower(format!("{name}_worst"), Unit::Us, took.worst_us());
        report.curve(&format!("{name}_round_trip"), &took);
    }
    meter.finish(&mut report)?;
    Ok(report)
}

/// One group for each CPU and no other load. The amount is fixed, the time is measured.
pub fn messaging(setting: &Setting) -> Result<Report> {
    let load = setting.load(&[])?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let rounds = ((setting.seconds() * ROUNDS_PER_S) as u32 / setting.n() as u32).max(1);
    let took = messages::start(setting.n(), rounds)?.finish()?;
    meter.finish(&mut report)?;
    let count = setting.n() as f64 * (FAN * FAN) as f64 * f64::from(rounds);
    report.lower("time", Unit::Ms, took.worst_us() / 1e3);
    report.higher("messages", Unit::PerSecond, count * 1e6 / took.worst_us());
    Ok(report)
}

pub fn launch(setting: &Setting) -> Result<Report> {
    let load = setting.load(&setting.hogs())?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let took = launch::start(setting.run_ns)?.finish()?;
    meter.finish(&mut report)?;
    report.latency("", &took);
    Ok(report)
}

/// CPU time of the fork loops is lost to the hogs, so the two figures belong together.
pub fn forks(setting: &Setting) -> Result<Report> {
    let hogs = setting.hogs();
    let first = hogs.len();
    let load = setting.load(&[hogs, vec![Kind::Forker; setting.n()]].concat())?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let forked = || load.steps().iter().skip(first).sum::<u64>();
    let (before, start) = (forked(), clock::now_ns());
    sleep(setting.run_time());
    let forks = (forked() - before) as f64 * 1e9 / (clock::now_ns() - start).max(1) as f64;
    meter.finish(&mut report)?;
    report.higher("forks", Unit::PerSecond, forks);
    Ok(report)
}
