// SPDX-License-Identifier: GPL-2.0-only

//! What every phase is told, and the loads that several phases share.

use crate::report::Report;
use crate::tasks::clock::{self, SECOND_NS};
use crate::tasks::family;
use crate::tasks::load::{Kind, Load};
use crate::tasks::wakeups::{USUAL, Waking};
use crate::tasks::work::{HOG_ROUNDS, allowed_cpus};
use anyhow::{Context, Result, ensure};
use pandemonium_statistics::figure::Unit;
use std::thread::sleep;
use std::time::Duration;

/// How one phase is measured.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Numbers of the CPUs that may be used.
    pub cpus: Vec<usize>,
    /// How long the phase measures.
    pub run_ns: u64,
    /// Rounds of `work::burn` that one CPU does in a millisecond while all CPUs work.
    pub rounds_per_ms: u64,
    /// How long a load runs before anything is counted.
    pub warm_up: Duration,
    /// Seed of everything pseudo-random.
    pub seed: u64,
    /// The scheduler process, if its CPU time is wanted.
    pub scheduler: Option<libc::pid_t>,
}

/// How long a calibration measures, and how long it runs before that.
const CALIBRATION: Duration = Duration::from_millis(300);
const CALIBRATION_WARM_UP: Duration = Duration::from_millis(100);
/// A shorter run would end within the wakeups that are not counted.
const WAKING_NS_MIN: u64 = 80_000_000;
/// CPU time that a waking task uses after each wakeup.
const WAKE_WORK_US: u64 = 50;

impl Setting {
    /// The number of CPUs that may be used.
    pub fn n(&self) -> usize {
        self.cpus.len()
    }

    /// Rounds of `work::burn` that take one CPU this long.
    pub fn rounds(&self, us: u64) -> u32 {
        u32::try_from(self.rounds_per_ms * us / 1_000).unwrap_or(u32::MAX).max(1)
    }

    /// The load of most phases: two tasks for each CPU that never sleep.
    pub fn hogs(&self) -> Vec<Kind> {
        vec![Kind::Hog; 2 * self.n()]
    }

    /// The task with the measured wakeup latency; it runs for this part of the phase.
    pub fn waking(&self, part: f64) -> Waking {
        let run_ns = ((self.run_ns as f64 * part) as u64).max(WAKING_NS_MIN);
        Waking { run_ns, work_rounds: self.rounds(WAKE_WORK_US), seed: self.seed, ..USUAL }
    }

    /// Starts a load and lets it warm up.
    pub fn load(&self, plan: &[Kind]) -> Result<Load> {
        let load = Load::start(plan)?;
        sleep(self.warm_up);
        Ok(load)
    }

    /// How long the phase measures.
    pub fn run_time(&self) -> Duration {
        Duration::from_nanos(self.run_ns)
    }

    /// The same in seconds.
    pub fn seconds(&self) -> f64 {
        self.run_ns as f64 / SECOND_NS as f64
    }

    /// CPU time that the scheduler process and its children have used so far.
    fn scheduler_ns(&self) -> Result<Option<u64>> {
        let used = self.scheduler.map(family::cpu_time_ns).transpose();
        used.context("reading the CPU time of the scheduler process")
    }
}

/// Rounds of `work::burn` that one CPU does in a millisecond while all CPUs work.
pub fn calibrate(cpus: &[usize]) -> Result<u64> {
    let plan: Vec<Kind> = cpus.iter().map(|&cpu| Kind::PinnedHog { cpu }).collect();
    let load = Load::start(&plan)?;
    sleep(CALIBRATION_WARM_UP);
    let start = clock::now_ns();
    let before: u64 = load.steps().iter().sum();
    sleep(CALIBRATION);
    let units = load.steps().iter().sum::<u64>() - before;
    let took_us = (clock::now_ns() - start) / 1_000;
    ensure!(units > 0, "calibrating: {} CPUs did nothing in {took_us} us", cpus.len());
    Ok((units * u64::from(HOG_ROUNDS) * 1_000 / took_us.max(1) / cpus.len() as u64).max(1))
}

/// The CPUs on which this process may run.
pub fn cpus() -> Result<Vec<usize>> {
    let cpus = allowed_cpus();
    ensure!(!cpus.is_empty(), "the kernel does not say which CPUs may be used");
    Ok(cpus)
}

/// Makes this process a real-time task where it may, so that it measures independently of the
/// scheduler under test. Its children start as ordinary tasks again.
pub fn become_real_time() {
    let priority = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // The kernel wakes ordinary tasks up to 50 us late, so that timers expire together. No
    // scheduler causes this delay, and kernels differ in whether real-time tasks pass it on.
    // SAFETY: pid 0 is the caller and the parameter block lives on the stack. Without the privilege
    // this process measures as an ordinary task, and only the ends of the phases are less exact.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::sched_setscheduler(0, policy, &priority);
    }
}

/// Measures beside a probe: the work of the hogs, and the CPU time of the scheduler process.
pub struct Meter<'a> {
    setting: &'a Setting,
    load: &'a Load,
    start_ns: u64,
    work: u64,
    scheduler_ns: Option<u64>,
}

impl<'a> Meter<'a> {
    /// Notes the counters at the start of the measurement.
    pub fn start(setting: &'a Setting, load: &'a Load) -> Result<Meter<'a>> {
        let scheduler_ns = setting.scheduler_ns()?;
        let start_ns = clock::now_ns();
        Ok(Meter { setting, load, start_ns, work: work_of_hogs(load), scheduler_ns })
    }

    /// Adds the figures since the start.
    pub fn finish(self, report: &mut Report) -> Result<()> {
        let took_ns = (clock::now_ns() - self.start_ns).max(1) as f64;
        let work = (work_of_hogs(self.load) - self.work) as f64 * 1e9 / took_ns;
        if self.load.workers().iter().any(is_hog) {
            ensure!(work > 0.0, "the hogs did nothing");
            report.higher("work", Unit::PerSecond, work);
        }
        if let Some((now, before)) = self.setting.scheduler_ns()?.zip(self.scheduler_ns) {
            let percent = now.saturating_sub(before) as f64 * 100.0 / took_ns;
            report.lower("own_cpu", Unit::Percent, percent);
        }
        Ok(())
    }
}

fn is_hog(worker: &crate::tasks::load::Worker) -> bool {
    matches!(worker.kind, Kind::Hog | Kind::TimedHog)
}

fn work_of_hogs(load: &Load) -> u64 {
    let each = load.workers().iter().zip(load.steps());
    each.filter(|(worker, _)| is_hog(worker)).map(|(_, steps)| steps).sum()
}
