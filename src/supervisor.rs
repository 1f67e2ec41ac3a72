// SPDX-License-Identifier: GPL-2.0-only

//! The process that a person starts: starts the worker, starts it again when the kernel asks,
//! passes signals on, prints, and says how it ended.

use super::adaptive::{Adaptive, IdleTime};
use super::cli::{self, Options};
use super::event_log::EventLog;
use super::machine::Machine;
use super::programs::{self, Programs, Saver};
use super::record::Recording;
use super::shared::Shared;
use super::stats::{self, Reading, Source};
use super::{settings, tasks, telemetry, wake_worker, worker};
use anyhow::{Context, anyhow};
use pandemonium_engine::adapting::INTERVAL;
use pandemonium_engine::knobs::{KeySet, Values};
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Restarts closer together than this are a storm: the next start waits as long.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// How often the adaptive loop runs.
const SECOND: Duration = Duration::from_nanos(INTERVAL.as_nanos());

/// Runs the scheduler until it ends.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let (knobs, chosen) = settings::knobs(options)?;
    if options.primary_domain.is_some() {
        settings::domain(options, &Machine::observe()?)?;
    }
    preflight::check()?;
    keep_files_ours();
    let source = source(options, knobs, chosen)?;
    let recording = match &options.record {
        Some(path) => {
            let shared = Arc::clone(&source.shared);
            Some(Recording::start(path, options.redact, source.policy.name, shared)?)
        }
        None => None,
    };
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
    let log = look_every_second(&source, options.verbose && options.stats.is_none());
    let saver = Saver::start(Arc::clone(&source.programs));
    let started = source.read();
    let outcome = keep_running(options, &worker, &source, &saver);
    let whole_run = source.metrics(&started, &source.read());
    telemetry::print(&telemetry::line(&whole_run));
    telemetry::print(&telemetry::knobs_line(&source.adaptive.status().report, &whole_run));
    if options.dump_log {
        telemetry::print(&lock(&log).to_string());
    }
    if options.dump_tasks {
        telemetry::print(&tasks::table(source.shared.take()));
    }
    recording.map(Recording::finish).iter().for_each(|said| telemetry::print(said));
    saver.finish();
    outcome
}

fn source(options: &Options, start: Values, chosen: KeySet) -> Result<Source, Failure> {
    let policy = options.policy();
    let cpus = settings::cpus(options, &Machine::observe()?);
    let shared = if options.record.is_some() { Shared::with_ring() } else { Shared::create() };
    let shared = Arc::new(shared.map_err(Failure::internal)?);
    let path = (!options.no_procdb).then(|| programs::path(options.procdb.as_deref()));
    let control = (policy.adapting)(cpus, start, chosen);
    Ok(Source {
        policy,
        adaptive: Arc::new(Adaptive::new(Arc::clone(&shared), control)),
        programs: Arc::new(Programs::load(Arc::clone(&shared), path)),
        restarts: Arc::new(AtomicU64::new(0)),
        shared,
    })
}

/// Whoever can write to the statistics socket can change knobs: that shall be nobody but us,
/// whatever mask we were started with.
fn keep_files_ours() {
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::umask(0o022) };
}

/// Starts workers until one ends for good.
fn keep_running(
    options: &Options,
    worker: &Worker,
    source: &Source,
    saver: &Saver,
) -> Result<ExitCode, Failure> {
    let sysctl = Sysctl::save();
    loop {
        let started = Instant::now();
        let status = match worker.run(&source.shared)? {
            Some(status) => status,
            None => return Ok(ExitCode::SUCCESS),
        };
        sysctl.restore();
        saver.save();
        if status.code() != Some(i32::from(worker::RESTART)) || worker.is_stopping() {
            return end(status, worker.is_stopping());
        }
        source.restarts.fetch_add(1, Ordering::Relaxed);
        telemetry::print("the kernel asked for a restart (CPUs came or went): starting again");
        if started.elapsed() < RESTART_PAUSE {
            thread::sleep(RESTART_PAUSE);
        }
        source.adaptive.on_hotplug(settings::cpus(options, &Machine::observe()?));
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
            wake_worker::until(|| self.lock().is_none());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        lock(&self.child)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Once a second: the adaptive loop, the log, and with `print` a line, if it is worth one.
fn look_every_second(source: &Source, print: bool) -> Arc<Mutex<EventLog>> {
    let log = Arc::new(Mutex::new(EventLog::default()));
    let (source, log_of_thread) = (source.clone(), Arc::clone(&log));
    thread::spawn(move || {
        let mut before = source.read();
        let mut idle_before = IdleTime::read(before.at);
        loop {
            thread::sleep(SECOND);
            let after = source.read();
            let idle = IdleTime::read(after.at);
            if after.numbers.rounds == 0 {
                // While it is loading there is nothing to adapt, and nothing to tell.
                (before, idle_before) = (after, idle);
                continue;
            }
            let share = idle.zip(idle_before).and_then(|(now, then)| now.share_since(&then));
            source.adaptive.step(&before, &after, share);
            let metrics = source.metrics(&before, &after);
            lock(&log_of_thread).push(after.at, &metrics);
            if print && source.adaptive.status().report.worth_a_line {
                telemetry::print(&telemetry::line(&metrics));
            }
            (before, idle_before) = (after, idle);
        }
    });
    log
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
