// SPDX-License-Identifier: GPL-2.0-only

//! An observer that measures a run: latencies, throughput, shares, decisions.

use super::machine::START;
use super::observer::{Event, Left, Observer, Occupant};
use super::workload::Workload;
use alloc::vec::Vec;
use pandemonium_engine::durations::Durations;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};

/// Results of one group of the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResult {
    /// Wakeup latency: from the wakeup until the task runs.
    pub wake: Durations,
    /// Times that its program measures, from `Step::Begin` to `Step::End`.
    pub measured: Durations,
    /// Measured times longer than the deadline.
    pub missed: u64,
    /// Work done, in nanoseconds of a full-speed CPU.
    pub work: u64,
    /// Tasks that were alive during all of the measured time.
    pub lived: u64,
    /// The least work that one of these tasks did.
    pub least: u64,
    /// The most work that one of these tasks did.
    pub most: u64,
    /// Tasks that exited.
    pub ended: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Length of the measured time.
    pub window: Span,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Wakeup latency by tier, as the policy classified the task.
    pub wake: [Durations; 3],
    /// Results by group, in the workload's order.
    pub groups: Vec<GroupResult>,
    /// Decisions by tier.
    pub decisions: [u64; 3],
    /// Tasks that the backend dispatched without asking the policy.
    pub direct: u64,
    /// Context switches to a task.
    pub switches: u64,
    /// Context switches away from a task that was still runnable.
    pub lost: u64,
    /// Kicks sent.
    pub kicks: u64,
    /// Rounds of the scheduler process.
    pub rounds: u64,
    /// Decisions that the port refused because the ring was full.
    pub refused: u64,
    /// Decisions that the backend dropped because their task was no longer queued.
    pub void: u64,
    /// Tasks that the policy rescued because they had waited too long.
    pub rescues: u64,
    /// CPU time of the scheduler process.
    pub own: Span,
    /// CPU time spent idle.
    pub idle: Span,
}

impl Outcome {
    /// Work of the groups that count, in thousandths of a full-speed CPU.
    pub fn throughput(&self, workload: &Workload) -> u64 {
        let counted = self.groups.iter().zip(&workload.groups).filter(|(_, group)| group.counts);
        let work: u64 = counted.map(|(result, _)| result.work).sum();
        Span::from_nanos(work).scale(1000, self.window.as_nanos().max(1)).as_nanos()
    }
}

/// What is known of a task while it is alive.
#[derive(Clone, Copy, Default)]
struct Seen {
    woke: Option<Stamp>,
    group: u32,
    work: u64,
    /// Whether it was alive when the measured time began.
    early: bool,
    alive: bool,
}

/// The measuring observer.
pub struct Measure {
    from: Stamp,
    tasks: Vec<Seen>,
    /// Each CPU's occupant, and since when.
    cpus: Vec<(Stamp, Occupant)>,
    outcome: Outcome,
}

impl Measure {
    /// Measures from the end of the workload's warm-up on.
    pub fn new(workload: &Workload, cpus: u32) -> Measure {
        let groups = alloc::vec![GroupResult::default(); workload.groups.len()];
        Measure {
            from: START + workload.warmup,
            tasks: Vec::with_capacity(workload.tasks() as usize),
            cpus: alloc::vec![(START, Occupant::Idle); cpus as usize],
            outcome: Outcome { groups, cpus, ..Outcome::default() },
        }
    }

    /// The results up to `end`.
    pub fn finish(mut self, end: Stamp) -> Outcome {
        for cpu in 0..self.cpus.len() {
            self.close(cpu, end);
        }
        let mut outcome = self.outcome;
        outcome.window = end.since(self.from);
        for seen in self.tasks.iter().filter(|seen| seen.alive && seen.early) {
            let group = &mut outcome.groups[seen.group as usize];
            group.least = if group.lived == 0 { seen.work } else { group.least.min(seen.work) };
            group.most = group.most.max(seen.work);
            group.lived += 1;
        }
        outcome
    }

    fn seen(&mut self, slot: u32) -> &mut Seen {
        let slot = slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize(slot + 1, Seen::default());
        }
        &mut self.tasks[slot]
    }

    /// Accounts the time since the CPU's last switch to its occupant.
    fn close(&mut self, cpu: usize, now: Stamp) {
        let (since, occupant) = self.cpus[cpu];
        let span = now.since(since.max(self.from));
        match occupant {
            Occupant::Idle => self.outcome.idle += span,
            Occupant::Scheduler => self.outcome.own += span,
            Occupant::Task(..) => {}
        }
        self.cpus[cpu].0 = now;
    }

    fn starts(&mut self, now: Stamp, slot: u32, group: u32, tier: Tier) {
        let measuring = now >= self.from;
        let woke = self.seen(slot).woke.take();
        if !measuring {
            return;
        }
        self.outcome.switches += 1;
        if let Some(woke) = woke {
            let waited = now.since(woke);
            self.outcome.wake[tier.index()].add(waited);
            self.outcome.groups[group as usize].wake.add(waited);
        }
    }
}

impl Observer for Measure {
    fn saw(&mut self, now: Stamp, event: &Event) {
        let (from, measuring) = (self.from, now > self.from);
        match *event {
            Event::Forked { task, .. } => {
                let early = now <= from;
                *self.seen(task.slot) =
                    Seen { group: task.group, early, alive: true, ..Seen::default() };
            }
            Event::Woke { task } => self.seen(task.slot).woke = Some(now),
            Event::Withdrawn { task } => self.seen(task.slot).woke = None,
            Event::Died { task } => {
                self.seen(task.slot).alive = false;
                self.outcome.groups[task.group as usize].ended += u64::from(measuring);
            }
            Event::Switched { cpu, left, to, .. } => {
                self.close(cpu as usize, now);
                self.cpus[cpu as usize].1 = to;
                match to {
                    Occupant::Task(task, tier) => self.starts(now, task.slot, task.group, tier),
                    _ => self.outcome.lost += u64::from(measuring && left == Left::Lost),
                }
            }
            Event::Worked { task, work } if measuring => {
                self.seen(task.slot).work += work;
                self.outcome.groups[task.group as usize].work += work;
            }
            Event::Measured { group, took, missed } if measuring => {
                let group = &mut self.outcome.groups[group as usize];
                group.measured.add(took);
                group.missed += u64::from(missed);
            }
            Event::Sent { dispatch, .. } if measuring => {
                self.outcome.decisions[dispatch.tier.index()] += 1;
            }
            Event::Refused(_) if measuring => self.outcome.refused += 1,
            Event::Void(_) if measuring => self.outcome.void += 1,
            Event::Direct { .. } | Event::Congested { .. } if measuring => {
                self.outcome.direct += 1;
            }
            Event::Kicked { .. } if measuring => self.outcome.kicks += 1,
            Event::Ended { round, .. } => {
                self.outcome.rescues += u64::from(round.rescues);
                self.outcome.rounds += u64::from(measuring);
            }
            _ => {}
        }
    }
}
