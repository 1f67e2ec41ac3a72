// SPDX-License-Identifier: GPL-2.0-only

//! Texts that the kernel writes when it unloads the backend.

use std::ffi::CStr;

/// The kernel's debug dump, if it wrote one.
pub(super) fn dump() -> Option<String> {
    let place = scx_utils::UEI_DUMP_PTR_MUTEX.lock().ok()?.ptr;
    if place.is_null() {
        return None;
    }
    // SAFETY: the skeleton, which owns the memory, still exists, and the kernel has terminated the
    // text with a zero.
    let text = unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned();
    Some(text).filter(|text| !text.is_empty())
}

/// The text up to its zero. A task may be named in it, so it need not be UTF-8.
pub(super) fn text(raw: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = raw.iter().map(|&letter| letter as u8).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().trim().to_owned())
        .unwrap_or_default()
}
