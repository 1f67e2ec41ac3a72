// SPDX-License-Identifier: GPL-2.0-only

//! `scx_pandemonium_user`: loads the BPF backend and schedules the machine by the policies of the
//! library of the same name. docs/architecture.md is the map.

mod bench;
mod driver;

// The generated connector looks for its bindings at the root of the crate.
use driver::backend::{bpf_intf, bpf_skel};

fn main() -> std::process::ExitCode {
    driver::main()
}
