// SPDX-License-Identifier: GPL-2.0-only

//! The worker as a process: its session, death signal, nice value and memory; and threads that this
//! scheduler does not schedule.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

/// What the kernel adds to the share of memory, in thousandths, by which it chooses the process to
/// end. Children inherit it.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
/// As the message bus and other daemons have it on which the rest depends.
const OOM_SCORE_PROTECTED: &str = "-900";

/// The stack that is populated before the first round, so that no later call faults.
const STACK: usize = 256 * 1024;
/// The backend has loaded by this time.
const LOADING: Duration = Duration::from_secs(30);

/// Whether the helper thread has done what it opens files for.
static HELPER_IS_READY: AtomicBool = AtomicBool::new(false);
/// How the library `ctrlc` names its thread.
const SIGNAL_THREAD: &str = "ctrl-c";
/// The helper is ready by this time after the load.
const READYING: Duration = Duration::from_secs(1);

/// Whether the kernel refused to make a thread of this process real-time.
static REAL_TIME_REFUSED: AtomicBool = AtomicBool::new(false);

/// The name of the scheduler in the kernel: that of this program without its `scx_`. Programs with
/// other policies are told apart by it.
pub fn scheduler_name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = name.strip_prefix("scx_").unwrap_or(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        "pandemonium_user".into()
    } else {
        name.into()
    }
}

/// Begins a process group, so that neither Ctrl-Z nor Ctrl-C reaches the worker: the supervisor
/// passes on what shall end it. Not a session, which would be an autogroup of its own: there the
/// worker's nice value means nothing, and beside hogs it would load for ten seconds.
/// Async-signal-safe.
pub fn leave_terminal() {
    // SAFETY: plain system calls.
    unsafe {
        libc::setpgid(0, 0);
        // A process in the background may still print.
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
    }
}

/// Has the kernel end the worker when its supervisor dies: no other process would.
/// Async-signal-safe.
pub fn die_with_parent() {
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// Fails if the process with this number is not the parent any more. Async-signal-safe.
pub fn expect_parent(parent: u32) -> std::io::Result<()> {
    // SAFETY: a plain system call.
    match unsafe { libc::getppid() } {
        pid if pid as u32 == parent => Ok(()),
        _ => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// Has the kernel end nearly every other process before this one and its workers when memory runs
/// out: they hold little, all of it locked, and everything else would have to change its scheduler
/// just then. Not the value that protects in any case, so that a fault of this program that takes
/// all memory has an end. A value that the user has chosen stays. Without the privilege nothing
/// changes.
pub fn outlive_lack_of_memory() {
    let chosen = std::fs::read_to_string(OOM_SCORE);
    if chosen.is_ok_and(|value| value.trim() == "0") {
        let _ = std::fs::write(OOM_SCORE, OOM_SCORE_PROTECTED);
    }
}

/// Sets the calling thread's nice value, if it has the privilege.
pub fn set_nice(nice: libc::c_int) {
    // SAFETY: a plain system call; with 0 it changes the calling thread alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// Blocks signals in the calling thread, so that the signal thread receives them; it exists since
/// the load of the backend. Otherwise the kernel prefers this thread. On an idle machine it runs
/// once a second, and would have to run twice: to pass the signal on, and to see that it was
/// handled.
pub fn block_signals() {
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

/// Starts a real-time thread that makes the signal thread real-time as soon as it exists, and then
/// does its own `work`. So this scheduler schedules neither. As a SCHED_EXT task the signal thread
/// would wait for the worker's decisions. If the worker's own thread is killed, no decision comes:
/// the process could not exit, its scheduler would stay loaded, and every task would wait until the
/// kernel's watchdog ejects the scheduler five seconds later.
pub fn start_helper(work: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    let help = || {
        let started = Instant::now();
        while !make_signal_thread_real_time() && started.elapsed() < LOADING {
            std::thread::sleep(Duration::from_millis(1));
        }
        make_this_real_time();
        HELPER_IS_READY.store(true, Ordering::Release);
        work();
    };
    Ok(Builder::new().name("helper".into()).spawn(help)?.thread().clone())
}

/// Waits until the helper has made its system calls but those of its work. Returns whether it has.
pub fn await_helper() -> bool {
    let started = Instant::now();
    while !HELPER_IS_READY.load(Ordering::Acquire) && started.elapsed() < READYING {
        std::thread::sleep(Duration::from_millis(1));
    }
    HELPER_IS_READY.load(Ordering::Acquire)
}

/// All threads but the main one and the calling one.
pub fn make_others_real_time() {
    // SAFETY: plain calls without arguments.
    let known = unsafe { [libc::getpid(), libc::gettid()] };
    threads().filter(|id| !known.contains(id)).for_each(make_real_time);
}

/// The thread that receives signals. Returns whether there is one.
///
/// It has named itself, so it runs. While a thread is being created, Linux 7.3 warns if a loaded
/// sched_ext scheduler loses it to another class: the fork puts it into that scheduler afterwards.
fn make_signal_thread_real_time() -> bool {
    let name = |id| std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
    let found = threads().find(|&id| name(id).is_ok_and(|name| name.trim_end() == SIGNAL_THREAD));
    found.map(make_real_time).is_some()
}

fn threads() -> impl Iterator<Item = libc::pid_t> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok())
}

/// Makes the calling thread real-time, so that it runs while this scheduler decides nothing.
pub fn make_this_real_time() {
    make_real_time(0);
}

/// Starts threads that are real-time, and so are those that they start.
pub fn start_real_time<T>(start: impl FnOnce() -> T) -> T {
    set_real_time(0, 0);
    let started = start();
    make_this_ordinary();
    started
}

/// Makes the calling thread ordinary if it is real-time. The nice value stays.
pub fn make_this_ordinary() {
    let none = priority(0);
    // SAFETY: plain system calls.
    unsafe {
        // With `--partial` the backend has put this thread into its class meanwhile.
        if libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK == libc::SCHED_FIFO {
            libc::sched_setscheduler(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, &none);
        }
    }
}

/// Names this process as its program. After an upgrade its name would be the descriptor's number.
pub fn name_this(program: &std::path::Path) {
    let name = program.file_name().map(|name| name.as_encoded_bytes().to_vec());
    if let Some(name) = name.and_then(|name| std::ffi::CString::new(name).ok()) {
        // SAFETY: the name is a C string, of which the kernel takes 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Musl has more fields, of which the kernel knows nothing.
fn priority(priority: libc::c_int) -> libc::sched_param {
    // SAFETY: numbers, for which zero is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    parameters
}

/// Threads that the real-time thread starts are ordinary ones.
fn make_real_time(thread: libc::pid_t) {
    set_real_time(thread, libc::SCHED_RESET_ON_FORK);
}

fn set_real_time(thread: libc::pid_t, flags: libc::c_int) {
    let lowest = priority(1);
    // SAFETY: a plain system call.
    let result = unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO | flags, &lowest) };
    // A thread that has ended needs no policy. If it is refused, the watchdog remains.
    let has_ended = std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    if result != 0 && !has_ended {
        REAL_TIME_REFUSED.store(true, Ordering::Relaxed);
    }
}

/// Whether a thread of this process that should be real-time is not.
pub fn is_real_time_refused() -> bool {
    REAL_TIME_REFUSED.load(Ordering::Relaxed)
}

/// Disables huge pages, for a program that is executed next too. A worker needs that before it
/// begins: its allocator touches all parts of its arena at once. A part of such a huge page is
/// given back later, then the kernel counts none of it as locked, and splits it when memory is
/// short: an access meanwhile faults. khugepaged would also replace small pages that are locked.
pub fn disable_huge_pages() {
    // SAFETY: a plain system call. If it is refused, health shows the faults.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Populates the stack up to its working size, while page faults are harmless.
#[inline(never)]
pub fn populate_stack() {
    let mut stack = [0u8; STACK];
    for page in stack.chunks_mut(4096) {
        std::hint::black_box(&mut page[0]);
    }
    std::hint::black_box(&mut stack);
}
