// SPDX-License-Identifier: GPL-2.0-only

//! Any bytes as a recording.

#![no_main]

#[path = "any_bytes.rs"]
mod any_bytes;
// A fuzzer reads; that the same files can write is not its concern.
#[allow(dead_code)]
#[path = "../../src/bin/pandemonium_lab/recording/mod.rs"]
mod recording;

libfuzzer_sys::fuzz_target!(|data: &[u8]| any_bytes::survive(data));
