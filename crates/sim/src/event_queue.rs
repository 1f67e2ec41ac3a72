// SPDX-License-Identifier: GPL-2.0-only

//! The simulator's event queue: by time, and in order of insertion at the same time.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

/// A future event. If its generation differs from that of its task or CPU by then, the event is
/// out of date and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// A sleeping task's timer fires.
    Timer {
        /// Slot of the task.
        task: u32,
        /// Its generation.
        generation: u32,
    },
    /// The running task has finished its step, or reaches the tick that ends its slice.
    Cpu {
        /// The CPU.
        cpu: u32,
        /// Generation of the CPU's occupant.
        generation: u32,
    },
    /// A kick reaches a CPU.
    Kick {
        /// The CPU.
        cpu: u32,
    },
    /// The fast path's timer of a CPU fires.
    Recheck {
        /// The CPU.
        cpu: u32,
    },
    /// The scheduler process begins or ends a round.
    Round,
    /// The backend's timer.
    Heartbeat,
    /// A row of a group starts.
    StartRow {
        /// The group.
        group: u32,
        /// The row.
        row: u32,
    },
    /// All tasks of a group end.
    StopGroup {
        /// The group.
        group: u32,
    },
    /// Draw which faults to inject.
    Fault,
    /// A stopped scheduler process continues.
    Thaw,
    /// The backend notices that no round has ended since that one.
    Stall {
        /// The number of the round.
        round: u64,
    },
    /// The scheduler is loaded again after CPU hotplug.
    Reload,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: u64,
    order: u64,
    plan: Plan,
}

impl Ord for Entry {
    /// Reversed: the heap keeps its greatest entry on top, and the earliest must be there.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All future events.
#[derive(Default)]
pub struct EventQueue {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl EventQueue {
    /// An empty queue with capacity for `plans` events.
    pub fn with_capacity(plans: usize) -> EventQueue {
        EventQueue { heap: BinaryHeap::with_capacity(plans), order: 0 }
    }

    /// Adds an event at the time `at`, in nanoseconds.
    pub fn add(&mut self, at: u64, plan: Plan) {
        self.order += 1;
        self.heap.push(Entry { at, order: self.order, plan });
    }

    /// Removes the next event and returns it with its time, unless it is later than `end`.
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
    fn events_pop_by_time_and_then_by_insertion() {
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
