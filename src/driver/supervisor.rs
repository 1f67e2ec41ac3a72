// SPDX-License-Identifier: GPL-2.0-only

//! The process that a person starts: starts the worker, starts it again when the kernel asks,
//! passes signals on, prints, and says how it ended.

use super::cli::{self, Options};
use super::failure::Failure;
use super::nudge;
use super::preflight;
use super::shared::Shared;
use super::stats::{self, Reading, Source};
use super::telemetry;
use super::worker;
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use scx_pandemonium_user::policy::Scaling;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Restarts closer together than this are a storm: the next start waits as long.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// Runs the scheduler until it ends.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    preflight::check()?;
    let source = source(options)?;
    telemetry::print(&cli::version());
    let worker = Arc::new(Worker::default());
    let handler = Arc::clone(&worker);
    let partial = options.partial;
    ctrlc::set_handler(move || handler.interrupt(partial)).map_err(Failure::internal)?;
    // The statistics server is a help, not a condition: where its socket cannot be made, the
    // scheduler runs without it and says so.
    let server = stats::serve(source.clone());
    if let Err(error) = &server {
        eprintln!("warning: statistics are not served: {error:#}");
    }
    if let Some(seconds) = options.stats {
        report_every(Duration::from_secs_f64(seconds), source.clone());
    }
    let started = source.read();
    let outcome = keep_running(&worker, &source);
    telemetry::print(&telemetry::line(&source.metrics(&started, &source.read())));
    outcome
}

fn source(options: &Options) -> Result<Source, Failure> {
    let name = options.policy.to_possible_value();
    let cpus = options.nr_cpus.unwrap_or(*scx_utils::NR_CPU_IDS as u32);
    Ok(Source {
        shared: Arc::new(Shared::create().map_err(Failure::internal)?),
        policy: name.map(|value| value.get_name().to_owned()).unwrap_or_default(),
        starvation_limit: Scaling::new(cpus).starvation,
        restarts: Arc::new(AtomicU64::new(0)),
    })
}

/// Starts workers until one ends for good.
fn keep_running(worker: &Worker, source: &Source) -> Result<ExitCode, Failure> {
    let sysctl = Sysctl::save();
    loop {
        let started = Instant::now();
        let status = match worker.run(&source.shared)? {
            Some(status) => status,
            None => return Ok(ExitCode::SUCCESS),
        };
        sysctl.restore();
        if status.code() != Some(i32::from(worker::RESTART)) || worker.is_stopping() {
            return end(status, worker.is_stopping());
        }
        source.restarts.fetch_add(1, Ordering::Relaxed);
        telemetry::print("the kernel asked for a restart (CPUs came or went): starting again");
        if started.elapsed() < RESTART_PAUSE {
            thread::sleep(RESTART_PAUSE);
        }
    }
}

/// The verdict on a worker that ended. It has explained itself already, unless something killed
/// it.
fn end(status: ExitStatus, stopping: bool) -> Result<ExitCode, Failure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(ExitCode::SUCCESS),
        (Some(code), _) if code == i32::from(worker::RESTART) => Ok(ExitCode::SUCCESS),
        (Some(code), _) => Ok(ExitCode::from(code.clamp(1, 255) as u8)),
        // It was still loading when the signal came.
        (None, Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP)) if stopping => {
            Ok(ExitCode::SUCCESS)
        }
        (None, signal) => Err(Failure::Internal(anyhow!(
            "the scheduling process was killed by signal {}, and the kernel's own scheduler has \
             taken over",
            signal.unwrap_or(0)
        ))),
    }
}

/// The worker process, shared with the signal handler.
#[derive(Default)]
struct Worker {
    child: Mutex<Option<Child>>,
    stopping: AtomicBool,
}

impl Worker {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Starts a worker and waits for its end. `None` if a signal came before it could start.
    fn run(&self, shared: &Shared) -> Result<Option<ExitStatus>, Failure> {
        let pid = {
            let mut slot = self.lock();
            if self.is_stopping() {
                return Ok(None);
            }
            let child = spawn(shared).map_err(Failure::Internal)?;
            slot.insert(child).id()
        };
        wait_without_reaping(pid);
        // Reaped under the lock, so that the handler never signals a pid that is somebody else's.
        let mut slot = self.lock();
        let status = slot.take().map(|mut child| child.wait()).transpose();
        status.map_err(Failure::internal)
    }

    /// Passes a signal on, and sees to it that it is noticed. With `partial` our own threads do not
    /// come up to the worker and would only be in its way, so it notices at the next heartbeat.
    fn interrupt(&self, partial: bool) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(child) = self.lock().as_ref() {
            // SAFETY: a plain system call, on a child that is not reaped yet.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        }
        if !partial {
            nudge::until(|| self.lock().is_none());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts this program again as a worker: a fresh image, so that locked memory and the system
/// call filter of an earlier worker are gone.
fn spawn(shared: &Shared) -> anyhow::Result<Child> {
    let (fd, name, value) = shared.descriptor();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("scx_pandemonium_user").args(std::env::args_os().skip(1)).env(name, value);
    // SAFETY: fcntl is async-signal-safe, and all that happens between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.spawn().context("cannot start the scheduling process")
}

fn wait_without_reaping(pid: u32) {
    loop {
        // SAFETY: waitid writes only into `info`, and all-zero is a valid value of it.
        let result = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if result == 0 || !interrupted {
            return;
        }
    }
}

/// Prints a line every `interval`, from a thread that nobody waits for.
fn report_every(interval: Duration, source: Source) {
    thread::spawn(move || {
        let mut before: Reading = source.read();
        loop {
            thread::sleep(interval);
            let after = source.read();
            telemetry::print(&telemetry::line(&source.metrics(&before, &after)));
            before = after;
        }
    });
}

/// The kernel setting that the core changes while it runs. A worker that is killed cannot put it
/// back, so the supervisor does.
struct Sysctl(Option<String>);

impl Sysctl {
    const PATH: &str = "/proc/sys/vm/compact_unevictable_allowed";

    fn save() -> Sysctl {
        Sysctl(std::fs::read_to_string(Self::PATH).ok())
    }

    fn restore(&self) {
        let Some(saved) = &self.0 else { return };
        if std::fs::read_to_string(Self::PATH).is_ok_and(|now| now != *saved) {
            // Without the setting the kernel may compact locked memory, which costs some latency
            // and nothing else: not worth ending for.
            let _ = std::fs::write(Self::PATH, saved);
        }
    }
}
