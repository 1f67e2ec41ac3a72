// SPDX-License-Identifier: GPL-2.0-only

//! Makes the kernel run the worker now.
//!
//! The worker runs when a task is queued to user space, and handles a signal only then. On an idle
//! machine no task is queued before the backend's next heartbeat, one to two seconds later. Two
//! threads that share a CPU and yield it to each other are queued a thousand times a second.

use super::output;
use pandemonium_host::preflight;
use std::thread;

/// Told if a thread for this cannot be started: the worker runs at the heartbeat.
pub const LATE: &str =
    "a thread could not be started, so the end of the scheduling process may take two seconds";

/// Keeps the worker running until `done`, or until it is no longer in charge. From then on the
/// kernel's own scheduler takes over task by task, and a thread that goes on yielding may be among
/// the first: it would keep this CPU from the others for a second.
pub fn until(done: impl Fn() -> bool + Sync) {
    // SAFETY: a plain call without arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    let yield_until_done = || {
        bind_to(cpu);
        while !done() && preflight::is_enabled() != Some(false) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        // One thread alone is not queued.
        match thread::Builder::new().spawn_scoped(scope, yield_until_done) {
            Ok(_) => yield_until_done(),
            Err(_) => output::warn(LATE),
        }
    });
}

/// Binds the calling thread to a CPU. If the kernel refuses, the worker runs at the heartbeat.
fn bind_to(cpu: i32) {
    // SAFETY: the set is plain memory of its own type, and the CPU number is within it or ignored.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu.max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
