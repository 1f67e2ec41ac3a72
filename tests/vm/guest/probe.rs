// SPDX-License-Identifier: GPL-2.0-only

//! Measures wake-ups: a task that sleeps to deadlines and notes how late it runs.

use super::memory::Shared;
use super::work;
use anyhow::{Result, bail, ensure};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Deadlines are this far apart, pseudo-randomly, so that they drift against every tick.
const GAP_NS_MIN: u64 = 3_000_000;
const GAP_NS_SPREAD: u64 = 4_000_000;
/// Some 50 us of one virtual GIPS.
const WORK_ROUNDS: u32 = 12_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Lateness of each wake-up, sorted.
pub struct Lateness {
    sorted_ns: Vec<u64>,
}

impl Lateness {
    /// The value that `permille` of 1000 wake-ups stay below, in microseconds.
    pub fn quantile_us(&self, permille: usize) -> f64 {
        let index = (self.sorted_ns.len() * permille / 1000).min(self.sorted_ns.len() - 1);
        self.sorted_ns[index] as f64 / 1000.0
    }

    pub fn count(&self) -> usize {
        self.sorted_ns.len()
    }
}

/// A running probe.
pub struct Probe {
    pid: libc::pid_t,
    lateness_ns: Shared<AtomicU64>,
}

impl Probe {
    /// Starts a probe that measures for `seconds` and then ends by itself.
    pub fn start(seconds: u64) -> Result<Probe> {
        let lateness_ns = Shared::<AtomicU64>::new((seconds * SECOND_NS / GAP_NS_MIN) as usize)?;
        // SAFETY: the child only sleeps, burns and stores into memory mapped above.
        match unsafe { libc::fork() } {
            -1 => bail!("starting the probe: {}", std::io::Error::last_os_error()),
            0 => {
                measure(&lateness_ns, seconds * SECOND_NS);
                // SAFETY: plain exit.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Probe { pid, lateness_ns }),
        }
    }

    pub fn finish(self) -> Result<Lateness> {
        // SAFETY: our own child; the status is not wanted.
        let waited = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        ensure!(waited == self.pid, "waiting for the probe: {}", std::io::Error::last_os_error());
        // A slot that was never reached is 0, which no real wake-up can be.
        let mut sorted_ns: Vec<u64> = self
            .lateness_ns
            .iter()
            .map(|late| late.load(Relaxed))
            .filter(|&late| late > 0)
            .collect();
        sorted_ns.sort_unstable();
        ensure!(!sorted_ns.is_empty(), "the probe never woke up");
        Ok(Lateness { sorted_ns })
    }
}

fn measure(lateness_ns: &[AtomicU64], run_ns: u64) {
    let end = now_ns() + run_ns;
    let mut deadline = now_ns();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for slot in lateness_ns {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        deadline = deadline.max(now_ns()) + GAP_NS_MIN + (random >> 33) % GAP_NS_SPREAD;
        if deadline > end {
            return;
        }
        sleep_until(deadline);
        slot.store(now_ns().saturating_sub(deadline).max(1), Relaxed);
        work::burn(WORK_ROUNDS);
    }
}

fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / SECOND_NS) as libc::time_t,
        tv_nsec: (deadline_ns % SECOND_NS) as libc::c_long,
    };
    // SAFETY: reads the deadline only.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &deadline,
            std::ptr::null_mut(),
        );
    }
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}
