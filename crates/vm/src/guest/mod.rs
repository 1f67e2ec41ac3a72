// SPDX-License-Identifier: GPL-2.0-only

//! What scenarios are made of: loads, measurements, the scheduler under test, and the machine
//! around them.

mod autopsy;
pub mod boot;
pub mod crowd;
pub mod distribution;
pub mod kernel;
pub mod memory;
pub mod metronome;
pub mod processes;
pub mod quiet;
pub mod report;
pub mod scheduler;
pub mod statistics;
pub mod swap;
pub mod terminal;
pub mod wait;
pub mod watch;
pub mod witness;

use crate::protocol::Orders;
pub use pandemonium_probe::tasks::{
    burst, changes, clock, family, frames, futex, lives, load, probe, round_trips, wakeups, work,
};

/// What a scenario receives.
pub struct Guest {
    pub orders: Orders,
    pub cpus: usize,
    /// In exact mode.
    pub instruction_ns: u32,
}
