// SPDX-License-Identifier: GPL-2.0-only

//! Mechanism: what carries messages between a scheduler and the tasks it schedules.

use crate::orders::Bounds;
use crate::task::{Arrival, CpuId, Dispatch};
use crate::topology::CpuMask;

/// The port has no space for a dispatch now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a policy may know about the machine beyond the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineView {
    /// CPUs online.
    pub cpus: u32,
    /// CPUs that run a task of ours at the moment.
    pub running: u32,
    /// The CPU on which we are deciding. It is free as soon as the round ends.
    pub here: Option<CpuId>,
    /// CPUs that run nothing, as far as that is known.
    pub idle: CpuMask,
    /// CPUs that run a task of ours, as far as that is known.
    pub busy: CpuMask,
    /// The deficit that orders made so far: those executed while Batch work waited for a decision.
    /// Wraps.
    pub order_deficit: u32,
    /// Decided tasks that wait in the shared queue, as far as the CPU on which we are deciding may
    /// run one of them.
    pub queued: u32,
}

impl MachineView {
    /// Nothing is known of the machine.
    pub const NONE: MachineView = MachineView {
        cpus: 0,
        running: 0,
        here: None,
        idle: CpuMask::EMPTY,
        busy: CpuMask::EMPTY,
        order_deficit: 0,
        queued: 0,
    };

    /// Whether a CPU runs no task of ours, besides the one on which we are deciding.
    pub fn has_free_cpu(&self) -> bool {
        self.running + u32::from(self.here.is_some()) < self.cpus
    }
}

/// Mechanism: the kernel, or something that behaves like it.
pub trait Port {
    /// The next task that waits, decoded. Malformed messages were counted and skipped.
    fn recv(&mut self) -> Option<Arrival>;
    /// Hands a decision over, or refuses it without effect.
    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full>;
    /// Kicks `cpu` with preemption. Does nothing if the port cannot.
    fn kick(&mut self, cpu: CpuId);
    /// Publishes the bounds on orders, `None` to execute none.
    fn publish(&mut self, _bounds: Option<&Bounds>) {}
    /// The machine as it is now.
    fn view(&self) -> &MachineView;
}
