// SPDX-License-Identifier: GPL-2.0-only

//! Any text as the kernel's, when it ejects the scheduler.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scx_pandemonium_user::any_bytes::ejection(data));
