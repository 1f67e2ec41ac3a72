// SPDX-License-Identifier: GPL-2.0-only

//! Loads that break other schedulers: very many tasks, fork bombs, no memory, clocks that are set,
//! and time. Under each the scheduler stays in charge, its worker has no page fault, loses no
//! message and holds no more memory at the end than in the middle, every task that should run runs,
//! and a task that wakes up beside the load is not late.

mod crowds;
mod forks;
mod memory;

use self::crowds::{await_begin, runnable, threads};
pub(super) use self::forks::Bomb;
use self::forks::{Bomber, fork_bomb, short_tasks};
use self::memory::{memory_pressure, out_of_memory};
use super::control::ask;
use super::procdb::{LEARNING, TICKER, run_tickers};
use crate::guest::crowd::{Crowd, Life};
use crate::guest::load::{self, Kind, Load};
use crate::guest::memory::{Memory, expect_small_supervisor};
use crate::guest::probe::Samples;
use crate::guest::scheduler::Scheduler;
use crate::guest::witness::Witness;
use crate::guest::{Guest, report, wakeups, watch};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "memory-pressure",
        about: "a process touches most of the memory while the mix runs: the scheduler has no page \
            fault and no stall, holds no more memory than it needs, and no wakeup waits for 200 ms \
            longer than a real-time task",
        limit_s: 90,
        once: true,
        run: memory_pressure,
        ..USUAL
    },
    Scenario {
        name: "fork-bomb",
        about: "processes that fork without end, within a limit of 500, beside an interactive task",
        cpus: Some(2),
        limit_s: 180,
        exact: true,
        once: true,
        run: fork_bomb,
        ..USUAL
    },
];

pub const OUT_OF_MEMORY: Scenario = Scenario {
    name: "out-of-memory",
    about: "processes touch more memory than there is, with what can be swapped, while the mix \
        runs: the scheduler has no page fault and no stall, no wakeup waits for 200 ms longer than \
        a real-time task, and the kernel ends others, also if the scheduler was started in a \
        desktop's session",
    limit_s: 180,
    swap_mib: 256,
    run: out_of_memory,
    ..FULL_SPEED
};

pub const RUNNABLE_10000: Scenario = Scenario {
    name: "runnable-10000",
    about: "10,000 threads that compute, on two CPUs: each runs within half of what the kernel's \
        watchdog allows, and a task that wakes up passes them",
    cpus: Some(2),
    limit_s: 300,
    exact: true,
    run: runnable,
    ..FULL_SPEED
};

pub const THREADS_32768: Scenario = Scenario {
    name: "threads-32768",
    about: "32,768 threads, of which one in a hundred wakes up each second, and 64 share records \
        of the backend: these keep their tier, and the thefts are counted",
    cpus: Some(2),
    memory_mib: 4_096,
    limit_s: 240,
    run: threads,
    ..FULL_SPEED
};

pub const SHORT_TASKS: Scenario = Scenario {
    name: "short-tasks",
    about: "100,000 processes, each forked to exit at once",
    limit_s: 600,
    run: |guest| short_tasks(guest, 100_000),
    ..FULL_SPEED
};

pub const SHORT_TASKS_1000000: Scenario = Scenario {
    name: "short-tasks-1000000",
    about: "a million of them",
    limit_s: 6_000,
    run: |guest| short_tasks(guest, 1_000_000),
    ..FULL_SPEED
};

pub const CLOCK_JUMP: Scenario = Scenario {
    name: "clock-jump",
    about: "the calendar is set forth and back by months while the scheduler runs, and between \
        runs: what it has learned of programs stays",
    limit_s: 240,
    exact: true,
    run: clock_jump,
    ..FULL_SPEED
};

pub const TEN_MINUTES: Scenario = Scenario {
    name: "ten-minutes",
    about: "a mix, hogs, thousands of sleeping threads, fork bombs and clocks that are set, for \
        ten minutes of real time: no memory is added, nothing is lost, in each minute the p99 of \
        wakeups is at most 50 ms above that of real-time tasks, and the longest 200 ms",
    limit_s: 10 * 60 + 900,
    run: |guest| for_minutes(guest, 10),
    ..FULL_SPEED
};

pub const ONE_HOUR: Scenario = Scenario {
    name: "one-hour",
    about: "the same for an hour",
    limit_s: 90 * 60,
    run: |guest| for_minutes(guest, 60),
    ..FULL_SPEED
};

const SECOND: Duration = Duration::from_secs(1);

/// Nothing is lost, the worker is the first one, and the supervisor is small: what must hold under
/// every load.
fn expect_sound(scheduler: &Scheduler) -> Result<()> {
    scheduler.expect_in_charge()?;
    let statistics = scheduler.statistics()?;
    let counts = ["nr_malformed", "nr_news_dropped", "nr_untold", "restarts"];
    for name in counts {
        let count = statistics.count(name)?;
        ensure!(count == 0, "{name} is {count}; health: {}", statistics.text("health")?);
    }
    let noted =
        ["nr_sched_congested", "nr_refused_dispatches", "nr_stolen", "nr_displaced", "nr_stalls"];
    let noted: Vec<String> = noted
        .iter()
        .map(|name| Ok(format!("{name} {}", statistics.count(name)?)))
        .collect::<Result<_>>()?;
    report::note(format!("{}; health: {}", noted.join(", "), statistics.text("health")?));
    expect_small_supervisor(scheduler)?;
    scheduler.expect_no_page_faults()
}

fn expect_early(what: &str, waits: &Samples, worst_ms: f64) -> Result<()> {
    let [p50, p99, worst] = [500, 990, 1000].map(|permille| waits.quantile_us(permille));
    report::note(format!("{what}: wakeups p50 {p50:.0} us, p99 {p99:.0}, worst {worst:.0}"));
    ensure!(worst <= 1_000.0 * worst_ms, "{what}: a wakeup waited for {worst:.0} us");
    Ok(())
}

// ---- The calendar ----

const DAY_S: i64 = 24 * 60 * 60;

/// Sets the calendar forth, or back if the number is negative.
fn move_calendar(days: i64) -> Result<()> {
    // SAFETY: room for one time, and a plain system call with it.
    let moved = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut now);
        now.tv_sec += days * DAY_S;
        libc::clock_settime(libc::CLOCK_REALTIME, &now)
    };
    ensure!(moved == 0, "setting the calendar: {}", std::io::Error::last_os_error());
    report::progress(format!("the calendar is {days} days off"));
    Ok(())
}

/// The scheduler knows the program well enough to predict it.
fn expect_known(guest: &Guest, when: &str) -> Result<()> {
    let name = TICKER.name();
    let table = ask(guest, &["procdb", "show"])?;
    let line = table.lines().find(|line| line.starts_with(name));
    let line = line.with_context(|| format!("{name} is forgotten {when}: {table}"))?;
    report::note(format!("{when}: {line}"));
    ensure!(!line.contains('?'), "{name} is not known any more {when}: {line}");
    Ok(())
}

fn clock_jump(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    run_tickers(guest, LEARNING)?;
    scheduler.finish()?;
    expect_known(guest, "after the first run")?;
    for days in [60, -60, -400, 400] {
        let scheduler = Scheduler::start(guest, &[])?;
        move_calendar(days)?;
        // Other programs wake up meanwhile, and are learned at the new time.
        let load = Load::start(&load::mix(guest.cpus))?;
        watch::every_worker_moves(&load, 3, |_| scheduler.expect_in_charge())?;
        drop(load);
        expect_sound(&scheduler)?;
        scheduler.finish()?;
        expect_known(guest, &format!("after a run in which the calendar moved by {days} days"))?;
    }
    for days in [90, -120, 400, -370] {
        move_calendar(days)?;
        let scheduler = Scheduler::start(guest, &[])?;
        let known = scheduler.statistics()?.count("procdb_confident")?;
        ensure!(known > 0, "nothing is known after the calendar moved by {days} days");
        scheduler.finish()?;
        expect_known(guest, &format!("after the calendar moved by {days} days between two runs"))?;
    }
    Ok(())
}

// ---- Time ----

/// Threads that sleep, and others that wake up once a second.
const SLEEPING: usize = 3_000;
const WAKING: usize = 100;
/// In each minute wakeups are measured for so long, beside a fork bomb for a part of it.
const MEASURED_S: u64 = 20;
const BOMB_BURST: Duration = Duration::from_secs(5);
/// How much longer than those of real-time tasks a minute's wakeups may wait: the 99th percentile,
/// and the longest.
const MINUTE_P99_US: f64 = 50_000.0;
const MINUTE_WORST_US: f64 = 200_000.0;
/// The threads begin one after the other, since each takes a lock of their common memory.
const BEGIN_S: u64 = 400;
/// The longest time without progress: a step of a program that executes others is some of these,
/// each of which waits beside the hogs.
const STEP_MAX: Duration = Duration::from_secs(10);

fn for_minutes(guest: &Guest, minutes: u64) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--stats", "60"])?;
    // Both fork, and so come before the threads.
    let mut plan = load::mix(guest.cpus);
    plan.extend(vec![Kind::Hog; 2 * guest.cpus]);
    let load = Load::start(&plan)?;
    let bomber = Bomber::start()?;
    let witness = Witness::start(guest.cpus)?;
    let mut crowd = Crowd::prepare()?;
    crowd.add(WAKING, Life::Ticker { period: SECOND })?;
    crowd.add(SLEEPING, Life::Asleep)?;
    let members = crowd.members().iter().map(Arc::as_ref);
    await_begin(&scheduler, members, BEGIN_S, |member| member.pid() != 0)?;
    let beside = Beside { scheduler: &scheduler, load: &load, bomber: &bomber, witness: &witness };
    let mut middle = Memory::of_scheduler(&scheduler)?;
    let mut late = Vec::new();
    for minute in 1..=minutes {
        late.extend(beside.a_minute(minute).with_context(|| format!("in minute {minute}"))?);
        let memory = Memory::of_scheduler(&scheduler)?;
        if minute > minutes / 2 {
            memory.expect_flat_since(&middle)?;
        } else {
            middle = memory;
        }
    }
    ensure!(crowd.members().iter().take(WAKING).all(|it| it.steps() > 30), "a thread did not run");
    drop((load, crowd));
    expect_sound(&scheduler)?;
    scheduler.finish()?;
    ensure!(late.is_empty(), "wakeups were late in {} minutes: {}", late.len(), late.join("; "));
    Ok(())
}

/// What runs in each minute.
struct Beside<'g> {
    scheduler: &'g Scheduler,
    load: &'g Load,
    bomber: &'g Bomber,
    witness: &'g Witness,
}

impl Beside<'_> {
    /// One minute: wakeups are measured, a fork bomb goes off, the calendar is set and set back.
    /// Returns a complaint about late wakeups.
    fn a_minute(&self, minute: u64) -> Result<Option<String>> {
        let complaint = self.wakeups(minute)?;
        let days = 30 * minute as i64;
        move_calendar(days)?;
        watch::every_worker_moves_within(STEP_MAX, self.load, 60 - MEASURED_S, |_| {
            self.scheduler.expect_in_charge()
        })?;
        move_calendar(-days)?;
        expect_sound(self.scheduler)?;
        Ok(complaint)
    }

    /// Measures wakeups before, beside and after a fork bomb.
    fn wakeups(&self, minute: u64) -> Result<Option<String>> {
        self.witness.begin();
        let probe = wakeups::start(MEASURED_S)?;
        sleep(BOMB_BURST);
        let bomb = self.bomber.bomb()?;
        sleep(BOMB_BURST);
        drop(bomb);
        let waits = probe.finish()?;
        // The host's other work stops every task for a while, and the bomb keeps the kernel busy.
        let stopped = self.witness.take()?;
        let [p99, worst] = [waits.quantile_us(990), waits.worst_us()];
        let [stopped_p99, stopped_worst] = [stopped.quantile_us(990), stopped.worst_us()];
        let text = format!(
            "minute {minute}: wakeups p99 {p99:.0} us, worst {worst:.0}; of real-time tasks p99 \
             {stopped_p99:.0}, worst {stopped_worst:.0}"
        );
        report::note(text.clone());
        let is_late = p99 > stopped_p99 + MINUTE_P99_US || worst > stopped_worst + MINUTE_WORST_US;
        Ok(is_late.then_some(text))
    }
}
