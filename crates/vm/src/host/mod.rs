// SPDX-License-Identifier: GPL-2.0-only

//! The host part: finds what a boot needs, boots, receives messages, judges.

mod apt;
mod assets;
mod bars;
mod cache;
mod cli;
mod command;
mod console;
mod debian;
mod demo;
mod distribution;
mod host_cpu;
mod image;
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

use anyhow::Result;
use assets::Assets;
use cache::Cache;
use clap::Parser;
use cli::{Arguments, SuiteArguments, What};
use std::process::ExitCode;

/// Runs the command. Exit codes: 0 all well, 1 something failed, 2 wrong use or no way to run, 130
/// interrupted.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return pandemonium_host::usage::explain(&error),
    };
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) if runner::was_interrupted() => ExitCode::from(130),
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<bool> {
    let what = arguments.command.unwrap_or(What::Suite(arguments.suite));
    if !matches!(what, What::BuildKernel) {
        runner::catch_interrupts();
    }
    match what {
        What::Suite(arguments) => suite::run(&arguments),
        What::Demo(subject) => demo::run(&subject),
        What::Distribution(arguments) => distribution::run(&arguments),
        What::Bars(arguments) => bars::run(&arguments),
        What::Lab(arguments) => lab::run(&arguments),
        What::BuildKernel => {
            let kernel = kernel_build::build(&Cache::open()?)?;
            println!("linux {} is at {}", kernel.name, kernel.image.display());
            Ok(true)
        }
        What::Fetch(arguments) => fetch(&arguments),
    }
}

/// Each kernel is checked as it is fetched: it boots once and loads the scheduler.
fn fetch(arguments: &SuiteArguments) -> Result<bool> {
    let assets = Assets::find(arguments.scheduler.as_deref())?;
    assets::fetch_programs(&assets.cache)?;
    for series in &arguments.series {
        let kernel = kernel::of_series(&assets, series)?;
        println!("linux {} is at {}", kernel.name, kernel.image.display());
    }
    Ok(true)
}
