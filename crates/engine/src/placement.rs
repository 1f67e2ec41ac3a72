// SPDX-License-Identifier: GPL-2.0-only

//! Where a task goes by its own request: what a policy says that has no view of its own on that.

use crate::port::MachineView;
use crate::task::{CpuId, Placement, Request};

/// What may be done to place a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceRules {
    /// A running task may be interrupted.
    pub preempt: bool,
    /// A task that may run on one CPU only goes into that CPU's own queue.
    pub bound_local: bool,
}

impl Default for PlaceRules {
    fn default() -> Self {
        PlaceRules { preempt: true, bound_local: false }
    }
}

/// Where the task goes, and whether a CPU must be interrupted for it there.
///
/// If the fast path interrupted a CPU for the wakee, the scheduler process runs because of that,
/// most likely on that CPU. The CPU on which it decides is free when the round ends, so the task
/// goes there if it may; else to the interrupted CPU, which must be interrupted again, since by now
/// it went on with another task. Any other task goes wherever a CPU is free, close to where it ran.
pub fn usual_place(request: &Request, view: &MachineView, rules: PlaceRules) -> (Placement, bool) {
    if let Some(kicked) = request.kicked {
        return match view.here.filter(|here| may_use(request, *here)) {
            Some(here) => (Placement::Cpu(here), false),
            None => (Placement::Cpu(kicked), rules.preempt),
        };
    }
    if rules.bound_local && request.cpus_allowed == 1 {
        return (Placement::Cpu(request.cpu), false);
    }
    (Placement::Any { near: request.cpu }, false)
}

/// Whether the task may run on the CPU, as far as its mask is known.
pub fn may_use(request: &Request, cpu: CpuId) -> bool {
    request.allowed.is_some_and(|allowed| allowed.contains(cpu))
}
