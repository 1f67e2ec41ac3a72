// SPDX-License-Identifier: GPL-2.0-only

//! The worker as a process: its session, death signal, nice value and memory; and threads that this
//! scheduler does not schedule.

use super::clock;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Thread};
use std::time::Duration;

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
/// Between two looks for either.
const GLANCE: Duration = Duration::from_millis(1);

/// Whether a thread of this process that should be real-time is not.
static REAL_TIME_REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether this process executes rounds.
static IN_ROUNDS: AtomicBool = AtomicBool::new(false);
/// A worker that is in a round so long after a signal does not come back from it: on an idle
/// machine it has a round every two seconds. Its supervisor kills it sooner, and so does a worker
/// that takes over.
const STUCK: Duration = Duration::from_secs(4);

/// The environment variable that names a worker's supervisor.
const SUPERVISOR: &str = "SCX_PANDEMONIUM_USER_SUPERVISOR";

/// The name of the scheduler in the kernel: that of this program without its `scx_`. Programs with
/// other policies are told apart by it.
pub fn scheduler_name() -> String {
    scheduler_of(&std::env::current_exe().unwrap_or_default())
}

fn scheduler_of(program: &Path) -> String {
    // The kernel marks a program if its file was replaced since its start.
    let shown = program.to_str().unwrap_or_default();
    let program = Path::new(shown.strip_suffix(" (deleted)").unwrap_or(shown));
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
/// A process in the background may still print, and no signal of a terminal stops it.
/// Async-signal-safe.
pub fn leave_terminal() {
    // SAFETY: plain system calls.
    unsafe {
        libc::setpgid(0, 0);
        for signal in [libc::SIGTTOU, libc::SIGTTIN, libc::SIGTSTP] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Has the kernel end the worker when its supervisor dies: no other process would.
/// Async-signal-safe.
pub fn die_with_parent() {
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

/// The variable that tells a worker which process this is.
pub fn supervisor_variable() -> (&'static str, String) {
    (SUPERVISOR, std::process::id().to_string())
}

/// Has the kernel end this worker when its supervisor dies, and fails if it has died. The kernel
/// forgets an earlier wish when it starts a program that has capabilities of its file.
pub fn die_with_supervisor() -> std::io::Result<()> {
    die_with_parent();
    let supervisor = std::env::var(SUPERVISOR).ok().and_then(|number| number.parse().ok());
    supervisor.map_or(Ok(()), expect_parent)
}

/// While it lives, this process executes rounds.
pub struct InRounds(());

impl InRounds {
    /// Rounds begin.
    pub fn begin() -> InRounds {
        IN_ROUNDS.store(true, Ordering::Release);
        InRounds(())
    }
}

impl Drop for InRounds {
    fn drop(&mut self) {
        IN_ROUNDS.store(false, Ordering::Release);
    }
}

/// In the signal thread, after a signal: ends this process if it does not end by itself, because a
/// round does not. If the supervisor was killed, no other process would, and the backend would go
/// on for good.
pub fn end_if_stuck() {
    if is_stuck(&IN_ROUNDS, STUCK) {
        // SAFETY: it ends this process at once. The kernel unloads the scheduler.
        unsafe { libc::_exit(libc::EXIT_SUCCESS) };
    }
}

/// Whether rounds still go on after `patience`. Rounds that begin meanwhile end at once, because
/// they see the signal.
fn is_stuck(in_rounds: &AtomicBool, patience: Duration) -> bool {
    let was = in_rounds.load(Ordering::Acquire);
    std::thread::sleep(patience);
    was && in_rounds.load(Ordering::Acquire)
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
/// all memory has an end. A value below 0 stays, because the user has chosen it. One above is
/// mostly that of a desktop's session. Without the privilege nothing changes.
pub fn outlive_lack_of_memory() {
    if std::fs::read_to_string(OOM_SCORE).is_ok_and(|value| is_unprotected(&value)) {
        let _ = std::fs::write(OOM_SCORE, OOM_SCORE_PROTECTED);
    }
}

fn is_unprotected(value: &str) -> bool {
    value.trim().parse().is_ok_and(|score: i32| score >= 0)
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
        await_signal_thread(LOADING, &REAL_TIME_REFUSED);
        make_this_real_time();
        HELPER_IS_READY.store(true, Ordering::Release);
        work();
    };
    Ok(Builder::new().name("helper".into()).spawn(help)?.thread().clone())
}

/// Waits until the helper has made its system calls but those of its work. Returns whether it has.
pub fn await_helper() -> bool {
    clock::wait_for(READYING, GLANCE, || HELPER_IS_READY.load(Ordering::Acquire))
}

/// Makes the signal thread real-time as soon as it exists. One that is later than `limit` stays an
/// ordinary one: then `refused` says so, as if the kernel had refused.
fn await_signal_thread(limit: Duration, refused: &AtomicBool) {
    if !clock::wait_for(limit, GLANCE, make_signal_thread_real_time) {
        refused.store(true, Ordering::Relaxed);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::mpsc::channel;

    #[test]
    fn a_score_of_the_kernel_or_of_a_session_is_replaced_and_a_chosen_one_stays() {
        assert!(["0\n", "100\n", "200\n", "1000\n"].into_iter().all(is_unprotected));
        assert!(!["-1\n", "-900\n", "-1000\n", "", "x"].into_iter().any(is_unprotected));
    }

    #[test]
    fn a_scheduler_keeps_its_name_when_the_file_of_its_program_is_replaced() {
        let named = |path: &str| scheduler_of(Path::new(path));
        assert_eq!(named("/usr/bin/scx_pandemonium_fifo"), "pandemonium_fifo");
        assert_eq!(named("/usr/bin/scx_pandemonium_fifo (deleted)"), "pandemonium_fifo");
        assert_eq!(named("/tmp/an odd name"), "pandemonium_user");
    }

    #[test]
    fn only_the_parent_is_expected() {
        // SAFETY: a plain call without arguments.
        let parent = unsafe { libc::getppid() } as u32;
        assert!(expect_parent(parent).is_ok());
        assert!(expect_parent(std::process::id()).is_err());
    }

    #[test]
    fn only_a_loop_that_goes_on_after_a_signal_is_stuck() {
        let (short, long) = (Duration::from_millis(20), Duration::from_millis(200));
        let [begun, not_begun, ends] = [true, false, true].map(AtomicBool::new);
        assert!(is_stuck(&begun, short));
        assert!(!is_stuck(&not_begun, short));
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| is_stuck(&ends, long));
            std::thread::sleep(short);
            ends.store(false, Ordering::Release);
            assert!(!watch.join().unwrap());
        });
    }

    #[test]
    fn a_panic_ends_rounds_too() {
        let ended = std::panic::catch_unwind(|| {
            let _in_rounds = InRounds::begin();
            assert!(!IN_ROUNDS.load(Ordering::Acquire), "a planted panic");
        });
        assert!(ended.is_err());
        assert!(!IN_ROUNDS.load(Ordering::Acquire));
    }

    #[test]
    fn no_signal_of_a_terminal_stops_a_worker() {
        let mut status = Command::new("cat");
        status.arg("/proc/self/status");
        // SAFETY: it is async-signal-safe.
        unsafe {
            status.pre_exec(|| {
                leave_terminal();
                Ok(())
            });
        }
        let status = String::from_utf8(status.output().unwrap().stdout).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
            assert_eq!(ignored >> (signal - 1) & 1, 1, "signal {signal}");
        }
    }

    #[test]
    fn a_signal_thread_that_does_not_come_is_told_of() {
        let refused = AtomicBool::new(false);
        await_signal_thread(Duration::from_millis(20), &refused);
        assert!(refused.load(Ordering::Relaxed), "this process has no such thread yet");
        let (end, ended) = channel::<()>();
        let named = Builder::new().name(SIGNAL_THREAD.into()).spawn(move || ended.recv());
        let refused = AtomicBool::new(false);
        await_signal_thread(Duration::from_secs(10), &refused);
        assert!(!refused.load(Ordering::Relaxed));
        drop(end);
        assert!(named.unwrap().join().unwrap().is_err());
    }
}
