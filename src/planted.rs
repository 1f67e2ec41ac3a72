// SPDX-License-Identifier: GPL-2.0-only

//! Faults of the worker that tests plant.

use super::clock;
use clap::ValueEnum;
use pandemonium_engine::time::{Span, Stamp};
use std::time::Duration;

/// From the first round to the fault.
const AFTER: Span = Span::from_millis(2_000);
/// A year.
const FOR_EVER: Span = Span::from_millis(365 * 86_400_000);

/// What a worker does instead of its next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// It panics.
    Panic,
    /// It computes.
    Endless,
    /// It waits in the kernel.
    Blocked,
}

/// The faults of a worker: none, unless a test has asked for some.
pub struct Planted {
    /// The delay before every round.
    delay: Option<Duration>,
    fault: Option<Fault>,
    /// How long the fault lasts.
    lasts: Span,
    /// When the first round began.
    started: Option<Stamp>,
}

impl Planted {
    /// The fault lasts for ever if it is not said for how long.
    pub fn new(delay: Option<Duration>, fault: Option<Fault>, lasts: Option<Span>) -> Self {
        Planted { delay, fault, lasts: lasts.unwrap_or(FOR_EVER), started: None }
    }

    /// Called before every round.
    pub fn strike(&mut self) {
        if let Some(delay) = self.delay {
            std::thread::sleep(delay);
        }
        let Some(fault) = self.fault else { return };
        let begun = clock::now();
        if begun.since(*self.started.get_or_insert(begun)) < AFTER {
            return;
        }
        self.fault = None;
        match fault {
            Fault::Panic => panic!("a planted panic"),
            Fault::Endless => {
                while clock::now().since(begun) < self.lasts {
                    std::hint::spin_loop();
                }
            }
            Fault::Blocked => std::thread::sleep(Duration::from_nanos(self.lasts.as_nanos())),
        }
    }
}
