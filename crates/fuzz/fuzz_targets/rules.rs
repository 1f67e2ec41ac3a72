// SPDX-License-Identifier: GPL-2.0-only

//! Any text as a file of rules, and any names of processes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scx_pandemonium_user::any_bytes::rules(data));
