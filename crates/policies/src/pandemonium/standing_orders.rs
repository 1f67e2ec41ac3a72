// SPDX-License-Identifier: GPL-2.0-only

//! Standing orders, and the bounds within which the backend executes them.

use super::Pandemonium;
use super::dispatch_order::{Group, budget};
use super::dsq_key::key_offset;
use super::fair::ordinary_batch_weight;
use super::known::Rank;
use pandemonium_engine::orders::{Bounds, Order};
use pandemonium_engine::task::{Dispatch, Tier};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::{Policy, StandingOrders};

/// The highest tier of which so many tasks wait, with those of higher tiers, that orders would take
/// the CPUs which these need. Each of a few urgent tasks that wait among many CPUs has interrupted
/// a CPU of its own, and a Batch task gets the CPU whose slice ends next: soon, among many.
/// `waiting` counts the waiting tasks by tier, LatCritical first.
fn crowding_tier(waiting: [usize; 3], cpus: u32) -> Option<Tier> {
    let [lat_critical, interactive, batch] = waiting.map(|tasks| tasks as u64);
    let crowds = |tasks: u64| tasks > 0 && tasks + LEFT > cpus.into();
    match () {
        () if crowds(lat_critical) => Some(Tier::LatCritical),
        () if crowds(lat_critical + interactive) => Some(Tier::Interactive),
        () if crowds(batch.min(1)) => Some(Tier::Batch),
        () => None,
    }
}

/// Orders are executed while so many CPUs are left besides those for the waiting tasks. On as many
/// or fewer CPUs one waiting task holds up all orders of its tier.
const LEFT: u64 = 4;

impl StandingOrders for Pandemonium {
    /// A task above Batch whose behaviour is known gets an order for its wakeups. An unknown task
    /// may turn out to be anything. A Batch task of ordinary weight gets one for further slices:
    /// equal tasks take turns, and tasks of other weights are ordered by virtual time. A task that
    /// forks is judged at each message, and one with a domain is placed at each.
    fn order(&self, _now: Stamp, decision: &Dispatch) -> Option<Order> {
        let task = self.table.data(self.table.find(decision.pid)?);
        let is_ordinary = u64::from(task.effective_weight) == ordinary_batch_weight();
        // A wakee has not run since it slept; a Batch task will have used up its slice.
        let rank = if decision.tier > Tier::Batch { Rank::First } else { Rank::Last };
        let key_offset = key_offset(decision.slice, decision.tier, rank, &self.limits, &self.knobs);
        match decision.tier {
            _ if task.behaviour.forks.count() > 0 => None,
            _ if self.assigned.domain(task.classification.treatment).is_some() => None,
            Tier::Batch if !is_ordinary => None,
            Tier::Batch => Some(Order::batch(key_offset)),
            Tier::Interactive | Tier::LatCritical => {
                task.behaviour.is_known().then(|| Order::usual(key_offset))
            }
        }
    }

    /// Orders may pass waiting Batch work until it is due, and then as often as the deficit allows.
    /// A change of mode ends all orders, one of knobs those of Batch tasks, and others soon.
    fn bounds(&self, now: Stamp) -> Bounds {
        let mode = self.mode(now);
        let tiers = [Tier::LatCritical, Tier::Interactive, Tier::Batch];
        let waiting = tiers.map(|tier| self.queues[tier.index()].len());
        let thresh = self.knobs.sojourn_thresh;
        let age = self.batch_waits().then(|| self.age(now, Group::Batch).unwrap_or_default());
        Bounds {
            epoch: self.tunings << 2 | u32::from(mode.burst) << 1 | u32::from(mode.longrun),
            waiting: crowding_tier(waiting, self.limits.cpus),
            batch_due: age.map(|age| now + (thresh - age)),
            deficit_left: budget(mode, &self.limits).saturating_sub(self.turns.deficit),
        }
    }
}

impl Pandemonium {
    /// Adds the orders that were executed while Batch work waited to the deficit, like decisions
    /// for urgent tasks. `order_deficit` counts all such orders so far.
    pub(super) fn charge_deficit(&mut self, order_deficit: u32) {
        let new = order_deficit.wrapping_sub(self.order_deficit);
        self.order_deficit = order_deficit;
        if self.batch_waits() {
            self.turns.deficit = self.turns.deficit.saturating_add(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::Scaling;

    #[test]
    fn on_few_cpus_one_waiting_task_counts_and_on_many_a_crowd_of_urgent_ones() {
        for (cpus, waiting, crowd) in [
            (1, [0, 0, 1], Some(Tier::Batch)),
            (4, [0, 0, 1], Some(Tier::Batch)),
            (4, [0, 1, 1], Some(Tier::Interactive)),
            (4, [0, 0, 0], None),
            (5, [1, 0, 5], None),
            (5, [2, 0, 5], Some(Tier::LatCritical)),
            (8, [2, 2, 8], None),
            (8, [2, 3, 8], Some(Tier::Interactive)),
            (1024, [1000, 20, 1024], None),
            (1024, [1000, 21, 1024], Some(Tier::Interactive)),
        ] {
            let limits = Scaling::new(cpus);
            assert_eq!(crowding_tier(waiting, limits.cpus), crowd, "{waiting:?} on {cpus} CPUs");
        }
    }
}
