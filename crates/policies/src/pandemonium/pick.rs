// SPDX-License-Identifier: GPL-2.0-only

//! Which of the waiting tasks is dispatched next.

use super::Pandemonium;
use super::dispatch_order::{Choice, Group, LOW_WEIGHT_WAIT, Situation, choose};
use super::placement::PlacementContext;
use pandemonium_engine::runqueue::Slot;
use pandemonium_engine::task::{Reason, Tier};
use pandemonium_engine::time::{Span, Stamp};

impl Pandemonium {
    /// How long a waiting task's turn takes to come: a task that waits for longer is neglected, and
    /// every rescue follows from the time beyond. A task above Batch waits for a slice of each task
    /// above Batch, spread over the CPUs. A Batch task waits besides for the Batch slice, scaled by
    /// the weight of all Batch tasks over its own, spread over the CPUs; at most
    /// [`LOW_WEIGHT_WAIT`].
    fn turn(&self, slot: Slot, group: Group) -> Span {
        let cpus = u64::from(self.limits.cpus);
        let urgent = self.waiting_in(Tier::LatCritical) + self.waiting_in(Tier::Interactive);
        let urgent_turn = self.knobs.slice.scale(urgent as u64, cpus);
        if group == Group::Urgent {
            return urgent_turn;
        }
        let contenders = self.waiting_weight[Tier::Batch.index()] + cpus * self.batch_weight;
        let weight = u64::from(self.table.data(slot).effective_weight.max(1));
        urgent_turn + self.knobs.batch_slice.scale(contenders, weight * cpus).min(LOW_WEIGHT_WAIT)
    }

    /// How long the longest waiting task of a group has waited.
    pub(super) fn longest_wait(&self, now: Stamp, group: Group) -> Option<Span> {
        let oldest = self.table.oldest_of(group.class())?;
        Some(self.table.waited(oldest, now))
    }

    /// For how long beyond its turn the longest waiting task of a group waits.
    pub(super) fn age(&self, now: Stamp, group: Group) -> Option<Span> {
        let oldest = self.table.oldest_of(group.class())?;
        Some(self.table.waited(oldest, now) - self.turn(oldest, group))
    }

    /// Which tasks wait, and for how long beyond their turn. That of a low-weight task is long
    /// because others use the CPUs: it has come if one is free.
    fn situation(&self, context: &PlacementContext) -> Situation {
        let mut ages = Group::ALL.map(|group| self.age(context.now, group));
        let has_free_cpu = context.view.has_free_cpu();
        if has_free_cpu {
            ages[Group::LowWeight as usize] = self.longest_wait(context.now, Group::LowWeight);
        }
        let waits = Tier::ALL.map(|tier| self.waiting_in(tier) > 0);
        Situation { waits, ages, has_free_cpu }
    }

    /// Picks the next task and the reason. Changes nothing.
    pub(super) fn pick(&self, context: &PlacementContext) -> Option<(Slot, Reason)> {
        let oldest = self.table.oldest()?;
        if self.knobs.rules.fifo_mode && context.view.running < context.view.cpus {
            return Some((oldest, Reason::Fifo));
        }
        let situation = self.situation(context);
        let (choice, reason) =
            choose(&situation, &self.turns, context.mode, &self.limits, &self.knobs)?;
        let slot = match choice {
            Choice::First(Tier::LatCritical) => {
                self.queues[Tier::LatCritical.index()].peek().map(|(slot, _)| slot)
            }
            Choice::First(tier) => {
                let last_cpu = |slot| self.table.request(slot).map(|request| request.cpu);
                self.placer.nearest(&self.queues[tier.index()], context, last_cpu)
            }
            Choice::Oldest(group) => self.table.oldest_of(group.class()),
        };
        slot.map(|slot| (slot, reason))
    }
}
