// SPDX-License-Identifier: GPL-2.0-only

//! Real-time tasks that tell how long nothing could run.
//!
//! In fast mode a busy host stops virtual CPUs, and a CPU that goes offline stops the others for a
//! moment. A real-time task waits through all of that, and for no scheduler of ours. So what an
//! ordinary task waits for beyond it is the scheduler's.

use super::boot;
use super::clock::{now_ns, sleep_until};
use super::{wakeups, work};
use anyhow::{Result, ensure};
use pandemonium_probe::tasks::probe::Samples;
use std::fmt;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const GAP_NS: u64 = 5_000_000;
/// How long each of two probes measures wakeups, in seconds.
const PROBES_S: [u64; 2] = [1, 2];
/// By then they measure.
const GLANCE: Duration = Duration::from_millis(50);
/// The longest that a wakeup may wait beyond a real-time task.
const WORST_US: f64 = 200_000.0;

/// One such task on each CPU, until the value is dropped.
pub struct Witness {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// How late each wakeup was.
    late_ns: Mutex<Vec<u64>>,
}

impl Witness {
    /// Starts the tasks.
    pub fn start(cpus: usize) -> Result<Witness> {
        let shared = Arc::new(Shared::default());
        let start = |cpu| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("witness/{cpu}")).spawn(move || shared.watch(cpu))
        };
        let threads = (0..cpus).map(start).collect::<Result<_, _>>()?;
        Ok(Witness { shared, threads })
    }

    /// Forgets the wakeups before.
    pub fn begin(&self) {
        self.shared.late_ns().clear();
    }

    /// How late they were since the last call of this or of [`Witness::begin`].
    pub fn take(&self) -> Result<Samples> {
        let late_ns = take(&mut *self.shared.late_ns());
        ensure!(!late_ns.is_empty(), "no real-time task woke up meanwhile");
        Ok(Samples::of_times(late_ns))
    }

    /// Does `work` while wakeups are measured. Two probes follow each other in turn, so that one of
    /// them measures at any time.
    pub fn while_measuring<T>(&self, work: impl FnOnce() -> T) -> Result<(T, Waited)> {
        self.begin();
        let is_over = AtomicBool::new(false);
        let measure = |seconds| {
            let mut worst: f64 = 0.0;
            while !is_over.load(Ordering::Relaxed) {
                worst = worst.max(wakeups::start(seconds)?.finish()?.worst_us());
            }
            Ok(worst)
        };
        std::thread::scope(|scope| {
            let probes = PROBES_S.map(|seconds| scope.spawn(move || measure(seconds)));
            std::thread::sleep(GLANCE);
            let result = work();
            is_over.store(true, Ordering::Relaxed);
            let worst: Result<Vec<f64>> =
                probes.into_iter().map(|probe| probe.join().expect("it does not panic")).collect();
            let worst_us = worst?.into_iter().fold(0.0, f64::max);
            Ok((result, Waited { worst_us, real_time_us: self.take()?.worst_us() }))
        })
    }
}

/// The longest wait of a wakeup, and of a real-time task meanwhile, in microseconds.
pub struct Waited {
    pub worst_us: f64,
    pub real_time_us: f64,
}

impl Waited {
    /// Expects that no wakeup has waited for long beyond what every task has to wait for.
    pub fn expect_short(&self) -> Result<()> {
        ensure!(self.worst_us - self.real_time_us <= WORST_US, "too long: {self}");
        Ok(())
    }
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waited { worst_us, real_time_us } = self;
        write!(f, "the longest wakeup took {worst_us:.0} us, of a real-time task {real_time_us:.0}")
    }
}

impl Shared {
    fn watch(&self, cpu: usize) {
        // Without the priority it would be late as an ordinary task is.
        boot::become_real_time().expect("the agent may be real-time, so its threads may");
        while !self.is_over.load(Ordering::Relaxed) {
            // Again and again, since the kernel moves the task when its CPU goes offline.
            work::stay_on(cpu);
            let deadline = now_ns() + GAP_NS;
            sleep_until(deadline);
            let late_ns = now_ns().saturating_sub(deadline);
            self.late_ns().push(late_ns);
        }
    }

    fn late_ns(&self) -> MutexGuard<'_, Vec<u64>> {
        self.late_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
