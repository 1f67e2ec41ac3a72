// SPDX-License-Identifier: GPL-2.0-only

//! Two functions that musl has and does not implement: it makes no system call and reports ENOSYS,
//! because POSIX means them for processes and the kernel's calls are about threads. This program
//! means threads. In a static program these definitions take the place of those of musl.

use libc::{c_int, pid_t, sched_param};

#[unsafe(no_mangle)]
extern "C" fn sched_setscheduler(thread: pid_t, policy: c_int, given: *const sched_param) -> c_int {
    // SAFETY: a plain system call; the kernel checks the pointer.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, given) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn sched_getscheduler(thread: pid_t) -> c_int {
    // SAFETY: a plain system call.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) as c_int }
}
