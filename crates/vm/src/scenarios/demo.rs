// SPDX-License-Identifier: GPL-2.0-only

//! What `make run` shows where the machine's own kernel has no sched_ext.

use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, quiet, report, wakeups};
use crate::scenario::{FULL_SPEED, Scenario};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// Long enough for a thousand wakeups, short enough to watch.
const SECONDS: u64 = 5;

pub const DEMO: Scenario = Scenario {
    name: "demo",
    about: "the same load under the kernel's own scheduler and under ours",
    run,
    ..FULL_SPEED
};

fn run(guest: &Guest) -> Result<()> {
    let hogs = 2 * guest.cpus;
    report::note(format!(
        "Linux {} is up. {hogs} tasks that never sleep run on {} CPUs;",
        kernel::release()?,
        guest.cpus
    ));
    report::note("one more task sleeps 3 to 7 ms at a time and measures how late it runs.");
    quiet::wait()?;
    report::note(format!("\nThe kernel's own scheduler first, {SECONDS} s."));
    measure(guest, "kernel", None)?;
    report::note(format!("Now {} is loaded, and the same again.\n", guest.orders.scheduler));
    let scheduler = Scheduler::start_live(guest, &["--stats", "1"])?;
    report::note(format!("/sys/kernel/sched_ext/root/ops: {}", kernel::sched_ext_ops()?));
    measure(guest, "ours", Some(&scheduler))?;
    scheduler.finish()?;
    report::note("\nUnloaded: the kernel's own scheduler is back.");
    Ok(())
}

/// One measurement: hogs, a probe, and every second the count of the scheduler's decisions.
fn measure(guest: &Guest, side: &str, scheduler: Option<&Scheduler>) -> Result<()> {
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    // The hogs fault their pages in and change their class before the measurement.
    std::thread::sleep(Duration::from_millis(300));
    let before: u64 = load.steps().iter().sum();
    let start = Instant::now();
    let probe = wakeups::start(SECONDS)?;
    for second in 1..=SECONDS {
        std::thread::sleep(Duration::from_secs(1));
        if let Some(scheduler) = scheduler {
            scheduler.expect_in_charge()?;
            let decisions = scheduler.statistics()?.count("nr_user_dispatches")?;
            report::note(format!("second {second}: {decisions} user dispatches"));
        }
        report::progress(format!("{side}: second {second} of {SECONDS}"));
    }
    let work = (load.steps().iter().sum::<u64>() - before) as f64 / start.elapsed().as_secs_f64();
    let late = probe.finish()?;
    ensure!(work > 0.0, "the hogs did nothing");
    report::metric(format!("{side}.wake_p50_us"), late.quantile_us(500));
    report::metric(format!("{side}.wake_p99_us"), late.quantile_us(990));
    report::metric(format!("{side}.work_per_s"), work);
    report::note(format!("  {} wakeups, {work:.0} units of work a second", late.count()));
    Ok(())
}
