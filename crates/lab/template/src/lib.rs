//! A task that usually runs briefly goes first, and none is passed for ever.

use pandemonium_engine::prelude::*;
use std::fmt;

knobs! {
    /// What a person can change while the policy runs.
    pub struct Knobs {
        /// Slice of every task.
        "slice_us": slice: Span = Span::from_millis(4), Kind::micros(100, 100_000);
        /// A task that usually runs for less is urgent.
        "brief_us": brief: Span = Span::from_micros(500), Kind::micros(0, 100_000);
    }
}
static KNOBS: Table = Table::new(&[Knobs::KNOBS]);

pub struct Shortest {
    /// How long each task usually runs.
    table: TaskTable<Span>,
    queue: Runqueue,
    knobs: Knobs,
}

impl PolicyType for Shortest {
    const NAME: &'static str = "shortest";
    const ABOUT: &'static str = "A task that usually runs briefly goes first";
    const KNOBS: &'static Table = &KNOBS;

    fn new(_setup: &Setup) -> Self {
        let (table, queue) = (TaskTable::new(TASKS_MAX), Runqueue::new(TASKS_MAX));
        Shortest { table, queue, knobs: Knobs::default() }
    }
}

impl Policy for Shortest {
    fn arrive(&mut self, now: Stamp, arrival: Arrival, _view: &MachineView) {
        let Some(slot) = self.table.enter(now, arrival).to_queue() else { return };
        let usual = self.table.data_mut(slot);
        *usual = usual.scale(3, 4) + arrival.run_interval.scale(1, 4);
        // The key is a time, so that waiting makes every task urgent in the end.
        let key = Vtime::from_raw((now + usual.scale(8, 1)).as_nanos());
        self.queue.insert(slot, key);
    }

    fn next(&mut self, _now: Stamp, view: &MachineView) -> Option<Dispatch> {
        let (slot, key) = self.queue.pop()?;
        let brief = *self.table.data(slot) < self.knobs.brief;
        let tier = if brief { Tier::LatCritical } else { Tier::Batch };
        Some(self.table.leave(slot).dispatch(view, tier, self.knobs.slice, key))
    }

    fn refused(&mut self, dispatch: Dispatch) {
        self.table.put_back(&dispatch, &mut self.queue);
    }

    fn exit(&mut self, pid: Pid) {
        self.table.remove(pid, &mut self.queue);
    }

    fn waiting(&self) -> &dyn Waiting {
        &self.table
    }

    fn tune(&mut self, values: &Values) {
        self.knobs = Knobs::of(values);
    }

    fn explaining(&self) -> Option<&dyn Explaining> {
        Some(self)
    }
}

impl Explaining for Shortest {
    fn explain(&self, pid: Pid, out: &mut dyn fmt::Write) -> fmt::Result {
        let Some(slot) = self.table.find(pid) else { return Ok(()) };
        write!(out, "Task {} usually runs for {}.", pid.as_raw(), self.table.data(slot))
    }
}
