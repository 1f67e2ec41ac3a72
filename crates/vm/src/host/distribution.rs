// SPDX-License-Identifier: GPL-2.0-only

//! One boot of a whole Debian with the scheduler's package beside it, and the log of what was done
//! there.

use super::cache::Cache;
use super::cli::DistributionArguments;
use super::runner::{Boot, Outcome};
use super::{debian, progress};
use crate::guest::distribution::BROUGHT_IN_INITRAMFS;
use crate::protocol::{Message, Mode};
use crate::scenarios;
use crate::scenarios::distribution::PACKAGE;
use anyhow::{Context, Result, ensure};
use std::time::Instant;

/// Beside the scheduler that is installed, the guest needs no more than a desktop of two CPUs.
const CPUS: u32 = 2;

/// Returns whether all of it passed.
pub fn run(arguments: &DistributionArguments) -> Result<bool> {
    let start = Instant::now();
    let package = &arguments.package;
    ensure!(
        package.is_file(),
        "there is no package {}: build it with `make deb`",
        package.display()
    );
    // First: the only part that may need root.
    let disk = debian::disk(&Cache::open()?)?;
    let (mut assets, kernel) = arguments.subject.find()?;
    assets.disk = Some(disk);
    assets.add(vec![(format!("{BROUGHT_IN_INITRAMFS}/{PACKAGE}"), package.clone())], None);

    let scenario = scenarios::find("distribution").context("the scenario of the distribution")?;
    let boot = Boot {
        assets: &assets,
        kernel: &kernel,
        scenario,
        cpus: CPUS,
        mode: Mode::Fast,
        detail: "",
        limit_s: scenario.limit_s,
    };
    println!("Booting Debian with Linux {} and {CPUS} virtual CPUs in QEMU.", kernel.name);
    let outcome = boot.run(&mut |message| match message {
        Message::Note { text } => progress::line(text),
        Message::Telemetry { line } => progress::line(&format!("    {line}")),
        _ => {}
    })?;
    println!("{} in {} s", outcome.name(), start.elapsed().as_secs());
    if outcome != Outcome::Passed {
        println!("{}", outcome.reason());
        println!("The kernel's console: {}", boot.console_path().display());
    }
    Ok(outcome == Outcome::Passed)
}
