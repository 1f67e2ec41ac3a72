// SPDX-License-Identifier: GPL-2.0-only

//! Any words as a command line.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scx_pandemonium_user::any_bytes::options(data));
