// SPDX-License-Identifier: GPL-2.0-only

//! Any numbers as the seed of a mix and its CPUs.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pandemonium_lab::any_bytes::mix(data));
