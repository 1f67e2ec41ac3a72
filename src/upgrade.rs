// SPDX-License-Identifier: GPL-2.0-only

//! An upgrade: at SIGUSR2 the supervisor executes the program that is now at its path, in the same
//! process. A trial comes first: the new program loads everything while the old one schedules. Then
//! the old worker goes on until the new one has loaded: see `takeover`.

mod candidate;
mod handover;
pub mod trial;

use self::candidate::Candidate;
pub use self::handover::Handover;
use super::cli::Options;
use super::stats::Source;
use super::worker_process::WorkerProcess;
use super::{clock, output};
use anyhow::{Result, anyhow, ensure};
use pandemonium_host::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// The signal that asks for an upgrade.
const SIGNAL: libc::c_int = libc::SIGUSR2;
/// How long the worker of a start or of an earlier upgrade may take until it schedules.
const LOADING_LIMIT: Duration = Duration::from_secs(30);
/// How long the worker may take to store memos. On an idle machine it has a round in two seconds.
const MEMOS_LIMIT: Duration = Duration::from_secs(4);
const GLANCE: Duration = Duration::from_millis(10);

/// Has the signal wait for [`serve`]. To be called before any thread is started.
pub fn block_signal() {
    // SAFETY: plain memory of the type that the calls want. No other thread exists yet.
    unsafe {
        let set = signal_set();
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signal(SIGNAL, libc::SIG_DFL);
    }
}

fn signal_set() -> libc::sigset_t {
    // SAFETY: plain memory of the type that the calls want.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        set
    }
}

/// Where the program of this process was when it started, which is where a newer one is looked for.
pub fn own_path(earlier: Option<&Handover>) -> Result<PathBuf, Failure> {
    match earlier {
        Some(earlier) => Ok(earlier.program.clone()),
        None => std::env::current_exe().map_err(Failure::internal),
    }
}

/// Waits for the signal, in a thread that ends with the process, and asks for an upgrade to the
/// program at `path` if that is possible. Returns where the programs come that passed their trial.
pub fn serve(options: &Options, path: PathBuf, source: Source) -> Receiver<Candidate> {
    let records = options.record.is_some();
    let (sender, candidates) = channel();
    let wait = move || {
        let set = signal_set();
        loop {
            let mut signal = 0;
            // SAFETY: sigwait writes only into `signal`.
            if unsafe { libc::sigwait(&set, &mut signal) } != 0 {
                return;
            }
            match prepare(&path, records, &source) {
                Err(error) => {
                    output::warn(&format!("no upgrade, the scheduler goes on: {error:#}"))
                }
                Ok(candidate) => {
                    // Before the worker's thread is told, which looks for it.
                    let _ = sender.send(candidate);
                    if !source.worker.upgrade() {
                        output::warn("no upgrade: the scheduling process does not run now");
                    }
                }
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("upgrade".into()).spawn(wait) {
        output::warn(&format!("no upgrade is possible: a thread could not be started: {error}"));
    }
    candidates
}

/// Tries the new program, and gets the worker's memos and profiles.
fn prepare(path: &Path, records: bool, source: &Source) -> Result<Candidate> {
    ensure!(!records, "it records, and a recording is of one program: end it and start again");
    // A worker that loads may be about to end the one before it, which then no worker would end.
    let schedules = clock::wait_for(LOADING_LIMIT, GLANCE, || source.rounds() > 0);
    ensure!(schedules, "it still loads: try again when it schedules");
    let candidate = Candidate::open(path)?;
    trial::of(&candidate)?;
    source.shared.want_memos();
    // Without memos the new program learns of each task again.
    clock::wait_for(MEMOS_LIMIT, GLANCE, || !source.shared.wants_memos());
    Ok(candidate)
}

/// Executes the last candidate in this process. Returns only if that fails, after an attempt to
/// execute this program again, or with `None` if a signal has asked for the end.
pub fn execute(
    handover: &Handover,
    candidates: &Receiver<Candidate>,
    worker: &WorkerProcess,
) -> Option<Failure> {
    let file = match handover.write() {
        Ok(file) => file,
        Err(error) => return Some(Failure::Internal(error)),
    };
    stop_handling_the_end();
    if worker.is_stopping() {
        return None;
    }
    // Between two programs nothing waits for the signal, which by default ends a process.
    // SAFETY: a plain system call.
    unsafe { libc::signal(SIGNAL, libc::SIG_IGN) };
    for program in candidates.try_iter().last().into_iter().chain(Candidate::own().ok()) {
        let error = program.execute(&file);
        output::error(&format!("the upgrade failed: {error:#}"));
        output::finish();
    }
    Some(Failure::Internal(anyhow!("neither the new nor the old program can be executed")))
}

/// From now on a signal that asks for the end ends this process at once, and the kernel ends its
/// workers: between two programs nothing else would notice it. One that came before is handled.
fn stop_handling_the_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a plain system call.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    thread::sleep(GLANCE);
}
