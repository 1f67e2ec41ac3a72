// SPDX-License-Identifier: GPL-2.0-only

//! What a scenario does to processes.

use super::load::Load;
use anyhow::{Result, ensure};

/// Sends the signal.
pub fn signal(pid: libc::pid_t, signal: libc::c_int) -> Result<()> {
    // SAFETY: a plain system call.
    ensure!(unsafe { libc::kill(pid, signal) } == 0, "process {pid} has ended");
    Ok(())
}

/// From now on the process uses this CPU only.
pub fn bind(pid: libc::pid_t, cpu: usize) -> Result<()> {
    // SAFETY: plain system calls; all-zero is an empty set of CPUs.
    let bound = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        libc::sched_setaffinity(pid, size_of_val(&cpus), &cpus)
    };
    ensure!(bound == 0, "process {pid} could not be bound to CPU {cpu}");
    Ok(())
}

/// From now on the workers are real-time tasks, without priority among these.
pub fn make_real_time(load: &Load) -> Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    for worker in load.workers() {
        // SAFETY: a plain system call.
        let set = unsafe { libc::sched_setscheduler(worker.pid, libc::SCHED_FIFO, &lowest) };
        ensure!(set == 0, "{} could not become real-time", worker.name);
    }
    Ok(())
}
