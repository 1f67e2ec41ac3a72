// SPDX-License-Identifier: GPL-2.0-only

//! The policies: [`Pandemonium`], and what it is measured against.

mod classify;
mod pandemonium;
mod reference;
mod scaling;

pub use classify::{COMPOSITORS, COMPOSITORS_MAX, Classifier};
pub use pandemonium::Pandemonium;
pub use reference::{Dropping, Fifo, Ordering, Reference, Vruntime};
pub use scaling::Scaling;

use crate::engine::{Knobs, MachineView};
use crate::runqueue::Slot;
use crate::table::TaskTable;
use crate::task::{Dispatch, Placement, Request, Tier};
use crate::time::{Span, Vtime};

/// Most tasks a policy keeps track of, chosen so that its tables take less than half of the
/// 64 MiB that the production allocator has. Beyond it the task that has rested longest is
/// forgotten, and if all wait, messages stay in the kernel's ring until there is room.
pub const TASKS_MAX: u32 = 131_072;

/// Takes `slot` out of the table and turns what it asked for into a decision.
fn dispatch<T: Clone + Default>(
    table: &mut TaskTable<T>,
    slot: Slot,
    view: &MachineView,
    knobs: &Knobs,
    order: Order,
) -> Dispatch {
    let request = table.leave(slot);
    let (placement, preempt) = place(&request, view, knobs);
    Dispatch {
        pid: request.pid,
        ticket: request.ticket,
        placement,
        slice: order.slice,
        vtime: order.vtime,
        tier: order.tier,
        preempt,
    }
}

/// Where the task shall run, and whether somebody has to be interrupted for it there.
///
/// A CPU was interrupted for a wake-up, and we are running because of it, most likely there. The
/// CPU on which we decide is free when the round ends, so the task goes there if it may; else to
/// the CPU that was interrupted, which has to be interrupted again, since by now it has gone on
/// with what it had. A task nobody was interrupted for goes wherever a CPU is free, close to where
/// it ran, unless the knobs say that it belongs to one CPU.
fn place(request: &Request, view: &MachineView, knobs: &Knobs) -> (Placement, bool) {
    if let Some(kicked) = request.kicked {
        return match view.here {
            Some(here) if request.allowed.is_some_and(|allowed| allowed.contains(here)) => {
                (Placement::Cpu(here), false)
            }
            _ => (Placement::Cpu(kicked), true),
        };
    }
    if knobs.percpu_local && request.cpus_allowed == 1 {
        return (Placement::Cpu(request.cpu), false);
    }
    (Placement::Any { near: request.cpu }, false)
}

/// What a policy decides about a task besides where it goes.
struct Order {
    slice: Span,
    vtime: Vtime,
    tier: Tier,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::CpuSet;
    use crate::task::{CpuId, Pid, Ticket};

    fn cpu(number: i32) -> CpuId {
        CpuId::new(number).unwrap()
    }

    /// A task that ran on CPU 1 and may use CPUs 1 and 2.
    fn request(kicked: Option<i32>) -> Request {
        Request {
            pid: Pid::new(1).unwrap(),
            ticket: Ticket(2),
            cpu: cpu(1),
            cpus_allowed: 2,
            allowed: Some(CpuSet(0b110)),
            kicked: kicked.map(cpu),
        }
    }

    fn view(here: i32) -> MachineView {
        MachineView { cpus: 4, running: 4, here: Some(cpu(here)) }
    }

    #[test]
    fn a_task_somebody_was_interrupted_for_goes_where_we_decide_if_it_may() {
        let knobs = Knobs::default();
        let placed = |here| place(&request(Some(1)), &view(here), &knobs);
        assert_eq!(placed(2), (Placement::Cpu(cpu(2)), false));
        // We are on a CPU that it may not use: the interrupted one has to be interrupted again.
        assert_eq!(placed(3), (Placement::Cpu(cpu(1)), true));
        let unknown = Request { allowed: None, ..request(Some(1)) };
        assert_eq!(place(&unknown, &view(2), &knobs), (Placement::Cpu(cpu(1)), true));
    }

    #[test]
    fn all_others_go_where_a_cpu_is_free_unless_they_belong_to_one() {
        let local = Knobs { percpu_local: true, ..Knobs::default() };
        let bound = Request { cpus_allowed: 1, ..request(None) };
        let anywhere = (Placement::Any { near: cpu(1) }, false);
        assert_eq!(place(&request(None), &view(2), &local), anywhere);
        assert_eq!(place(&bound, &view(2), &Knobs::default()), anywhere);
        assert_eq!(place(&bound, &view(2), &local), (Placement::Cpu(cpu(1)), false));
    }
}
