// SPDX-License-Identifier: GPL-2.0-only

//! What is right. Each judge reads a log from the beginning, keeps its own account of who waits,
//! and complains in words; none of them asks the policy.

use crate::world::{Ended, Event};
use pandemonium_engine::Limits;
use pandemonium_engine::TASKS_MAX;
use pandemonium_engine::task::{Arrival, Dispatch, Pid, Placement, Reason, Weight};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_policies::LIGHT_WAIT;
use pandemonium_policies::knobs::Knobs;
use std::collections::BTreeMap;

pub type Verdict = Result<(), String>;

/// Somebody who waits.
struct Waiter {
    /// The newest message about it.
    newest: Arrival,
    /// Its weight when the wait began: among whom its age counts does not change before it ends.
    weight: Weight,
    /// When the wait began; newer messages do not begin it anew.
    since: Stamp,
    /// Position among all waits that ever began.
    order: u64,
}

/// The judges' book of a run so far.
#[derive(Default)]
struct Account {
    now: Stamp,
    knobs: Knobs,
    waiting: BTreeMap<Pid, Waiter>,
    waits: u64,
    took: u64,
    sent: u64,
    /// Of the round that runs.
    limits: Option<Limits>,
    round_took: usize,
    round_sent: usize,
    round_refused: bool,
}

impl Account {
    fn enter(&mut self, event: &Event) {
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
                let waiter = Waiter { newest: *arrival, weight: arrival.weight, since, order };
                self.waiting.entry(arrival.pid).or_insert(waiter).newest = *arrival;
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

/// Shows `judge` every event together with the account as it was before it.
fn watch(
    log: &[Event],
    mut judge: impl FnMut(&Account, &Event) -> Verdict,
) -> Result<Account, String> {
    let mut account = Account::default();
    for (number, event) in log.iter().enumerate() {
        judge(&account, event).map_err(|why| format!("event {number}, {event:?}: {why}"))?;
        account.enter(event);
    }
    Ok(account)
}

/// The decision an event carries, whether or not the port took it.
fn decision(event: &Event) -> Option<&Dispatch> {
    match event {
        Event::Sent(dispatch) | Event::Refused(dispatch) => Some(dispatch),
        _ => None,
    }
}

fn demand(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(why()) }
}

/// Every task taken in comes out once, with its newest ticket, unless it exits; nothing else
/// comes out; and nobody is left at the end.
pub fn conserves(log: &[Event]) -> Verdict {
    let account = watch(log, |account, event| {
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let waiter = account.waiting.get(&dispatch.pid).ok_or("it does not wait")?;
        let newest = waiter.newest.ticket;
        demand(dispatch.ticket == newest, || format!("its newest ticket is {newest:?}"))
    })?;
    let lost: Vec<&Pid> = account.waiting.keys().collect();
    demand(lost.is_empty(), || format!("never dispatched: {lost:?}"))
}

/// A round does no more than its limits allow, stops at a refusal, drains as far as it may, and
/// reports what it did. No slice is zero.
pub fn keeps_bounds(log: &[Event]) -> Verdict {
    watch(log, |account, event| {
        let limits = account.limits.unwrap_or(Limits { arrivals: 0, dispatches: 0, extra: 0 });
        match event {
            Event::Took(_) => demand(account.round_took < limits.arrivals, || "too many".into()),
            Event::Sent(dispatch) | Event::Refused(dispatch) => {
                demand(account.round_sent < limits.dispatches, || "too many".into())?;
                demand(!account.round_refused, || "decided after a refusal".into())?;
                demand(dispatch.slice > Span::ZERO, || "no slice".into())
            }
            Event::Ended(ended) => report_is_true(account, ended, limits),
            _ => Ok(()),
        }
    })
    .map(drop)
}

fn report_is_true(account: &Account, ended: &Ended, limits: Limits) -> Verdict {
    let done = &ended.done;
    let counted = (account.round_took, account.round_sent, account.round_refused);
    demand((done.received, done.sent, done.refused) == counted, || format!("saw {counted:?}"))?;
    let stopped_early = ended.ring > 0 && account.round_took < limits.arrivals;
    // Room is looked for before the decisions, so those of this round do not count.
    let waited = account.waiting.len() + account.round_sent;
    let full = waited >= TASKS_MAX as usize;
    demand(!stopped_early || full, || format!("left messages, {waited} waited"))
}

/// What the policy says about its queue and its work is what the judge has seen.
pub fn keeps_books(log: &[Event]) -> Verdict {
    watch(log, |account, event| {
        let Event::Ended(ended) = event else { return Ok(()) };
        let waiting = account.waiting.len();
        demand(ended.done.pending == waiting, || format!("{waiting} wait"))?;
        demand(ended.has_room == (waiting < TASKS_MAX as usize), || "room".into())?;
        let oldest = account.waiting.values().map(|waiter| account.now.since(waiter.since)).max();
        demand(ended.oldest_wait == oldest.unwrap_or_default(), || format!("{oldest:?}"))?;
        let counters = &ended.counters;
        let (took, sent) = (account.took, account.sent);
        demand(counters.wakeups + counters.requeues == took, || format!("{took} arrived"))?;
        demand(counters.by_tier.iter().sum::<u64>() == sent, || format!("{sent} were sent"))?;
        demand(counters.rescues <= sent, || "rescued more than it sent".into())
    })
    .map(drop)
}

/// While nothing else happens, a refused decision is made again just as it was.
pub fn repeats_refused(log: &[Event]) -> Verdict {
    let mut refused: Option<(Stamp, Dispatch)> = None;
    watch(log, |account, event| {
        match (event, refused) {
            (Event::Took(_) | Event::Exited(_) | Event::Applied(_), _) => refused = None,
            (Event::Began { now, .. }, Some((then, _))) if *now != then => refused = None,
            (Event::Sent(again) | Event::Refused(again), Some((_, before))) => {
                demand(*again == before, || format!("refused was {before:?}"))?;
            }
            _ => {}
        }
        match event {
            Event::Refused(dispatch) => refused = Some((account.now, *dispatch)),
            Event::Sent(_) => refused = None,
            _ => {}
        }
        Ok(())
    })
    .map(drop)
}

/// A task runs close to where its newest message says, and only there if the knobs say so.
pub fn places_by_message(log: &[Event]) -> Verdict {
    watch(log, |account, event| {
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let Some(waiter) = account.waiting.get(&dispatch.pid) else { return Ok(()) };
        let near = waiter.newest.cpu;
        let bound = account.knobs.percpu_local && waiter.newest.cpus_allowed == 1;
        let right = if bound { Placement::Cpu(near) } else { Placement::Any { near } };
        demand(dispatch.placement == right, || format!("belongs to {right:?}"))
    })
    .map(drop)
}

/// Whoever began to wait first is decided for first, refused or not.
pub fn serves_in_order_of_arrival(log: &[Event]) -> Verdict {
    watch(log, |account, event| {
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let first = account.waiting.iter().min_by_key(|(_, waiter)| waiter.order);
        let first = first.map(|(pid, _)| *pid);
        demand(first == Some(dispatch.pid), || format!("{first:?} came first"))
    })
    .map(drop)
}

/// As long as nobody has waited beyond `limit`, the decisions of a round leave by key: the
/// kernel's queues, which order by the same key, then keep what we decided.
pub fn serves_in_order_of_key(log: &[Event], limit: Span) -> Verdict {
    let mut last = Vtime::default();
    watch(log, |account, event| {
        if let Event::Began { .. } = event {
            last = Vtime::default();
        }
        let Some(dispatch) = decision(event) else { return Ok(()) };
        let overdue = account.waiting.values().any(|w| account.now.since(w.since) > limit);
        if !overdue {
            demand(dispatch.vtime >= last, || format!("{last:?} was served before"))?;
            last = dispatch.vtime;
        }
        Ok(())
    })
    .map(drop)
}

/// When somebody has waited beyond `limit` and a slice for everybody who waits with it, at least
/// every other decision is for somebody's age, or for Batch work that is owed a turn. Tasks of
/// less than ordinary weight may wait longer by [`LIGHT_WAIT`].
pub fn rescues_beyond(log: &[Event], limit: Span) -> Verdict {
    let mut passed_over = false;
    watch(log, |account, event| {
        let Event::Sent(dispatch) = event else { return Ok(()) };
        let crowd = account.knobs.batch_slice.scale(account.waiting.len() as u64, 1)
            + account.knobs.slice.scale(account.waiting.len() as u64, 1);
        let overdue = account.waiting.values().any(|waiter| {
            let light = waiter.weight < Weight::default();
            let limit = if light { limit + LIGHT_WAIT } else { limit };
            account.now.since(waiter.since) > limit + crowd
        });
        let for_age = dispatch.reason.is_rescue() || dispatch.reason == Reason::Deficit;
        let again = core::mem::replace(&mut passed_over, overdue && !for_age);
        demand(!(passed_over && again), || format!("somebody waits beyond {limit}"))
    })
    .map(drop)
}
