// SPDX-License-Identifier: GPL-2.0-only

//! A load: worker processes with a counter each, started together and killed together.

use super::lives::{self, Life};
use super::memory::{Shared, Zeroed};
use super::work;
use anyhow::{Context, Result, bail};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What one worker tells the watch, on a cache line of its own.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Units of work done.
    pub steps: AtomicU64,
    /// Units done on a CPU where they must not run.
    pub strays: AtomicU64,
    /// Where they must run, a bit for each of the first 64 CPUs; 0 is anywhere.
    home: AtomicU64,
    /// Longest time between two units, where the worker looks at the clock.
    pub longest_ns: AtomicU64,
}

// SAFETY: four atomics.
unsafe impl Zeroed for Slot {}

impl Slot {
    /// One more unit is done, here.
    pub fn done(&self) {
        self.look_around();
        self.steps.fetch_add(1, Relaxed);
    }

    /// From now on the worker must run on these CPUs only.
    pub fn belongs_to(&self, cpus: u64) {
        self.home.store(cpus, Relaxed);
    }

    /// Notes a stray, if this is one.
    pub fn look_around(&self) {
        let home = self.home.load(Relaxed);
        if home == 0 {
            return;
        }
        // SAFETY: asks for a number.
        let here = unsafe { libc::sched_getcpu() };
        if !(0..64).contains(&here) || home >> here & 1 == 0 {
            self.strays.fetch_add(1, Relaxed);
        }
    }
}

/// Kinds of workers; a pipe pair makes two.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Hog,
    TimedHog,
    NiceHog {
        nice: i32,
    },
    IdleClassHog,
    SchedExtHog,
    PinnedHog {
        cpu: usize,
    },
    Sleeper {
        pause_us: u64,
    },
    /// Allowed on these CPUs only, a bit for each of the first 64.
    BoundSleeper {
        pause_us: u64,
        cpus: u64,
    },
    Periodic {
        period_us: u64,
    },
    PipePair,
    Forker,
    Storm {
        children: u32,
        period_us: u64,
    },
    ExecStorm {
        children: u32,
        period_us: u64,
        rounds: u32,
    },
    Execer,
    Toucher {
        bytes: usize,
    },
    Named {
        name: &'static CStr,
        life: Life,
    },
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hog => "hog",
            Kind::TimedHog => "timed hog",
            Kind::NiceHog { .. } => "nice hog",
            Kind::IdleClassHog => "SCHED_IDLE hog",
            Kind::SchedExtHog => "SCHED_EXT hog",
            Kind::PinnedHog { .. } => "pinned hog",
            Kind::Sleeper { .. } => "sleeper",
            Kind::BoundSleeper { .. } => "bound sleeper",
            Kind::Periodic { .. } => "periodic task",
            Kind::PipePair => "pipe",
            Kind::Forker => "forker",
            Kind::Storm { .. } => "storm",
            Kind::ExecStorm { .. } => "storm of programs",
            Kind::Execer => "execer",
            Kind::Toucher { .. } => "memory toucher",
            Kind::Named { name, .. } => name.to_str().unwrap_or("named"),
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
    /// See `Slot::home`.
    home: u64,
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
        Load::start_at_home(plan, 0)
    }

    /// The same, for workers that must run on these CPUs only: what they do elsewhere is a stray,
    /// except for those that are bound.
    pub fn start_at_home(plan: &[Kind], home: u64) -> Result<Load> {
        let slots = Shared::new(2 * plan.len())?;
        let mut load = Load { slots, workers: Vec::new(), home };
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

    /// Units of work done in this time, by worker.
    pub fn steps_in(&self, time: Duration) -> Vec<u64> {
        let before = self.steps();
        std::thread::sleep(time);
        self.steps().iter().zip(before).map(|(after, before)| after - before).collect()
    }

    /// Longest time between two units of each timed hog.
    pub fn longest_ns(&self) -> Vec<u64> {
        let workers = self.slots.iter().take(self.workers.len());
        workers.map(|slot| slot.longest_ns.load(Relaxed)).collect()
    }

    /// Takes the worker of this number away.
    pub fn kill(&mut self, number: usize) {
        let worker = self.workers.remove(number);
        end(worker.pid);
    }

    /// Units that were done on the wrong CPU, by worker.
    pub fn strays(&self) -> Vec<u64> {
        self.slots.iter().take(self.workers.len()).map(|slot| slot.strays.load(Relaxed)).collect()
    }

    fn start_one(&mut self, number: usize, kind: Kind) -> Result<()> {
        self.fork(kind, format!("{} {number}", kind.name()), |slot| match kind {
            Kind::Hog | Kind::PipePair => work::hog(slot),
            Kind::TimedHog => work::timed_hog(slot),
            Kind::NiceHog { nice } => work::nice_hog(slot, nice),
            Kind::IdleClassHog => work::hog_of_class(slot, libc::SCHED_IDLE),
            Kind::SchedExtHog => work::hog_of_class(slot, work::SCHED_EXT),
            Kind::PinnedHog { cpu } => work::pinned_hog(slot, cpu),
            Kind::Sleeper { pause_us } => work::sleeper(slot, pause_us),
            Kind::BoundSleeper { pause_us, cpus } => work::bound_sleeper(slot, pause_us, cpus),
            Kind::Periodic { period_us } => work::periodic(slot, period_us),
            Kind::Forker => work::forker(slot),
            Kind::Storm { children, period_us } => work::storm(slot, children, period_us),
            Kind::ExecStorm { children, period_us, rounds } => {
                work::exec_storm(slot, children, period_us, rounds)
            }
            Kind::Execer => work::execer(slot),
            Kind::Toucher { bytes } => work::toucher(slot, bytes),
            Kind::Named { name, life } => lives::live(slot, name, life),
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
        slot.belongs_to(self.home);
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
            end(worker.pid);
        }
    }
}

/// Kills a child and waits for its end.
pub fn end(pid: libc::pid_t) {
    // SAFETY: our own child, not yet waited for; the status is not wanted.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// Reading end, writing end.
pub fn pipe() -> Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error()).context("making a pipe");
    }
    Ok((ends[0], ends[1]))
}
