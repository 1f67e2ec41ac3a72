// SPDX-License-Identifier: GPL-2.0-only

//! The host: finds what a boot needs, boots, listens, judges.

mod apt;
mod assets;
mod bars;
mod cache;
mod cli;
mod command;
mod console;
mod demo;
mod initramfs;
mod kernel;
mod kernel_build;
mod lab;
mod libraries;
mod programs;
mod progress;
mod qemu;
mod runner;
mod seat;
mod sources;
mod suite;
mod table;

use std::process::ExitCode;

pub fn main() -> ExitCode {
    cli::main()
}
