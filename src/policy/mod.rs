// SPDX-License-Identifier: GPL-2.0-only

//! The policies: [`Pandemonium`], and what it is measured against.

mod behaviour;
mod classify;
mod fair;
mod famine;
mod known;
mod order;
mod pandemonium;
mod placement;
mod reference;
mod scaling;
mod slices;

pub use classify::{COMPOSITORS, Classifier, NAMES_MAX};
pub use order::LIGHT_WAIT;
pub use pandemonium::Pandemonium;
pub use reference::{Dropping, Fifo, Ordering, Reference, Vruntime};
pub use scaling::Scaling;

use crate::task::{Comm, Tier};
use crate::topology::{Domain, Topology};
use alloc::vec::Vec;

/// Most tasks a policy keeps track of, chosen so that its tables take less than half of
/// the 64 MiB that the production allocator has. Beyond it the task that has rested longest is
/// forgotten, and if all wait, messages stay in the kernel's ring until there is room.
pub const TASKS_MAX: u32 = 131_072;

/// What a policy is told once, at its start.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// How many CPUs limits are derived from.
    pub cpus: u32,
    /// Programs whose names begin so belong to a tier, whatever they do.
    pub names: Vec<(Comm, Tier)>,
    /// How the machine is built.
    pub topology: Topology,
    /// CPUs to prefer.
    pub domain: Option<Domain>,
}

impl Setup {
    /// A machine whose CPUs share nothing, and no wishes.
    pub fn of_cpus(cpus: u32) -> Setup {
        Setup { cpus, topology: Topology::flat(cpus), ..Setup::default() }
    }
}
