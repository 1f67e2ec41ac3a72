// SPDX-License-Identifier: GPL-2.0-only

//! The worker as a process among others: its end, its urgency, its memory, and the second thread
//! that the core gives it for signals.

use std::time::{Duration, Instant};

/// Stack that is touched before the first round, so that no later call faults.
const STACK_TOUCHED: usize = 256 * 1024;
/// Nothing loads longer than this.
const LOADING: Duration = Duration::from_secs(30);

/// A scheduler without its supervisor would have nobody to end it.
pub fn die_with_parent() {
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// Gives the calling thread the most weight there is; without the privilege it keeps its own. The
/// kernel's own scheduler schedules a worker while it loads, and on a busy machine a restart would
/// take seconds otherwise.
pub fn go_first() {
    // SAFETY: a plain system call; with 0 it changes the calling thread alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// The thread that waits for signals was started when the backend was loaded. The kernel would
/// rather interrupt this one, which on an idle machine runs once a second, and would have to run
/// twice: to pass the signal on, and to see what became of it.
pub fn leave_signals_to_the_other_thread() {
    // SAFETY: plain memory of the type that the calls want.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
    }
}

/// Takes that thread out of our own hands as soon as it is there. It would wait for this one's
/// decisions, and should this one be killed, nobody decides: the process would keep its scheduler
/// loaded and everybody waiting until the kernel's watchdog throws it out, five seconds later.
/// Real-time tasks never come to us.
pub fn spare_the_other_thread() {
    std::thread::spawn(|| {
        let started = Instant::now();
        while !make_others_real_time() && started.elapsed() < LOADING {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// All but the one that decides and the one that asks. Whether there were any.
fn make_others_real_time() -> bool {
    // SAFETY: plain calls without arguments.
    let known = unsafe { [libc::getpid(), libc::gettid()] };
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    let others: Vec<libc::pid_t> = ids.filter(|id| !known.contains(id)).collect();
    for &other in &others {
        let lowest = libc::sched_param { sched_priority: 1 };
        // SAFETY: a plain system call. Where it is refused, the watchdog has to do.
        unsafe { libc::sched_setscheduler(other, libc::SCHED_FIFO, &lowest) };
    }
    !others.is_empty()
}

/// The core asks for huge pages after it has locked small ones, so khugepaged would swap them
/// under us later, and whoever touches one meanwhile faults.
pub fn keep_small_pages() {
    // SAFETY: a plain system call. Where it is refused, health shows the faults.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Grows the stack to its working size once, while page faults are harmless.
#[inline(never)]
pub fn touch_stack() {
    let mut stack = [0u8; STACK_TOUCHED];
    for page in stack.chunks_mut(4096) {
        std::hint::black_box(&mut page[0]);
    }
    std::hint::black_box(&mut stack);
}
