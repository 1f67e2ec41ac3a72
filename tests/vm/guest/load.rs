// SPDX-License-Identifier: GPL-2.0-only

//! A load: worker processes with a counter each, started together and killed together.

use super::memory::{Shared, Zeroed};
use super::work;
use anyhow::{Context, Result, bail};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What one worker tells the watch, on a cache line of its own.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Units of work done.
    pub steps: AtomicU64,
    /// Units done on a CPU where they must not run.
    pub strays: AtomicU64,
}

// SAFETY: two atomics.
unsafe impl Zeroed for Slot {}

/// Kinds of workers; a pipe pair makes two.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Hog,
    SchedExtHog,
    PinnedHog { cpu: usize },
    Sleeper { pause_us: u64 },
    PipePair,
    Forker,
    Execer,
    Toucher { bytes: usize },
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hog => "hog",
            Kind::SchedExtHog => "SCHED_EXT hog",
            Kind::PinnedHog { .. } => "pinned hog",
            Kind::Sleeper { .. } => "sleeper",
            Kind::PipePair => "pipe",
            Kind::Forker => "forker",
            Kind::Execer => "execer",
            Kind::Toucher { .. } => "memory toucher",
        }
    }
}

pub struct Worker {
    pub kind: Kind,
    pub name: String,
    pub pid: libc::pid_t,
}

/// Running workers; dropping it kills them.
pub struct Load {
    slots: Shared<Slot>,
    workers: Vec<Worker>,
}

/// Everything at once for n CPUs: twice as many hogs as CPUs, and every way to sleep, hand off and
/// be born.
pub fn mix(cpus: usize) -> Vec<Kind> {
    let mut plan = vec![Kind::Hog; 2 * cpus];
    for pause_us in [1_000, 3_000, 10_000, 100_000] {
        plan.push(Kind::Sleeper { pause_us });
    }
    plan.extend([Kind::PipePair, Kind::PipePair, Kind::Forker, Kind::Execer]);
    plan
}

impl Load {
    pub fn start(plan: &[Kind]) -> Result<Load> {
        let mut load = Load { slots: Shared::new(2 * plan.len())?, workers: Vec::new() };
        for (number, &kind) in plan.iter().enumerate() {
            match kind {
                Kind::PipePair => load.start_pair(number)?,
                _ => load.start_one(number, kind)?,
            }
        }
        Ok(load)
    }

    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Units of work done so far, by worker.
    pub fn steps(&self) -> Vec<u64> {
        self.slots.iter().take(self.workers.len()).map(|slot| slot.steps.load(Relaxed)).collect()
    }

    /// Units that were done on the wrong CPU, by worker.
    pub fn strays(&self) -> Vec<u64> {
        self.slots.iter().take(self.workers.len()).map(|slot| slot.strays.load(Relaxed)).collect()
    }

    fn start_one(&mut self, number: usize, kind: Kind) -> Result<()> {
        self.fork(kind, format!("{} {number}", kind.name()), |slot| match kind {
            Kind::Hog | Kind::PipePair => work::hog(slot),
            Kind::SchedExtHog => work::sched_ext_hog(slot),
            Kind::PinnedHog { cpu } => work::pinned_hog(slot, cpu),
            Kind::Sleeper { pause_us } => work::sleeper(slot, pause_us),
            Kind::Forker => work::forker(slot),
            Kind::Execer => work::execer(slot),
            Kind::Toucher { bytes } => work::toucher(slot, bytes),
        })
    }

    fn start_pair(&mut self, number: usize) -> Result<()> {
        let (there_out, there_in) = pipe()?;
        let (back_out, back_in) = pipe()?;
        self.fork(Kind::PipePair, format!("pipe {number}, left side"), |slot| {
            work::ping_pong(slot, back_out, there_in, true)
        })?;
        self.fork(Kind::PipePair, format!("pipe {number}, right side"), |slot| {
            work::ping_pong(slot, there_out, back_in, false)
        })?;
        for end in [there_out, there_in, back_out, back_in] {
            // SAFETY: the four ends made above; the workers hold their own.
            unsafe { libc::close(end) };
        }
        Ok(())
    }

    fn fork(&mut self, kind: Kind, name: String, body: impl Fn(&Slot)) -> Result<()> {
        let slot = &self.slots[self.workers.len()];
        // SAFETY: the child runs only `body`, which keeps to what work.rs promises, and is killed
        // or exits.
        match unsafe { libc::fork() } {
            -1 => bail!("starting {name}: {}", std::io::Error::last_os_error()),
            0 => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                body(slot);
                libc::_exit(0)
            },
            pid => self.workers.push(Worker { kind, name, pid }),
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for worker in &self.workers {
            // SAFETY: our own children, not yet waited for.
            unsafe { libc::kill(worker.pid, libc::SIGKILL) };
        }
        for worker in &self.workers {
            // SAFETY: as above; the status is not wanted.
            unsafe { libc::waitpid(worker.pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// Reading end, writing end.
fn pipe() -> Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error()).context("making a pipe");
    }
    Ok((ends[0], ends[1]))
}
