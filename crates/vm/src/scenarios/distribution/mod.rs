// SPDX-License-Identifier: GPL-2.0-only

//! What a user does with the package, on a whole Debian, from the installation to the purge.
//!
//! The steps build on each other, so the first one that fails ends the scenario.

mod completions;
mod follow;
mod guide;
mod machine;
mod metrics;
mod package;
mod power;
mod sandbox;
mod service;

use crate::guest::{Guest, report};
use crate::scenario::{FULL_SPEED, Scenario};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// The scheduler's package, where the scenario finds what it brought along.
pub const PACKAGE: &str = "package.deb";
/// The same with an earlier version.
pub const EARLIER: &str = "earlier.deb";
/// The package of the tools.
pub const TOOLS: &str = "tools.deb";
/// Files of packages that conflict with each other, on the disk.
pub const EXCLUSIVE_FOLDER: &str = "/var/cache/vm-packages";

pub const DISTRIBUTION: Scenario = Scenario {
    name: "distribution",
    about: "a user installs the package on a Debian, checks, enables, uses, upgrades, suspends, \
        reboots, removes and purges it; nothing is left behind",
    limit_s: 3_600,
    distribution: true,
    run,
    ..FULL_SPEED
};

/// One thing that a user does, and what must hold then.
struct Step {
    name: &'static str,
    run: fn(&Guest) -> Result<()>,
}

/// The steps of each start of the machine.
const BOOTS: [&[Step]; 2] = [
    &[
        Step { name: "the machine is up", run: machine::is_up },
        Step { name: "install", run: package::install },
        Step { name: "check", run: service::check },
        Step { name: "enable and start", run: service::enable },
        Step { name: "a load in slices and units", run: service::load },
        Step { name: "journal", run: service::journal },
        Step { name: "restart", run: service::restart },
        Step { name: "the worker is killed", run: service::worker_killed },
        Step { name: "the main process is killed", run: service::main_killed },
        Step { name: "suspend and resume", run: power::suspend },
        Step { name: "upgrade", run: package::upgrade },
    ],
    &[
        Step { name: "started with the machine", run: service::started },
        Step { name: "completions", run: completions::complete },
        Step { name: "the profile follows the desktop", run: follow::follows },
        Step { name: "Prometheus", run: metrics::collected },
        Step { name: "flags from /etc/default/scx", run: service::flags },
        Step { name: "stop", run: service::stop },
        Step { name: "every command of the pages", run: guide::follow },
        Step { name: "the sandbox of scx_loader", run: sandbox::runs },
        Step { name: "remove", run: package::remove },
        Step { name: "purge", run: package::purge },
    ],
];

/// Which start of the machine this is, on the disk. It is written before the steps, so that a
/// machine that starts by itself is noticed.
const STARTS: &str = "/var/tmp/vm-starts";
const REBOOT: &str = "reboot";

fn run(guest: &Guest) -> Result<()> {
    let before = fs::read_to_string(STARTS).unwrap_or_default();
    let number = match before.as_str() {
        "" => 0,
        REBOOT => 1,
        during => bail!("the machine started anew by itself during start {during}"),
    };
    fs::write(STARTS, (number + 1).to_string()).context("noting the start")?;
    for step in BOOTS[number] {
        report::progress(step.name);
        let start = Instant::now();
        (step.run)(guest).with_context(|| step.name)?;
        let seconds = start.elapsed().as_secs_f64();
        report::note(format!("{:36} {seconds:6.1} s", step.name));
    }
    if number + 1 < BOOTS.len() {
        fs::write(STARTS, REBOOT).context("noting the reboot")?;
        machine::reboot()?;
    }
    Ok(())
}

/// A file that was brought along.
fn brought(name: &str) -> std::path::PathBuf {
    Path::new(crate::guest::distribution::BROUGHT).join(name)
}
