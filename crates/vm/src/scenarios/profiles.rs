// SPDX-License-Identifier: GPL-2.0-only

//! Profiles and rules: changed while the scheduler runs under load, without unloading it.

use super::control::ask;
use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, clock, report, statistics, wakeups};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::ffi::CStr;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const PROFILES: Scenario = Scenario {
    name: "profiles",
    about: "the profile is changed 1000 times under load: the scheduler stays loaded, wakeups are \
        as early as before, and the last profile is in force; a rule raises a hog, and no longer \
        when the rules are read again",
    limit_s: 90,
    once: true,
    run: profiles,
    ..USUAL
};

/// The name of the hog that a rule is about.
const RULED: &CStr = c"ruled";
const RULES: &str = "/tmp/rules.toml";
const SWITCHES: usize = 1_000;
/// Those that keep wakeups early. The last one is in force at the end.
const SWITCHED: [&str; 4] = ["gaming", "server", "lowlatency", "auto"];
/// Longer than the switches take on a busy host.
const SWITCHES_LIMIT: Duration = Duration::from_secs(30);
/// How long wakeups are measured with and without switches.
const MEASURED_S: u64 = 3;
/// The p99 of a wakeup while profiles change; without them it is some 0.2 ms. A host that takes a
/// virtual CPU away adds milliseconds.
const P99_MAX_US: f64 = 10_000.0;
/// The supervisor looks at the processes once a second.
const SOON: Duration = Duration::from_millis(2_500);

fn profiles(guest: &Guest) -> Result<()> {
    write_rule("lat-critical")?;
    let scheduler = Scheduler::start(guest, &["--profile", "server", "--rules", RULES])?;
    let ruled = Kind::Named { name: RULED, life: Life::Hog };
    let mut kinds = vec![Kind::Hog; 2 * guest.cpus];
    kinds.push(ruled);
    let load = Load::start(&kinds)?;
    let all = ask(guest, &["tune"])?;
    ensure!(all.contains("profile=server") && all.contains("batch_slice_us=20000"), "{all}");

    let worker = scheduler.worker()?;
    switch_under_load()?;
    ensure!(scheduler.worker()? == worker, "the scheduling process was started again");
    let now = scheduler.statistics()?;
    let (profile, by) = (now.text("profile")?, now.text("profile_by")?);
    ensure!((profile, by) == ("auto", "the scenario"), "in force is {profile} by {by}");
    ensure!(now.count("restarts")? == 0, "the scheduler was started again");
    ensure!(now.count("batch_slice_us")? < 20_000, "the first profile is still in force");
    scheduler.expect_in_charge()?;

    let hog = load.workers().iter().find(|worker| worker.name.contains("ruled"));
    let hog = hog.context("the load has no hog that a rule is about")?.pid.to_string();
    let explained = || ask(guest, &["explain", &hog, "--for", "1"]);
    await_tier("LatCritical", explained)?;
    ensure!(scheduler.statistics()?.count("nr_ruled")? >= 1, "no process has a rule");
    write_rule("interactive")?;
    report::note(ask(guest, &["tune", "rules=reload"])?.trim());
    await_tier("Interactive", explained)?;
    fs::write(RULES, "[[rule]]\nabout = 'x'\nnice = 99\n").context("writing a wrong rule")?;
    let command = &mut scheduler::command(guest, &["tune", "rules=reload"]);
    let parts = [RULES, "line 3, column 8"];
    super::errors::expect_refusal("wrong rules", command, super::errors::USAGE, &parts)?;
    await_tier("Interactive", explained)?;
    drop(load);
    scheduler.finish().map(drop)
}

fn write_rule(tier: &str) -> Result<()> {
    let name = RULED.to_str()?;
    let rule = format!("[[rule]]\nabout = 'a hog'\nname = '{name}'\ntier = '{tier}'\n");
    fs::write(RULES, rule).context("writing rules")
}

/// Waits until the explanation of the task says this tier, by a rule.
fn await_tier(tier: &str, explained: impl Fn() -> Result<String>) -> Result<()> {
    let start = Instant::now();
    loop {
        let said = explained()?;
        if said.contains(&format!("is {tier}: a rule of the user")) {
            return Ok(());
        }
        ensure!(start.elapsed() < SOON, "after {:?} it says: {said}", start.elapsed());
        sleep(Duration::from_millis(100));
    }
}

/// Changes the profile, and measures wakeups before and meanwhile.
fn switch_under_load() -> Result<()> {
    statistics::tune("profile=auto", "the scenario")?;
    let before = wakeups::start(MEASURED_S)?.finish()?;
    let probe = wakeups::start(MEASURED_S)?;
    let start = Instant::now();
    let mut longest = 0;
    for number in 0..SWITCHES {
        let asked = clock::now_ns();
        let profile = SWITCHED[number % SWITCHED.len()];
        statistics::tune(&format!("profile={profile}"), "the scenario")?;
        longest = longest.max(clock::now_ns() - asked);
        ensure!(start.elapsed() < SWITCHES_LIMIT, "{number} switches took {:?}", start.elapsed());
    }
    let each_us = start.elapsed().as_micros() / SWITCHES as u128;
    let during = probe.finish()?;
    let p99s = [&before, &during].map(|samples| samples.quantile_us(990));
    report::note(format!(
        "{SWITCHES} switches, {each_us} us each with the request, {} us at most; p99 of a wakeup \
         {:.0} us before, {:.0} us meanwhile",
        longest / 1_000,
        p99s[0],
        p99s[1]
    ));
    ensure!(p99s[1] <= P99_MAX_US, "p99 of a wakeup was {:.0} us meanwhile", p99s[1]);
    Ok(())
}
