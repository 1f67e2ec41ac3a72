// SPDX-License-Identifier: GPL-2.0-only

//! Who usually runs briefly goes first, and nobody is passed for ever.

use pandemonium_engine::TASKS_MAX;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::runqueue::Runqueue;
use pandemonium_engine::table::{Entered, TaskTable};
use pandemonium_engine::task::{Arrival, Dispatch, Pid, Placement, Reason, Tier};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::{MachineView, Policy};

/// A task that usually runs for less than this is let in at once.
const BRIEF: Span = Span::from_micros(500);

/// The policy.
pub struct Shortest {
    /// How long each task usually runs.
    table: TaskTable<Span>,
    queue: Runqueue,
    slice: Span,
}

impl Shortest {
    /// Knows nobody yet.
    pub fn new() -> Self {
        let slice = Knobs::default().batch_slice;
        Shortest { table: TaskTable::new(TASKS_MAX), queue: Runqueue::new(TASKS_MAX), slice }
    }
}

impl Policy for Shortest {
    fn on_arrival(&mut self, now: Stamp, arrival: Arrival, _view: &MachineView) {
        let slot = match self.table.enter(now, arrival) {
            Entered::Replaced(_) => return, // it waits already, now with a newer ticket
            Entered::New(slot) | Entered::Known(slot, _) => slot,
        };
        let usual = self.table.data_mut(slot);
        *usual = usual.scale(3, 4) + arrival.run_interval.scale(1, 4);
        // The key is a time, so that waiting makes everybody urgent in the end.
        let key = (now + usual.scale(8, 1)).as_nanos();
        self.queue.insert(slot, Vtime::from_raw(key));
    }

    fn next(&mut self, _now: Stamp, view: &MachineView) -> Option<Dispatch> {
        let (slot, vtime) = self.queue.pop()?;
        let usual = *self.table.data(slot);
        let request = self.table.leave(slot);
        let here =
            view.here.filter(|here| request.allowed.is_some_and(|cpus| cpus.contains(*here)));
        let placement = match (request.kicked, here) {
            (Some(_), Some(here)) => Placement::Cpu(here), // this CPU was interrupted for it
            _ => Placement::Any { near: request.cpu },
        };
        Some(Dispatch {
            pid: request.pid,
            ticket: request.ticket,
            placement,
            slice: self.slice,
            vtime,
            tier: if usual < BRIEF { Tier::LatCritical } else { Tier::Batch },
            preempt: false,
            reason: Reason::Order,
        })
    }

    fn on_refused(&mut self, dispatch: Dispatch) {
        if let Some(slot) = self.table.come_back(dispatch.pid) {
            self.queue.put_back(slot, dispatch.vtime);
        }
    }

    fn on_exit(&mut self, pid: Pid) {
        if let Some(slot) = self.table.forget(pid) {
            self.queue.remove(slot);
        }
    }

    fn apply(&mut self, knobs: &Knobs) {
        self.slice = knobs.batch_slice;
    }

    fn queued(&self) -> usize {
        self.table.nr_waiting()
    }

    fn has_room(&self) -> bool {
        self.table.has_room()
    }

    fn oldest_wait(&self, now: Stamp) -> Span {
        self.table.oldest_wait(now)
    }
}
