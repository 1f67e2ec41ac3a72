// SPDX-License-Identifier: GPL-2.0-only

//! The worker as its supervisor sees it: a child that is started, kept running, and ended.

use super::mutex::lock;
use super::shared::Shared;
use super::{output, process, takeover, wake_worker};
use anyhow::Context;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A worker that still schedules so long after its signal is killed. The backend's heartbeat has
/// come twice by then, and the kernel's watchdog not yet.
const END_LIMIT: Duration = Duration::from_secs(3);
/// One that does not schedule, because it loads or unloads, is killed so long after it. systemd
/// kills both processes after 20 s.
const UNLOADED_END_LIMIT: Duration = Duration::from_secs(15);
/// How often the end is looked for meanwhile.
const GLANCE: Duration = Duration::from_millis(10);

/// Bytes of the stack of a worker's thread: it handles signals, or locks memory.
const THREAD_STACK: &str = "131072";

/// The worker process, shared with the signal handlers.
#[derive(Default)]
pub struct WorkerProcess {
    child: Mutex<Option<Child>>,
    /// The name of the scheduler that it loads.
    scheduler: Mutex<String>,
    /// Receives what happens to the child, while there is one.
    events: Mutex<Option<Sender<Event>>>,
    stopping: AtomicBool,
    killed: AtomicBool,
    /// It did not notice that its scheduler was unloaded, and is ended for that.
    silent: AtomicBool,
}

/// What the thread that waits for a worker is told.
enum Event {
    /// It has ended.
    Ended,
    /// Another program is to take over from it.
    Upgrade,
}

/// How a worker ended.
pub enum End {
    /// With this status.
    Exited(ExitStatus),
    /// It did not react to its signal and was killed.
    Killed,
    /// It did not notice that its scheduler was unloaded, and was killed.
    Silent,
    /// A signal came before it started.
    NotStarted,
    /// It could not be started.
    Failed(Failure),
    /// It goes on, with this process number: another program is to take over from it.
    Upgraded(i32),
}

impl WorkerProcess {
    /// Whether a signal has asked for the end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Starts a worker and waits for its end, or for an upgrade. With `earlier`, the worker takes
    /// over from that process. The calling thread must be the one that executes another program at
    /// an upgrade: the kernel ends a worker with the thread that started it.
    pub fn run(&self, shared: &Shared, earlier: Option<i32>) -> End {
        self.try_run(shared, earlier).unwrap_or_else(End::Failed)
    }

    fn try_run(&self, shared: &Shared, earlier: Option<i32>) -> Result<End, Failure> {
        let (sender, events) = channel();
        // The thread is started first: if the kernel refuses it, no worker is left without it.
        let watched = keep_running(sender.clone())?;
        let pid = {
            let mut slot = lock(&self.child);
            if self.is_stopping() {
                return Ok(End::NotStarted);
            }
            *lock(&self.scheduler) = process::scheduler_name();
            let child = spawn(shared, earlier).map_err(Failure::Internal)?;
            slot.insert(child).id()
        };
        let _ = watched.send(pid);
        *lock(&self.events) = Some(sender);
        while matches!(events.recv(), Ok(Event::Upgrade)) {
            if !self.is_stopping() {
                return Ok(End::Upgraded(pid as i32));
            }
        }
        *lock(&self.events) = None;
        // Reaped under the lock, so that the handler never signals a reused pid.
        let mut slot = lock(&self.child);
        let Some(mut child) = slot.take() else { return Ok(End::NotStarted) };
        let status = child.wait().map_err(Failure::internal)?;
        let is = |why: &AtomicBool| why.load(Ordering::SeqCst);
        Ok(match status.signal() {
            Some(libc::SIGKILL) if is(&self.killed) => End::Killed,
            Some(libc::SIGKILL) if is(&self.silent) => End::Silent,
            _ => End::Exited(status),
        })
    }

    /// Waits for the end of a worker that a signal has asked to end.
    pub fn wait_for_end(&self) {
        loop {
            let mut slot = lock(&self.child);
            if !slot.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
                *slot = None;
                return;
            }
            drop(slot);
            thread::sleep(GLANCE);
        }
    }

    /// Has [`run`](Self::run) return while the worker goes on. Returns whether there is a worker.
    pub fn upgrade(&self) -> bool {
        let events = lock(&self.events);
        events.as_ref().is_some_and(|events| events.send(Event::Upgrade).is_ok())
    }

    /// Passes a signal on, and wakes the worker up to handle it. With `partial` the threads of
    /// [`wake_worker`] would not be queued to the worker and would only take CPU time from it, so
    /// it handles the signal at the next heartbeat. A worker that does not end is killed: the
    /// kernel's own scheduler takes over.
    pub fn interrupt(&self, partial: bool) {
        self.stopping.store(true, Ordering::SeqCst);
        self.signal(libc::SIGTERM);
        let deadline = Instant::now() + END_LIMIT;
        thread::scope(|scope| {
            let wake = || wake_worker::until(|| self.has_ended() || Instant::now() >= deadline);
            let is_started = partial || thread::Builder::new().spawn_scoped(scope, wake).is_ok();
            if !is_started {
                output::warn(wake_worker::LATE);
            }
            let last = deadline - END_LIMIT + UNLOADED_END_LIMIT;
            while !self.has_ended() {
                let is_loaded = preflight::is_running(&self.scheduler());
                let limit = if is_loaded { deadline } else { last };
                if Instant::now() >= limit {
                    self.killed.store(true, Ordering::SeqCst);
                    self.signal(libc::SIGKILL);
                    break;
                }
                thread::sleep(GLANCE);
            }
        });
    }

    /// Kills the worker with this process number, which did not notice that its scheduler was
    /// unloaded. By now it may have ended, and another one may run.
    pub fn end_silent(&self, pid: u32) {
        let slot = lock(&self.child);
        if let Some(child) = slot.as_ref().filter(|child| child.id() == pid) {
            self.silent.store(true, Ordering::SeqCst);
            send(child, libc::SIGKILL);
        }
    }

    /// The name of the scheduler that the last worker loads.
    pub fn scheduler(&self) -> String {
        lock(&self.scheduler).clone()
    }

    /// Its process number, while there is one.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.child).as_ref().map(Child::id)
    }

    /// Waits for so long, or until a signal asks for the end.
    pub fn wait_unless_stopping(&self, pause: Duration) {
        let deadline = Instant::now() + pause;
        while !self.is_stopping() && Instant::now() < deadline {
            thread::sleep(GLANCE);
        }
    }

    fn has_ended(&self) -> bool {
        lock(&self.child).is_none()
    }

    fn signal(&self, signal: libc::c_int) {
        lock(&self.child).iter().for_each(|child| send(child, signal));
    }
}

/// Sends a signal to a worker. The caller holds the lock under which it is reaped.
fn send(child: &Child, signal: libc::c_int) {
    // SAFETY: a plain system call, on a child that is not reaped yet.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Reports the end of a worker, from a thread that continues it whenever a signal stops it, because
/// the tasks that wait for its decisions would wait as long. The thread is told the worker's
/// process number. It is real-time, since it must run while no decisions come.
fn keep_running(events: Sender<Event>) -> Result<Sender<u32>, Failure> {
    let (sender, told) = channel();
    let watch = move || {
        process::make_this_real_time();
        // No worker could be started.
        let Ok(pid) = told.recv() else { return };
        let mut times = 0;
        while wait_for_change(pid) == libc::CLD_STOPPED {
            // SAFETY: a plain system call, on a child that is not reaped yet.
            unsafe { libc::kill(pid as i32, libc::SIGCONT) };
            times += 1;
            output::warn(&format!(
                "a signal stopped the scheduling process, and it was continued ({times} so far)"
            ));
        }
        // After an upgrade there is no receiver.
        let _ = events.send(Event::Ended);
    };
    let watching = thread::Builder::new().name("watch".into());
    watching.spawn(watch).map_err(Failure::internal)?;
    Ok(sender)
}

/// Starts this program again as a worker. The new process has neither the locked memory nor the
/// system call filter of an earlier worker.
fn spawn(shared: &Shared, earlier: Option<i32>) -> anyhow::Result<Child> {
    let (fd, name, value) = shared.descriptor();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("scx_pandemonium_user").args(std::env::args_os().skip(1)).env(name, value);
    // Of its threads but the main one. All of it is locked.
    command.env("RUST_MIN_STACK", THREAD_STACK);
    command.envs(earlier.map(takeover::variable));
    command.envs([process::supervisor_variable()]);
    let supervisor = std::process::id();
    // SAFETY: the calls between fork and exec are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            process::die_with_parent();
            // It may have died before.
            process::expect_parent(supervisor)?;
            process::leave_terminal();
            process::disable_huge_pages();
            match libc::fcntl(fd, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command.spawn().context("cannot start the scheduling process")
}

/// Waits until the process has been stopped or has ended, without reaping it, and returns which
/// (`CLD_STOPPED` or another).
fn wait_for_change(pid: u32) -> libc::c_int {
    loop {
        let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
        // SAFETY: all-zero is a valid value of `info`.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waitid writes only into `info`.
        let result = unsafe { libc::waitid(libc::P_PID, pid, &mut info, options) };
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if result == 0 || !interrupted {
            return info.si_code;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_worker_that_was_silent_is_killed_for_that() {
        let worker = WorkerProcess::default();
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        *lock(&worker.child) = Some(child);
        worker.end_silent(pid + 1);
        assert!(!worker.silent.load(Ordering::SeqCst), "a successor has another number");
        assert!(matches!(lock(&worker.child).as_mut().unwrap().try_wait(), Ok(None)));
        worker.end_silent(pid);
        assert!(worker.silent.load(Ordering::SeqCst));
        let ended = lock(&worker.child).as_mut().unwrap().wait().unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_thread_that_is_told_of_no_worker_ends() {
        let (events, received) = channel();
        drop(keep_running(events).unwrap());
        assert!(received.recv().is_err(), "it holds the sender until it ends");
    }
}
