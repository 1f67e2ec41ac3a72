// SPDX-License-Identifier: GPL-2.0-only

//! A load: worker processes, each with a counter, started together and killed together.

use super::lives::{self, Life};
use super::memory::Shared;
use super::process::die_with_parent;
use super::slot::Slot;
use super::work;
use anyhow::{Context, Result, bail};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The kinds of workers. A pipe pair is two workers, every other kind is one.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Never sleeps.
    Hog,
    /// A hog that records the longest time between two units of its work.
    TimedHog,
    /// A hog with a nice value.
    NiceHog {
        /// From -20 to 19.
        nice: i32,
    },
    /// A hog of the class `SCHED_IDLE`.
    IdleClassHog,
    /// A hog that asks for the class `SCHED_EXT`.
    SchedExtHog,
    /// A hog bound to one CPU.
    PinnedHog {
        /// Number of the CPU.
        cpu: usize,
    },
    /// Sleeps, works a little, and starts again.
    Sleeper {
        /// Length of each sleep.
        pause_us: u64,
    },
    /// Computes once, and is a sleeper from then on.
    Loader {
        /// CPU time until the first sleep.
        work_us: u64,
        /// Length of each sleep.
        pause_us: u64,
    },
    /// A sleeper that is allowed on some CPUs only.
    BoundSleeper {
        /// Length of each sleep.
        pause_us: u64,
        /// The allowed CPUs, a bit for each of the first 64.
        cpus: u64,
    },
    /// Works a little in each period, and catches up on periods that it missed.
    Periodic {
        /// Length of a period.
        period_us: u64,
    },
    /// Two workers that send a byte to and fro through two pipes.
    PipePair,
    /// Forks children that exit at once, one after the other.
    Forker,
    /// Forks several children at once in each period; each child works a little.
    Storm {
        /// Children in each period.
        children: u32,
        /// Length of a period.
        period_us: u64,
    },
    /// A storm of children that exec a program.
    ExecStorm {
        /// Children in each period.
        children: u32,
        /// Length of a period.
        period_us: u64,
        /// Work of each program, in rounds.
        rounds: u32,
    },
    /// Forks children that exec another program, one in each period. It catches up on periods that
    /// it missed.
    Execer {
        /// Length of a period; 0 for one child after the other.
        period_us: u64,
    },
    /// Touches memory page by page, over and over.
    Toucher {
        /// Size of the memory.
        bytes: usize,
    },
    /// A task with a name of its own.
    Named {
        /// The name, at most 15 bytes.
        name: &'static CStr,
        /// What the task does.
        life: Life,
    },
}

impl Kind {
    /// The kind in words, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hog => "hog",
            Kind::TimedHog => "timed hog",
            Kind::NiceHog { .. } => "nice hog",
            Kind::IdleClassHog => "SCHED_IDLE hog",
            Kind::SchedExtHog => "SCHED_EXT hog",
            Kind::PinnedHog { .. } => "pinned hog",
            Kind::Sleeper { .. } => "sleeper",
            Kind::Loader { .. } => "loader",
            Kind::BoundSleeper { .. } => "bound sleeper",
            Kind::Periodic { .. } => "periodic task",
            Kind::PipePair => "pipe",
            Kind::Forker => "forker",
            Kind::Storm { .. } => "storm",
            Kind::ExecStorm { .. } => "storm of programs",
            Kind::Execer { .. } => "execer",
            Kind::Toucher { .. } => "memory toucher",
            Kind::Named { name, .. } => name.to_str().unwrap_or("named"),
        }
    }
}

/// One worker of a running load.
pub struct Worker {
    /// What it does.
    pub kind: Kind,
    /// Its kind and number, for messages.
    pub name: String,
    /// Its process.
    pub pid: libc::pid_t,
}

/// Running workers. Dropping the value kills them.
pub struct Load {
    slots: Shared<Slot>,
    workers: Vec<Worker>,
    /// CPUs where the workers must run: see `Slot::belongs_to`.
    home: u64,
}

/// Every kind of task at once for so many CPUs: twice as many hogs as CPUs, sleepers, pipes, forks
/// and execs.
pub fn mix(cpus: usize) -> Vec<Kind> {
    let mut plan = vec![Kind::Hog; 2 * cpus];
    for pause_us in [1_000, 3_000, 10_000, 100_000] {
        plan.push(Kind::Sleeper { pause_us });
    }
    plan.extend([Kind::PipePair, Kind::PipePair, Kind::Forker, Kind::Execer { period_us: 0 }]);
    plan
}

impl Load {
    /// Starts these workers.
    pub fn start(plan: &[Kind]) -> Result<Load> {
        Load::start_at_home(plan, 0)
    }

    /// The same, for workers that must run on the CPUs `home`, a bit for each of the first 64:
    /// units that they finish elsewhere count as strays. Bound workers keep to their own CPUs
    /// instead.
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

    /// The workers, in the order of the plan.
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

    /// Units that were finished on the wrong CPU, by worker.
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
            Kind::Loader { work_us, pause_us } => {
                lives::work_for(work_us);
                work::sleeper(slot, pause_us)
            }
            Kind::BoundSleeper { pause_us, cpus } => work::bound_sleeper(slot, pause_us, cpus),
            Kind::Periodic { period_us } => work::periodic(slot, period_us),
            Kind::Forker => work::forker(slot),
            Kind::Storm { children, period_us } => work::storm(slot, children, period_us),
            Kind::ExecStorm { children, period_us, rounds } => {
                work::exec_storm(slot, children, period_us, rounds)
            }
            Kind::Execer { period_us } => work::execer(slot, period_us),
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
            // SAFETY: the four ends made above; the workers hold copies.
            unsafe { libc::close(end) };
        }
        Ok(())
    }

    fn fork(&mut self, kind: Kind, name: String, body: impl Fn(&Slot)) -> Result<()> {
        let slot = &self.slots[self.workers.len()];
        slot.belongs_to(self.home);
        // SAFETY: the child runs only `body`, which follows the rules of work.rs, and exits or is
        // killed.
        match unsafe { libc::fork() } {
            -1 => bail!("starting {name}: {}", std::io::Error::last_os_error()),
            0 => unsafe {
                die_with_parent();
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
            // SAFETY: children of this process, not yet waited for.
            unsafe { libc::kill(worker.pid, libc::SIGKILL) };
        }
        for worker in &self.workers {
            end(worker.pid);
        }
    }
}

/// Kills a child and waits for its end.
pub(crate) fn end(pid: libc::pid_t) {
    // SAFETY: a child of this process, not yet waited for; the status is not wanted.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// A new pipe: its reading end and its writing end.
pub(crate) fn pipe() -> Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error()).context("making a pipe");
    }
    Ok((ends[0], ends[1]))
}
