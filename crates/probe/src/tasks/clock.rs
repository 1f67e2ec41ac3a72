// SPDX-License-Identifier: GPL-2.0-only

//! The clock of every measurement: monotonic, and exact to the nanosecond in exact mode.

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// The time since the boot.
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Sleeps until an absolute time, so that a late wakeup does not shift the next one.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / SECOND_NS) as libc::time_t,
        tv_nsec: (deadline_ns % SECOND_NS) as libc::c_long,
    };
    // SAFETY: reads the deadline only.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &deadline,
            std::ptr::null_mut(),
        );
    }
}

/// CPU time of a process and all its threads so far; `None` if there is no such process.
pub fn cpu_time_ns(pid: libc::pid_t) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: room for one clock id.
    let failed = unsafe { libc::clock_getcpuclockid(pid, &mut clock) } != 0;
    (!failed).then(|| read(clock))
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one timespec.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}
