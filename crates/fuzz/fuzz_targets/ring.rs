// SPDX-License-Identifier: GPL-2.0-only

//! Any words in the ring of a recording.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pandemonium_lab::any_bytes::ring(data));
