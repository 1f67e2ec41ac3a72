// SPDX-License-Identifier: GPL-2.0-only

//! What is told of a decision's fate by a task's messages is what the machine did, whatever goes
//! wrong.

use pandemonium_engine::PolicyInfo;
use pandemonium_engine::fates::{Ended, Fate, Fates, Follower, Waited};
use pandemonium_engine::task::{Arrival, Dispatch, Pid};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::Pandemonium;
use pandemonium_sim::observer::{Event, Fault, Observer, Occupant};
use pandemonium_sim::swarm::{Cuts, draw};
use std::collections::BTreeMap;

/// One task, as its messages tell and as it was.
#[derive(Default)]
struct Followed {
    /// The notes are the ticket of the decision.
    follower: Follower<u64>,
    /// When each of its runs began.
    runs: Vec<Stamp>,
    /// By ticket, how many runs had begun when the message was sent.
    sent_after: BTreeMap<u64, usize>,
}

#[derive(Default)]
struct FatesChecker {
    tasks: BTreeMap<Pid, Followed>,
    /// When the round began, and how long after the one before.
    round: Stamp,
    gap: Span,
    total: Fates,
}

impl FatesChecker {
    fn took(&mut self, arrival: &Arrival) {
        let task = self.tasks.entry(arrival.pid).or_default();
        let Some(ended) = task.follower.received(self.round, self.gap, arrival) else { return };
        let after = |ticket| task.sent_after.get(ticket).copied();
        let (Some(from), Some(to)) = (after(&ended.notes), after(&arrival.ticket.0)) else {
            return;
        };
        check(&ended, &task.runs[from..to]);
        self.total.count(ended.fate);
    }

    fn sent(&mut self, dispatch: &Dispatch) {
        let task = self.tasks.entry(dispatch.pid).or_default();
        if let Some(ticket) = task.follower.sent(self.round, dispatch.ticket) {
            *ticket = dispatch.ticket.0;
        }
    }
}

/// Compares what is told with the runs between the two messages.
fn check(ended: &Ended<u64>, runs: &[Stamp]) {
    // A task that ran and slept before its message was received waits since its next wakeup.
    let waited_until = runs.iter().find(|run| **run >= ended.since);
    let at = ended.at;
    let is_right = match ended.fate {
        Fate::Ran(after) => waited_until == Some(&(at + after)),
        Fate::RanBefore(before) => runs.first().is_some_and(|first| *first <= at.before(before)),
        Fate::RanSometime => !runs.is_empty(),
        Fate::Cancelled => runs.is_empty(),
        Fate::Exited | Fate::Unknown => false,
    };
    assert!(is_right, "{ended:?}, and it ran at {runs:?}");
    let length = waited_until.map_or(at, |run| at.min(*run)).since(ended.since);
    let is_right = match ended.waited {
        Waited::Exactly(told) => told == length,
        Waited::AtMost(told) => told >= length,
        Waited::AtLeast(told) => told <= at.since(ended.since),
    };
    assert!(is_right, "{ended:?}, and it ran at {runs:?}");
}

impl Observer for FatesChecker {
    fn saw(&mut self, now: Stamp, event: &Event) {
        match event {
            Event::Began { now, .. } => {
                (self.gap, self.round) = (now.since(self.round), *now);
            }
            Event::Took(arrival) => self.took(arrival),
            Event::Sent { dispatch, .. } => self.sent(dispatch),
            Event::Queued { task, ticket } => {
                let task = self.tasks.entry(task.pid).or_default();
                task.sent_after.insert(*ticket, task.runs.len());
            }
            Event::Switched { to: Occupant::Task(task, _), .. } => {
                self.tasks.entry(task.pid).or_default().runs.push(now);
            }
            Event::Exited(pid) => {
                if let Some(task) = self.tasks.get_mut(pid) {
                    task.follower.exited();
                }
            }
            Event::Forked { task, .. } => {
                self.tasks.remove(&task.pid);
            }
            Event::Loaded(_) => self.tasks.clear(),
            _ => {}
        }
    }
}

#[test]
fn what_is_told_of_decisions_is_what_happened() {
    // With these the machine's own times differ from those of the policy, two tasks are one, or the
    // machine does not count the end of a run, as a real one does.
    let faults = vec![
        Fault::ClockSkew,
        Fault::PidReuse,
        Fault::ClassChange,
        Fault::Affinity,
        Fault::Hotplug,
    ];
    let cuts = Cuts { faults, ..Cuts::default() };
    let mut checker = FatesChecker::default();
    for seed in 1..=100 {
        checker.tasks.clear();
        let _ = draw(seed, &cuts, PolicyInfo::of::<Pandemonium>()).run(&mut checker);
    }
    let Fates { ran, ran_before, ran_sometime, cancelled, .. } = checker.total;
    assert!(ran.min(ran_before).min(cancelled) > 100, "{:?}", checker.total);
    assert!(ran > ran_sometime, "{:?}", checker.total);
}
