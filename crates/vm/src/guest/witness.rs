// SPDX-License-Identifier: GPL-2.0-only

//! Real-time tasks that tell how long nothing could run.
//!
//! In fast mode a busy host stops virtual CPUs, and a CPU that goes offline stops the others for a
//! moment. A real-time task waits through all of that, and for no scheduler of ours. So what an
//! ordinary task waits for beyond it is the scheduler's.

use super::boot;
use super::clock::{now_ns, sleep_until};
use super::work;
use anyhow::{Result, ensure};
use pandemonium_probe::tasks::probe::Samples;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

const GAP_NS: u64 = 5_000_000;

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
