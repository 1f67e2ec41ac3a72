// SPDX-License-Identifier: GPL-2.0-only

//! Forks without end.

use super::crowds::watch_crowd;
use super::{SECOND, expect_early, expect_sound};
use crate::guest::load::{Kind, Load};
use crate::guest::memory::{Memory, RESIDENT_MAX};
use crate::guest::processes::signal;
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report, wakeups, work};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::CStr;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The control group of the bomb, and its limit.
const BOMB: &str = "/sys/fs/cgroup/bomb";
const BOMB_PROCESSES: &CStr = c"/sys/fs/cgroup/bomb/cgroup.procs";
const BOMB_MAX: u64 = 500;
const BOMB_S: u64 = 10;
/// Has a [`Bomber`] start one.
const START: libc::c_int = libc::SIGUSR1;
/// The longest wakeup of an interactive task beside it.
const BESIDE_BOMB_MS: f64 = 50.0;

/// A bomb that goes on until the value is dropped.
pub(in crate::scenarios) struct Bomb {
    /// Its first process, if that is a child of this one.
    child: Option<libc::pid_t>,
}

impl Bomb {
    pub(in crate::scenarios) fn start() -> Result<Bomb> {
        prepare_group()?;
        // SAFETY: the child makes plain system calls only.
        match unsafe { libc::fork() } {
            -1 => bail!("starting a fork bomb: {}", std::io::Error::last_os_error()),
            0 => explode(),
            pid => Ok(Bomb { child: Some(pid) }),
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
        if let Some(child) = self.child {
            // SAFETY: a child of this process; the status is not wanted.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        }
    }
}

/// A process that starts bombs. A bomb of a process with thousands of threads would spend its time
/// in copies of their stacks.
pub(super) struct Bomber(libc::pid_t);

impl Bomber {
    /// Starts it, while this process is small.
    pub(super) fn start() -> Result<Bomber> {
        prepare_group()?;
        // SAFETY: a set of signals that is made here, and plain system calls. The child makes only
        // such calls too.
        unsafe {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut signals);
            libc::sigaddset(&mut signals, START);
            // Before the fork, so that none is lost.
            libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
            match libc::fork() {
                -1 => bail!("starting a process: {}", std::io::Error::last_os_error()),
                0 => loop {
                    let mut signal = 0;
                    libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                    if libc::sigwait(&signals, &mut signal) == 0 && libc::fork() == 0 {
                        explode();
                    }
                },
                pid => Ok(Bomber(pid)),
            }
        }
    }

    /// Starts a bomb.
    pub(super) fn bomb(&self) -> Result<Bomb> {
        signal(self.0, START).context("no process starts a fork bomb")?;
        Ok(Bomb { child: None })
    }
}

impl Drop for Bomber {
    fn drop(&mut self) {
        // SAFETY: plain system calls, on a child of this process.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Makes the control group of a bomb, with its limit.
fn prepare_group() -> Result<()> {
    fs::create_dir_all(BOMB).context("making a control group")?;
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+pids").context("counting pids")?;
    fs::write(format!("{BOMB}/pids.max"), BOMB_MAX.to_string()).context("limiting pids")
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

pub(super) fn fork_bomb(guest: &Guest) -> Result<()> {
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

pub(super) fn short_tasks(guest: &Guest, wanted: u64) -> Result<()> {
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
