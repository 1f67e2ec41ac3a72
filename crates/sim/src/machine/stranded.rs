// SPDX-License-Identifier: GPL-2.0-only

//! Those for whom a round decided, and who still wait when it is over: `src/bpf/leftover.bpf.h`.

use super::Machine;
use super::fast_path::rank;
use super::limits::{ROUND, SCAN, STRANDED};
use super::state::Where;
use super::watch::Waiter;
use crate::observer::Observer;
use pandemonium_engine::task::{Dispatch, Tier};

impl<W: Observer> Machine<W> {
    /// The policy has decided for a task, which shall not be left waiting when the round is over.
    pub(super) fn look_after(&mut self, dispatch: &Dispatch) {
        if !self.setup.fast_path || dispatch.tier == Tier::Batch {
            return;
        }
        if self.decided.len() == ROUND {
            self.decided.remove(0);
        }
        self.decided.push(dispatch.pid);
    }

    /// The scheduler process has left this CPU.
    pub(super) fn watch_left_overs(&mut self, cpu: u32) {
        let decided = core::mem::take(&mut self.decided);
        if !self.kicks_are_on() || !self.somebody_could_give_way() {
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

    /// Whether there is a CPU that runs nobody urgent.
    fn somebody_could_give_way(&self) -> bool {
        let mut cpus = self.cpus.iter().take(SCAN as usize);
        cpus.any(|cpu| self.rank_of(cpu.seen.current) <= rank(Tier::Batch))
    }
}
