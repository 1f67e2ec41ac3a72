// SPDX-License-Identifier: GPL-2.0-only

//! The worker of an upgraded program. It loads while the worker of the old program schedules, ends
//! that one, and attaches. The kernel has one scheduler at a time, so its own runs in between.

use super::kernel_setting::{KernelSetting, Meanwhile};
use super::{clock, memory, output, process, wake_worker};
use anyhow::{Result, bail, ensure};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_host::preflight;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The environment variable that names the process to take over from.
const EARLIER: &str = "SCX_PANDEMONIUM_USER_EARLIER";
/// A worker that still schedules so long after its signal is killed.
const PATIENCE: Duration = Duration::from_secs(3);
/// The kernel needs no longer to unload a scheduler of which the process was killed.
const LIMIT: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_micros(500);
/// The kernel's setting of grace periods, expedited; and its usual value.
const EXPEDITED: Meanwhile = Meanwhile { path: "/sys/kernel/rcu_expedited", value: "1" };
const USUAL: &str = "0";

/// When the earlier worker was last seen in charge; 0 if there is none.
static IN_CHARGE: AtomicU64 = AtomicU64::new(0);
/// When this worker's backend was attached; 0 before.
static ATTACHED: AtomicU64 = AtomicU64::new(0);
/// Whether this process is a trial, which loads everything and attaches no scheduler.
static IS_TRIAL: AtomicBool = AtomicBool::new(false);
static HAS_LOADED: AtomicBool = AtomicBool::new(false);

/// The variable that tells a worker which process it takes over from.
pub fn variable(earlier: i32) -> (&'static str, String) {
    (EARLIER, earlier.to_string())
}

/// Has this process load everything and then fail.
pub fn begin_trial() {
    IS_TRIAL.store(true, Ordering::Relaxed);
}

/// Whether everything is loaded.
pub fn has_loaded() -> bool {
    HAS_LOADED.load(Ordering::Relaxed)
}

/// Between loading and attaching: ends the worker of the old program, if there is one, and returns
/// when it is unloaded. Fails if that takes too long, or if another scheduler is loaded. What it
/// returns is to be dropped when the scheduler is attached.
pub fn before_attach() -> Result<Option<ShortGracePeriods>> {
    HAS_LOADED.store(true, Ordering::Relaxed);
    if IS_TRIAL.load(Ordering::Relaxed) {
        bail!("a trial attaches nothing");
    }
    // To populate memory takes as long as the rest up to the first round, so it comes before.
    memory::lock_current();
    let earlier = std::env::var(EARLIER).ok().and_then(|pid| pid.parse().ok());
    let short = earlier.map(|earlier| {
        // Until its first round it competes with every task, at first under the kernel's own
        // scheduler and then under the defaults of the backend.
        process::make_this_real_time();
        let short = ShortGracePeriods::begin();
        end_worker(earlier);
        short
    });
    ensure!(!preflight::is_loaded(), "another sched_ext scheduler is loaded");
    Ok(short)
}

/// While it lives, grace periods of RCU are expedited. To unload and to load a scheduler the kernel
/// waits for some, each of which takes 10 ms or more on a busy machine. Without the privilege, or
/// if another program has expedited them, they stay as they are.
pub struct ShortGracePeriods(Option<KernelSetting>);

impl ShortGracePeriods {
    fn begin() -> Self {
        ShortGracePeriods(grace_periods().change(USUAL))
    }
}

impl Drop for ShortGracePeriods {
    fn drop(&mut self) {
        self.0.iter().for_each(KernelSetting::restore);
    }
}

/// The setting as it is now. A supervisor reads it before it starts a worker that takes over, and
/// restores it if that is killed meanwhile.
pub fn grace_periods() -> KernelSetting {
    KernelSetting::read(EXPEDITED)
}

/// The backend is attached: it decides by itself until the first round.
pub fn attached() {
    ATTACHED.store(clock::now().as_nanos(), Ordering::Relaxed);
}

/// Before the first round: this process waits its turn again.
pub fn finish() {
    if IN_CHARGE.load(Ordering::Relaxed) != 0 {
        process::make_this_ordinary();
    }
}

/// The earlier worker is still in charge.
fn in_charge_now() {
    IN_CHARGE.store(clock::now().as_nanos(), Ordering::Relaxed);
}

fn end_worker(earlier: i32) {
    let start = Instant::now();
    let has_ended = || preflight::is_enabled() != Some(true) || start.elapsed() > LIMIT;
    // Before the signal: the earlier worker may be unloaded sooner than a thread is started.
    in_charge_now();
    signal(earlier, libc::SIGTERM);
    let mut is_killed = false;
    thread::scope(|scope| {
        // On an idle machine the earlier worker would notice its signal a second later.
        let wake = || wake_worker::until(has_ended);
        if thread::Builder::new().spawn_scoped(scope, wake).is_err() {
            output::warn(wake_worker::LATE);
        }
        while !has_ended() {
            in_charge_now();
            if start.elapsed() > PATIENCE && !is_killed {
                signal(earlier, libc::SIGKILL);
                is_killed = true;
            }
            thread::sleep(GLANCE);
        }
    });
    while preflight::is_loaded() && start.elapsed() < LIMIT {
        thread::sleep(GLANCE);
    }
}

/// How long the kernel's own scheduler ran the tasks; zero if there was no earlier worker.
pub fn unloaded() -> Span {
    since_in_charge(Stamp::from_nanos(ATTACHED.load(Ordering::Relaxed)))
}

/// How long no worker decided, if this one begins to decide `now`; zero if there was no earlier
/// worker.
pub fn undecided(now: Stamp) -> Span {
    since_in_charge(now)
}

fn since_in_charge(end: Stamp) -> Span {
    match IN_CHARGE.load(Ordering::Relaxed) {
        0 => Span::ZERO,
        since => end.since(Stamp::from_nanos(since)),
    }
}

/// Sends a signal to a process, if its parent is that of this one. Another process may have the
/// number of a worker that has ended meanwhile.
fn signal(process: i32, signal: libc::c_int) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    // SAFETY: plain system calls.
    unsafe {
        if parent(&status) == Some(libc::getppid()) {
            libc::kill(process, signal);
        }
    }
}

/// The parent of a process, from the text of its status.
fn parent(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_the_same_parent_is_an_earlier_worker() {
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        // SAFETY: a plain call without arguments.
        assert_eq!(parent(&own), Some(unsafe { libc::getppid() }));
        assert_eq!(parent("Name:\tx\n"), None);
    }
}
