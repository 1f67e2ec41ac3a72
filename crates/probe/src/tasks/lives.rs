// SPDX-License-Identifier: GPL-2.0-only

//! Named tasks with different behaviour, which a policy should tell apart.
//!
//! Their work is measured in CPU time, as the scheduler measures it, so it does not depend on the
//! speed of the machine. The rules of work.rs hold: no allocation, plain system calls.

use super::clock::{cpu_time_ns, now_ns, sleep_until};
use super::process::{die_with_parent, take_name};
use super::slot::Slot;
use super::work;
use std::ffi::CStr;

/// Eight microseconds at one virtual GIPS: work is this exact.
const STEP_ROUNDS: u32 = 2_000;
/// CPU time of the shortest compilation, and how much longer the others take, in turn.
const COMPILE_LEAST_US: u64 = 80_000;
const COMPILE_STEPS_US: [u64; 5] = [0, 70_000, 20_000, 100_000, 40_000];

/// What a named task does.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// Never sleeps.
    Hog,
    /// Wakes up once in each period and works.
    Periodic {
        /// Length of a period.
        period_us: u64,
        /// CPU time in each period.
        work_us: u64,
    },
    /// Forks one child after the other; each works as long as a compilation.
    Make {
        /// Name of the children.
        child: &'static CStr,
    },
}

/// Takes the name and does this until it is killed.
pub(crate) fn live(slot: &Slot, name: &CStr, life: Life) -> ! {
    take_name(name);
    match life {
        Life::Hog => work::hog(slot),
        Life::Periodic { period_us, work_us } => periodic(slot, period_us, work_us),
        Life::Make { child } => make(slot, child),
    }
}

/// A late wakeup does not shift the next period. A period that is already over is skipped, as a
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
        // SAFETY: the child works and exits; it follows the rules of work.rs.
        match unsafe { libc::fork() } {
            0 => unsafe {
                die_with_parent();
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

/// Works for this much CPU time. The process has one thread, so its CPU clock is that thread's.
/// Without a CPU clock the work never ends, and the scenario sees a worker without progress.
pub(crate) fn work_for(us: u64) {
    let used = || cpu_time_ns(0).unwrap_or(0);
    let end = used() + us * 1_000;
    while used() < end {
        work::burn(STEP_ROUNDS);
    }
}
