// SPDX-License-Identifier: GPL-2.0-only

//! Boots real kernels in QEMU and runs scenarios under our scheduler.
//!
//! One program, two lives: started by cargo it is the host that finds a kernel, boots it and judges
//! what comes back; copied into the initramfs as `/init` it is the guest that runs one scenario. So
//! both halves of a scenario are compiled together and cannot drift apart.

mod bars;
mod guest;
mod host;
mod lab;
mod protocol;
mod scenario;
mod scenarios;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 { guest::main() } else { host::main() }
}
