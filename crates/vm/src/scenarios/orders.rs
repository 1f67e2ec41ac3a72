// SPDX-License-Identifier: GPL-2.0-only

//! Standing orders: most wakeups on a busy machine need no decision.

use crate::guest::load::{Kind, Load};
use crate::guest::probe::Samples;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report, round_trips, wakeups};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Result, ensure};
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "orders",
        about: "beside hogs most wakeups of a sleeper, of four fast sleepers and of a pipe are \
            executed by standing orders, which are renewed before they end, and each hog moves; \
            with --no-orders none is. In exact mode: a busy host would delay every task",
        limit_s: 180,
        exact: true,
        once: true,
        run: orders,
        ..USUAL
    },
    Scenario {
        name: "undisturbed",
        about: "hogs take turns by standing orders, and a sleeper wakes up by its own: nothing \
            holds the scheduling process up, so nothing counts as a stall. In exact mode: a busy \
            host would stop it",
        limit_s: 90,
        exact: true,
        once: true,
        run: undisturbed,
        ..USUAL
    },
];

const SETTLES: Duration = Duration::from_millis(700);
const SECONDS: u64 = 1;
/// Of the wakeups that find no idle CPU. The rest is of tasks that are not known yet, or came when
/// a burst had begun or ended.
const LEAST_SHARE: f64 = 0.8;
/// An order is renewed after 31 executions at the latest; some end earlier.
const RENEWED_EVERY: u64 = 64;

/// Counters that the note tells besides.
const TOLD: [&str; 7] = [
    "nr_orders_queued",
    "nr_resumed",
    "nr_requeues",
    "nr_user_dispatches",
    "nr_kernel_dispatches",
    "nr_kicks",
    "nr_timers",
];

fn orders(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let hogs = vec![Kind::Hog; 2 * guest.cpus];
    let few = vec![Kind::Hog; guest.cpus];
    let crowd = [hogs.clone(), vec![Kind::Periodic { period_us: 1_000 }; 4]].concat();
    let mut short = Vec::new();
    let wakes = || wakeups::start(SECONDS)?.finish();
    for (name, plan) in
        [("one sleeper", &hogs), ("as many hogs as CPUs", &few), ("four sleepers", &crowd)]
    {
        let share = measure(&scheduler, name, plan, wakes)?;
        if share < LEAST_SHARE {
            short.push(name);
        }
    }
    let trips = || round_trips::start(guest.cpus, SECONDS)?.finish();
    let share = measure(&scheduler, "a pipe", &few, trips)?;
    if share < LEAST_SHARE {
        short.push("a pipe");
    }
    scheduler.finish()?;
    ensure!(short.is_empty(), "too few wakeups were executed by orders: {short:?}");
    let without = Scheduler::start(guest, &["--no-orders"])?;
    measure(&without, "--no-orders", &hogs, wakes)?;
    let executed = without.statistics()?.count("nr_orders")?;
    without.finish()?;
    ensure!(executed == 0, "{executed} orders were executed with --no-orders");
    Ok(())
}

/// For so long: between two messages of the hogs nothing may happen for some 60 ms.
const UNDISTURBED_S: u64 = 10;

fn undisturbed(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--stats", "1"])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    sleep(SETTLES);
    let late = wakeups::start(UNDISTURBED_S)?.finish()?;
    drop(load);
    let statistics = scheduler.statistics()?;
    let (stalls, ms) = (statistics.count("nr_stalls")?, statistics.count("stalled_ms")?);
    report::note(format!("wakeups p50 {:.0} us", late.quantile_us(500)));
    scheduler.finish()?;
    ensure!(stalls == 0, "{stalls} stalls of {ms} ms, though nothing held the process up");
    Ok(())
}

/// The share of wakeups that orders executed.
fn measure(
    scheduler: &Scheduler,
    name: &str,
    plan: &[Kind],
    probe: impl Fn() -> Result<Samples>,
) -> Result<f64> {
    let load = Load::start(plan)?;
    sleep(SETTLES);
    let (before, steps) = (scheduler.statistics()?, load.steps());
    let cpu_time = scheduler.cpu_time_ns()?;
    let late = probe()?;
    let spent = (scheduler.cpu_time_ns()? - cpu_time) / 1_000_000;
    let (after, moved) = (scheduler.statistics()?, load.steps());
    drop(load);
    let rise = |field| after.rise(&before, field);
    let [executed, renewed, wakeups] =
        [rise("nr_orders")?, rise("nr_renewed")?, rise("nr_wakeups")?];
    let told = TOLD.iter().map(|field| Ok(format!("{field} {}", rise(field)?)));
    let told = told.collect::<Result<Vec<_>>>()?.join(", ");
    let times = [500, 990, 999].map(|permille| late.quantile_us(permille));
    report::note(format!(
        "{name}: p50, p99, p99.9 {times:.0?} us, own {spent} ms; {wakeups} wakeups queued to user \
         space, {executed} executed by orders, {renewed} renewed; {told}"
    ));
    let stuck = steps.iter().zip(&moved).filter(|(before, after)| before == after).count();
    ensure!(stuck == 0, "{name}: {stuck} tasks of the load did not move");
    ensure!(renewed * RENEWED_EVERY >= executed, "{name}: {renewed} orders were renewed");
    let asked = wakeups.saturating_sub(renewed);
    Ok(executed as f64 / (executed + asked).max(1) as f64)
}
