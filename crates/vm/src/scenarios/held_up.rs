// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler's processes are stopped, or get no CPU.

use crate::guest::load::{Kind, Load};
use crate::guest::processes::{bind, make_real_time, signal};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, family, kernel, probe::Samples, report, wakeups, watch};
use crate::scenario::{FULL_SPEED, Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::cell::RefCell;
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "stopped",
        about: "beside hogs the worker process is stopped ten times, and no wakeup waits for more \
            than 50 ms",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: stopped,
        ..USUAL
    },
    Scenario {
        name: "stalled-1-cpu",
        about: "supervisor and worker are stopped for longer than the kernel's watchdog waits, on \
            one CPU, where nothing but the scheduler's own timer can notice it: the backend \
            schedules hogs and sleepers meanwhile, no wakeup waits for more than 50 ms, then the \
            process decides again and tells why it had not",
        cpus: Some(1),
        limit_s: 120,
        exact: true,
        once: true,
        run: stalled,
        ..USUAL
    },
    Scenario {
        name: "traced",
        about: "a debugger stops the worker for longer than the kernel's watchdog waits, and the \
            supervisor cannot continue it: the same holds, and meanwhile hogs have CPU time by \
            their weights",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: traced,
        ..USUAL
    },
    Scenario {
        name: "suspended",
        about: "Ctrl-Z suspends the scheduler's job: the worker decides meanwhile, no wakeup waits \
            for more than 50 ms, and the job goes on",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: suspended,
        ..USUAL
    },
    Scenario {
        name: "real-time-hog",
        about: "a real-time task computes on the only CPU on which the scheduling process may run, \
            with slices of 100 ms: on the other one hogs and sleepers go on, and no wakeup waits \
            for more than 50 ms",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: real_time_hog,
        ..USUAL
    },
    Scenario {
        name: "real-time-bursts",
        about: "a real-time task computes on one CPU for 20 ms of each 40: no wakeup waits for the \
            end of a burst, where the kernel can enqueue the tasks of a CPU again",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: real_time_bursts,
        ..USUAL
    },
    Scenario {
        name: "real-time-forks",
        about: "a real-time task forks without pause on one CPU, so that kernel threads wait that \
            are bound to it: the scheduler stays loaded, and no wakeup on the other CPU waits for \
            more than 50 ms",
        cpus: Some(2),
        limit_s: 120,
        exact: true,
        once: true,
        run: real_time_forks,
        ..USUAL
    },
];

/// By name only: `traced` shows the same on two CPUs.
pub const STALLED: Scenario = Scenario {
    name: "stalled",
    about: "the same as `stalled-1-cpu` on two CPUs",
    cpus: Some(2),
    ..STALLED_4_CPUS
};

/// By name only: it takes minutes, and shows what one and two CPUs show.
pub const STALLED_4_CPUS: Scenario = Scenario {
    name: "stalled-4-cpus",
    about: "the same as `stalled-1-cpu` on four CPUs",
    cpus: Some(4),
    limit_s: 180,
    exact: true,
    once: true,
    run: stalled,
    ..FULL_SPEED
};

/// By name only: `traced` shows the same on two CPUs.
pub const TRACED_1_CPU: Scenario = Scenario {
    name: "traced-1-cpu",
    about: "the same as `traced` on one CPU",
    cpus: Some(1),
    limit_s: 120,
    run: traced,
    ..STALLED
};

/// By name only, for its length.
pub const STALLED_60: Scenario = Scenario {
    name: "stalled-60",
    about: "the same as `stalled-1-cpu` on two CPUs, for a minute",
    cpus: Some(2),
    limit_s: 240,
    exact: true,
    once: true,
    run: stalled_60,
    ..FULL_SPEED
};

pub const STALLED_60_1_CPU: Scenario =
    Scenario { name: "stalled-60-1-cpu", cpus: Some(1), ..STALLED_60 };

pub const STALLED_60_4_CPUS: Scenario =
    Scenario { name: "stalled-60-4-cpus", cpus: Some(4), limit_s: 400, ..STALLED_60 };

/// The longest wakeup while the worker is stopped.
const WORST_US: f64 = 50_000.0;
const STOPS: u64 = 10;
const BETWEEN: Duration = Duration::from_millis(300);
/// How long wakeups are measured, in seconds: longer than all stops take.
const SECONDS: u64 = 4;
/// How long no decision comes, in seconds. The watchdog waits for five.
pub(super) const STALL_S: u64 = 7;
/// How long the job is suspended, or a real-time task has the CPU of the worker, in seconds.
const HELD_S: u64 = 3;
const MINUTE_S: u64 = 60;
/// A nice value, of which the weight is 335 where that of nice 0 is 1,024.
const NICER: i32 = 5;
const BY_WEIGHT: std::ops::RangeInclusive<f64> = 2.6..=3.5;
/// The length of a burst of a real-time task, and of the pause after it.
const BURST: Duration = Duration::from_millis(20);
/// For how long there are bursts, in seconds.
const BURSTS_S: u64 = 3;
/// For how long a real-time task forks, in seconds: a hundred times what the kernel tolerates.
const FORKS_S: u64 = 2;
/// The longest wakeup beside bursts: half of one.
const BURST_WAIT_US: f64 = 10_000.0;
/// The kernel function that enqueues the tasks of a CPU again, since Linux 6.19.
const REENQUEUE: &str = "scx_bpf_reenqueue_local___v2";
pub(super) const SETTLE: Duration = Duration::from_secs(1);

fn stopped(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    sleep(SETTLE);
    let worker = scheduler.worker()?;
    let probe = wakeups::start(SECONDS)?;
    for _ in 0..STOPS {
        signal(worker, libc::SIGSTOP)?;
        sleep(BETWEEN);
    }
    expect_early(&probe.finish()?)?;
    scheduler.expect_in_charge()?;
    let told = scheduler.printed().iter().filter(|line| line.contains("was continued")).count();
    ensure!(told > 0, "it did not say that it was stopped");

    // Ctrl-Z stops the supervisor's process group.
    // SAFETY: plain system calls.
    let groups = unsafe { [libc::getpgid(worker), libc::getpgid(scheduler.pid())] };
    ensure!(groups[0] != groups[1], "Ctrl-Z would stop the worker with its supervisor");
    drop(load);
    scheduler.finish().map(drop)
}

fn stalled(guest: &Guest) -> Result<()> {
    stall_for(guest, STALL_S)
}

fn stalled_60(guest: &Guest) -> Result<()> {
    stall_for(guest, MINUTE_S)
}

fn stall_for(guest: &Guest, seconds: u64) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let mut kinds = vec![Kind::Hog; 2 * guest.cpus];
    kinds.extend([Kind::Sleeper { pause_us: 2_000 }; 2]);
    let load = Load::start(&kinds)?;
    sleep(SETTLE);
    // The supervisor first: each of its threads stops when it runs, and one would continue the
    // worker.
    let stop = |worker| {
        signal(scheduler.pid(), libc::SIGSTOP)?;
        sleep(BETWEEN);
        signal(worker, libc::SIGSTOP)
    };
    let go_on = |worker| {
        signal(worker, libc::SIGCONT)?;
        signal(scheduler.pid(), libc::SIGCONT)
    };
    no_decision(&scheduler, &load, seconds, stop, go_on)?;
    drop(load);
    scheduler.finish().map(drop)
}

fn traced(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    // Each CPU gets one of each, as the kernel's own scheduler would place them.
    let mut kinds = vec![Kind::Hog; guest.cpus];
    kinds.extend(vec![Kind::NiceHog { nice: NICER }; guest.cpus]);
    kinds.push(Kind::Sleeper { pause_us: 2_000 });
    let load = Load::start(&kinds)?;
    sleep(SETTLE);
    let before = RefCell::new(Vec::new());
    let stop = |worker| {
        trace(worker, true)?;
        *before.borrow_mut() = load.steps();
        Ok(())
    };
    let go_on = |worker| {
        let before = before.borrow();
        let work: Vec<u64> =
            load.steps().iter().zip(&*before).map(|(now, was)| now - was).collect();
        trace(worker, false)?;
        expect_by_weight(&work[..guest.cpus], &work[guest.cpus..2 * guest.cpus])
    };
    no_decision(&scheduler, &load, STALL_S, stop, go_on)?;
    drop(load);
    scheduler.finish().map(drop)
}

/// Has the worker decide nothing for so many seconds, and then again.
fn no_decision(
    scheduler: &Scheduler,
    load: &Load,
    seconds: u64,
    stop: impl Fn(libc::pid_t) -> Result<()>,
    go_on: impl Fn(libc::pid_t) -> Result<()>,
) -> Result<()> {
    let (worker, before) = (scheduler.worker()?, scheduler.statistics()?.count("nr_batch")?);
    let probe = wakeups::start(seconds)?;
    stop(worker)?;
    let moves = watch::every_worker_moves(load, seconds, |_| scheduler.expect_in_charge());
    go_on(worker)?;
    expect_early(&probe.finish()?)?;
    moves.context("while no decision came")?;

    watch::every_worker_moves(load, 2, |_| scheduler.expect_in_charge())?;
    let ms = expect_stall(scheduler, "was stopped")?;
    ensure!(ms >= 1_000 * (seconds - 1), "the backend decided for {ms} ms");
    let decided = scheduler.statistics()?.count("nr_batch")? - before;
    ensure!(decided > 0, "the process decides nothing afterwards");
    Ok(())
}

/// Expects that the nicer hogs did less than the others, and those of the same weight the same.
fn expect_by_weight(plain: &[u64], nicer: &[u64]) -> Result<()> {
    let ratio = plain.iter().sum::<u64>() as f64 / nicer.iter().sum::<u64>().max(1) as f64;
    report::note(format!("hogs {plain:?}, nicer ones {nicer:?}: {ratio:.2} times as much"));
    ensure!(BY_WEIGHT.contains(&ratio), "hogs did {ratio:.2} times as much as nicer ones");
    for alike in [plain, nicer] {
        let (least, most) = (alike.iter().min(), alike.iter().max());
        let is_fair = least.zip(most).is_some_and(|(least, most)| least * 4 >= most * 3);
        ensure!(is_fair, "hogs of the same weight did different amounts of work: {alike:?}");
    }
    Ok(())
}

/// Stops the main thread of a process as a debugger does, or lets it go on.
fn trace(pid: libc::pid_t, stop: bool) -> Result<()> {
    // SAFETY: plain system calls without memory.
    unsafe {
        if stop {
            ensure!(libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0, "it cannot be traced");
            ensure!(libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) == 0, "it is not interrupted");
            // A tracer lets go only what has stopped.
            let waited = libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
            ensure!(waited == pid, "it does not stop");
        } else {
            ensure!(libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) == 0, "it cannot be let go");
        }
    }
    Ok(())
}

fn suspended(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&[Kind::Hog, Kind::Hog, Kind::Hog, Kind::Sleeper { pause_us: 2_000 }])?;
    sleep(SETTLE);
    let (worker, job) = (scheduler.worker()?, scheduler.pid());
    let stalls = || scheduler.statistics()?.count("nr_stalls");
    let before = stalls()?;
    let probe = wakeups::start(HELD_S)?;
    // As the terminal does: to every process of the job.
    signal(-job, libc::SIGTSTP)?;
    let moves = watch::every_worker_moves(&load, HELD_S, |second| {
        if second == 1 {
            ensure!(family::is_stopped(job), "the job is not suspended");
        }
        scheduler.expect_in_charge()
    });
    signal(-job, libc::SIGCONT)?;
    expect_early(&probe.finish()?)?;
    moves.context("while the job was suspended")?;
    ensure!(scheduler.worker()? == worker, "another worker schedules");
    let told = scheduler.printed();
    ensure!(stalls()? == before, "the worker did not decide for some time: {told:?}");
    drop(load);
    scheduler.finish().map(drop)
}

/// Bound to the CPU of a real-time task, the scheduling process gets what the kernel leaves: on new
/// kernels a twentieth of the time. Slices are the longest that there are, because the process may
/// also wait for the end of one.
fn real_time_hog(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &["--slice-us", "100000"])?;
    let load = Load::start(&[Kind::Hog, Kind::Hog, Kind::Hog, Kind::Sleeper { pause_us: 2_000 }])?;
    let real_time = Load::start(&[Kind::PinnedHog { cpu: 1 }])?;
    sleep(SETTLE);
    bind(scheduler.worker()?, 1)?;
    let probe = wakeups::start(HELD_S)?;
    make_real_time(&real_time)?;
    let moves = watch::every_worker_moves(&load, HELD_S, |_| scheduler.expect_in_charge());
    drop(real_time);
    expect_early(&probe.finish()?)?;
    moves.context("beside the real-time task")?;
    expect_stall(&scheduler, "a task of a higher scheduling class")?;
    drop(load);
    scheduler.finish().map(drop)
}

/// A burst begins while tasks are in the local DSQ of its CPU: the one that it interrupts, often a
/// wakee or the scheduling process.
fn real_time_bursts(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let mut kinds = vec![Kind::Hog; 2 * guest.cpus];
    kinds.extend([Kind::Sleeper { pause_us: 300 }; 4]);
    let load = Load::start(&kinds)?;
    let real_time = Load::start(&[Kind::PinnedHog { cpu: 1 }])?;
    make_real_time(&real_time)?;
    let task = real_time.workers().first().context("no real-time task")?.pid;
    let probe = wakeups::start(BURSTS_S)?;
    for _ in 0..BURSTS_S * 1_000 / (2 * BURST.as_millis() as u64) {
        signal(task, libc::SIGCONT)?;
        sleep(BURST);
        signal(task, libc::SIGSTOP)?;
        sleep(BURST);
    }
    let waits = probe.finish()?;
    expect_early(&waits)?;
    let again = scheduler.statistics()?.count("nr_reenqueued")?;
    report::note(format!("tasks of a CPU were enqueued again {again} times"));
    if kernel::has_symbol(REENQUEUE)? {
        ensure!(waits.worst_us() <= BURST_WAIT_US, "a wakeup waited for a real-time task");
        ensure!(again > 0, "no task was enqueued again");
    }
    drop((real_time, load));
    scheduler.finish().map(drop)
}

/// Since Linux 7.1 the kernel ejects a scheduler that has a task enqueued 257 times before it runs.
fn real_time_forks(guest: &Guest) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    let load = Load::start(&[Kind::Hog, Kind::Hog, Kind::Sleeper { pause_us: 300 }])?;
    let real_time = Load::start(&[Kind::Forker])?;
    sleep(SETTLE);
    let forker = real_time.workers().first().context("no task forks")?.pid;
    bind(forker, 1)?;
    let probe = wakeups::start(FORKS_S)?;
    make_real_time(&real_time)?;
    let moves = watch::every_worker_moves(&load, FORKS_S, |_| scheduler.expect_in_charge());
    drop(real_time);
    moves.context("beside the real-time task")?;
    expect_early(&probe.finish()?)?;
    let again = scheduler.statistics()?.count("nr_reenqueued")?;
    report::note(format!("tasks of a CPU were enqueued again {again} times"));
    drop(load);
    scheduler.finish().map(drop)
}

pub(super) fn report_waits(waits: &Samples) {
    let [p50, p99, worst] = [waits.quantile_us(500), waits.quantile_us(990), waits.worst_us()];
    report::note(format!("wakeups p50 {p50:.0} us, p99 {p99:.0}, worst {worst:.0}"));
}

pub(super) fn expect_early(waits: &Samples) -> Result<()> {
    report_waits(waits);
    let worst = waits.worst_us();
    ensure!(worst <= WORST_US, "a wakeup waited for {worst:.0} us while no decision came");
    Ok(())
}

/// The scheduler counts stalls, and has told this cause.
pub(super) fn expect_stall(scheduler: &Scheduler, cause: &str) -> Result<u64> {
    let statistics = scheduler.statistics()?;
    let (stalls, ms) = (statistics.count("nr_stalls")?, statistics.count("stalled_ms")?);
    report::note(format!("{stalls} stalls, {ms} ms"));
    ensure!(stalls > 0, "it counts no stall");
    let told = scheduler.printed();
    let is_told = |line: &String| line.contains("did not decide") && line.contains(cause);
    ensure!(told.iter().any(is_told), "it did not tell about the stall: {told:?}");
    Ok(ms)
}
