// SPDX-License-Identifier: GPL-2.0-only

//! What most policies do alike, so that each can say it in one line.

use crate::placement::{PlaceRules, usual_place};
use crate::port::MachineView;
use crate::runqueue::{Runqueue, Slot};
use crate::table::{Entered, TaskTable};
use crate::task::{Dispatch, Pid, Reason, Request, Tier};
use crate::time::{Span, Vtime};

impl Entered {
    /// The slot of a task that has to be queued; `None` if the task waits already.
    pub fn to_queue(self) -> Option<Slot> {
        match self {
            Entered::Replaced(_) => None,
            Entered::New(slot) | Entered::Known(slot, _) => Some(slot),
        }
    }
}

impl<T: Clone + Default> TaskTable<T> {
    /// The task of a refused decision waits again, in the place that its key gave it in `queue`.
    pub fn put_back(&mut self, refused: &Dispatch, queue: &mut Runqueue) {
        if let Some(slot) = self.come_back(refused.pid) {
            queue.put_back(slot, refused.vtime);
        }
    }

    /// The task is gone, from `queue` too.
    pub fn remove(&mut self, pid: Pid, queue: &mut Runqueue) {
        if let Some(slot) = self.forget(pid) {
            queue.remove(slot);
        }
    }
}

impl Request {
    /// A decision for this task: to its [usual place](usual_place), as of this tier, for so long.
    /// The kernel orders its queues by `key`.
    pub fn dispatch(&self, view: &MachineView, tier: Tier, slice: Span, key: Vtime) -> Dispatch {
        let (placement, preempt) = usual_place(self, view, PlaceRules::default());
        let (pid, ticket, reason) = (self.pid, self.ticket, Reason::Order);
        let (vtime, order) = (key, None);
        Dispatch { pid, ticket, placement, slice, vtime, tier, preempt, reason, order }
    }
}
