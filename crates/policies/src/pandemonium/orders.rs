// SPDX-License-Identifier: GPL-2.0-only

//! What the kernel's queues and the backend get: keys, standing orders and their bounds.

use super::Pandemonium;
use super::fair::ordinary_batch_weight;
use super::known::Rank;
use super::order::{Group, budget};
use pandemonium_engine::Policy;
use pandemonium_engine::orders::{Bounds, Order, StandingOrders};
use pandemonium_engine::task::{Dispatch, Tier};
use pandemonium_engine::time::{Span, Stamp};

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
        let key_offset = self.key_offset(decision.slice, decision.tier, rank);
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
            passes: budget(mode, &self.limits).saturating_sub(self.turns.deficit),
        }
    }
}

impl Pandemonium {
    /// Counts the orders that were executed while Batch work waited as decisions for urgent tasks.
    /// `passed` counts all such orders so far.
    pub(super) fn note_passed(&mut self, passed: u32) {
        let new = passed.wrapping_sub(self.passed);
        self.passed = passed;
        if self.batch_waits() {
            self.turns.deficit = self.turns.deficit.saturating_add(new);
        }
    }

    /// What is added to the time of the decision to get the key by which the kernel's queues order
    /// decided tasks, smallest first: an offset for the slice and one for the tier. A short slice
    /// goes before a long one, as with EEVDF's virtual deadlines. A whole slice counts for one
    /// rescue interval and a tier for two, so the lowest place of a tier is behind the highest of
    /// the tier above, and no task waits there for ever.
    ///
    /// In Interactive a fresh task has no offset for its slice, and a new one that has not run yet
    /// half of one: a child begins before its siblings go on. A Batch task that has had less
    /// than its share and was preempted comes right behind Interactive. At the back it would wait
    /// for a whole round of urgent tasks after each preemption: beside rings that fill the machine,
    /// an audio client that had fallen behind once got 4 % of a CPU, wanted 4 %, and never caught
    /// up.
    pub(super) fn key_offset(&self, slice: Span, tier: Tier, rank: Rank) -> Span {
        let rescue = self.limits.overflow_rescue;
        let within = rescue.scale(slice.as_nanos(), self.knobs.slice.as_nanos().max(1)).min(rescue);
        match (tier, rank) {
            (Tier::LatCritical, _) => within,
            (Tier::Interactive, Rank::First) => rescue.scale(2, 1),
            (Tier::Interactive, Rank::New) => rescue.scale(5, 2),
            (Tier::Interactive, Rank::Last) => rescue.scale(2, 1) + within,
            (Tier::Batch, Rank::First) => rescue.scale(3, 1),
            (Tier::Batch, _) => rescue.scale(4, 1) + self.knobs.batch_slice,
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
