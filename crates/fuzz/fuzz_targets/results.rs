// SPDX-License-Identifier: GPL-2.0-only

//! Any text as a results file of the benchmark.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pandemonium_bench::any_bytes::results(data));
