// SPDX-License-Identifier: GPL-2.0-only

//! The clocks, read without a system call.

use pandemonium_engine::procdb::Minute;
use pandemonium_engine::time::Stamp;
use std::thread;
use std::time::{Duration, Instant};

/// The monotonic clock.
pub fn now() -> Stamp {
    let time = read(libc::CLOCK_MONOTONIC);
    Stamp::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The minute of the calendar. The coarse clock is exact to a tick, which suffices.
pub fn minute() -> Minute {
    let time = read(libc::CLOCK_REALTIME_COARSE);
    Minute::from_unix(u32::try_from(time.tv_sec / 60).unwrap_or_default())
}

/// Looks every `glance` until something is so. Returns whether it is so within the limit.
pub fn wait_for(limit: Duration, glance: Duration, is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        thread::sleep(glance);
    }
}

/// The vDSO serves both clocks.
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes only into `time`.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time
}
