// SPDX-License-Identifier: GPL-2.0-only

//! The facts of a second, as the driver gathers them on a machine: what the adaptive loop looks at.

use super::machine::START;
use super::observer::{Event, Left, Observer, Occupant};
use alloc::vec::Vec;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::control::{Sample, idle_per_mille};

/// What is remembered of a task between two events: at most one of the two is set.
#[derive(Clone, Copy, Default)]
struct Seen {
    woke: Option<Stamp>,
    slept: Option<Stamp>,
}

/// Counts as a observer, second after second.
pub struct Pulse {
    tasks: Vec<Seen>,
    /// Since when each CPU idles, if it does.
    idle_since: Vec<Option<Stamp>>,
    idle: Span,
    began: Stamp,
    sample: Sample,
}

impl Pulse {
    /// For a machine of so many CPUs, which begin idle.
    pub fn new(cpus: u32) -> Pulse {
        Pulse {
            tasks: Vec::new(),
            idle_since: alloc::vec![Some(START); cpus as usize],
            idle: Span::ZERO,
            began: START,
            sample: Sample::default(),
        }
    }

    /// What happened since it was asked last.
    pub fn take(&mut self, now: Stamp) -> Sample {
        for since in self.idle_since.iter_mut().flatten() {
            self.idle += now.since(*since);
            *since = now;
        }
        let elapsed = now.since(self.began);
        let idle = idle_per_mille(self.idle, elapsed, self.idle_since.len() as u32);
        (self.began, self.idle) = (now, Span::ZERO);
        // Batch work that waits now goes on waiting.
        let next = Sample { longrun: self.sample.longrun, ..Sample::default() };
        Sample { elapsed, idle, ..core::mem::replace(&mut self.sample, next) }
    }

    fn seen(&mut self, slot: u32) -> &mut Seen {
        let slot = slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize(slot + 1, Seen::default());
        }
        &mut self.tasks[slot]
    }

    fn switched(&mut self, now: Stamp, cpu: u32, from: Occupant, left: Left, to: Occupant) {
        if let (Occupant::Task(task, _), Left::Slept) = (from, left) {
            self.seen(task.slot).slept = Some(now);
        }
        if let Occupant::Task(task, tier) = to
            && let Some(woke) = self.seen(task.slot).woke.take()
        {
            self.sample.latency[tier.index()].record(now.since(woke));
        }
        let idle = &mut self.idle_since[cpu as usize];
        match (to, *idle) {
            (Occupant::Idle, None) => *idle = Some(now),
            (Occupant::Idle, Some(_)) | (_, None) => {}
            (_, Some(since)) => {
                self.idle += now.since(since);
                *idle = None;
            }
        }
    }
}

impl Observer for Pulse {
    fn saw(&mut self, now: Stamp, event: &Event) {
        match *event {
            Event::Born { task, .. } => *self.seen(task.slot) = Seen::default(),
            Event::Woke { task } => {
                let seen = self.seen(task.slot);
                seen.woke = Some(now);
                if let Some(slept) = seen.slept.take() {
                    self.sample.sleep.record(now.since(slept));
                }
            }
            Event::Withdrawn { task } => self.seen(task.slot).woke = None,
            Event::Switched { cpu, from, left, to } => self.switched(now, cpu, from, left, to),
            Event::Sent { .. } | Event::Direct { .. } => self.sample.dispatches += 1,
            Event::Ended { mode, .. } => {
                self.sample.burst |= mode.burst;
                self.sample.longrun = mode.longrun;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::TaskId;
    use pandemonium_engine::task::{Pid, Tier};

    #[test]
    fn a_second_is_told_as_the_driver_would() {
        let mut pulse = Pulse::new(2);
        let task = TaskId { slot: 3, pid: Pid::default(), group: 0 };
        let at = |ms| START + Span::from_millis(ms);
        let runs = Occupant::Task(task, Tier::Interactive);
        let switch = |from, left, to| Event::Switched { cpu: 1, from, left, to };
        pulse.saw(at(100), &Event::Woke { task });
        pulse.saw(at(102), &switch(Occupant::Idle, Left::Slept, runs));
        pulse.saw(at(600), &switch(runs, Left::Slept, Occupant::Idle));
        pulse.saw(at(650), &Event::Woke { task });
        pulse.saw(at(650), &Event::Direct { task, cpu: 1 });
        let first = pulse.take(at(1_000));
        assert_eq!((first.dispatches, first.sleep.counts), (1, [0, 0, 1, 0]));
        assert_eq!(first.latency[Tier::Interactive.index()].p99(), Span::from_millis(2));
        // CPU 0 all the time, CPU 1 but for 498 ms.
        assert_eq!((first.idle, first.elapsed), (Some(751), Span::from_millis(1_000)));
        // In the next second CPU 1 runs for 300 ms, and the second before is forgotten.
        pulse.saw(at(1_500), &switch(Occupant::Idle, Left::Slept, runs));
        pulse.saw(at(1_800), &switch(runs, Left::Lost, Occupant::Idle));
        let second = pulse.take(at(2_000));
        assert_eq!((second.dispatches, second.idle), (0, Some(850)));
        assert_eq!(pulse.take(at(3_000)).idle, Some(1_000));
    }
}
