// SPDX-License-Identifier: GPL-2.0-only

//! Stranded tasks: dispatched by a round, and still queued when the scheduler process has left its
//! CPU. `src/bpf/stranded.bpf.h`.

use super::Machine;
use super::fast_path::rank;
use super::limits::{ROUND, SCAN, STRANDED};
use super::state::Where;
use super::watch::Waiter;
use crate::observer::Observer;
use pandemonium_engine::task::{Dispatch, Tier};

impl<W: Observer> Machine<W> {
    /// Notes a dispatched task, to check after the round whether it is stranded.
    pub(super) fn look_after(&mut self, dispatch: &Dispatch) {
        if !self.setup.fast_path || dispatch.tier == Tier::Batch {
            return;
        }
        if self.decided.len() == ROUND {
            self.decided.remove(0);
        }
        self.decided.push(dispatch.pid);
    }

    /// The scheduler process has left this CPU: watch the dispatched tasks that are still queued.
    pub(super) fn watch_stranded(&mut self, cpu: u32) {
        let decided = core::mem::take(&mut self.decided);
        if !self.kicks_are_on() || !self.has_preemptible_cpu() {
            return;
        }
        for pid in decided {
            let Some(slot) = self.slot_of(pid) else { continue };
            let task = &self.tasks[slot as usize];
            let (place, since) = (task.place, task.woken.max(task.stopped));
            if !matches!(place, Where::Shared | Where::Queue(_)) {
                continue;
            }
            let due = self.now + STRANDED;
            self.watch_one(cpu, Waiter { pid, since, due, kicks: 0, lower_only: true });
        }
    }

    /// Whether a CPU is idle or runs a Batch task.
    fn has_preemptible_cpu(&self) -> bool {
        let mut cpus = self.cpus.iter().take(SCAN as usize);
        cpus.any(|cpu| self.rank_of(cpu.seen.current) <= rank(Tier::Batch))
    }
}
