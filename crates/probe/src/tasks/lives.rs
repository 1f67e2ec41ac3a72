// SPDX-License-Identifier: GPL-2.0-only

//! Lives that a policy should tell apart, each under a name of its own.
//!
//! Work is measured in CPU time, as the scheduler measures it: so a life is the same one on a slow
//! machine. The rules of work.rs hold: no allocation, plain system calls.

use super::clock::{cpu_time_ns, now_ns, sleep_until};
use super::load::Slot;
use super::work;
use std::ffi::CStr;

/// Eight microseconds of one virtual GIPS: the error of a measured piece of work.
const MORSEL_ROUNDS: u32 = 2_000;
/// CPU time of one compilation, from the shortest to the longest, and how they differ in between.
const COMPILE_LEAST_US: u64 = 80_000;
const COMPILE_STEPS_US: [u64; 5] = [0, 70_000, 20_000, 100_000, 40_000];

/// What a named task does.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// Never sleeps.
    Hog,
    /// Wakes up once in each period and works.
    Periodic { period_us: u64, work_us: u64 },
    /// Has one child after the other compile something, under the child's name.
    Make { child: &'static CStr },
}

/// Takes the name and never returns.
pub fn live(slot: &Slot, name: &CStr, life: Life) -> ! {
    take_name(name);
    match life {
        Life::Hog => work::hog(slot),
        Life::Periodic { period_us, work_us } => periodic(slot, period_us, work_us),
        Life::Make { child } => make(slot, child),
    }
}

fn take_name(name: &CStr) {
    // SAFETY: a terminated name; what is beyond 15 bytes is cut.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// A late wake-up does not shift the next period, and a period that is over is left out, as a
/// player drops frames.
fn periodic(slot: &Slot, period_us: u64, work_us: u64) -> ! {
    let period = period_us * 1_000;
    let mut due = now_ns() + period;
    loop {
        sleep_until(due);
        work_for(work_us);
        slot.done();
        due += period * (1 + now_ns().saturating_sub(due) / period);
    }
}

fn make(slot: &Slot, name: &CStr) -> ! {
    for step in COMPILE_STEPS_US.iter().cycle() {
        // SAFETY: the child works and exits; it keeps to the rules of work.rs.
        match unsafe { libc::fork() } {
            0 => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                take_name(name);
                work_for(COMPILE_LEAST_US + step);
                libc::_exit(0)
            },
            child => work::wait_for(child),
        }
        slot.done();
    }
    unreachable!("a cycle does not end")
}

/// Each life has one thread, so the process's clock is its own; without a clock it would
/// never be through, which the watch finds.
fn work_for(us: u64) {
    let used = || cpu_time_ns(0).unwrap_or(0);
    let end = used() + us * 1_000;
    while used() < end {
        work::burn(MORSEL_ROUNDS);
    }
}
