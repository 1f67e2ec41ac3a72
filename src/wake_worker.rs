// SPDX-License-Identifier: GPL-2.0-only

//! Makes the kernel run the worker now.
//!
//! The worker runs when a task comes up to be decided on. On an idle machine none does before the
//! kernel half's next heartbeat, one to two seconds later, and a worker that does not run does not
//! notice a signal. Two threads that share a CPU and keep giving it up to each other are such
//! tasks, a thousand times a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Nobody needs to be nudged longer: the heartbeat has come twice by then.
const LONGEST: Duration = Duration::from_secs(3);

/// Nudges until `done` says so, or for [`LONGEST`].
pub fn until(done: impl Fn() -> bool) {
    let over = AtomicBool::new(false);
    let deadline = Instant::now() + LONGEST;
    // SAFETY: a plain call without arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(cpu);
            while !over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        stay_on(cpu);
        while !done() && Instant::now() < deadline {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Binds the calling thread to a CPU. If the kernel will not, the heartbeat does the work.
fn stay_on(cpu: i32) {
    // SAFETY: the set is plain memory of its own type, and the CPU number is within it or ignored.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu.max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
