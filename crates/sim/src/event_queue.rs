// SPDX-License-Identifier: GPL-2.0-only

//! What is going to happen, in order of time; at the same time, in order of planning.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

/// Something planned. The numbers say of whom it tells; a plan whose generation is no longer that
/// of its owner is out of date and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// A sleeping task's timer fires.
    Timer {
        /// Slot of the task.
        task: u32,
        /// Its generation.
        generation: u32,
    },
    /// Who runs on a CPU has done its work, or is at the tick that ends its slice.
    Cpu {
        /// Where.
        cpu: u32,
        /// Generation of the CPU's occupant.
        generation: u32,
    },
    /// An interrupt reaches a CPU.
    Kick {
        /// Where.
        cpu: u32,
    },
    /// The fast path's timer of a CPU fires.
    Patrol {
        /// Where.
        cpu: u32,
    },
    /// The scheduler process has finished its round.
    Round,
    /// The backend's timer.
    Heartbeat,
    /// A task of a group begins.
    Birth {
        /// Which group.
        group: u32,
        /// Which row.
        row: u32,
    },
    /// The tasks of a group are ended.
    Death {
        /// Which group.
        group: u32,
    },
    /// It is time to look whether something goes wrong.
    Fault,
    /// A stopped scheduler process goes on.
    Thaw,
    /// The scheduler is loaded again after CPUs came or went.
    Reload,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: u64,
    order: u64,
    plan: Plan,
}

impl Ord for Entry {
    /// The heap has its greatest on top, which has to be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All plans.
#[derive(Default)]
pub struct EventQueue {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl EventQueue {
    /// An empty one with room for so many plans.
    pub fn with_capacity(plans: usize) -> EventQueue {
        EventQueue { heap: BinaryHeap::with_capacity(plans), order: 0 }
    }

    /// Plans something for the time `at`, in nanoseconds.
    pub fn add(&mut self, at: u64, plan: Plan) {
        self.order += 1;
        self.heap.push(Entry { at, order: self.order, plan });
    }

    /// The next plan, and when it is due, if that is no later than `end`.
    pub fn pop_until(&mut self, end: u64) -> Option<(u64, Plan)> {
        if self.heap.peek()?.at > end {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_come_in_order_of_time_and_then_of_planning() {
        let mut event_queue = EventQueue::with_capacity(4);
        event_queue.add(5, Plan::Kick { cpu: 1 });
        event_queue.add(3, Plan::Kick { cpu: 2 });
        event_queue.add(5, Plan::Kick { cpu: 3 });
        assert_eq!(event_queue.pop_until(2), None);
        let order = core::iter::from_fn(|| event_queue.pop_until(5)).map(|(at, plan)| match plan {
            Plan::Kick { cpu } => (at, cpu),
            _ => (at, 0),
        });
        assert!(order.eq([(3, 2), (5, 1), (5, 3)]));
    }
}
