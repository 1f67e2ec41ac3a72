// SPDX-License-Identifier: GPL-2.0-only

//! What tasks suffer when a fault strikes a scheduler, of this project or another one
//! (`suite --only faults --scheduler FILE`). It judges nothing: the notes are a table for
//! docs/results.md.

use super::pressure::Bomb;
use crate::guest::crowd::{Crowd, Life};
use crate::guest::load::{Kind, Load};
use crate::guest::processes::{bind, make_real_time, signal};
use crate::guest::scheduler::{OURS, Scheduler};
use crate::guest::{Guest, kernel, report, wakeups};
use crate::scenario::{FULL_SPEED, Scenario};
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

/// By name only: it takes minutes, and its figures are for people.
pub const FAULTS: Scenario = Scenario {
    name: "faults",
    about: "seven faults strike a scheduler, one after the other, beside hogs and sleepers: how \
        long wakeups waited, what the hogs did, and whether it was still in charge",
    cpus: Some(3),
    limit_s: 900,
    exact: true,
    run: faults,
    ..FULL_SPEED
};

/// How long wakeups are measured, in seconds: longer than each fault.
const SECONDS: u64 = 9;
/// Longer than the kernel's watchdog waits.
const LASTS: Duration = Duration::from_secs(7);
const SETTLE: Duration = Duration::from_secs(1);
/// A start after a CPU went or came takes some seconds.
const BACK_S: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(300);
const HOGS: usize = 6;
const CROWD: usize = 2_000;
/// The CPU that goes offline, and it and its neighbour as bits.
const LAST_CPU: usize = 2;
const LAST_TWO: u64 = 0b110;

/// Strikes the scheduler, if there is one, and returns when it is over.
type Strike = fn(Option<&Scheduler>) -> Result<()>;

/// Faults of any machine, which the kernel's own scheduler meets too.
const OF_MACHINES: [(&str, Strike); 3] = [
    ("no fault", |_| Ok(())),
    ("2,000 threads begin to compute", crowd),
    ("500 processes fork without end", bomb),
];

/// Faults of a scheduler with a process.
const OF_SCHEDULERS: [(&str, Strike); 4] = [
    ("its process is stopped for 7 s", stop),
    ("its process is killed", kill),
    ("a real-time task has its CPU for 7 s", real_time),
    ("a CPU goes offline and comes back", hotplug),
];

fn faults(guest: &Guest) -> Result<()> {
    if guest.orders.scheduler == OURS {
        for (name, strike) in OF_MACHINES {
            measure(&format!("kernel's own, {name}"), None, strike)?;
        }
    }
    for (name, strike) in OF_MACHINES.into_iter().chain(OF_SCHEDULERS) {
        measure(name, Some(Scheduler::start(guest, &[])?), strike)?;
    }
    kernel::set_online(LAST_CPU, false)?;
    let scheduler = Scheduler::start(guest, &[]);
    let measured = measure("one CPU was offline at its start", Some(scheduler?), |_| Ok(()));
    kernel::set_online(LAST_CPU, true)?;
    measured
}

/// Measures wakeups and hogs beside the fault, and notes one line.
fn measure(name: &str, scheduler: Option<Scheduler>, strike: Strike) -> Result<()> {
    report::progress(name);
    let mut plan = vec![Kind::Hog; HOGS];
    plan.extend([Kind::Sleeper { pause_us: 2_000 }; 2]);
    plan.push(Kind::BoundSleeper { pause_us: 3_000, cpus: LAST_TWO });
    let load = Load::start(&plan)?;
    sleep(SETTLE);
    let (probe, before) = (wakeups::start(SECONDS)?, load.steps());
    strike(scheduler.as_ref())?;
    let waits = probe.finish()?;
    let after = load.steps();
    let work: Vec<u64> = after.iter().zip(before).map(|(now, before)| now - before).collect();
    let hogs = &work[..HOGS];
    let (least, most) = (hogs.iter().min().unwrap_or(&0), hogs.iter().max().unwrap_or(&0));
    let [p50, p99, worst] = [500, 990, 1000].map(|permille| waits.quantile_us(permille));
    let fate = scheduler.as_ref().map_or_else(String::new, fate);
    drop(load);
    report::note(format!(
        "{name}: wakeups p50 {p50:.0} us, p99 {p99:.0}, worst {worst:.0}; hogs {least} to \
         {most}{fate}"
    ));
    scheduler.map_or(Ok(()), Scheduler::kill)
}

/// Whether the scheduler is in charge, or what the kernel said when it ended. One that starts again
/// has some time for that.
fn fate(scheduler: &Scheduler) -> String {
    for _ in 0..BACK_S {
        if scheduler.expect_in_charge().is_ok() {
            break;
        }
        sleep(SETTLE);
    }
    match scheduler.expect_in_charge() {
        Ok(()) => "; in charge".into(),
        Err(why) => format!("; {why:#}"),
    }
}

fn crowd(_: Option<&Scheduler>) -> Result<()> {
    let mut crowd = Crowd::prepare()?;
    crowd.add(CROWD, Life::Hog)?;
    sleep(LASTS);
    let longest = crowd.members().iter().map(|hog| hog.longest()).max();
    report::note(format!("the longest wait of a thread: {:?}", longest.unwrap_or_default()));
    Ok(())
}

fn bomb(_: Option<&Scheduler>) -> Result<()> {
    let bomb = Bomb::start()?;
    sleep(LASTS);
    drop(bomb);
    Ok(())
}

fn stop(scheduler: Option<&Scheduler>) -> Result<()> {
    let processes = scheduler.map_or_else(Vec::new, Scheduler::processes);
    for &process in &processes {
        signal(process, libc::SIGSTOP)?;
        sleep(BETWEEN);
    }
    sleep(LASTS);
    for &process in processes.iter().rev() {
        // An ejected scheduler may have ended.
        let _ = signal(process, libc::SIGCONT);
    }
    Ok(())
}

fn kill(scheduler: Option<&Scheduler>) -> Result<()> {
    match scheduler.and_then(|scheduler| scheduler.processes().pop()) {
        Some(process) => signal(process, libc::SIGKILL),
        None => Ok(()),
    }
}

fn real_time(scheduler: Option<&Scheduler>) -> Result<()> {
    let hog = Load::start(&[Kind::PinnedHog { cpu: 1 }])?;
    if let Some(process) = scheduler.and_then(|scheduler| scheduler.processes().pop()) {
        bind(process, 1)?;
    }
    make_real_time(&hog)?;
    sleep(LASTS);
    Ok(())
}

fn hotplug(_: Option<&Scheduler>) -> Result<()> {
    for online in [false, true] {
        kernel::set_online(LAST_CPU, online)?;
        sleep(LASTS / 2);
    }
    Ok(())
}
