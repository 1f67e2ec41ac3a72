// SPDX-License-Identifier: GPL-2.0-only

//! A rule with a domain: the tasks of its processes run inside, and no other task does more so.

use super::control::ask;
use crate::guest::lives::Life;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::ffi::CStr;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[Scenario {
    name: "rule-domain",
    about: "a rule demands two of four CPUs for some processes: sleepers and a hog stay inside \
        while the machine is idle and while other hogs fill it; of a domain that is not strict two \
        hogs stay inside, six use all CPUs. In exact mode: a host that stops a CPU of the domain \
        makes the domain look full",
    cpus: Some(4),
    limit_s: 120,
    exact: true,
    once: true,
    run: rule_domain,
    ..USUAL
}];

const RULES: &str = "/tmp/rule-domain.toml";
const RULED: &CStr = c"ruled";
/// CPUs 2 and 3, as bits.
const INSIDE: u64 = 0b1100;
/// The supervisor looks at the processes once a second; then tasks have to be placed anew.
const SETTLE: Duration = Duration::from_millis(2_000);
const WINDOW: Duration = Duration::from_millis(1_500);
/// Without a rule tasks are outside for half of the time.
const STRAYS_MAX_PERMILLE: u64 = 20;
/// Equal shares give a half.
const OVERFLOW_MIN_PERMILLE: u64 = 100;

const HOG: Kind = Kind::Named { name: RULED, life: Life::Hog };
const SLEEPER: Kind =
    Kind::Named { name: RULED, life: Life::Periodic { period_us: 4_000, work_us: 500 } };

fn rule_domain(guest: &Guest) -> Result<()> {
    write_rule("domain_strict = true")?;
    let scheduler = Scheduler::start(guest, &["--rules", RULES])?;
    let mixed = [SLEEPER, SLEEPER, SLEEPER, HOG];
    expect_inside("a strict domain, idle machine", &mixed)?;
    let others = Load::start(&vec![Kind::Hog; guest.cpus])?;
    expect_inside("a strict domain, busy machine", &mixed)?;
    drop(others);
    write_rule("")?;
    ask(guest, &["tune", "rules=reload"])?;
    expect_inside("a domain with room", &[HOG, HOG])?;
    let many = permille_outside(&[HOG; 6])?;
    report::note(format!("a domain without room: of 1000 units {many} outside"));
    ensure!(many >= OVERFLOW_MIN_PERMILLE, "six hogs did {many} of 1000 units outside only");
    ensure!(scheduler.statistics()?.count("nr_ruled")? >= 6, "no process has a rule");
    scheduler.expect_in_charge()?;
    scheduler.finish().map(drop)
}

fn write_rule(more: &str) -> Result<()> {
    let name = RULED.to_str()?;
    let rule = format!("[[rule]]\nabout = 'two CPUs'\nname = '{name}'\ndomain = '2-3'\n{more}\n");
    fs::write(RULES, rule).context("writing rules")
}

fn expect_inside(what: &str, plan: &[Kind]) -> Result<()> {
    let outside = permille_outside(plan)?;
    report::note(format!("{what}: of 1000 units {outside} outside"));
    ensure!(outside <= STRAYS_MAX_PERMILLE, "{what}: {outside} of 1000 units were done outside");
    Ok(())
}

/// The share of each worker's work that was done outside, the largest, once the rule is in force.
fn permille_outside(plan: &[Kind]) -> Result<u64> {
    let load = Load::start_at_home(plan, INSIDE)?;
    sleep(SETTLE);
    let before = (load.steps(), load.strays());
    sleep(WINDOW);
    let after = (load.steps(), load.strays());
    let mut largest = 0;
    for worker in 0..plan.len() {
        let steps = after.0[worker] - before.0[worker];
        ensure!(steps > 0, "worker {worker} did nothing");
        largest = largest.max((after.1[worker] - before.1[worker]) * 1000 / steps);
    }
    Ok(largest)
}
