// SPDX-License-Identifier: GPL-2.0-only

//! Profiles and rules: changed while the scheduler runs under load, without unloading it.

use super::control::ask;
use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load};
use crate::guest::probe::{Probe, Samples};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::statistics::{self, Connection, expect_tuned, tune_request};
use crate::guest::{Guest, clock, frames, report, wakeups};
use crate::scenario::{FULL_SPEED, Scenario};
use anyhow::{Context, Result, ensure};
use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[Scenario {
    name: "profiles",
    about: "the profile is changed 1000 times under load: the scheduler stays loaded, each change \
        takes less than 1 ms, no frame is late, the p99 of wakeups stays below 1 ms, and the last \
        profile is in force; a rule raises a hog, and no longer when the rules are read again. In \
        exact mode: a busy host would delay every request",
    limit_s: 90,
    exact: true,
    once: true,
    run: profiles,
    ..FULL_SPEED
}];

/// The name of the hog that a rule is about.
const RULED: &CStr = c"ruled";
const RULES: &str = "/tmp/rules.toml";
/// What the explanation of the hog says when the rule has raised it.
const RAISED: &str = "is Interactive: a rule of the user";
/// What asks for the profiles.
const BY: &str = "the scenario";
const SWITCHES: usize = 1_000;
/// Those that keep wakeups early. The last one is in force at the end.
const SWITCHED: [&str; 4] = ["gaming", "server", "lowlatency", "auto"];
/// So that the switches take as long as wakeups and frames are measured.
const SWITCH_EVERY_NS: u64 = 3_000_000;
const SWITCH_MAX_US: f64 = 1_000.0;
/// How long wakeups are measured with and without switches, and the frames of that time.
const MEASURED_S: u64 = 3;
const FRAMES: usize = 175;
/// The p99 of a wakeup while profiles change; without them it is some 0.2 ms.
const P99_MAX_US: f64 = 1_000.0;
/// The supervisor looks at the processes once a second.
const SOON: Duration = Duration::from_millis(2_500);

fn profiles(guest: &Guest) -> Result<()> {
    // On a machine that is idle yet.
    let frame_rounds = frames::calibrate(guest.cpus);
    write_rule("batch")?;
    let scheduler = Scheduler::start(guest, &["--profile", "server", "--rules", RULES])?;
    let ruled = Kind::Named { name: RULED, life: Life::Hog };
    let mut kinds = vec![Kind::Hog; 2 * guest.cpus];
    kinds.push(ruled);
    let load = Load::start(&kinds)?;
    let all = ask(guest, &["tune"])?;
    ensure!(all.contains("profile=server") && all.contains("batch_slice_us=20000"), "{all}");

    let worker = scheduler.worker()?;
    switch_under_load(frame_rounds)?;
    ensure!(scheduler.worker()? == worker, "the scheduling process was started again");
    let now = scheduler.statistics()?;
    let (profile, by) = (now.text("profile")?, now.text("profile_by")?);
    ensure!((profile, by) == ("auto", BY), "in force is {profile} by {by}");
    ensure!(now.count("restarts")? == 0, "the scheduler was started again");
    ensure!(now.count("batch_slice_us")? < 20_000, "the first profile is still in force");
    scheduler.expect_in_charge()?;

    let hog = load.workers().iter().find(|worker| worker.name.contains("ruled"));
    let hog = hog.context("the load has no hog that a rule is about")?.pid.to_string();
    let explained = || ask(guest, &["explain", &hog, "--for", "1"]);
    // It is Batch by itself too.
    await_said("is Batch: ", explained)?;
    ensure!(scheduler.statistics()?.count("nr_ruled")? >= 1, "no process has a rule");
    write_rule("interactive")?;
    report::note(ask(guest, &["tune", "rules=reload"])?.trim());
    await_said(RAISED, explained)?;
    fs::write(RULES, "[[rule]]\nabout = 'x'\nnice = 99\n").context("writing a wrong rule")?;
    let command = &mut scheduler::command(guest, &["tune", "rules=reload"]);
    let parts = [RULES, "line 3, column 8"];
    super::errors::expect_refusal("wrong rules", command, super::errors::USAGE, &parts)?;
    await_said(RAISED, explained)?;
    drop(load);
    scheduler.finish().map(drop)
}

fn write_rule(tier: &str) -> Result<()> {
    let name = RULED.to_str()?;
    let rule = format!("[[rule]]\nabout = 'a hog'\nname = '{name}'\ntier = '{tier}'\n");
    fs::write(RULES, rule).context("writing rules")
}

/// Waits until the explanation of the task says this.
fn await_said(part: &str, explained: impl Fn() -> Result<String>) -> Result<()> {
    let start = Instant::now();
    loop {
        let said = explained()?;
        if said.contains(part) {
            return Ok(());
        }
        ensure!(start.elapsed() < SOON, "after {:?} it says: {said}", start.elapsed());
        sleep(Duration::from_millis(100));
    }
}

/// Changes the profile, and measures switches, wakeups and frames; the last two also before.
fn switch_under_load(frame_rounds: u32) -> Result<()> {
    statistics::tune("profile=auto", BY)?;
    let before = Measured::finish(wakeups::start(MEASURED_S)?, frame_rounds, || Ok(()))?;
    let mut switches = Vec::new();
    let during = Measured::finish(wakeups::start(MEASURED_S)?, frame_rounds, || {
        switches = switch()?;
        Ok(())
    })?;
    let switches = Samples::of_times(switches);
    let [p50, p99, longest] = [500, 990, 1_000].map(|permille| switches.quantile_us(permille));
    report::note(format!(
        "{SWITCHES} switches with their requests, p50 / p99 / longest: {p50:.0} / {p99:.0} / \
         {longest:.0} us"
    ));
    report::note(format!("before:    {before}"));
    report::note(format!("meanwhile: {during}"));
    ensure!(longest <= SWITCH_MAX_US, "a switch took {longest:.0} us");
    ensure!(during.late == 0, "{} of {FRAMES} frames were late", during.late);
    let p99 = during.wakeups.quantile_us(990);
    ensure!(p99 <= P99_MAX_US, "p99 of a wakeup was {p99:.0} us meanwhile");
    Ok(())
}

/// Changes the profile again and again over one connection, and returns how many nanoseconds each
/// change took.
fn switch() -> Result<Vec<u64>> {
    let requests = SWITCHED.map(|profile| tune_request(&format!("profile={profile}"), BY));
    let start = clock::now_ns();
    let mut took = Vec::with_capacity(SWITCHES);
    let mut scheduler = Connection::open()?;
    for number in 0..SWITCHES {
        let due = start + number as u64 * SWITCH_EVERY_NS;
        sleep(Duration::from_nanos(due.saturating_sub(clock::now_ns())));
        let asked = clock::now_ns();
        let answer = scheduler.exchange(&requests[number % requests.len()])?;
        took.push(clock::now_ns() - asked);
        expect_tuned(&answer)?;
    }
    Ok(took)
}

/// Wakeups and frames of the same seconds.
struct Measured {
    wakeups: Samples,
    frames: Samples,
    late: usize,
}

impl Measured {
    /// Draws frames beside the probe of wakeups, and does something meanwhile.
    fn finish(
        wakeups: Probe,
        frame_rounds: u32,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<Measured> {
        let frames = frames::start(FRAMES, frame_rounds)?;
        meanwhile()?;
        let (wakeups, frames) = (wakeups.finish()?, frames.finish()?);
        ensure!(frames.count() == FRAMES, "{} of {FRAMES} frames were drawn", frames.count());
        let late = frames.count_above(frames::PERIOD_NS);
        Ok(Measured { wakeups, frames, late })
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measured { wakeups, frames, late } = self;
        let (p50, p99) = (wakeups.quantile_us(500), wakeups.quantile_us(990));
        let (frame, worst) = (frames.quantile_us(500), frames.worst_us());
        write!(
            f,
            "p50 / p99 of a wakeup {p50:.0} / {p99:.0} us; {late} of {FRAMES} frames late, p50 / \
             worst {frame:.0} / {worst:.0} us"
        )
    }
}
