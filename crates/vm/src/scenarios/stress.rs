// SPDX-License-Identifier: GPL-2.0-only

//! The stressors of stress-ng for schedulers.

use crate::guest::scheduler::{self, Scheduler};
use crate::guest::{Guest, report};
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "race-sched",
        about: "stress-ng --race-sched for 12 s: affinities and policies change while tasks are \
            queued to user space",
        limit_s: 90,
        stress_ng: true,
        run: race_sched,
        ..USUAL
    },
    Scenario {
        name: "affinity",
        about: "the aggressive affinity stress of sched_ext's own CI, for 15 s instead of its 31",
        limit_s: 90,
        stress_ng: true,
        run: affinity,
        ..USUAL
    },
];

/// stress-ng stops its workers by signals and waits for each of them.
const GRACE_S: u64 = 20;

fn race_sched(guest: &Guest) -> Result<()> {
    let workers = (2 * guest.cpus).to_string();
    under_us(guest, 12, &["--race-sched", &workers])
}

fn affinity(guest: &Guest) -> Result<()> {
    let cpus = guest.cpus.to_string();
    let arguments = ["--aggressive", "-M", "-c", &cpus, "-f", &cpus];
    under_us(
        guest,
        15,
        &[&arguments[..], &["--affinity", "1", "--affinity-delay", "1", "--affinity-pin"]].concat(),
    )
}

/// stress-ng must exit with 0, and the scheduler must still be in charge.
fn under_us(guest: &Guest, seconds: u64, arguments: &[&str]) -> Result<()> {
    let scheduler = Scheduler::start(guest, &[])?;
    report::progress(format!("stress-ng {} for {seconds} s", arguments.join(" ")));
    let mut stress = Command::new("/bin/stress-ng")
        .args(["--timeout", &seconds.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting stress-ng")?;
    let Some(status) =
        scheduler::wait_with_limit(&mut stress, Duration::from_secs(seconds + GRACE_S))?
    else {
        scheduler.expect_in_charge()?;
        bail!("stress-ng still runs {GRACE_S} s after its time");
    };
    let mut errors = String::new();
    stress.stderr.take().context("stderr is piped")?.read_to_string(&mut errors)?;
    errors.lines().for_each(report::log);
    scheduler.expect_in_charge()?;
    ensure!(
        status.success(),
        "stress-ng ended with {status}: {}",
        errors.trim().replace('\n', " | ")
    );
    scheduler.finish().map(drop)
}
