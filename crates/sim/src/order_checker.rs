// SPDX-License-Identifier: GPL-2.0-only

//! The checker of standing orders. It keeps its own account of which orders were posted, and
//! reports an execution beyond credit, life or epoch, and one that passes Batch work that is due.

use super::observer::{Event, Fault, Occupant, TaskId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use pandemonium_engine::orders::{Bounds, EPOCH_MODES};
use pandemonium_engine::task::{Dispatch, Pid, Tier};
use pandemonium_engine::time::Stamp;

/// An order that was posted.
#[derive(Clone, Copy)]
struct Posted {
    tier: Tier,
    left: u32,
    until: Stamp,
    epoch: u32,
}

/// The account of all orders.
#[derive(Default)]
pub struct OrderChecker {
    /// By pid.
    posted: Vec<Option<Posted>>,
    bounds: Option<Bounds>,
    /// Orders executed while Batch work waited, since the bounds were published.
    deficit: u32,
    /// When the round began, by the scheduler's clock.
    begun: Stamp,
    /// What each CPU runs.
    occupants: Vec<Option<Occupant>>,
    /// By pid, the tier of the newest decision: the task may run by an older one.
    tiers: Vec<Option<Tier>>,
}

impl OrderChecker {
    /// Takes an event. Returns a sentence if it violates a rule.
    pub fn saw(&mut self, now: Stamp, event: &Event) -> Option<String> {
        match event {
            Event::Began { now, .. } => self.begun = *now,
            Event::Bounded(bounds) => (self.bounds, self.deficit) = (*bounds, 0),
            Event::Sent { dispatch, .. } => self.post(dispatch),
            Event::Faulted { fault: Fault::LostOrder, task: Some(task) } => *self.of(*task) = None,
            // The next decision about the task replaces its order, and a new task has none.
            Event::Queued { task, .. } => *self.of(*task) = None,
            Event::Forked { task, .. } => {
                *self.of(*task) = None;
                *self.tier_of(task.pid) = None;
            }
            Event::Loaded(_) => {
                let occupants = core::mem::take(&mut self.occupants);
                *self = OrderChecker { occupants, ..OrderChecker::default() };
            }
            Event::Switched { cpu, to, .. } => {
                let cpu = *cpu as usize;
                if cpu >= self.occupants.len() {
                    self.occupants.resize(cpu + 1, None);
                }
                self.occupants[cpu] = Some(*to);
            }
            Event::Ordered { task, cpu, at_once } => {
                let preempted = at_once.then(|| self.occupants.get(*cpu as usize).copied());
                let preempted = preempted.flatten().flatten().map(|one| self.newest(one));
                return self.executed(now, *task, preempted).map(|why| {
                    format!("the order of pid {} was executed {why}", task.pid.as_raw())
                });
            }
            _ => {}
        }
        None
    }

    fn of(&mut self, task: TaskId) -> &mut Option<Posted> {
        self.at(task.pid.as_raw() as usize)
    }

    fn at(&mut self, index: usize) -> &mut Option<Posted> {
        if index >= self.posted.len() {
            self.posted.resize(index + 1, None);
        }
        &mut self.posted[index]
    }

    fn tier_of(&mut self, pid: Pid) -> &mut Option<Tier> {
        let index = pid.as_raw() as usize;
        if index >= self.tiers.len() {
            self.tiers.resize(index + 1, None);
        }
        &mut self.tiers[index]
    }

    fn post(&mut self, dispatch: &Dispatch) {
        *self.tier_of(dispatch.pid) = Some(dispatch.tier);
        let (begun, epoch) = (self.begun, self.bounds.map_or(0, |bounds| bounds.epoch));
        *self.at(dispatch.pid.as_raw() as usize) = dispatch.order.map(|order| Posted {
            tier: dispatch.tier,
            left: order.credit,
            until: begun + order.life,
            epoch,
        });
    }

    /// The occupant with the tier of the newest decision about it.
    fn newest(&mut self, occupant: Occupant) -> Occupant {
        match occupant {
            Occupant::Task(task, then) => {
                Occupant::Task(task, self.tier_of(task.pid).unwrap_or(then))
            }
            other => other,
        }
    }

    /// The task's order was executed, and preempts this occupant.
    fn executed(
        &mut self,
        now: Stamp,
        task: TaskId,
        preempted: Option<Occupant>,
    ) -> Option<&'static str> {
        let Some(bounds) = self.bounds else { return Some("although none may be") };
        let is_due = bounds.batch_due.is_some_and(|due| now >= due);
        let due = is_due && self.deficit >= bounds.deficit_left;
        self.deficit += u32::from(bounds.batch_due.is_some());
        let Some(order) = self.of(task) else { return Some("although it has none") };
        let (left, tier_of) = (order.left, order.tier);
        // A change of knobs alone leaves a wakee its order.
        let bits = if tier_of == Tier::Batch { u32::MAX } else { EPOCH_MODES };
        let differs = (order.epoch ^ bounds.epoch) & bits != 0;
        order.left = left.saturating_sub(1);
        match () {
            () if left == 0 => Some("beyond its credit"),
            () if now >= order.until => Some("beyond its life"),
            () if differs => Some("in another epoch"),
            () if bounds.waiting >= Some(order.tier) => Some("before a more urgent task"),
            () if due => Some("although Batch work is due"),
            () => match preempted {
                Some(Occupant::Scheduler) => Some("in place of the scheduler process"),
                Some(Occupant::Task(_, tier)) if tier > tier_of => Some("over a higher tier"),
                _ => None,
            },
        }
    }
}
