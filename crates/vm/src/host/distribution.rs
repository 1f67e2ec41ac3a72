// SPDX-License-Identifier: GPL-2.0-only

//! One boot of a whole Debian with the scheduler's packages beside it, and the log of what was done
//! there.

use super::cache::Cache;
use super::cli::DistributionArguments;
use super::runner::{Boot, Outcome};
use super::{command, debian, progress};
use crate::guest::distribution::BROUGHT_IN_INITRAMFS;
use crate::protocol::{Message, Mode};
use crate::scenarios;
use crate::scenarios::distribution::{EARLIER, PACKAGE, TOOLS};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Beside the scheduler that is installed, the guest needs no more than a desktop of two CPUs.
const CPUS: u32 = 2;
/// What sorts before every version of the same number.
const EARLIER_SUFFIX: &str = "~earlier";

/// Returns whether all of it passed.
pub fn run(arguments: &DistributionArguments) -> Result<bool> {
    let start = Instant::now();
    let (package, tools) = (&arguments.package, &arguments.tools);
    let earlier = arguments.earlier.as_ref().unwrap_or(package);
    for file in [package, tools, earlier] {
        let shown = file.display();
        ensure!(file.is_file(), "there is no package {shown}: build it with `make deb`");
    }
    // First: the only part that may need root.
    let disk = debian::disk(&Cache::open()?)?;
    let (mut assets, kernel) = arguments.subject.find()?;
    assets.disk = Some(disk);
    let earlier = earlier_version(earlier, &assets.scratch)?;
    let brought = [(PACKAGE, package.clone()), (EARLIER, earlier), (TOOLS, tools.clone())];
    let inside = |(name, path)| (format!("{BROUGHT_IN_INITRAMFS}/{name}"), path);
    assets.add(brought.map(inside).into(), None);

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

/// The same package with a version that comes before its own.
fn earlier_version(package: &Path, scratch: &Path) -> Result<PathBuf> {
    let root = scratch.join("earlier");
    command::output(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&root))?;
    let control = root.join("DEBIAN/control");
    let text = fs::read_to_string(&control).context("reading the package's control file")?;
    let line = text.lines().find(|line| line.starts_with("Version: "));
    let line = line.context("the package has no version")?;
    fs::write(&control, text.replace(line, &format!("{line}{EARLIER_SUFFIX}")))
        .context("writing the earlier version")?;
    let earlier = scratch.join(EARLIER);
    // Not compressed: the guest unpacks it slowly, and unpacks the other one as it is.
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Znone", "--build"]).arg(&root).arg(&earlier);
    command::output(&mut build)?;
    Ok(earlier)
}
