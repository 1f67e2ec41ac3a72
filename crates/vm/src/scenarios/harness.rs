// SPDX-License-Identifier: GPL-2.0-only

//! The harness tests itself: if it confused two outcomes, it would hide failures of the other
//! scenarios.

use crate::guest::load::{Kind, Load};
use crate::guest::{Guest, kernel, report};
use crate::scenario::{Expect, Scenario, USUAL};
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "self-fails",
        about: "the guest reports a failure: the harness must report it with the guest's reason",
        expect: Expect::Fail(&["on purpose"]),
        once: true,
        run: |_| bail!("on purpose"),
        ..USUAL
    },
    Scenario {
        name: "self-panics",
        about: "the guest agent panics: the harness must report a failure with the panic's \
            message, not a dead guest",
        expect: Expect::Fail(&["the guest agent panicked: on purpose"]),
        once: true,
        run: |_| panic!("on purpose"),
        ..USUAL
    },
    Scenario {
        name: "self-recovers",
        about: "the guest fails once and then passes: the harness must try it again, and report \
            both",
        expect: Expect::PassAgain,
        once: true,
        run: recovers,
        ..USUAL
    },
    Scenario {
        name: "self-ghost",
        about: "the kernel dies of a breakpoint that is not in its memory, a fault of QEMU's \
            threads: the harness must try again, at last with one thread",
        expect: Expect::PassAgain,
        once: true,
        run: dies_of_an_absent_breakpoint,
        ..USUAL
    },
    Scenario {
        name: "self-warns",
        about: "the guest passes, but its kernel printed a warning: the harness must report a \
            failure",
        expect: Expect::Fail(&["the kernel warned"]),
        once: true,
        run: warns,
        ..USUAL
    },
    Scenario {
        name: "self-dies",
        about: "the kernel panics: the harness must report a dead guest, with the kernel's last \
            lines",
        expect: Expect::Die,
        once: true,
        run: dies,
        ..USUAL
    },
    Scenario {
        name: "self-hangs",
        about: "the guest never answers: the harness must kill it and report a timeout",
        limit_s: 10,
        expect: Expect::TimeOut,
        once: true,
        run: hangs,
        ..USUAL
    },
    Scenario {
        name: "even-cpus",
        about: "two hogs in exact mode, each bound to a CPU of its own: the emulator must give \
            both about the same time",
        cpus: Some(2),
        exact: true,
        once: true,
        run: shares_evenly,
        ..USUAL
    },
];

fn recovers(guest: &Guest) -> Result<()> {
    ensure!(guest.orders.detail == "2", "on purpose, at the first try");
    Ok(())
}

fn dies_of_an_absent_breakpoint(guest: &Guest) -> Result<()> {
    if guest.orders.detail == "2" {
        return Ok(());
    }
    for line in ["Oops: int3: 0000 [#1] SMP NOPTI", "Code: 0f 84 6c 0a 00 00 e9 <d5> 04 00"] {
        let line = format!("<1>{line}");
        std::fs::write("/dev/kmsg", line).context("writing to the kernel's log")?;
    }
    dies(guest)
}

fn warns(_: &Guest) -> Result<()> {
    std::fs::write("/dev/kmsg", "<4>WARNING: on purpose").context("writing to the kernel's log")
}

fn dies(_: &Guest) -> Result<()> {
    report::progress("crashing the kernel");
    if kernel::sysrq('c') {
        std::thread::sleep(Duration::from_secs(10));
    }
    bail!("the kernel survived the crash key")
}

fn hangs(_: &Guest) -> Result<()> {
    report::progress("hanging on purpose");
    loop {
        std::thread::park();
    }
}

/// The least work of a CPU by the most. With two CPUs it is 0.91; it was 0.59 while all timers of
/// the metronome were equally far apart.
const LEAST_SHARE: f64 = 0.8;

fn shares_evenly(guest: &Guest) -> Result<()> {
    let hogs: Vec<Kind> = (0..guest.cpus).map(|cpu| Kind::PinnedHog { cpu }).collect();
    let load = Load::start(&hogs)?;
    // After the boot the kernel still works for a while, on one of the CPUs.
    std::thread::sleep(Duration::from_secs(3));
    let work = load.steps_in(Duration::from_secs(1));
    report::note(format!("work in a second, by CPU: {work:?}"));
    let (least, most) = (work.iter().min(), work.iter().max());
    let (least, most) = least.zip(most).context("there are no CPUs")?;
    let share = *least as f64 / *most as f64;
    ensure!(share >= LEAST_SHARE, "a CPU got {share:.2} of the time of another one: {work:?}");
    Ok(())
}
