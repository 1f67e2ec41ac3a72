// SPDX-License-Identifier: GPL-2.0-only

//! No program reads what the scheduler prints.

use super::hotplug::restart_at;
use crate::guest::load::{Kind, Load};
use crate::guest::scheduler::Scheduler;
use crate::guest::{Guest, kernel, watch};
use crate::scenario::{Scenario, USUAL};
use anyhow::Result;
use std::thread::sleep;
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "unread",
        about: "the scheduler prints into a full pipe: it restarts for a CPU that comes online, \
            and ends at a signal",
        limit_s: 60,
        once: true,
        run: unread,
        ..USUAL
    },
    Scenario {
        name: "no-reader",
        about: "the scheduler prints and warns into closed pipes: it restarts for a CPU that comes \
            online, and ends at a signal",
        limit_s: 60,
        once: true,
        run: no_reader,
        ..USUAL
    },
];

/// In this time it prints forty lines. A pipe of one page is full after twenty.
const FILLED: Duration = Duration::from_secs(4);

fn no_reader(guest: &Guest) -> Result<()> {
    // Without a part of the fast path it warns.
    let warns = ["--break-fast-path", "new-tasks"];
    restart_unheard(guest, Scheduler::start_without_readers, &warns, Duration::ZERO)
}

fn unread(guest: &Guest) -> Result<()> {
    restart_unheard(guest, Scheduler::start_unread, &[], FILLED)
}

/// A scheduler that prints ten lines a second, for `prints`, starts again for a CPU that comes
/// online, as it does with a domain.
fn restart_unheard(
    guest: &Guest,
    start: fn(&Guest, &[&str]) -> Result<Scheduler>,
    arguments: &[&str],
    prints: Duration,
) -> Result<()> {
    let arguments = [&["--stats", "0.1", "--primary-domain", "0"], arguments].concat();
    let last = guest.cpus - 1;
    kernel::set_online(last, false)?;
    let scheduler = start(guest, &arguments)?;
    let load = Load::start(&vec![Kind::Hog; 2 * guest.cpus])?;
    sleep(prints);
    restart_at(&scheduler, last, true)?;
    watch::every_worker_moves(&load, 2, |_| scheduler.expect_in_charge())?;
    drop(load);
    scheduler.finish().map(drop)
}
