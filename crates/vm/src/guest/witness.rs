// SPDX-License-Identifier: GPL-2.0-only

//! Real-time tasks that tell how long nothing could run.
//!
//! In fast mode a busy host stops virtual CPUs, and a CPU that goes offline stops the others for a
//! moment. A real-time task waits through all of that, and for no scheduler of ours. So what an
//! ordinary task waits for beyond it is the scheduler's.

use super::boot;
use super::clock::{now_ns, sleep_until};
use super::work;
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    worst_ns: AtomicU64,
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

    /// The longest that one of them was late since the last call, in microseconds.
    pub fn take_worst_us(&self) -> f64 {
        self.shared.worst_ns.swap(0, Ordering::Relaxed) as f64 / 1_000.0
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
            self.worst_ns.fetch_max(now_ns().saturating_sub(deadline), Ordering::Relaxed);
        }
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
