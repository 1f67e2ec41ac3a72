// SPDX-License-Identifier: GPL-2.0-only

//! A task that computes, sleeps, and then wakes up often: how late its first wakeups are.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, changes, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Result, ensure};

pub const ALL: &[Scenario] = &[Scenario {
    name: "change",
    about: "a task that has computed wakes up often again: its first wakeups are no later than \
        under the kernel's own scheduler, beside hogs, sleepers and forks. In exact mode: a busy \
        host would delay every task",
    cpus: Some(2),
    limit_s: 300,
    exact: true,
    once: true,
    run: change,
    ..USUAL
}];

/// CPU time before each change. The task's age and the load differ each time. The latest wakeup of
/// two changes only is 1.5 to 5.2 ms late under the kernel's own scheduler, which is no measure.
const COMPUTES_US: [u64; 6] = [200_000, 50_000, 200_000, 50_000, 200_000, 50_000];
/// Bounds on p99 and on the longest, by the kernel's own.
const P99_MAX: f64 = 0.5;
const WORST_MAX: f64 = 1.0;

fn change(guest: &Guest) -> Result<()> {
    let mut company = vec![Kind::Hog; 2 * guest.cpus];
    company.extend([Kind::Sleeper { pause_us: 1_000 }; 4]);
    company.push(Kind::Storm { children: 12, period_us: 50_000 });
    let own = measure(&company)?;
    let scheduler = Scheduler::start(guest, &[])?;
    let ours = measure(&company)?;
    scheduler.finish()?;
    let what = format!(
        "p99 is {:.0} us and the worst {:.0} us late, under the kernel's own {:.0} and {:.0}",
        ours[0], ours[1], own[0], own[1]
    );
    report::note(what.as_str());
    ensure!(ours[0] <= own[0] * P99_MAX && ours[1] <= own[1] * WORST_MAX, "{what}");
    Ok(())
}

/// p99 and the longest, in microseconds.
fn measure(plan: &[Kind]) -> Result<[f64; 2]> {
    let load = Load::start(plan)?;
    let late = changes::start(&COMPUTES_US)?.finish()?;
    drop(load);
    Ok([late.quantile_us(990), late.worst_us()])
}
