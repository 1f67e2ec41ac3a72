// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_vm` boots real kernels in QEMU and runs scenarios under the scheduler in them.
//!
//! Built by `cargo build --release --workspace`, it lies in `target/release` beside the programs
//! that it copies into the guest. `pandemonium_vm suite` runs all scenarios, `pandemonium_vm suite
//! --only mix` one of them, `pandemonium_vm lab` the benchmark in exact mode; `--help` names the
//! other commands. It needs neither root nor sched_ext on this machine, and installs nothing: it
//! writes to its cache, to `target` and where it is told.
//!
//! The program has two parts. The host part finds a kernel, boots it and judges the results. The
//! guest part is the same file, copied into the initramfs as `/init`, and runs one scenario. So
//! both parts of a scenario are always compiled together.

mod agent;
mod bars;
mod guest;
mod host;
mod lab;
mod protocol;
mod scenario;
mod scenarios;

use std::process::ExitCode;

fn main() -> ExitCode {
    if agent::is_wanted() { agent::main() } else { host::main() }
}
