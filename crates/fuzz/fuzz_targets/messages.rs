// SPDX-License-Identifier: GPL-2.0-only

//! Any bytes as messages of the backend.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pandemonium_lab::any_bytes::messages(data));
