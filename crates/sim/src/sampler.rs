// SPDX-License-Identifier: GPL-2.0-only

//! Gathers a [`Sample`] per second for the adaptive loop, as the driver does on a real machine.

use super::machine::START;
use super::observer::{Event, Left, Observer, Occupant};
use alloc::vec::Vec;
use pandemonium_engine::adapting::{Sample, idle_per_mille};
use pandemonium_engine::time::{Span, Stamp};

/// When a task woke up and has not run yet, or went to sleep; at most one is set.
#[derive(Clone, Copy, Default)]
struct Seen {
    woke: Option<Stamp>,
    slept: Option<Stamp>,
}

/// The sampling observer.
pub struct Sampler {
    tasks: Vec<Seen>,
    /// Since when each CPU idles, `None` if it is busy.
    idle_since: Vec<Option<Stamp>>,
    idle: Span,
    began: Stamp,
    sample: Sample,
}

impl Sampler {
    /// A sampler for a machine with `cpus` CPUs, which are idle at first.
    pub fn new(cpus: u32) -> Sampler {
        Sampler {
            tasks: Vec::new(),
            idle_since: alloc::vec![Some(START); cpus as usize],
            idle: Span::ZERO,
            began: START,
            sample: Sample::default(),
        }
    }

    /// Returns the sample of the time since the last call.
    pub fn take(&mut self, now: Stamp) -> Sample {
        for since in self.idle_since.iter_mut().flatten() {
            self.idle += now.since(*since);
            *since = now;
        }
        let elapsed = now.since(self.began);
        let idle = idle_per_mille(self.idle, elapsed, self.idle_since.len() as u32);
        (self.began, self.idle) = (now, Span::ZERO);
        // Batch work that waits now still waits in the next second.
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

impl Observer for Sampler {
    fn saw(&mut self, now: Stamp, event: &Event) {
        match *event {
            Event::Forked { task, .. } => *self.seen(task.slot) = Seen::default(),
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
    fn a_sample_holds_the_counts_of_its_second_only() {
        let mut sampler = Sampler::new(2);
        let task = TaskId { slot: 3, pid: Pid::default(), group: 0 };
        let at = |ms| START + Span::from_millis(ms);
        let runs = Occupant::Task(task, Tier::Interactive);
        let switch = |from, left, to| Event::Switched { cpu: 1, from, left, to };
        sampler.saw(at(100), &Event::Woke { task });
        sampler.saw(at(102), &switch(Occupant::Idle, Left::Slept, runs));
        sampler.saw(at(600), &switch(runs, Left::Slept, Occupant::Idle));
        sampler.saw(at(650), &Event::Woke { task });
        sampler.saw(at(650), &Event::Direct { task, cpu: 1 });
        let first = sampler.take(at(1_000));
        assert_eq!((first.dispatches, first.sleep.counts), (1, [0, 0, 1, 0]));
        assert_eq!(first.latency[Tier::Interactive.index()].p99(), Span::from_millis(2));
        // CPU 0 idles all the time, CPU 1 except for 498 ms.
        assert_eq!((first.idle, first.elapsed), (Some(751), Span::from_millis(1_000)));
        // CPU 1 runs for 300 ms in the next second, which counts nothing of the first.
        sampler.saw(at(1_500), &switch(Occupant::Idle, Left::Slept, runs));
        sampler.saw(at(1_800), &switch(runs, Left::Lost, Occupant::Idle));
        let second = sampler.take(at(2_000));
        assert_eq!((second.dispatches, second.idle), (0, Some(850)));
        assert_eq!(sampler.take(at(3_000)).idle, Some(1_000));
    }
}
