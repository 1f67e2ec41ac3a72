// SPDX-License-Identifier: GPL-2.0-only

//! Any words in the memory that worker and supervisor share.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scx_pandemonium_user::any_bytes::shared(data));
