// SPDX-License-Identifier: GPL-2.0-only

//! The backend decides while the scheduler process does not: `backend_patches/stalled.h` and
//! `not_deciding.h`.

use super::limits::{DEFAULT_SLICE, STALL_CHECK, STALL_CHECKS, WAKEUP_LEAD};
use super::rules::key_by_weight;
use super::state::{Kick, Stage, Where};
use super::{Machine, Plan};
use crate::observer::{Event, Observer};
use crate::workload::weight_of_nice;

/// From the last round to the begin of a stall: one check more than it takes, at the latest.
const NOTICED_AFTER: u64 = (STALL_CHECKS as u64 + 1) * STALL_CHECK;
/// `SCX_ENQ_WAKEUP`.
const WAKEUP: u64 = 1;

impl<W: Observer> Machine<W> {
    /// The process stops: plans when the backend notices, unless the process runs again sooner.
    pub(super) fn plan_stall(&mut self) {
        let round = self.counters.rounds;
        self.event_queue.add(self.now + NOTICED_AFTER, Plan::Stall { round });
    }

    /// The backend notices that no round has ended since that one. It queues all tasks that wait
    /// in user space, and each CPU looks for them.
    pub(super) fn stall(&mut self, round: u64) {
        if self.scheduler.stage != Stage::Frozen || self.counters.rounds != round {
            return;
        }
        self.scheduler.is_stalled = true;
        for slot in 0..self.tasks.len() as u32 {
            if self.tasks[slot as usize].place == Where::UserSpace {
                self.queue_by_time(slot, 0, 0);
            }
        }
        (0..self.setup.shape.cpus).for_each(|cpu| self.kick_cpu(cpu, Kick::Preempt));
    }

    /// `patch_queue_by_time`: queues a task that ran for so long before without the policy, in the
    /// order of time.
    pub(super) fn queue_by_time(&mut self, slot: u32, ran: u64, flags: u64) {
        let task = self.task(slot);
        let (mask, last, nice) = (task.mask, task.vtime, task.nice);
        let key = match flags & WAKEUP {
            0 => key_by_weight(&mut self.turn, last, self.now, ran, weight_of_nice(nice)),
            _ => self.now.saturating_sub(self.turn + WAKEUP_LEAD),
        };
        self.insert(slot, None, DEFAULT_SLICE, key);
        self.counters.direct += 1;
        let task = self.id(slot);
        self.emit(Event::Congested { task });
        if let Some(cpu) = self.idle.find(0, |cpu| mask.holds(cpu)) {
            self.idle.remove(cpu);
            self.kick_cpu(cpu, Kick::Idle);
        }
    }
}
