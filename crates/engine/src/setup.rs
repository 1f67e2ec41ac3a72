// SPDX-License-Identifier: GPL-2.0-only

//! What a policy is told once, at its start.

use crate::task::{Comm, Tier};
use crate::topology::{Domain, Topology};
use alloc::vec::Vec;

/// Most tasks a policy keeps track of, chosen so that its tables take less than half of
/// the 64 MiB that the production allocator has. Beyond it the task that has rested longest is
/// forgotten, and if all wait, messages stay in the kernel's ring until there is room.
pub const TASKS_MAX: u32 = 131_072;

/// Most names with a tier of their own, the built-in ones included. Each is compared when a task
/// appears or changes its name.
pub const NAMES_MAX: usize = 64;

/// What a policy is told once, at its start.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// How many CPUs limits are derived from.
    pub cpus: u32,
    /// Beginnings of program names, and the tier of those programs whatever they do.
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
