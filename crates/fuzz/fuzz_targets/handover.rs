// SPDX-License-Identifier: GPL-2.0-only

//! Any text as what an old program hands on to a new one.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scx_pandemonium_user::any_bytes::handover(data));
