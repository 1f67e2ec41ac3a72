// SPDX-License-Identifier: GPL-2.0-only

//! The cost of a decision, from a task's arrival to its dispatch, through `round()`, compared with
//! the `vruntime` reference in the same run.
//!
//! The number of runnable tasks is constant: each round receives one task and dispatches one, which
//! is the most expensive case. A dispatched task goes to the end of a list and arrives again, as a
//! requeue or a wakeup, when it reaches the front, so no task is dispatched twice in a row. The
//! port does almost nothing, and its cost is the same for both policies. Time is the CPU time of
//! this thread, so that other programs lengthen the run but not the figures; their effect on the
//! caches remains.

use criterion::{BenchmarkId, Criterion, Throughput};
use pandemonium_engine::Setup;
use pandemonium_engine::facts::{CpuSet, Facts};
use pandemonium_engine::task::{Arrival, Cause, Comm, CpuId, Dispatch, Pid, Ticket, Tier, Weight};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{Full, Limits, MachineView, Policy, Port, round};
use pandemonium_policies::{Pandemonium, Vruntime};
use std::collections::VecDeque;
use std::time::Duration;

const CPUS: u32 = 16;
/// Runnable tasks: few, and nearly as many as the table holds.
const TASKS: [u32; 2] = [100, 100_000];
/// For this many runnable tasks there is one more that runs or sleeps. With 100,000 runnable tasks
/// all still fit into the table.
const AWAY: u32 = 4;
/// Time between two decisions: 16 CPUs, and tasks that run for 1.6 ms on average. It is the same
/// for every number of tasks, so many tasks wait long, and every other decision is a rescue.
const BETWEEN: Span = Span::from_micros(100);
const ONE: Limits = Limits { arrivals: Limits::ARRIVALS, dispatches: 1, extra: 0 };
/// Names with a tier, so that the mix of tiers does not depend on how long tasks wait in the bench.
/// The policy observes the behaviour all the same.
const NAMES: [(&str, Tier); 2] = [("audio", Tier::LatCritical), ("shell", Tier::Interactive)];

/// Highest cost of a decision with 100 tasks. With 100,000 it must be less than twice that with
/// 100.
const BAR: Duration = Duration::from_nanos(250);
/// Lowest number of decisions a second on one core.
const BAR_RATE: f64 = 1e6;

/// A port that lets a task arrive again some time after its dispatch.
struct Ring {
    now: Stamp,
    /// The message in the ring.
    next: Option<Arrival>,
    /// The dispatched tasks, in order of dispatch.
    away: VecDeque<Pid>,
    /// The number of messages so far.
    sent: u64,
    with_facts: bool,
    by_tier: [u64; 3],
    view: MachineView,
}

impl Ring {
    fn new(with_facts: bool) -> Ring {
        let here = CpuId::new(0);
        let view = MachineView { cpus: CPUS, running: CPUS, here, ..MachineView::default() };
        let now = Stamp::from_nanos(1_000_000_000);
        let away = VecDeque::with_capacity(TASKS[1] as usize);
        Ring { now, next: None, away, sent: 0, with_facts, by_tier: [0; 3], view }
    }

    /// The next message of a task, derived from its pid and the time, so that the port needs no
    /// memory about tasks.
    fn arrival(&mut self, pid: Pid) -> Arrival {
        self.sent += 1;
        let (name, run_interval, cause) = match pid.as_raw() % 10 {
            0 => (NAMES[0].0, Span::from_micros(200), Cause::Wakeup),
            1 => (NAMES[1].0, Span::from_micros(900), Cause::Wakeup),
            _ => ("hog", Span::from_micros(4_000), Cause::Requeue),
        };
        let facts = self.with_facts.then(|| self.facts(cause, run_interval));
        Arrival {
            pid,
            ticket: Ticket(1 + self.sent),
            comm: Comm::from_text(name),
            cause,
            cpu: CpuId::new((pid.as_raw() as u32 % CPUS) as i32).expect("below 16"),
            cpus_allowed: CPUS,
            weight: Weight::default(),
            run_interval,
            awake: if cause == Cause::Wakeup { Span::ZERO } else { run_interval.scale(8, 1) },
            stopped: Stamp::from_nanos(self.sent),
            facts,
        }
    }

    /// Counters that only grow, like the kernel's.
    fn facts(&self, cause: Cause, run_interval: Span) -> Facts {
        let woke = cause == Cause::Wakeup;
        Facts {
            wakeups: if woke { self.sent } else { 1 },
            voluntary: if woke { self.sent } else { 0 },
            involuntary: if woke { 0 } else { self.sent },
            cpu_time: Span::from_nanos(self.now.as_nanos() >> 4),
            woken: self.now,
            slept: run_interval,
            allowed: CpuSet::first_64((1 << CPUS) - 1),
            ..Facts::default()
        }
    }
}

impl Port for Ring {
    fn recv(&mut self) -> Option<Arrival> {
        self.next.take()
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        self.by_tier[dispatch.tier.index()] += 1;
        self.away.push_back(dispatch.pid);
        self.next = self.away.pop_front().map(|pid| self.arrival(pid));
        Ok(())
    }

    fn kick(&mut self, _cpu: CpuId) {}

    fn view(&self) -> &MachineView {
        &self.view
    }
}

/// A policy and its tasks.
struct Course<Q> {
    policy: Q,
    ring: Ring,
}

impl<Q: Policy> Course<Q> {
    /// Lets all tasks arrive and dispatches each about twice.
    fn new(policy: Q, tasks: u32, with_facts: bool) -> Self {
        let mut course = Course { policy, ring: Ring::new(with_facts) };
        for number in 1..=tasks + tasks / AWAY {
            let pid = Pid::new(number as i32).expect("tasks are numbered from one");
            if number > tasks {
                course.ring.away.push_back(pid);
                continue;
            }
            let arrival = course.ring.arrival(pid);
            course.policy.arrive(course.ring.now, arrival, &course.ring.view);
        }
        course.run(u64::from(3 * tasks));
        assert_eq!(course.policy.waiting().nr_waiting() + 1, tasks as usize, "one is in the ring");
        course.ring.by_tier = [0; 3];
        course
    }

    /// Makes so many decisions and returns their CPU time.
    fn run(&mut self, decisions: u64) -> Duration {
        let start = cpu_time();
        for _ in 0..decisions {
            self.ring.now = self.ring.now + BETWEEN;
            let done = round(self.ring.now, &mut self.ring, &mut self.policy, ONE);
            assert_eq!(done.sent, 1, "some task is always runnable");
        }
        cpu_time() - start
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, to the local variable.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The measurement of one policy.
struct Figure {
    policy: &'static str,
    tasks: u32,
    with_facts: bool,
    /// Nanoseconds per decision, the median of all samples.
    median: f64,
    /// Share of Batch, Interactive and LatCritical among the decisions.
    by_tier: [f64; 3],
}

fn measure<Q: Policy>(
    criterion: &mut Criterion,
    name: &'static str,
    policy: Q,
    tasks: u32,
    with_facts: bool,
) -> Figure {
    let mut course = Course::new(policy, tasks, with_facts);
    let mut samples = Vec::new();
    let facts = if with_facts { "facts" } else { "messages" };
    let mut group = criterion.benchmark_group(format!("decision/{facts}"));
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new(name, tasks), |bencher| {
        bencher.iter_custom(|decisions| {
            let took = course.run(decisions);
            samples.push(took.as_nanos() as f64 / decisions as f64);
            took
        });
    });
    group.finish();
    samples.sort_by(f64::total_cmp);
    let all: u64 = course.ring.by_tier.iter().sum();
    let by_tier = course.ring.by_tier.map(|count| count as f64 / all as f64);
    let median = samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN);
    Figure { policy: name, tasks, with_facts, median, by_tier }
}

/// Prints all figures, and whether each bar is met.
fn print(figures: &[Figure]) {
    println!("ns a decision (median) | tasks | facts | batch, interactive, lat-critical");
    for figure in figures {
        let Figure { policy, tasks, with_facts, median, by_tier } = figure;
        let [batch, interactive, critical] = by_tier.map(|share| 100.0 * share);
        println!(
            "{policy:>12} {median:7.0} | {tasks:>6} | {with_facts:<5} | \
             {batch:3.0}% {interactive:3.0}% {critical:3.0}%"
        );
    }
    for pair in figures.chunks(2).filter(|pair| pair[0].policy == "pandemonium") {
        let (few, many) = (pair[0].median, pair[1].median);
        let facts = if pair[0].with_facts { "with facts" } else { "messages only" };
        let bar = BAR.as_nanos() as f64;
        println!("{facts}:");
        print_bar("ns with 100 tasks", few, bar, few <= bar);
        print_bar("times that with 100,000", many / few, 2.0, many < 2.0 * few);
        let rate = 1e9 / few.max(many);
        print_bar("decisions a second", rate, BAR_RATE, rate >= BAR_RATE);
    }
}

fn print_bar(what: &str, is: f64, bar: f64, met: bool) {
    let word = if met { "met" } else { "MISSED" };
    println!("  {word}: {is:.3} {what}, the bar is {bar}");
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let names = NAMES.map(|(name, tier)| (Comm::from_text(name), tier)).to_vec();
    let setup = Setup { names, ..Setup::of_cpus(CPUS) };
    let mut figures = Vec::new();
    for facts in [false, true] {
        for tasks in TASKS {
            let policy = Pandemonium::new(&setup);
            figures.push(measure(&mut criterion, "pandemonium", policy, tasks, facts));
        }
        for tasks in TASKS {
            figures.push(measure(&mut criterion, "vruntime", Vruntime::new(), tasks, facts));
        }
    }
    criterion.final_summary();
    print(&figures);
}
