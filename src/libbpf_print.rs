// SPDX-License-Identifier: GPL-2.0-only

//! The messages of libbpf. It explains a refused program over many lines, which are for
//! `--verbose`; the failed call returns the reason in one sentence. Every message is also searched
//! for the part of the fast path that the kernel refused.

use super::fast_path::refusal;
use super::output;
use libbpf_rs::PrintLevel;

/// From now on, prints the messages of libbpf if `verbose`.
pub fn set(verbose: bool) {
    let callback = if verbose { print } else { search };
    libbpf_rs::set_print(Some((PrintLevel::Debug, callback)));
}

fn print(level: PrintLevel, text: String) {
    refusal::search(level, &text);
    output::explain(text);
}

fn search(level: PrintLevel, text: String) {
    refusal::search(level, &text);
}
