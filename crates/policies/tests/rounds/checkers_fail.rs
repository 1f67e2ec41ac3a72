// SPDX-License-Identifier: GPL-2.0-only

//! Every checker must be able to fail. Each one checks a correct log and the same log with one
//! error.

use crate::checkers::{self, Verdict};
use crate::script::arrival;
use crate::world::{Ended, Event, World};
use pandemonium_engine::Limits;
use pandemonium_engine::task::{CpuId, Dispatch, Placement, Ticket};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_policies::Fifo;
use pandemonium_policies::knobs::Knobs;

/// Three tasks arrive. The port accepts one decision, refuses the next, accepts its repetition, and
/// accepts the last one a second later.
fn a_good_run() -> Vec<Event> {
    let mut policy = Fifo::new();
    let mut world = World::new(&mut policy);
    world.port.ring.extend([arrival(1, 1), arrival(2, 1), arrival(3, 1)]);
    world.port.accepts = 1;
    world.round(Limits { arrivals: 8, dispatches: 2, extra: 0 });
    world.port.accepts = usize::MAX;
    world.round(Limits { arrivals: 8, dispatches: 1, extra: 0 });
    world.pass(Span::from_millis(1_000));
    world.round(Limits { arrivals: 8, dispatches: 2, extra: 0 });
    world.port.log
}

/// Positions in [`a_good_run`].
const FIRST_SENT: usize = 4;
const REFUSED: usize = 5;
const FIRST_ENDED: usize = 6;
const SENT_AGAIN: usize = 8;
const LAST_SENT: usize = 11;

const SECOND: Span = Span::from_millis(1_000);

/// The checker accepts the correct log, and refuses it after `spoil` has changed it.
#[track_caller]
fn complains(check: impl Fn(&[Event]) -> Verdict, spoil: impl Fn(&mut Vec<Event>), about: &str) {
    let mut log = a_good_run();
    check(&log).expect("a good run");
    spoil(&mut log);
    let why = check(&log).expect_err("a spoilt run");
    assert!(why.contains(about), "{why}");
}

fn decision(event: &mut Event) -> &mut Dispatch {
    match event {
        Event::Sent(dispatch) | Event::Refused(dispatch) => dispatch,
        other => panic!("{other:?} is not a decision"),
    }
}

fn ended(event: &mut Event) -> &mut Ended {
    match event {
        Event::Ended(ended) => ended,
        other => panic!("{other:?} ends no round"),
    }
}

fn remove_first_sent(log: &mut Vec<Event>) {
    log.remove(FIRST_SENT);
}

#[test]
fn a_lost_task_is_noticed() {
    complains(checkers::conserves, remove_first_sent, "never dispatched: [Pid(1)]");
}

#[test]
fn a_task_sent_twice_is_noticed() {
    complains(
        checkers::conserves,
        |log| log.insert(FIRST_SENT, log[FIRST_SENT].clone()),
        "does not wait",
    );
}

#[test]
fn a_task_made_up_is_noticed() {
    complains(
        checkers::conserves,
        |log| decision(&mut log[LAST_SENT]).pid = arrival(9, 1).pid,
        "does not wait",
    );
}

#[test]
fn an_old_ticket_is_noticed() {
    complains(
        checkers::conserves,
        |log| log.insert(FIRST_SENT, Event::Took(arrival(1, 2))),
        "newest ticket is Ticket(2)",
    );
}

#[test]
fn a_task_sent_after_its_exit_is_noticed() {
    complains(
        checkers::conserves,
        |log| log.insert(FIRST_SENT, Event::Exited(arrival(1, 1).pid)),
        "does not wait",
    );
}

#[test]
fn a_round_beyond_its_limits_is_noticed() {
    let shrink = |arrivals, dispatches| {
        move |log: &mut Vec<Event>| {
            let limits = Limits { arrivals, dispatches, extra: 0 };
            log[0] = Event::Began { now: Stamp::default(), limits };
        }
    };
    complains(checkers::keeps_bounds, shrink(2, 2), "too many");
    complains(checkers::keeps_bounds, shrink(8, 0), "too many");
}

#[test]
fn a_decision_after_a_refusal_is_noticed() {
    complains(
        checkers::keeps_bounds,
        |log| log.insert(FIRST_ENDED, log[REFUSED].clone()),
        "after a refusal",
    );
}

#[test]
fn a_slice_of_nothing_is_noticed() {
    complains(
        checkers::keeps_bounds,
        |log| decision(&mut log[LAST_SENT]).slice = Span::ZERO,
        "no slice",
    );
}

#[test]
fn a_false_report_is_noticed() {
    let report =
        |change: fn(&mut Ended)| move |log: &mut Vec<Event>| change(ended(&mut log[FIRST_ENDED]));
    complains(checkers::keeps_bounds, report(|e| e.done.sent += 1), "saw (3, 1, true)");
    complains(checkers::keeps_bounds, report(|e| e.done.refused = false), "saw (3, 1, true)");
    complains(checkers::keeps_bounds, report(|e| e.ring = 1), "left messages");
    complains(checkers::keeps_counts, report(|e| e.done.pending = 3), "2 wait");
    complains(checkers::keeps_counts, report(|e| e.has_room = false), "room");
    complains(checkers::keeps_counts, report(|e| e.oldest_wait = SECOND), "Some(Span(0))");
    complains(checkers::keeps_counts, report(|e| e.done.requeues = 4), "3 arrived");
    complains(checkers::keeps_counts, report(|e| e.done.by_tier[0] = 2), "1 were sent");
    complains(checkers::keeps_counts, report(|e| e.done.rescues = 2), "rescued more");
}

#[test]
fn a_refused_decision_that_changes_is_noticed() {
    complains(
        checkers::repeats_refused,
        |log| decision(&mut log[SENT_AGAIN]).slice = SECOND,
        "refused was",
    );
}

#[test]
fn a_wrong_placement_is_noticed() {
    let elsewhere = Placement::Any { near: CpuId::new(5).unwrap() };
    complains(
        checkers::places_by_message,
        |log| decision(&mut log[FIRST_SENT]).placement = elsewhere,
        "belongs to",
    );
    let pinned = |log: &mut Vec<Event>| {
        log.insert(0, Event::Applied(Knobs { percpu_local: true, ..Knobs::default() }));
        let Event::Took(arrival) = &mut log[2] else { panic!("a task is taken in") };
        arrival.cpus_allowed = 1;
    };
    complains(checkers::places_by_message, pinned, "belongs to Cpu");
}

#[test]
fn an_overtaking_task_is_noticed() {
    let swap = |log: &mut Vec<Event>| {
        *decision(&mut log[FIRST_SENT]) = Dispatch { ..*decision(&mut log[LAST_SENT].clone()) };
    };
    complains(checkers::serves_in_order_of_arrival, swap, "Some(Pid(1)) came first");
}

#[test]
fn an_order_against_the_keys_is_noticed() {
    let backwards = |log: &mut Vec<Event>| decision(&mut log[REFUSED]).vtime = Vtime::default();
    complains(|log| checkers::serves_in_order_of_key(log, SECOND), backwards, "was served before");
}

#[test]
fn an_overdue_task_left_behind_twice_is_noticed() {
    let half = SECOND.scale(1, 2);
    let new_tasks = |log: &mut Vec<Event>| {
        let mut last = *decision(&mut log[LAST_SENT]);
        (last.pid, last.ticket) = (arrival(4, 1).pid, Ticket(1));
        let first = Event::Sent(last);
        let came = [4, 5].map(|pid| Event::Took(arrival(pid, 1)));
        *decision(&mut log[LAST_SENT]) = Dispatch { pid: arrival(5, 1).pid, ..last };
        log.splice(LAST_SENT..LAST_SENT, came.into_iter().chain([first]));
    };
    complains(|log| checkers::rescues_beyond(log, half), new_tasks, "waits beyond 500ms");
}
