// SPDX-License-Identifier: GPL-2.0-only

//! The policies: [`Pandemonium`], and what it is measured against.

mod classify;
mod pandemonium;
mod reference;
mod scaling;

pub use classify::{COMPOSITORS, COMPOSITORS_MAX, Classifier};
pub use pandemonium::Pandemonium;
pub use reference::{Dropping, Fifo, Order, Reference, Vruntime};
pub use scaling::Scaling;

use crate::engine::Knobs;
use crate::runqueue::Slot;
use crate::table::TaskTable;
use crate::task::{Dispatch, Placement};
use crate::time::{Span, Vtime};

/// Most tasks a policy keeps track of, chosen so that its tables take less than half of the
/// 64 MiB that the production allocator has. Beyond it the task that has rested longest is
/// forgotten, and if all wait, messages stay in the kernel's ring until there is room.
pub const TASKS_MAX: u32 = 131_072;

/// Takes `slot` out of the table and turns its arrival into a decision: wherever a CPU is free,
/// close to where the task ran, unless the knobs say that it belongs to one CPU.
fn dispatch<T: Clone + Default>(
    table: &mut TaskTable<T>,
    slot: Slot,
    knobs: &Knobs,
    slice: Span,
    vtime: Vtime,
) -> Dispatch {
    let arrival = table.leave(slot);
    let bound = knobs.percpu_local && arrival.cpus_allowed == 1;
    let placement =
        if bound { Placement::Cpu(arrival.cpu) } else { Placement::Any { near: arrival.cpu } };
    Dispatch { pid: arrival.pid, ticket: arrival.ticket, placement, slice, vtime, preempt: false }
}
