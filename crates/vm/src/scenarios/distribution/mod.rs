// SPDX-License-Identifier: GPL-2.0-only

//! What a user does with the package, on a whole Debian, and what systemd does with a scheduler
//! that crashes.
//!
//! The steps build on each other, so the first one that fails ends the scenario.

mod machine;
mod package;
mod service;

use crate::guest::{Guest, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Instant;

/// The scheduler's package, where the scenario finds what it brought along.
pub const PACKAGE: &str = "package.deb";

pub const DISTRIBUTION: Scenario = Scenario {
    name: "distribution",
    about: "a user installs the package on a Debian, checks, enables and uses it; systemd starts \
        it again, later and later, when it is killed",
    limit_s: 3_600,
    distribution: true,
    run,
    ..USUAL
};

/// One thing that a user does, and what must hold then.
struct Step {
    name: &'static str,
    run: fn(&Guest) -> Result<()>,
}

const STEPS: [Step; 9] = [
    Step { name: "the machine is up", run: machine::is_up },
    Step { name: "install", run: package::install },
    Step { name: "check", run: service::check },
    Step { name: "enable and start", run: service::enable },
    Step { name: "a load in slices and units", run: service::load },
    Step { name: "journal", run: service::journal },
    Step { name: "restart", run: service::restart },
    Step { name: "the worker is killed", run: service::worker_killed },
    Step { name: "the main process is killed", run: service::main_killed },
];

fn run(guest: &Guest) -> Result<()> {
    for step in STEPS {
        report::progress(step.name);
        let start = Instant::now();
        (step.run)(guest).with_context(|| step.name)?;
        let seconds = start.elapsed().as_secs_f64();
        report::note(format!("{:36} {seconds:6.1} s", step.name));
    }
    Ok(())
}

/// A file that was brought along.
fn brought(name: &str) -> std::path::PathBuf {
    Path::new(crate::guest::distribution::BROUGHT).join(name)
}
