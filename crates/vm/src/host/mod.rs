// SPDX-License-Identifier: GPL-2.0-only

//! The host part: finds what a boot needs, boots, receives messages, judges.

mod apt;
mod assets;
mod bars;
mod cache;
mod cli;
mod command;
mod console;
mod demo;
mod host_cpu;
mod initramfs;
mod kernel;
mod kernel_build;
mod lab;
mod libraries;
mod programs;
mod progress;
mod qemu;
mod runner;
mod sources;
mod suite;
mod table;

use std::process::ExitCode;

pub fn main() -> ExitCode {
    cli::main()
}
