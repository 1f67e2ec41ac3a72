// SPDX-License-Identifier: GPL-2.0-only

//! A domain: tasks run inside it, always or as long as it has room.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "domain-strict",
        about: "a strict domain of the even CPUs: every task makes progress, and only the task \
            bound to an odd CPU runs outside",
        cpus: Some(4),
        limit_s: 90,
        once: true,
        run: strict,
        ..USUAL
    },
    Scenario {
        name: "domain-preferred",
        about: "a preferred domain of two CPUs: two hogs stay inside, eight use all CPUs. In exact \
            mode: a host that stops a CPU of the domain makes the domain look full",
        cpus: Some(4),
        exact: true,
        once: true,
        run: preferred,
        ..USUAL
    },
];

/// CPUs 0 and 2, as bits.
const EVEN: u64 = 0b0101;
/// CPUs 2 and 3.
const LAST_TWO: u64 = 0b1100;
/// An odd CPU, for the task that is bound to it.
const ODD_CPU: usize = 1;
/// By then the first placements are over.
const SETTLE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(3);
const BEGIN_LIMIT: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(50);
/// A hog that a short task displaces returns soon. Two hogs without any placement are outside for
/// half of the time.
const STRAYS_MAX_PERMILLE: u64 = 50;
/// Two of four CPUs are outside, so equal shares give a half; a tenth is far from none.
const OVERFLOW_MIN_PERMILLE: u64 = 100;

fn strict(guest: &Guest) -> Result<()> {
    let arguments = ["--primary-domain", "0-63:2", "--domain-strict"];
    let scheduler = Scheduler::start(guest, &arguments)?;
    wait_until_it_decides(&scheduler)?;
    let mut plan = vec![Kind::Hog; guest.cpus];
    plan.extend([1_000, 3_000, 10_000].map(|pause_us| Kind::Sleeper { pause_us }));
    plan.extend([Kind::PipePair, Kind::Forker, Kind::Execer { period_us: 0 }]);
    plan.push(Kind::PinnedHog { cpu: ODD_CPU });
    let load = Load::start_at_home(&plan, EVEN)?;
    watch::every_worker_moves(&load, 4, |_| scheduler.expect_in_charge())?;
    let strays = load.strays();
    let stalls = scheduler.statistics()?.count("nr_stalls")?;
    report::note(format!("units of work outside, by worker: {strays:?}; {stalls} stalls"));
    for (worker, strays) in load.workers().iter().zip(strays) {
        // A busy host stalls the scheduling process, and the backend alone knows no domain.
        let is_inside = strays == 0 || stalls > 0;
        ensure!(is_inside, "{} did {strays} units of work outside its CPUs", worker.name);
    }
    drop(load);
    scheduler.finish().map(drop)
}

/// Until the scheduler's first round the backend leaves tasks on the CPU where they are.
fn wait_until_it_decides(scheduler: &Scheduler) -> Result<()> {
    let start = Instant::now();
    while scheduler.statistics()?.count("nr_user_dispatches")? == 0 {
        ensure!(start.elapsed() < BEGIN_LIMIT, "the scheduler decides nothing");
        sleep(GLANCE);
    }
    Ok(())
}

fn preferred(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--primary-domain", "2-3"])?;
    let few = permille_outside(&scheduler, &[Kind::Hog; 2], LAST_TWO, WINDOW)?;
    let many = permille_outside(&scheduler, &[Kind::Hog; 8], LAST_TWO, WINDOW)?;
    report::note(format!(
        "of 1000 units of work of 2 hogs {few} were done outside, of 8 hogs {many}"
    ));
    ensure!(few <= STRAYS_MAX_PERMILLE, "two hogs did {few} of 1000 units outside, with room");
    ensure!(many >= OVERFLOW_MIN_PERMILLE, "eight hogs did {many} of 1000 units outside only");
    scheduler.finish().map(drop)
}

/// The share of a load's work within the window that was done outside these CPUs.
pub(super) fn permille_outside(
    scheduler: &Scheduler,
    plan: &[Kind],
    cpus: u64,
    window: Duration,
) -> Result<u64> {
    let load = Load::start_at_home(plan, cpus)?;
    sleep(SETTLE);
    let sums = || (load.steps().iter().sum::<u64>(), load.strays().iter().sum::<u64>());
    let before = sums();
    sleep(window);
    let after = sums();
    scheduler.expect_in_charge()?;
    ensure!(after.0 > before.0, "the tasks did nothing");
    Ok((after.1 - before.1) * 1000 / (after.0 - before.0))
}
