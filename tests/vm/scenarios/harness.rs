//! The harness tests itself: an outcome that it could not tell apart would hide every other failure.

use crate::guest::{Guest, kernel, report};
use crate::scenario::{Expect, Scenario};
use anyhow::{Result, bail};
use std::time::Duration;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "self-fails",
        about: "the guest reports a failure; the harness must say that it failed, with the guest's reason",
        cpus: None,
        limit_s: 60,
        expect: Expect::Fail(&["on purpose"]),
        stress_ng: false,
        run: fails,
    },
    Scenario {
        name: "self-panics",
        about: "the guest agent panics; that is a failure with the panic's message, not a dead guest",
        cpus: None,
        limit_s: 60,
        expect: Expect::Fail(&["the guest agent panicked: on purpose"]),
        stress_ng: false,
        run: panics,
    },
    Scenario {
        name: "self-dies",
        about: "the kernel panics; the harness must say that the guest died, with the kernel's last words",
        cpus: None,
        limit_s: 60,
        expect: Expect::Die,
        stress_ng: false,
        run: dies,
    },
    Scenario {
        name: "self-hangs",
        about: "the guest never answers; the harness must kill it and say that it timed out",
        cpus: None,
        limit_s: 15,
        expect: Expect::TimeOut,
        stress_ng: false,
        run: hangs,
    },
];

fn fails(_: &Guest) -> Result<()> {
    bail!("on purpose")
}

fn panics(_: &Guest) -> Result<()> {
    panic!("on purpose")
}

fn dies(_: &Guest) -> Result<()> {
    report::progress("crashing the kernel");
    if kernel::sysrq('c') {
        std::thread::sleep(Duration::from_secs(10));
    }
    bail!("the kernel survived its crash key")
}

fn hangs(_: &Guest) -> Result<()> {
    report::progress("hanging on purpose");
    loop {
        std::thread::park();
    }
}
