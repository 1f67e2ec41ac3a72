// SPDX-License-Identifier: GPL-2.0-only

//! Workers, one after another: each is started, its end is understood, and the next one follows if
//! the kernel asks for that, or if a signal has killed it.

use crate::kernel_setting::{KernelSetting, SharedSetting};
use crate::programs::Saver;
use crate::restarts::{Ended, Next, Restarts};
use crate::stats::Source;
use crate::upgrade::Handover;
use crate::worker_process::{End, WorkerProcess};
use crate::{clock, output, takeover, worker};
use anyhow::anyhow;
use pandemonium_engine::time::Stamp;
use pandemonium_host::ejection::Ejection;
use pandemonium_host::failure::Failure;
use pandemonium_host::preflight;
use std::io::{Error, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// In place of the kernel's kind of an exit, which the worker did not come to read.
const UNKNOWN_KIND: u32 = u32::MAX;
/// Why such a worker was killed, and what knows more.
const UNNOTICED: &str = "the scheduling process did not notice it for 20 s, and was killed";
const KERNEL_LOG: &str = "the kernel's log has the reason (`dmesg | grep sched_ext`)";

/// Why no further worker is started.
pub enum Finish {
    Exit(ExitCode),
    /// Another program takes over from this worker, which goes on.
    Upgrade(i32),
}

/// Starts workers until one ends for good. Then the kernel settings are as before, unless a worker
/// goes on.
pub fn keep_running(
    source: &Source,
    saver: &Saver,
    compaction: &Arc<SharedSetting>,
    earlier: Option<Handover>,
) -> Result<Finish, Failure> {
    let earlier = earlier.map(|earlier| earlier.worker);
    earlier.into_iter().for_each(|earlier| reap(earlier, compaction));
    let outcome = run_workers(source, saver, compaction, earlier);
    if !matches!(outcome, Ok(Finish::Upgrade(_))) {
        compaction.restore();
    }
    outcome
}

/// Starts workers until one ends without a restart. The first takes over from the worker of an
/// earlier program. The order of the steps matters:
///
/// 1. The count of rounds is read before the worker starts. It grows over all workers: more rounds
///    afterwards say that this one has scheduled. The setting of grace periods is read before the
///    worker changes it.
/// 2. The worker runs. If it fails before it ends an earlier one, that one goes on, and the next
///    takes over from it.
/// 3. Kernel settings are restored first, because the pause may be long.
/// 4. An end for good returns before the look for another scheduler: a failure of that look would
///    hide the reason of the end.
/// 5. A signal ends the pause. Then no worker follows: [`run`](WorkerProcess::run) looks for a
///    signal under the lock under which a signal looks for the worker.
/// 6. No worker is started while another scheduler is loaded: the kernel would refuse it.
fn run_workers(
    source: &Source,
    saver: &Saver,
    compaction: &SharedSetting,
    mut earlier: Option<i32>,
) -> Result<Finish, Failure> {
    let worker: &WorkerProcess = &source.worker;
    let mut restarts = Restarts::default();
    loop {
        let (started, rounds) = (Instant::now(), source.rounds());
        let grace_periods = earlier.map(|_| takeover::grace_periods());
        compaction.need();
        let outcome = worker.run(&source.shared, earlier);
        let scheduled = source.rounds() > rounds;
        let goes_on = matches!(outcome, End::Upgraded(_));
        earlier = earlier.filter(|&earlier| !goes_on && !scheduled && schedules(earlier, worker));
        if earlier.is_none() && !goes_on {
            compaction.restore();
        }
        if may_be_expedited(&outcome, scheduled) {
            grace_periods.iter().for_each(KernelSetting::restore);
        }
        if matches!(outcome, End::Silent) {
            note_silence(source);
        }
        let last = match status_of(outcome)? {
            ControlFlow::Continue(last) => last,
            ControlFlow::Break(finish) => return Ok(finish),
        };
        saver.save();
        let (lived, earlier_schedules) = (started.elapsed(), earlier.is_some());
        let next =
            restarts.after(&Ended { code: last.code(), scheduled, lived, earlier_schedules });
        if next == Next::End || worker.is_stopping() {
            return code_of(last, worker.is_stopping()).map(Finish::Exit);
        }
        let Some(pause) = pause_before(next, &last) else {
            return code_of(last, false).map(Finish::Exit);
        };
        source.restarts.add(clock::now());
        worker.wait_unless_stopping(pause);
        if !earlier_schedules && !worker.is_stopping() {
            preflight::expect_none_loaded()?;
        }
    }
}

/// Waits for the end of the earlier program's worker, in a thread that ends with the process. That
/// worker restores a kernel setting at its end, which the new worker needs to be 0.
fn reap(earlier: i32, compaction: &Arc<SharedSetting>) {
    let compaction = Arc::clone(compaction);
    let wait = move || {
        if wait_for_end(earlier) {
            compaction.apply_again();
        }
    };
    if let Err(error) = thread::Builder::new().name("reap".into()).spawn(wait) {
        output::warn(&format!(
            "the kernel may move locked memory, because a thread could not be started: {error}"
        ));
    }
}

/// Waits for the end of a child. Returns whether it has ended and is reaped now.
fn wait_for_end(child: i32) -> bool {
    loop {
        // SAFETY: a plain system call, which writes nothing.
        let reaped = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        if reaped != -1 || Error::last_os_error().kind() != ErrorKind::Interrupted {
            return reaped == child;
        }
    }
}

/// Whether the worker of an earlier program still schedules.
fn schedules(earlier: i32, worker: &WorkerProcess) -> bool {
    is_alive(earlier)
        && preflight::is_enabled() == Some(true)
        && preflight::is_running(&worker.scheduler())
}

/// Whether this is a child that has not ended.
fn is_alive(child: i32) -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all-zero is a valid value of `info`, and waitid writes only into it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, child as u32, &mut info, options) == 0 && info.si_pid() == 0
    }
}

/// Whether a worker has left grace periods expedited. It restores them when it is attached, or
/// fails to be.
fn may_be_expedited(outcome: &End, scheduled: bool) -> bool {
    match outcome {
        End::Exited(status) => !scheduled && status.signal().is_some(),
        End::Killed | End::Silent => true,
        End::Failed(_) | End::NotStarted | End::Upgraded(_) => false,
    }
}

/// Notes that the kernel ejected a worker that did not notice it, so that a report is written. If
/// it did notice at last, it has noted the kernel's reason.
fn note_silence(source: &Source) {
    let last_round = Stamp::from_nanos(source.shared.counters.read().last_round_ns);
    let unnoticed = || Ejection {
        kind: UNKNOWN_KIND,
        reason: UNNOTICED.into(),
        message: KERNEL_LOG.into(),
        gap_ns: clock::now().since(last_round).as_nanos(),
        ..Ejection::default()
    };
    let ejection = source.shared.ejection.take().unwrap_or_else(unnoticed);
    source.shared.ejection.store(&ejection);
}

/// How the last worker ended that was or was not started.
#[derive(Debug)]
enum Last {
    Ended(ExitStatus),
    Failed(Failure),
}

impl Last {
    /// The exit code; `None` if a signal killed it. A worker that could not be started counts as
    /// one that failed.
    fn code(&self) -> Option<i32> {
        match self {
            Last::Ended(status) => status.code(),
            Last::Failed(failure) => Some(failure.code().into()),
        }
    }

    fn signal(&self) -> Option<i32> {
        match self {
            Last::Ended(status) => status.signal(),
            Last::Failed(_) => None,
        }
    }
}

/// The status of a worker that has ended by itself, or by another process's signal, or that could
/// not be started. Any other outcome is the last.
fn status_of(outcome: End) -> Result<ControlFlow<Finish, Last>, Failure> {
    Ok(match outcome {
        End::Exited(status) => ControlFlow::Continue(Last::Ended(status)),
        End::Failed(failure) => ControlFlow::Continue(Last::Failed(failure)),
        End::Killed => {
            output::warn("the scheduling process did not end at the signal, and was killed");
            ControlFlow::Break(Finish::Exit(ExitCode::SUCCESS))
        }
        End::Silent => return Err(Failure::Ejected(format!("{UNNOTICED}: {KERNEL_LOG}"))),
        End::NotStarted => ControlFlow::Break(Finish::Exit(ExitCode::SUCCESS)),
        End::Upgraded(worker) => ControlFlow::Break(Finish::Upgrade(worker)),
    })
}

/// Says why another worker follows. Returns the pause before it; `None` if none follows.
fn pause_before(next: Next, last: &Last) -> Option<Duration> {
    match next {
        Next::Retry { failures, pause } => {
            if let Last::Failed(failure) = last {
                output::warn(&failure.to_string());
            }
            let ms = pause.as_millis();
            output::print(&format!(
                "{failures} starts in a row have failed: starting again in {ms} ms"
            ));
            Some(pause)
        }
        Next::Replace { kills, pause } => {
            let (signal, ms) = (last.signal().unwrap_or(0), pause.as_millis());
            output::warn(&format!(
                "the scheduling process was killed by signal {signal} ({kills} so far), and the \
                 kernel's own scheduler has taken over: starting again in {ms} ms"
            ));
            Some(pause)
        }
        Next::Restart(pause) => {
            output::print(
                "the kernel asked for a restart (a CPU went on- or offline): starting again",
            );
            Some(pause)
        }
        Next::GiveUp | Next::End => None,
    }
}

/// The exit code or failure for a worker that has ended. Unless a signal killed it, it has printed
/// the reason itself.
fn code_of(last: Last, stopping: bool) -> Result<ExitCode, Failure> {
    let status = match last {
        Last::Ended(status) => status,
        Last::Failed(failure) => return Err(failure),
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(ExitCode::SUCCESS),
        (Some(code), _) if code == i32::from(worker::RESTART) && stopping => Ok(ExitCode::SUCCESS),
        (Some(code), _) if code == i32::from(worker::RESTART) => Err(Failure::Internal(anyhow!(
            "CPUs went on- or offline during every start, and the kernel's own scheduler has taken \
             over"
        ))),
        (Some(code), _) => Ok(ExitCode::from(code.clamp(1, 255) as u8)),
        // The signal came while the worker was loading.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any_bytes;
    use pandemonium_policies::knobs::Knobs;
    use std::process::Command;

    /// A worker that has returned this code.
    fn exited(code: u8) -> ExitStatus {
        ExitStatus::from_raw(i32::from(code) << 8)
    }

    /// A worker that this signal has killed.
    fn killed(signal: i32) -> ExitStatus {
        ExitStatus::from_raw(signal)
    }

    /// What follows from a worker with this status.
    fn code(status: ExitStatus, stopping: bool) -> Result<ExitCode, Failure> {
        code_of(Last::Ended(status), stopping)
    }

    fn failed() -> Failure {
        Failure::Internal(anyhow!("no memory"))
    }

    #[test]
    fn an_end_that_was_asked_for_is_a_success() {
        for status in [exited(0), exited(worker::RESTART), killed(libc::SIGTERM)] {
            assert_eq!(code(status, true).unwrap(), ExitCode::SUCCESS, "{status}");
        }
        assert!(code(killed(libc::SIGKILL), true).is_err());
    }

    #[test]
    fn an_end_that_was_not_asked_for_tells_its_reason() {
        assert_eq!(code(exited(0), false).unwrap(), ExitCode::SUCCESS);
        assert_eq!(code(exited(7), false).unwrap(), ExitCode::from(7), "the worker has told it");
        let told = |status| code(status, false).unwrap_err().to_string();
        assert!(told(exited(worker::RESTART)).contains("during every start"));
        assert!(told(killed(libc::SIGKILL)).contains("killed by signal 9"));
        assert!(told(killed(libc::SIGTERM)).contains("killed by signal 15"));
        assert!(code_of(Last::Failed(failed()), false).is_err());
    }

    #[test]
    fn only_a_worker_that_exits_may_be_followed_by_another() {
        let goes_on = |outcome| matches!(status_of(outcome), Ok(ControlFlow::Continue(_)));
        assert!(goes_on(End::Exited(exited(0))) && goes_on(End::Failed(failed())));
        assert!(!goes_on(End::Silent) && !goes_on(End::NotStarted));
        let upgraded = status_of(End::Upgraded(7));
        assert!(matches!(upgraded, Ok(ControlFlow::Break(Finish::Upgrade(7)))));
        let last = Last::Ended(exited(0));
        assert_eq!([Next::GiveUp, Next::End].map(|next| pause_before(next, &last)), [None; 2]);
    }

    #[test]
    fn a_worker_that_cannot_be_started_counts_as_a_start_that_failed() {
        assert_eq!(Last::Failed(failed()).code(), Some(1));
    }

    #[test]
    fn grace_periods_are_restored_after_a_worker_that_could_not() {
        assert!(may_be_expedited(&End::Silent, true) && may_be_expedited(&End::Killed, true));
        assert!(may_be_expedited(&End::Exited(killed(libc::SIGKILL)), false));
        assert!(!may_be_expedited(&End::Exited(killed(libc::SIGKILL)), true));
        assert!(!may_be_expedited(&End::Exited(exited(1)), false));
    }

    #[test]
    fn a_silent_end_leaves_a_reason_for_a_report_and_keeps_a_known_one() {
        let source = any_bytes::source(Knobs::none(), 2);
        note_silence(&source);
        let unnoticed = source.shared.ejection.take().unwrap();
        let told = unnoticed.sentence();
        assert!(told.starts_with(UNNOTICED) && told.contains("`dmesg | grep sched_ext`"), "{told}");
        assert!(told.contains("had decided nothing for"), "{told}");
        assert!(unnoticed.redacted().contains("did not notice it"));
        let known = Ejection { kind: 67, reason: "disabled by sysrq-S".into(), ..unnoticed };
        source.shared.ejection.store(&known);
        note_silence(&source);
        assert_eq!(source.shared.ejection.take().unwrap().reason, "disabled by sysrq-S");
    }

    #[test]
    fn only_a_child_that_has_not_ended_is_alive() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        assert!(is_alive(pid));
        child.kill().unwrap();
        while is_alive(pid) {
            thread::yield_now();
        }
        assert!(wait_for_end(pid), "it is not reaped before");
        assert!(!is_alive(pid) && !wait_for_end(pid), "no child any more");
        assert!(child.wait().is_err());
    }
}
