// SPDX-License-Identifier: GPL-2.0-only

//! Coming and going.

use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result};
use std::time::Duration;

/// Decides whether a kernel is good for anything; run once for each kernel that is fetched.
pub const KERNEL_CHECK: Scenario = Scenario {
    name: "kernel-check",
    about: "load the scheduler once, whatever it does then",
    run: |guest| Scheduler::start(guest, &[]).map(drop),
    ..USUAL
};

pub const ALL: &[Scenario] = &[Scenario {
    name: "reload",
    about: "load and unload ten times: each time the kernel runs under us, then by itself, and we \
        exit with 0",
    limit_s: 90,
    run: reload,
    ..USUAL
}];

fn reload(guest: &Guest) -> Result<()> {
    for round in 1..=10 {
        report::progress(format!("round {round} of 10"));
        kernel::wait_for_state("disabled", Duration::from_secs(5))?;
        Scheduler::start(guest, &[])
            .and_then(Scheduler::finish)
            .with_context(|| format!("in round {round} of 10"))?;
    }
    Ok(())
}
