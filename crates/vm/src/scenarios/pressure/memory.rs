// SPDX-License-Identifier: GPL-2.0-only

//! Too little memory.

use super::{SECOND, expect_sound};
use crate::guest::crowd::{Crowd, Life};
use crate::guest::load::{self, Kind, Load};
use crate::guest::memory::{Memory, RESIDENT_MAX, lock_own};
use crate::guest::scheduler::Scheduler;
use crate::guest::witness::{Waited, Witness};
use crate::guest::{Guest, kernel, report, swap, watch};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Memory of each process that helps to use up all of it: less than the worker holds, so that the
/// kernel would choose the worker if it were not protected.
const SMALL: usize = 32 << 20;
/// The kernel ends a process within this time.
const UNTIL_OUT: Duration = Duration::from_secs(40);
const ENDED: &str = "Out of memory: Killed process";
/// By which the kernel chooses the process.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

pub(super) fn memory_pressure(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let probe = Probe::start(guest, &scheduler)?;
    let mut plan = load::mix(guest.cpus);
    // Leaves a tenth to the rest of the guest, and makes the kernel reclaim cold pages.
    let bytes = kernel::available_memory()? / 10 * 9;
    report::note(format!("touching {} MiB", bytes >> 20));
    plan.push(Kind::Toucher { bytes });
    let load = Load::start(&plan)?;
    watch::every_worker_moves(&load, 10, |_| scheduler.expect_in_charge())?;
    probe.finish(&scheduler)?;
    Memory::of_scheduler(&scheduler)?.expect_at_most(RESIDENT_MAX)?;
    expect_sound(&scheduler)?;
    drop(load);
    scheduler.finish().map(drop)
}

pub(super) fn out_of_memory(guest: &Guest) -> Result<()> {
    swap::begin()?;
    fs::write("/proc/sys/vm/oom_dump_tasks", "0").context("keeping the console short")?;
    // The scheduler inherits what a session has; the load does not.
    fs::write(OOM_SCORE, "200").context("becoming a preferred victim")?;
    let scheduler = Scheduler::start(guest, &[])?;
    fs::write(OOM_SCORE, "0").context("becoming an ordinary process")?;
    let load = Load::start(&load::mix(guest.cpus))?;
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    let middle = Memory::of_scheduler(&scheduler)?;
    let probe = Probe::start(guest, &scheduler)?;
    use_up(&scheduler)?;
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    probe.finish(&scheduler)?;
    drop(load);
    let memory = Memory::of_scheduler(&scheduler)?;
    memory.expect_flat_since(&middle)?;
    memory.expect_at_most(RESIDENT_MAX)?;
    expect_sound(&scheduler)?;
    scheduler.finish().map(drop)
}

/// Uses up memory and swap until the kernel ends processes, which must be others.
fn use_up(scheduler: &Scheduler) -> Result<()> {
    let ours = [scheduler.worker()?, scheduler.pid()];
    let count = (kernel::available_memory()? + kernel::free_swap()?) / SMALL + 4;
    let load = Load::start(&vec![Kind::Toucher { bytes: SMALL }; count])?;
    let started = Instant::now();
    let mut messages = kernel::messages();
    while !messages.contains(ENDED) {
        ensure!(started.elapsed() < UNTIL_OUT, "the kernel ends none of {count} processes");
        sleep(SECOND / 4);
        messages = kernel::messages();
    }
    let free = kernel::free_swap()?;
    sleep(SECOND);
    scheduler.expect_in_charge()?;
    drop(load);
    let messages = kernel::messages();
    let ended: Vec<&str> = messages.lines().filter(|line| line.contains(ENDED)).collect();
    report::note(format!(
        "the kernel ended {} of {count} processes, with {} MiB of swap left",
        ended.len(),
        free >> 20
    ));
    let is_ours = |line: &&&str| ours.iter().any(|pid| line.contains(&format!("process {pid} ")));
    match ended.iter().find(is_ours) {
        Some(line) => bail!("the kernel ended the scheduler: {line}"),
        None => Ok(()),
    }
}

// ---- Wakeups meanwhile ----

/// Each task of the probe wakes up so often.
const PERIOD: Duration = Duration::from_millis(5);
/// Before its memory is locked it has woken up often enough that all of that is in use.
const WARM_UP: Duration = Duration::from_millis(200);
/// A stall is a time of 20 ms or more without a round. Where real-time tasks were late by half of
/// that, the host may have stopped the CPU of the worker.
const STOPPED_US: f64 = 10_000.0;

/// Tasks that wake up, and what the scheduler has counted when they began.
///
/// They are threads of the agent, and its memory is locked. The other probes are processes, which
/// inherit no locks: a task that waits for its own pages would say nothing of the scheduler.
struct Probe {
    crowd: Crowd,
    witness: Witness,
    stalls: u64,
    /// Loads of a scheduler since the boot.
    loads: u64,
}

impl Probe {
    /// One task for each CPU.
    fn start(guest: &Guest, scheduler: &Scheduler) -> Result<Probe> {
        let mut crowd = Crowd::prepare()?;
        crowd.add(guest.cpus, Life::Ticker { period: PERIOD })?;
        let witness = Witness::start(guest.cpus)?;
        sleep(WARM_UP);
        lock_own()?;
        let stalls = scheduler.statistics()?.count("nr_stalls")?;
        let loads = kernel::sched_ext_loads()?;
        crowd.members().iter().for_each(|member| member.begin_anew());
        witness.begin();
        Ok(Probe { crowd, witness, stalls, loads })
    }

    /// Expects that no wakeup waited for long beyond what every task has to wait for, that the
    /// worker always decided, and that the kernel ejected nothing.
    fn finish(self, scheduler: &Scheduler) -> Result<()> {
        let members = self.crowd.members();
        let longest = members.iter().map(|member| member.longest()).max().unwrap_or_default();
        let waited = Waited {
            worst_us: longest.as_secs_f64() * 1e6,
            real_time_us: self.witness.take()?.worst_us(),
        };
        let woken: Vec<u64> = members.iter().map(|member| member.steps()).collect();
        let stalls = scheduler.statistics()?.count("nr_stalls")? - self.stalls;
        report::note(format!("wakeups {woken:?}: {waited}; {stalls} stalls"));
        ensure!(woken.iter().all(|&wakeups| wakeups > 0), "a task does not wake up");
        waited.expect_short()?;
        let is_decided = stalls == 0 || waited.real_time_us >= STOPPED_US;
        ensure!(is_decided, "{stalls} stalls, though nothing held real-time tasks up");
        let loads = kernel::sched_ext_loads()? - self.loads;
        ensure!(loads == 0, "a scheduler was loaded {loads} times meanwhile");
        Ok(())
    }
}
