// SPDX-License-Identifier: GPL-2.0-only

//! The workloads of the bars, one after the other: under the kernel's own scheduler, then under
//! ours. The host judges the figures.

use crate::bars::{FRAMES, KERNEL, OURS, PHASES, Phase, Plan};
use crate::guest::load::{Kind, Load};
use crate::guest::probe::Samples;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, burst, clock, frames, quiet, report, round_trips, wakeups};
use crate::scenario::{FULL_SPEED, Scenario};
use anyhow::{Context, Result, ensure};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

pub const BARS: Scenario = Scenario {
    name: "bars",
    about: "every workload of the bars, under the kernel's own scheduler and under ours",
    run,
    ..FULL_SPEED
};

/// Enough wakeups that p99.9 is not a single one.
const WAKE_SECONDS: u64 = 8;
const SECONDS: u64 = 5;
/// Enough for thousands of round trips.
const PIPE_SECONDS: u64 = 3;
const BURSTS: usize = 30;
/// The load of `mixed` beside the hogs, on any number of CPUs. The CPUs share one stream of
/// instructions, of which this load needs a third.
const STORMS: [Kind; 2] = [
    Kind::Storm { children: 8, period_us: 48_000 },
    Kind::Storm { children: 8, period_us: 53_000 },
];
const SLEEPERS: [Kind; 4] = [Kind::Periodic { period_us: 1_000 }; 4];
/// The hogs fault their pages in and change their class before the measurement.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long the hogs of `long` run before the measurement.
const LONG: Duration = Duration::from_secs(3);
const FAIR: Duration = Duration::from_secs(10);
const NICE: Duration = Duration::from_secs(6);
const FORKS: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(5);
/// Nice value of the second of two hogs.
const NICER: i32 = 5;

fn run(guest: &Guest) -> Result<()> {
    let plan = Plan::from_word(&guest.orders.detail)?;
    quiet::wait()?;
    let frame_rounds = frames::calibrate(guest.cpus);
    let mut lab = Lab { cpus: guest.cpus, frame_rounds, scheduler: None };
    beside_stand_ins(|| lab.measure_all(&plan))?;
    let options: Vec<&str> = plan.options.iter().map(String::as_str).collect();
    lab.scheduler = Some(Scheduler::start(guest, &options)?);
    quiet::wait()?;
    lab.measure_all(&plan)?;
    lab.scheduler.context("started above")?.finish().map(drop)
}

/// Measures while two idle threads exist, in place of the threads that read the scheduler's output
/// in the second half. Each fork of a load copies the mappings made for a thread. If only the
/// second half had them, forks would be slower there, which costs the hogs of `mixed` an eighth of
/// their work. Later threads reuse their stacks and heaps.
fn beside_stand_ins<T>(measure: impl FnOnce() -> T) -> T {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let shut = gate.lock();
        for _ in 0..2 {
            scope.spawn(|| {
                // The first allocation gives a thread a heap of its own.
                let line = String::from("a line of the scheduler");
                drop(gate.lock());
                drop(line);
            });
        }
        let measured = measure();
        drop(shut);
        measured
    })
}

struct Lab {
    cpus: usize,
    /// Work of a frame, in rounds.
    frame_rounds: u32,
    /// `None` while the kernel's own scheduler is measured.
    scheduler: Option<Scheduler>,
}

impl Lab {
    fn measure_all(&self, plan: &Plan) -> Result<()> {
        for round in 1..=plan.rounds {
            for phase in PHASES.into_iter().filter(|phase| plan.phases.contains(phase)) {
                if self.scheduler.is_some() || phase.has_two_sides() {
                    self.measure(phase, round)?;
                }
            }
        }
        Ok(())
    }

    fn measure(&self, phase: Phase, round: u32) -> Result<()> {
        let what = format!("{}: {}, round {round}", self.side(), phase.name());
        report::progress(what.as_str());
        let start = clock::now_ns();
        let summary = match phase {
            Phase::Wake => self.wake_ups(phase, WAKE_SECONDS, WARM_UP, &self.hogs()),
            Phase::Long => self.wake_ups(phase, SECONDS, LONG, &self.hogs()),
            Phase::Mixed => self.wake_ups(phase, SECONDS, WARM_UP, &self.mixed()),
            Phase::Forks => self.forks(),
            Phase::Burst => self.bursts(),
            Phase::Frame => self.frames(),
            Phase::Pipe => self.round_trips(),
            Phase::Fair => self.fair(),
            Phase::Nice => self.nice(),
            Phase::Idle => self.idle(),
        };
        let summary = summary.with_context(|| format!("measuring {what}"))?;
        if let Some(scheduler) = &self.scheduler {
            scheduler.expect_in_charge()?;
        }
        let took = (clock::now_ns() - start) as f64 / 1e9;
        report::note(format!("{:6}  {:5}  {took:4.1} s  {summary}", self.side(), phase.name()));
        Ok(())
    }

    fn side(&self) -> &'static str {
        if self.scheduler.is_some() { OURS } else { KERNEL }
    }

    fn report(&self, phase: Phase, name: &str, value: f64) {
        report::metric(format!("{}.{}.{name}", self.side(), phase.name()), value);
    }

    fn hogs(&self) -> Vec<Kind> {
        vec![Kind::Hog; 2 * self.cpus]
    }

    fn mixed(&self) -> Vec<Kind> {
        [self.hogs(), STORMS.to_vec(), SLEEPERS.to_vec()].concat()
    }

    fn wake_ups(
        &self,
        phase: Phase,
        seconds: u64,
        before: Duration,
        plan: &[Kind],
    ) -> Result<String> {
        let load = Load::start(plan)?;
        sleep(before);
        let meter = Meter::start(self, &load)?;
        let late = wakeups::start(seconds)?.finish()?;
        let work = meter.finish(phase)?;
        for (name, permille) in [("p50_us", 500), ("p99_us", 990), ("p99_9_us", 999)] {
            self.report(phase, name, late.quantile_us(permille));
        }
        Ok(format!("{} wakeups, p50 / p99 / p99.9 {} us, {work}", late.count(), in_us(&late)))
    }

    /// The work of the hogs beside fork loops.
    fn forks(&self) -> Result<String> {
        let load = Load::start(&[self.hogs(), vec![Kind::Forker; self.cpus]].concat())?;
        sleep(WARM_UP);
        let meter = Meter::start(self, &load)?;
        sleep(FORKS);
        meter.finish(Phase::Forks)
    }

    /// How long each child of a burst of forks waits for its first instruction.
    fn bursts(&self) -> Result<String> {
        let load = Load::start(&self.hogs())?;
        sleep(WARM_UP);
        let meter = Meter::start(self, &load)?;
        let [burst, own] = burst::start(BURSTS)?.finish_parts::<{ burst::PARTS }>()?;
        let work = meter.finish(Phase::Burst)?;
        self.report(Phase::Burst, "p50_ms", burst.quantile_us(500) / 1000.0);
        self.report(Phase::Burst, "p99_ms", burst.quantile_us(990) / 1000.0);
        self.report(Phase::Burst, "own_p99_ms", own.quantile_us(990) / 1000.0);
        Ok(format!(
            "{} forks, p50 / p99 / p99.9 {} us from the first one, {} us from its own, {work}",
            burst.count(),
            in_us(&burst),
            in_us(&own)
        ))
    }

    fn frames(&self) -> Result<String> {
        let load = Load::start(&self.hogs())?;
        sleep(WARM_UP);
        let meter = Meter::start(self, &load)?;
        let took = frames::start(FRAMES, self.frame_rounds)?.finish()?;
        let work = meter.finish(Phase::Frame)?;
        ensure!(took.count() == FRAMES, "{} of {FRAMES} frames were drawn", took.count());
        let missed = took.count_above(frames::PERIOD_NS);
        self.report(Phase::Frame, "missed", missed as f64);
        self.report(Phase::Frame, "p50_ms", took.quantile_us(500) / 1000.0);
        self.report(Phase::Frame, "p99_ms", took.quantile_us(990) / 1000.0);
        let times = in_us(&took);
        Ok(format!("{missed} of {FRAMES} frames late, p50 / p99 / p99.9 {times} us, {work}"))
    }

    fn round_trips(&self) -> Result<String> {
        let load = Load::start(&vec![Kind::Hog; self.cpus])?;
        sleep(WARM_UP);
        let meter = Meter::start(self, &load)?;
        let took = round_trips::start(self.cpus, PIPE_SECONDS)?.finish()?;
        let work = meter.finish(Phase::Pipe)?;
        self.report(Phase::Pipe, "p50_us", took.quantile_us(500));
        self.report(Phase::Pipe, "p99_us", took.quantile_us(990));
        Ok(format!("{} round trips, p50 / p99 / p99.9 {} us, {work}", took.count(), in_us(&took)))
    }

    fn fair(&self) -> Result<String> {
        let done = work_of_each(&self.hogs(), FAIR)?;
        let least = done.iter().min().copied().unwrap_or(0);
        let most = done.iter().max().copied().unwrap_or(0).max(1);
        self.report(Phase::Fair, "least_to_most", least as f64 / most as f64);
        Ok(format!("units of work by hog: {done:?}"))
    }

    fn nice(&self) -> Result<String> {
        let pair = [Kind::NiceHog { nice: 0 }, Kind::NiceHog { nice: NICER }];
        let done = work_of_each(&pair.repeat(self.cpus), NICE)?;
        let sum = |first: usize| done.iter().skip(first).step_by(2).sum::<u64>();
        self.report(Phase::Nice, "share_ratio", sum(0) as f64 / sum(1).max(1) as f64);
        Ok(format!("units of work, nice 0 and {NICER} in turn: {done:?}"))
    }

    fn idle(&self) -> Result<String> {
        quiet::wait()?;
        let scheduler = self.scheduler.as_ref().context("`idle` needs a loaded scheduler")?;
        let before = scheduler.cpu_time_ns()?;
        sleep(IDLE);
        let percent = (scheduler.cpu_time_ns()? - before) as f64 * 100.0 / IDLE.as_nanos() as f64;
        self.report(Phase::Idle, "own_cpu_percent", percent);
        Ok(format!("own CPU time {percent:.3} %"))
    }
}

/// Measures beside a probe: the work of the hogs, and the CPU time of the scheduler.
struct Meter<'a> {
    lab: &'a Lab,
    load: &'a Load,
    start_ns: u64,
    work: u64,
    cpu_time_ns: Option<u64>,
}

impl<'a> Meter<'a> {
    fn start(lab: &'a Lab, load: &'a Load) -> Result<Meter<'a>> {
        let cpu_time_ns = lab.scheduler.as_ref().map(Scheduler::cpu_time_ns).transpose()?;
        let work = work_of_hogs(load);
        Ok(Meter { lab, load, start_ns: clock::now_ns(), work, cpu_time_ns })
    }

    fn finish(self, phase: Phase) -> Result<String> {
        let took_ns = (clock::now_ns() - self.start_ns) as f64;
        let work_per_s = (work_of_hogs(self.load) - self.work) as f64 * 1e9 / took_ns;
        ensure!(work_per_s > 0.0, "the hogs did nothing");
        self.lab.report(phase, "work_per_s", work_per_s);
        let mut summary = format!("{work_per_s:.0} units of work a second");
        if let (Some(scheduler), Some(before)) = (&self.lab.scheduler, self.cpu_time_ns) {
            let percent = (scheduler.cpu_time_ns()? - before) as f64 * 100.0 / took_ns;
            self.lab.report(phase, "own_cpu_percent", percent);
            summary += &format!(", own CPU {percent:.2} %");
        }
        Ok(summary)
    }
}

fn work_of_hogs(load: &Load) -> u64 {
    let each = load.workers().iter().zip(load.steps());
    each.filter(|(worker, _)| matches!(worker.kind, Kind::Hog)).map(|(_, steps)| steps).sum()
}

/// Runs workers for this time, and returns the work of each.
fn work_of_each(plan: &[Kind], time: Duration) -> Result<Vec<u64>> {
    let load = Load::start(plan)?;
    sleep(WARM_UP);
    let done = load.steps_in(time);
    ensure!(done.iter().any(|&done| done > 0), "the hogs did nothing");
    Ok(done)
}

fn in_us(samples: &Samples) -> String {
    [500, 990, 999].map(|permille| format!("{:.0}", samples.quantile_us(permille))).join(" / ")
}
