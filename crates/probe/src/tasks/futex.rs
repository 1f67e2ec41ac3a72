// SPDX-License-Identifier: GPL-2.0-only

//! Waiting for a word in memory.

use std::sync::atomic::AtomicU32;

/// Waits while the word has this value, or wakes so many that wait. Other processes may share it.
pub fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let none = std::ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call; a wait that ends early is repeated by the caller.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, none) };
}
