// SPDX-License-Identifier: GPL-2.0-only

//! Checkers of a log. Each checker reads the log from its beginning, tracks the waiting tasks
//! itself, and describes what is wrong. No checker asks the policy.

use crate::world::{Ended, Event};
use pandemonium_engine::Limits;
use pandemonium_engine::TASKS_MAX;
use pandemonium_engine::task::{Arrival, Cause, Dispatch, Pid, Placement, Reason, Weight};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_policies::LOW_WEIGHT_WAIT;
use pandemonium_policies::knobs::Knobs;
use std::collections::BTreeMap;

pub type Verdict = Result<(), String>;

/// A waiting task.
struct Waiting {
    /// Its newest message.
    newest: Arrival,
    /// Its weight when the wait began, because its age class does not change during a wait.
    weight: Weight,
    /// When the wait began. Newer messages do not restart it.
    since: Stamp,
    /// Position in the order in which all waits began.
    order: u64,
}

/// The state of a run, as far as the log shows it.
#[derive(Default)]
struct Tracker {
    now: Stamp,
    knobs: Knobs,
    waiting: BTreeMap<Pid, Waiting>,
    waits: u64,
    took: u64,
    sent: u64,
    /// Limits of the present round.
    limits: Option<Limits>,
    round_took: usize,
    round_sent: usize,
    round_refused: bool,
}

impl Tracker {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::Began { now, limits } => {
                (self.now, self.limits) = (*now, Some(*limits));
                (self.round_took, self.round_sent, self.round_refused) = (0, 0, false);
            }
            Event::Took(arrival) => {
                self.took += 1;
                self.round_took += 1;
                self.waits += 1;
                let (since, order) = (self.now, self.waits);
                let task = Waiting { newest: *arrival, weight: arrival.weight, since, order };
                let waiting = self.waiting.entry(arrival.pid).or_insert(task);
                waiting.newest = *arrival;
                if arrival.cause == Cause::New {
                    waiting.since = since;
                }
            }
            Event::Sent(dispatch) => {
                self.sent += 1;
                self.round_sent += 1;
                self.waiting.remove(&dispatch.pid);
            }
            Event::Refused(_) => self.round_refused = true,
            Event::Exited(pid) => drop(self.waiting.remove(pid)),
            Event::Applied(knobs) => self.knobs = *knobs,
            Event::Kicked(_) | Event::Ended(_) => {}
        }
    }
}

/// Calls `check` for every event, with the tracker's state before the event.
fn check_each(
    log: &[Event],
    mut check: impl FnMut(&Tracker, &Event) -> Verdict,
) -> Result<Tracker, String> {
    let mut tracker = Tracker::default();
    for (number, event) in log.iter().enumerate() {
        check(&tracker, event).map_err(|why| format!("event {number}, {event:?}: {why}"))?;
        tracker.apply(event);
    }
    Ok(tracker)
}

/// The decision in an event, accepted or refused.
fn decision(event: &Event) -> Option<&Dispatch> {
    match event {
        Event::Sent(dispatch) | Event::Refused(dispatch) => Some(dispatch),
        _ => None,
    }
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(why()) }
}

/// Every received task is dispatched once, with its newest ticket, unless it exits. Nothing else is
/// dispatched, and no task waits at the end.
pub fn conserves(log: &[Event]) -> Verdict {
    let tracker = check_each(log, |tracker, event| {
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let task = tracker.waiting.get(&dispatch.pid).ok_or("it does not wait")?;
        let newest = task.newest.ticket;
        ensure(dispatch.ticket == newest, || format!("its newest ticket is {newest:?}"))
    })?;
    let lost: Vec<&Pid> = tracker.waiting.keys().collect();
    ensure(lost.is_empty(), || format!("never dispatched: {lost:?}"))
}

/// A round stays within its limits, stops at a refusal, receives as many messages as it may, and
/// reports what it did. No slice is zero.
pub fn keeps_bounds(log: &[Event]) -> Verdict {
    check_each(log, |tracker, event| {
        let limits = tracker.limits.unwrap_or(Limits { arrivals: 0, dispatches: 0, extra: 0 });
        match event {
            Event::Took(_) => ensure(tracker.round_took < limits.arrivals, || "too many".into()),
            Event::Sent(dispatch) | Event::Refused(dispatch) => {
                ensure(tracker.round_sent < limits.dispatches, || "too many".into())?;
                ensure(!tracker.round_refused, || "decided after a refusal".into())?;
                ensure(dispatch.slice > Span::ZERO, || "no slice".into())
            }
            Event::Ended(ended) => report_is_true(tracker, ended, limits),
            _ => Ok(()),
        }
    })
    .map(drop)
}

fn report_is_true(tracker: &Tracker, ended: &Ended, limits: Limits) -> Verdict {
    let done = &ended.done;
    let counted = (tracker.round_took, tracker.round_sent, tracker.round_refused);
    ensure((done.received, done.sent, done.refused) == counted, || format!("saw {counted:?}"))?;
    let stopped_early = ended.ring > 0 && tracker.round_took < limits.arrivals;
    // The round checks for room before its decisions, so tasks it dispatched still count.
    let waited = tracker.waiting.len() + tracker.round_sent;
    let full = waited >= TASKS_MAX as usize;
    ensure(!stopped_early || full, || format!("left messages, {waited} waited"))
}

/// The policy's counters and its reports about its queue agree with the log.
pub fn keeps_counts(log: &[Event]) -> Verdict {
    check_each(log, |tracker, event| {
        let Event::Ended(ended) = event else { return Ok(()) };
        let waiting = tracker.waiting.len();
        ensure(ended.done.pending == waiting, || format!("{waiting} wait"))?;
        ensure(ended.has_room == (waiting < TASKS_MAX as usize), || "room".into())?;
        let oldest = tracker.waiting.values().map(|task| tracker.now.since(task.since)).max();
        ensure(ended.oldest_wait == oldest.unwrap_or_default(), || format!("{oldest:?}"))?;
        let done = &ended.done;
        ensure(done.requeues <= done.received, || format!("{} arrived", done.received))?;
        let by_tier: u32 = done.by_tier.iter().sum();
        ensure(by_tier as usize == done.sent, || format!("{} were sent", done.sent))?;
        ensure(done.rescues as usize <= done.sent, || "rescued more than it sent".into())
    })
    .map(drop)
}

/// While nothing else happens, a refused decision is repeated without a change.
pub fn repeats_refused(log: &[Event]) -> Verdict {
    let mut refused: Option<(Stamp, Dispatch)> = None;
    check_each(log, |tracker, event| {
        match (event, refused) {
            (Event::Took(_) | Event::Exited(_) | Event::Applied(_), _) => refused = None,
            (Event::Began { now, .. }, Some((then, _))) if *now != then => refused = None,
            (Event::Sent(again) | Event::Refused(again), Some((_, before))) => {
                ensure(*again == before, || format!("refused was {before:?}"))?;
            }
            _ => {}
        }
        match event {
            Event::Refused(dispatch) => refused = Some((tracker.now, *dispatch)),
            Event::Sent(_) => refused = None,
            _ => {}
        }
        Ok(())
    })
    .map(drop)
}

/// A task runs near the CPU of its newest message, or only there if the knobs say so.
pub fn places_by_message(log: &[Event]) -> Verdict {
    check_each(log, |tracker, event| {
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let Some(task) = tracker.waiting.get(&dispatch.pid) else { return Ok(()) };
        let near = task.newest.cpu;
        let bound = tracker.knobs.percpu_local && task.newest.cpus_allowed == 1;
        let right = if bound { Placement::Cpu(near) } else { Placement::Any { near } };
        ensure(dispatch.placement == right, || format!("belongs to {right:?}"))
    })
    .map(drop)
}

/// The task that began to wait first is dispatched first, refused or not.
pub fn serves_in_order_of_arrival(log: &[Event]) -> Verdict {
    check_each(log, |tracker, event| {
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let first = tracker.waiting.iter().min_by_key(|(_, task)| task.order);
        let first = first.map(|(pid, _)| *pid);
        ensure(first == Some(dispatch.pid), || format!("{first:?} came first"))
    })
    .map(drop)
}

/// As long as no task has waited beyond `limit`, a round dispatches in the order of the key. The
/// kernel's queues use the same key, so they keep this order.
pub fn serves_in_order_of_key(log: &[Event], limit: Span) -> Verdict {
    let mut last = Vtime::default();
    check_each(log, |tracker, event| {
        if let Event::Began { .. } = event {
            last = Vtime::default();
        }
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let overdue = tracker.waiting.values().any(|w| tracker.now.since(w.since) > limit);
        if !overdue {
            ensure(dispatch.vtime >= last, || format!("{last:?} was served before"))?;
            last = dispatch.vtime;
        }
        Ok(())
    })
    .map(drop)
}

/// If a task has waited beyond `limit` plus a slice for every waiting task, at least every other
/// decision is a rescue, or for Batch because of its deficit. Tasks below ordinary weight may wait
/// [`LOW_WEIGHT_WAIT`] longer.
pub fn rescues_beyond(log: &[Event], limit: Span) -> Verdict {
    let mut passed_over = false;
    check_each(log, |tracker, event| {
        let Event::Sent(dispatch) = event else { return Ok(()) };
        let crowd = tracker.knobs.batch_slice.scale(tracker.waiting.len() as u64, 1)
            + tracker.knobs.slice.scale(tracker.waiting.len() as u64, 1);
        let overdue = tracker.waiting.values().any(|task| {
            let low_weight = task.weight < Weight::default();
            let limit = if low_weight { limit + LOW_WEIGHT_WAIT } else { limit };
            tracker.now.since(task.since) > limit + crowd
        });
        let for_age = dispatch.reason.is_rescue() || dispatch.reason == Reason::Deficit;
        let again = core::mem::replace(&mut passed_over, overdue && !for_age);
        ensure(!(passed_over && again), || format!("a task waits beyond {limit}"))
    })
    .map(drop)
}
