// SPDX-License-Identifier: GPL-2.0-only

//! What a process of a play asks the kernel for itself.

use std::ffi::CString;

/// Names the calling thread.
pub fn take_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        // SAFETY: a terminated name; the kernel cuts it after 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// The kernel kills the caller when its parent ends.
pub fn die_with_parent() {
    // SAFETY: takes a signal.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Waits for ever, for a task that has nothing left to do.
pub fn stand_still() -> ! {
    loop {
        // SAFETY: sleeps until a signal.
        unsafe { libc::pause() };
    }
}
