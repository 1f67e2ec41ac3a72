// SPDX-License-Identifier: GPL-2.0-only

//! A scheduler and a lab that a stranger built with a policy of their own: `tests/stranger.rs`.

use super::control::ask;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, report, watch};
use crate::protocol::Orders;
use crate::scenario::{Scenario, USUAL};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

pub const ALL: &[Scenario] = &[Scenario {
    name: "stranger",
    about: "a policy written by `pandemonium_lab new` schedules: `tune` turns its knob, `explain` \
        answers in its words, and its lab replays what was recorded",
    limit_s: 120,
    once: true,
    run: stranger,
    ..USUAL
}];

/// The programs that `tests/stranger.rs` leaves beside ours.
pub const PROGRAMS: [&str; 2] = ["shortest", "shortest_lab"];
const FILE: &str = "/tmp/stranger.rec";

fn stranger(guest: &Guest) -> Result<()> {
    let [program, lab] = PROGRAMS;
    let missing = "run `cargo test --release -p scx_pandemonium_user --test stranger` first";
    ensure!(Path::new("/bin").join(program).exists(), "there is no stranger's program: {missing}");
    let orders = Orders { scheduler: program.into(), ..guest.orders.clone() };
    let guest = &Guest { orders, ..*guest };
    let scheduler = Scheduler::start(guest, &["--record", FILE])?;
    let mut plan = vec![Kind::Hog; 2 * guest.cpus];
    plan.extend([Kind::Sleeper { pause_us: 3_000 }, Kind::PipePair, Kind::Forker]);
    let load = Load::start(&plan)?;
    watch::every_worker_moves(&load, 4, |_| scheduler.expect_in_charge())?;
    let said = ask(guest, &["tune", "brief_us=300"])?;
    ensure!(said.contains("brief_us=300"), "its knob: {said}");
    let hog = load.workers().first().context("it was started above")?.pid.to_string();
    let said = ask(guest, &["explain", &hog, "--for", "1"])?;
    report::note(said.trim());
    ensure!(said.contains("usually runs for"), "its words: {said}");
    drop(load);
    scheduler.finish()?;
    let replay = Command::new(Path::new("/bin").join(lab)).args(["replay", FILE]).output()?;
    let said = String::from_utf8_lossy(&replay.stdout);
    report::note(said.lines().nth(1).unwrap_or_default());
    let right = replay.status.success() && said.contains("shortest repeats every one of them");
    ensure!(
        right,
        "the replay: {} {said} {}",
        replay.status,
        String::from_utf8_lossy(&replay.stderr)
    );
    Ok(())
}
