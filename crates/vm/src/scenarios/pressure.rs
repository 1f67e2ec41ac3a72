// SPDX-License-Identifier: GPL-2.0-only

//! Loads that break other schedulers: very many tasks, fork bombs, no memory, clocks that are set,
//! and time. Under each the scheduler stays in charge, its worker has no page fault, loses no
//! message and holds no more memory at the end than in the middle, every task that should run runs,
//! and a task that wakes up beside the load is not late.

use super::control::ask;
use super::procdb::{LEARNING, NAME, run_tickers};
use crate::guest::crowd::{Crowd, Life, Member};
use crate::guest::load::{self, Kind, Load};
use crate::guest::memory::Memory;
use crate::guest::probe::Samples;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report, swap, wakeups, watch, work};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::CStr;
use std::fs;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ALL: &[Scenario] = &[Scenario {
    name: "memory-pressure",
    about: "processes touch more memory than there is while the mix runs, and then more than there \
        is to swap to: the scheduler must have no page fault, and the kernel must end others",
    limit_s: 120,
    swap_mib: 256,
    once: true,
    run: memory_pressure,
    ..USUAL
}];

pub const RUNNABLE_10000: Scenario = Scenario {
    name: "runnable-10000",
    about: "10,000 threads that compute, on two CPUs: each runs within half of what the kernel's \
        watchdog allows, and a task that wakes up passes them",
    cpus: Some(2),
    limit_s: 300,
    exact: true,
    run: runnable,
    ..USUAL
};

pub const THREADS_32768: Scenario = Scenario {
    name: "threads-32768",
    about: "32,768 threads, of which one in a hundred wakes up each second, and 64 share records \
        of the kernel half: these keep their tier, and the thefts are counted",
    cpus: Some(2),
    memory_mib: 4_096,
    limit_s: 240,
    run: threads,
    ..USUAL
};

pub const FORK_BOMB: Scenario = Scenario {
    name: "fork-bomb",
    about: "processes that fork without end, within a limit of 500, beside an interactive task",
    cpus: Some(2),
    limit_s: 180,
    exact: true,
    run: fork_bomb,
    ..USUAL
};

pub const SHORT_TASKS: Scenario = Scenario {
    name: "short-tasks",
    about: "100,000 processes, each forked to exit at once",
    limit_s: 600,
    run: |guest| short_tasks(guest, 100_000),
    ..USUAL
};

pub const SHORT_TASKS_1000000: Scenario = Scenario {
    name: "short-tasks-1000000",
    about: "a million of them",
    limit_s: 6_000,
    run: |guest| short_tasks(guest, 1_000_000),
    ..USUAL
};

pub const CLOCK_JUMP: Scenario = Scenario {
    name: "clock-jump",
    about: "the calendar is set forth and back by months while the scheduler runs, and between \
        runs: what it has learned of programs stays",
    limit_s: 240,
    exact: true,
    run: clock_jump,
    ..USUAL
};

pub const TEN_MINUTES: Scenario = Scenario {
    name: "ten-minutes",
    about: "a mix, hogs, thousands of sleeping threads, fork bombs and clocks that are set, for \
        ten minutes of real time",
    limit_s: 10 * 60 + 300,
    run: |guest| for_minutes(guest, 10),
    ..USUAL
};

pub const ONE_HOUR: Scenario = Scenario {
    name: "one-hour",
    about: "the same for an hour",
    limit_s: 60 * 60 + 600,
    run: |guest| for_minutes(guest, 60),
    ..USUAL
};

/// Most memory of the worker while there are less than 4,000 tasks, in KiB.
const RESIDENT_MAX: u64 = 48 << 10;
const SECOND: Duration = Duration::from_secs(1);

/// Nothing is lost: what must hold under every load.
fn expect_sound(scheduler: &Scheduler) -> Result<()> {
    scheduler.expect_in_charge()?;
    let statistics = scheduler.statistics()?;
    let counts = ["nr_malformed", "nr_news_dropped", "nr_untold"];
    for name in counts {
        let count = statistics.count(name)?;
        ensure!(count == 0, "{name} is {count}; health: {}", statistics.text("health")?);
    }
    let noted = ["nr_sched_congested", "nr_refused_dispatches", "nr_stolen", "nr_stalls"];
    let noted: Vec<String> = noted
        .iter()
        .map(|name| Ok(format!("{name} {}", statistics.count(name)?)))
        .collect::<Result<_>>()?;
    report::note(format!("{}; health: {}", noted.join(", "), statistics.text("health")?));
    scheduler.expect_no_page_faults()
}

fn expect_early(what: &str, waits: &Samples, worst_ms: f64) -> Result<()> {
    let [p50, p99, worst] = [500, 990, 1000].map(|permille| waits.quantile_us(permille));
    report::note(format!("{what}: wakeups p50 {p50:.0} us, p99 {p99:.0}, worst {worst:.0}"));
    ensure!(worst <= 1_000.0 * worst_ms, "{what}: a wakeup waited for {worst:.0} us");
    Ok(())
}

// ---- Very many tasks ----

const HOGS: usize = 10_000;
/// Each of them runs within this time: half of what the kernel's watchdog allows.
const TURN_MAX: Duration = Duration::from_millis(2_500);
/// A task that wakes up passes them.
const BESIDE_HOGS: Duration = Duration::from_millis(50);
/// Seconds until all have run, and for how long they are watched then.
const SETTLE_S: u64 = 8;
const WATCHED_S: u64 = 12;

fn runnable(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let mut crowd = Crowd::prepare()?;
    let period = Duration::from_millis(20);
    crowd.add(1, Life::Ticker { period })?;
    sleep(SECOND);
    crowd.add(HOGS, Life::Hog)?;
    crowd.add(1, Life::Ticker { period })?;
    watch_crowd(&scheduler, SETTLE_S)?;
    let (tickers, hogs): (Vec<_>, Vec<_>) = split(&crowd, &[0, HOGS + 1]);
    tickers.iter().for_each(|member| member.begin_anew());
    let before: Vec<u64> = hogs.iter().map(|hog| hog.steps()).collect();
    let middle = Memory::of_scheduler(&scheduler)?;
    watch_crowd(&scheduler, WATCHED_S)?;
    let done = hogs.iter().zip(before).map(|(hog, before)| hog.steps() - before);
    let (least, most) = (done.clone().min(), done.max());
    let longest = hogs.iter().map(|hog| hog.longest()).max().context("there are hogs")?;
    report::note(format!(
        "{HOGS} hogs: the longest wait of one was {longest:?}; units of one: {least:?} to {most:?}"
    ));
    let late = expect_punctual("beside them", &tickers, BESIDE_HOGS);
    Memory::of_scheduler(&scheduler)?.expect_flat_since(&middle)?;
    expect_sound(&scheduler)?;
    late?;
    ensure!(least > Some(0), "a hog did not run");
    ensure!(longest <= TURN_MAX, "a hog waited for {longest:?}, longer than {TURN_MAX:?}");
    drop(crowd);
    scheduler.finish().map(drop)
}

/// The members with these numbers, and the others.
fn split<'c>(crowd: &'c Crowd, apart: &[usize]) -> (Vec<&'c Member>, Vec<&'c Member>) {
    let members = crowd.members().iter().map(Arc::as_ref).enumerate();
    let (apart, others): (Vec<_>, Vec<_>) = members.partition(|(at, _)| apart.contains(at));
    let plain = |numbered: Vec<(usize, &'c Member)>| numbered.into_iter().map(|it| it.1).collect();
    (plain(apart), plain(others))
}

fn watch_crowd(scheduler: &Scheduler, seconds: u64) -> Result<()> {
    for second in 1..=seconds {
        report::progress(format!("second {second} of {seconds}"));
        sleep(SECOND);
        scheduler.expect_in_charge()?;
    }
    Ok(())
}

fn expect_punctual(what: &str, tickers: &[&Member], late_max: Duration) -> Result<()> {
    let worst = tickers.iter().map(|member| member.longest()).max().context("no tickers")?;
    let mean = tickers.iter().map(|it| it.mean()).sum::<Duration>() / tickers.len() as u32;
    let steps: u64 = tickers.iter().map(|member| member.steps()).sum();
    report::note(format!("{what}: {steps} wakeups, late by {mean:?} in the mean, worst {worst:?}"));
    ensure!(steps > 0, "{what}: no task woke up");
    ensure!(worst <= late_max, "{what}: a wakeup was late by {worst:?}");
    Ok(())
}

const THREADS: usize = 32_768;
/// Those that wake up once a second.
const AWAKE: usize = THREADS / 100;
/// Pids that are equal modulo this share records, four of them at a time: `FP_SETS` of
/// `src/bpf/fast_path.h`.
const SETS: usize = 16_384;
/// Sets that are too small, and tasks that want each of them. The first pid is far from others.
const FULL_SETS: usize = 8;
const SHARERS: usize = 8;
const FIRST_PID: usize = 1 << 20;
/// A wakeup beside two hogs a CPU.
const BESIDE_THREADS: Duration = Duration::from_millis(50);

fn threads(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let hogs = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    let mut crowd = Crowd::prepare()?;
    report::progress("starting threads");
    crowd.add(AWAKE, Life::Ticker { period: SECOND })?;
    for number in 0..FULL_SETS * SHARERS {
        let pid = FIRST_PID + number % FULL_SETS + number / FULL_SETS * SETS;
        let period = Duration::from_millis(100);
        crowd.add_with_pid(pid as libc::pid_t, Life::Ticker { period })?;
    }
    crowd.add(THREADS - crowd.members().len(), Life::Asleep)?;
    watch_crowd(&scheduler, SETTLE_S)?;
    let tickers: Vec<&Member> =
        crowd.members().iter().take(AWAKE + FULL_SETS * SHARERS).map(Arc::as_ref).collect();
    tickers.iter().for_each(|member| member.begin_anew());
    let middle = Memory::of_scheduler(&scheduler)?;
    let stolen = scheduler.statistics()?.count("nr_stolen")?;
    watch_crowd(&scheduler, WATCHED_S)?;
    let stolen = scheduler.statistics()?.count("nr_stolen")? - stolen;
    let late = expect_punctual("among them", &tickers, BESIDE_THREADS);
    report::note(format!("{stolen} thefts in {WATCHED_S} s"));
    Memory::of_scheduler(&scheduler)?.expect_flat_since(&middle)?;
    let sharers = &tickers[AWAKE..];
    for member in [tickers[0], tickers[AWAKE / 2], sharers[0], sharers[3], sharers[60]] {
        expect_urgent(guest, member.pid())?;
    }
    expect_sound(&scheduler)?;
    late?;
    ensure!(tickers.iter().all(|member| member.steps() > 0), "a thread did not wake up");
    ensure!(stolen > 0, "{SHARERS} tasks share four records, and no theft is counted");
    let work = hogs.steps_in(SECOND);
    ensure!(work.iter().all(|&units| units > 0), "a hog does not run: {work:?}");
    drop((crowd, hogs));
    scheduler.finish().map(drop)
}

/// A task that only wakes up and works a little is above Batch.
fn expect_urgent(guest: &Guest, pid: libc::pid_t) -> Result<()> {
    let said = ask(guest, &["explain", &pid.to_string(), "--for", "2"])?;
    let line = said.lines().next().unwrap_or_default();
    report::note(line);
    let is_urgent = ["is Interactive", "is LatCritical"].iter().any(|tier| line.contains(tier));
    ensure!(is_urgent, "{pid}: {said}");
    Ok(())
}

// ---- Forks ----

/// The control group of the bomb, and its limit.
const BOMB: &str = "/sys/fs/cgroup/bomb";
const BOMB_PROCESSES: &CStr = c"/sys/fs/cgroup/bomb/cgroup.procs";
const BOMB_MAX: u64 = 500;
const BOMB_S: u64 = 10;
/// The longest wakeup of an interactive task beside it.
const BESIDE_BOMB_MS: f64 = 50.0;

/// A bomb that goes on until the value is dropped.
struct Bomb(libc::pid_t);

impl Bomb {
    fn start() -> Result<Bomb> {
        fs::create_dir_all(BOMB).context("making a control group")?;
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+pids").context("counting pids")?;
        fs::write(format!("{BOMB}/pids.max"), BOMB_MAX.to_string()).context("limiting pids")?;
        // SAFETY: the child makes plain system calls only.
        match unsafe { libc::fork() } {
            -1 => bail!("starting a fork bomb: {}", std::io::Error::last_os_error()),
            0 => explode(),
            pid => Ok(Bomb(pid)),
        }
    }

    /// The number of its processes.
    fn size() -> Result<u64> {
        let text = fs::read_to_string(format!("{BOMB}/pids.current"))?;
        text.trim().parse().with_context(|| format!("reading {text:?}"))
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        let _ = fs::write(format!("{BOMB}/cgroup.kill"), "1");
        // SAFETY: a child of this process; the status is not wanted.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// Forks, and every child does the same. Most end after a while, so that others are forked.
fn explode() -> ! {
    // SAFETY: plain system calls with constants; 0 is the caller.
    unsafe {
        let group = libc::open(BOMB_PROCESSES.as_ptr(), libc::O_WRONLY);
        if libc::write(group, c"0".as_ptr().cast(), 1) != 1 {
            libc::_exit(1);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    let mut is_first = true;
    loop {
        for _ in 0..20 {
            // SAFETY: the child goes on with this function.
            is_first &= unsafe { libc::fork() } != 0;
            work::burn(work::HOG_ROUNDS);
        }
        if !is_first {
            // SAFETY: plain exit.
            unsafe { libc::_exit(0) };
        }
    }
}

fn fork_bomb(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let hogs = Load::start(&[Kind::Hog])?;
    let before = wakeups::start(2)?.finish()?;
    expect_early("without it", &before, BESIDE_BOMB_MS)?;
    let probe = wakeups::start(BOMB_S)?;
    let bomb = Bomb::start()?;
    watch_crowd(&scheduler, BOMB_S / 2)?;
    let (middle, size) = (Memory::of_scheduler(&scheduler)?, Bomb::size()?);
    let work = hogs.steps_in(SECOND * (BOMB_S / 2) as u32);
    Memory::of_scheduler(&scheduler)?.expect_flat_since(&middle)?;
    report::note(format!("{size} processes of the bomb; work of a hog beside it: {work:?}"));
    let waits = probe.finish()?;
    let late = expect_early("beside the bomb", &waits, BESIDE_BOMB_MS);
    drop(bomb);
    expect_sound(&scheduler)?;
    late?;
    ensure!(size > BOMB_MAX / 2, "the bomb has {size} processes only");
    ensure!(work[0] > 0, "a hog beside the bomb did not run");
    Memory::of_scheduler(&scheduler)?.expect_at_most(RESIDENT_MAX)?;
    drop(hogs);
    scheduler.finish().map(drop)
}

/// Long enough for the slowest host.
const SHORT_TASKS_LIMIT: Duration = Duration::from_secs(5_400);

fn short_tasks(guest: &Guest, wanted: u64) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&vec![Kind::Forker; 2 * guest.cpus])?;
    let started = Instant::now();
    let mut middle = None;
    loop {
        let done: u64 = load.steps().iter().sum();
        report::progress(format!("{done} of {wanted} tasks"));
        if done >= wanted {
            break;
        }
        if done >= wanted / 2 && middle.is_none() {
            middle = Some(Memory::of_scheduler(&scheduler)?);
        }
        ensure!(started.elapsed() < SHORT_TASKS_LIMIT, "{done} tasks only");
        sleep(Duration::from_millis(500));
        scheduler.expect_in_charge()?;
    }
    let done: u64 = load.steps().iter().sum();
    report::note(format!("{done} tasks in {:.0} s", started.elapsed().as_secs_f64()));
    let middle = middle.context("too few tasks for a middle")?;
    Memory::of_scheduler(&scheduler)?.expect_flat_since(&middle)?;
    Memory::of_scheduler(&scheduler)?.expect_at_most(RESIDENT_MAX)?;
    expect_early("beside them", &wakeups::start(5)?.finish()?, BESIDE_BOMB_MS)?;
    drop(load);
    expect_sound(&scheduler)?;
    scheduler.finish().map(drop)
}

// ---- Memory ----

/// Memory of each process that helps to use up all of it: less than the worker holds, so that the
/// kernel would choose the worker if it were not protected.
const SMALL: usize = 32 << 20;
/// The kernel ends a process within this time.
const OUT_OF_MEMORY: Duration = Duration::from_secs(40);
const ENDED: &str = "Out of memory: Killed process";

fn memory_pressure(guest: &Guest) -> Result<()> {
    let swap = swap::begin()?;
    fs::write("/proc/sys/vm/oom_dump_tasks", "0").context("keeping the console short")?;
    let scheduler = Scheduler::start(guest, &[])?;
    let before = Memory::of_scheduler(&scheduler)?;
    let mut plan = load::mix(guest.cpus);
    let bytes = kernel::available_memory()? + swap / 2;
    report::note(format!("touching {} MiB, with {} MiB of swap", bytes >> 20, swap >> 20));
    plan.push(Kind::Toucher { bytes });
    let load = Load::start(&plan)?;
    watch::every_worker_moves(&load, 10, |_| scheduler.expect_in_charge())?;
    let swapped = swap - kernel::free_swap()?;
    report::note(format!("{} MiB are swapped", swapped >> 20));
    ensure!(swapped > 0, "the memory sufficed");
    scheduler.expect_no_page_faults()?;
    drop(load);
    use_up(&scheduler)?;
    Memory::of_scheduler(&scheduler)?.expect_flat_since(&before)?;
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
        ensure!(
            started.elapsed() < OUT_OF_MEMORY,
            "the kernel has ended none of {count} processes"
        );
        sleep(SECOND / 4);
        messages = kernel::messages();
    }
    sleep(SECOND);
    scheduler.expect_in_charge()?;
    drop(load);
    let messages = kernel::messages();
    let ended: Vec<&str> = messages.lines().filter(|line| line.contains(ENDED)).collect();
    report::note(format!("the kernel ended {} of {count} processes", ended.len()));
    let is_ours = |line: &&&str| ours.iter().any(|pid| line.contains(&format!("process {pid} ")));
    match ended.iter().find(is_ours) {
        Some(line) => bail!("the kernel ended the scheduler: {line}"),
        None => Ok(()),
    }
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
    let table = ask(guest, &["procdb", "show"])?;
    let line = table.lines().find(|line| line.starts_with(NAME));
    let line = line.with_context(|| format!("{NAME} is forgotten {when}: {table}"))?;
    report::note(format!("{when}: {line}"));
    ensure!(!line.contains('?'), "{NAME} is not known any more {when}: {line}");
    Ok(())
}

fn clock_jump(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    run_tickers(LEARNING)?;
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

fn for_minutes(guest: &Guest, minutes: u64) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--stats", "60"])?;
    let mut crowd = Crowd::prepare()?;
    crowd.add(WAKING, Life::Ticker { period: SECOND })?;
    crowd.add(SLEEPING, Life::Asleep)?;
    let mut plan = load::mix(guest.cpus);
    plan.extend(vec![Kind::Hog; 10 * guest.cpus]);
    let load = Load::start(&plan)?;
    let mut middle = Memory::of_scheduler(&scheduler)?;
    for minute in 1..=minutes {
        a_minute(&scheduler, &load, minute).with_context(|| format!("in minute {minute}"))?;
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
    scheduler.finish().map(drop)
}

/// One minute: wakeups are measured, a fork bomb goes off, the calendar is set and set back.
fn a_minute(scheduler: &Scheduler, load: &Load, minute: u64) -> Result<()> {
    let probe = wakeups::start(MEASURED_S)?;
    sleep(BOMB_BURST);
    let bomb = Bomb::start()?;
    sleep(BOMB_BURST);
    drop(bomb);
    expect_early(&format!("minute {minute}"), &probe.finish()?, BESIDE_BOMB_MS)?;
    let days = 30 * minute as i64;
    move_calendar(days)?;
    watch::every_worker_moves(load, 60 - MEASURED_S, |_| scheduler.expect_in_charge())?;
    move_calendar(-days)?;
    expect_sound(scheduler)
}
