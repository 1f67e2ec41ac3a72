// SPDX-License-Identifier: GPL-2.0-only

//! Any text as replies of a scheduler to a view.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scx_pandemonium_user::any_bytes::view(data));
