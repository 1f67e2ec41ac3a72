// SPDX-License-Identifier: GPL-2.0-only

//! What a task asks the kernel for itself.

use std::ffi::{CStr, CString};

/// Names the calling thread.
pub(crate) fn take_name(name: &CStr) {
    // SAFETY: a terminated name; the kernel cuts it after 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// The same for a name that is not terminated yet. It allocates.
pub(crate) fn take_name_of(name: &str) {
    if let Ok(name) = CString::new(name) {
        take_name(&name);
    }
}

/// The kernel kills the caller when its parent ends.
pub(crate) fn die_with_parent() {
    // SAFETY: takes a signal.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Waits for ever, for a task that has nothing left to do, or cannot do its work: the scenario
/// reports the latter by name as one without progress.
pub(crate) fn stand_still() -> ! {
    loop {
        // SAFETY: sleeps until a signal.
        unsafe { libc::pause() };
    }
}
