// SPDX-License-Identifier: GPL-2.0-only

//! Any text as a workload file.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pandemonium_lab::any_bytes::workload(data));
