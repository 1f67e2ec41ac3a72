// SPDX-License-Identifier: GPL-2.0-only

//! Launches: from the fork to the exit of a small program, one after the other, as a shell script
//! runs programs.

use super::clock::now_ns;
use super::probe::{Probe, Slots};
use super::work::{self, THIS_PROGRAM};
use anyhow::Result;
use std::ffi::CStr;

/// The argument that makes this program exit at once.
pub const NOTHING: &CStr = c"nothing";
/// No machine launches more programs in a second.
const LAUNCHES_PER_S_MAX: u64 = 5_000;
/// The first launches fault pages in; they are not counted.
const WARM_UP: usize = 3;

/// Starts a probe that launches programs for this long and then exits.
pub fn start(run_ns: u64) -> Result<Probe> {
    let most = run_ns * LAUNCHES_PER_S_MAX / 1_000_000_000 + 1;
    Probe::start(most as usize, |slots| measure(slots, run_ns))
}

fn measure(slots: &Slots, run_ns: u64) {
    let end = now_ns() + run_ns;
    let arguments = [c"probe".as_ptr(), NOTHING.as_ptr(), std::ptr::null()];
    for number in 0..WARM_UP + slots.len() {
        let start = now_ns();
        // At least one launch is counted, even on a slow machine.
        if start > end && number > WARM_UP {
            return;
        }
        // SAFETY: the child execs with terminated constants, or exits.
        match unsafe { libc::fork() } {
            0 => unsafe {
                libc::execv(THIS_PROGRAM.as_ptr(), arguments.as_ptr());
                libc::_exit(127)
            },
            child => work::wait_for(child),
        }
        if let Some(number) = number.checked_sub(WARM_UP) {
            slots.store(number, now_ns() - start);
        }
    }
}
