// SPDX-License-Identifier: GPL-2.0-only

extern crate std;
use super::*;
use crate::task::RawArrival;
use std::string::ToString;
use std::vec::Vec;

/// Between two rounds.
const GAP: Span = Span::from_micros(20);
const RUN: Span = Span::from_micros(100);

fn at(us: u64) -> Stamp {
    Stamp::from_nanos(1 << 40) + Span::from_micros(us)
}

/// A message of the task. Its last run ended at `stopped`.
fn message(ticket: u64, cause: Cause, stopped: u64) -> Arrival {
    let raw = RawArrival { pid: 7, enq_cnt: ticket, weight: 100, ..RawArrival::default() };
    Arrival { cause, stopped: Stamp::from_nanos(stopped), ..raw.decode().unwrap() }
}

/// What is noted of a task that woke up at `woken`. Its last run was number `runs` and ended at
/// `stopped`.
fn noted(woken: u64, stopped: u64, runs: u64) -> Option<Facts> {
    let (woken, stopped) = (at(woken), at(stopped));
    Some(Facts { woken, stopped, run_interval: RUN, voluntary: runs, ..Facts::default() })
}

/// What a decision of 50 ms becomes, of a task that waits since 1 ms, by its next message at 60 ms;
/// and how long the task waited.
fn ended(first: Arrival, next: Arrival) -> (Fate, Waited) {
    ended_after(GAP, first, next)
}

/// The same if the first message was received so long after the last round.
fn ended_after(gap: Span, first: Arrival, next: Arrival) -> (Fate, Waited) {
    let mut follower = Follower::<()>::default();
    assert!(follower.received(at(1_000), gap, &first).is_none());
    assert!(follower.sent(at(50_000), first.ticket).is_some());
    let ended = follower.received(at(60_000), GAP, &next).expect("a decision was sent");
    (ended.fate, ended.waited)
}

fn woke(facts: Option<Facts>) -> Arrival {
    Arrival { facts, ..message(5, Cause::Wakeup, 1) }
}

fn requeued(facts: Option<Facts>) -> Arrival {
    Arrival { facts, ..message(5, Cause::Requeue, 1) }
}

fn next(cause: Cause, facts: Option<Facts>) -> Arrival {
    Arrival { facts, ..message(9, cause, 2) }
}

const MS_49: Span = Span::from_millis(49);
/// Nothing shows when it ran.
const SOMETIME: (Fate, Waited) = (Fate::RanSometime, Waited::AtMost(MS_49));
/// It ran 2 ms after it began to wait, or sooner.
const BEFORE: (Fate, Waited) =
    (Fate::RanBefore(Span::from_millis(47)), Waited::AtMost(Span::from_millis(2)));

#[test]
fn a_task_that_ran_before_its_decision_waited_until_it_ran() {
    let (fate, waited) =
        ended(woke(noted(1_000, 900, 4)), next(Cause::Wakeup, noted(59_990, 1_200, 5)));
    assert_eq!(fate, Fate::RanBefore(Span::from_micros(48_900)));
    assert_eq!(waited, Waited::Exactly(RUN));
    assert_eq!(fate.to_string(), "It ran by another way 48900 us before the decision came.");
}

#[test]
fn a_task_that_ran_after_its_decision_waited_until_that() {
    let (fate, waited) =
        ended(woke(noted(1_000, 900, 4)), next(Cause::Requeue, noted(1_000, 50_140, 5)));
    assert_eq!(fate, Fate::Ran(Span::from_micros(40)));
    assert_eq!(waited, Waited::Exactly(MS_49));
}

#[test]
fn a_task_that_ran_several_times_may_have_run_before_its_decision() {
    let first = woke(noted(1_000, 900, 4));
    assert_eq!(ended(first, next(Cause::Wakeup, noted(59_990, 59_000, 6))), SOMETIME);
    // The last run began before the decision, so the first one did too.
    assert_eq!(ended(first, next(Cause::Wakeup, noted(59_990, 3_100, 6))), BEFORE);
}

#[test]
fn without_notes_nothing_shows_when_a_task_ran() {
    let of = |was, is| assert_eq!(ended(woke(was), next(Cause::Wakeup, is)), SOMETIME);
    let (was, is) = (noted(1_000, 900, 4), noted(59_990, 1_200, 5));
    of(was, None);
    of(None, is);
    // The start of its run was not noted: it was a real-time task then.
    of(was, is.map(|is| Facts { run_interval: Span::from_millis(1), ..is }));
    of(was, is.map(|is| Facts { run_interval: Span::ZERO, ..is }));
}

/// A message that a task lost its CPU can be received before the fast path has noted that.
#[test]
fn a_late_note_of_the_run_before_the_message_is_not_a_run_after_it() {
    let late = noted(0, 999, 4);
    let first = ended(requeued(noted(0, 500, 3)), next(Cause::Requeue, late));
    assert_eq!(first.0, Fate::RanSometime);
    let of = |is| ended(requeued(late), next(Cause::Requeue, is));
    assert_eq!(of(noted(0, 50_140, 5)).0, Fate::Ran(Span::from_micros(40)));
    assert_eq!(of(noted(0, 3_100, 5)).1, Waited::Exactly(Span::from_millis(2)));
}

/// The backend has run it, and not by the decision.
#[test]
fn a_task_that_lost_its_cpu_may_have_run_in_a_stall() {
    let stalled = |is| ended_after(STALL, requeued(noted(0, 999, 4)), next(Cause::Requeue, is));
    assert_eq!(stalled(noted(0, 50_140, 5)).0, Fate::RanSometime);
    assert_eq!(stalled(noted(0, 3_100, 5)), BEFORE);
}

/// A wakeup's message can wait so long that the task has run, and slept, when it is received.
#[test]
fn a_task_that_may_have_slept_did_not_wait_for_the_decision() {
    let ran = woke(noted(100, 900, 4));
    assert_eq!(ended(ran, next(Cause::Wakeup, noted(59_990, 55_000, 5))), SOMETIME);
    let (fate, waited) = ended(ran, next(Cause::Wakeup, noted(59_990, 900, 4)));
    assert!(matches!(fate, Fate::RanBefore(_)), "{fate:?}");
    assert_eq!(waited, Waited::AtLeast(Span::ZERO));
}

#[test]
fn a_cancelled_decision_does_not_end_the_wait() {
    let (mut follower, first) = (Follower::<u32>::default(), message(5, Cause::Requeue, 1));
    follower.received(at(0), GAP, &first);
    *follower.sent(at(10), Ticket(5)).unwrap() = 3;
    let ended = follower.received(at(20), GAP, &message(6, Cause::Wakeup, 1)).unwrap();
    assert_eq!((ended.fate, ended.notes), (Fate::Cancelled, 3));
    assert_eq!(ended.waited, Waited::AtLeast(Span::from_micros(10)));
    assert_eq!(follower.waiting(), Some((at(0), &mut 0)));
    follower.received(at(30), GAP, &message(7, Cause::Wakeup, 1));
    follower.sent(at(40), Ticket(7));
    let open = follower.decided().unwrap();
    assert_eq!((open.fate, open.cause), (Fate::Unknown, Cause::Requeue));
    assert_eq!(open.waited, Waited::AtMost(Span::from_micros(40)));
    assert_eq!((follower.fates().cancelled, follower.fates().replaced), (1, 1));
}

#[test]
fn fates_are_counted_and_put_into_sentences() {
    let mut follower = Follower::<()>::default();
    assert_eq!(follower.fates().to_string(), "");
    let tickets = |follower: &mut Follower<()>, sent: &[u64]| {
        for ticket in sent {
            follower.sent(at(9), Ticket(*ticket));
        }
    };
    follower.received(at(0), GAP, &message(5, Cause::New, 1));
    tickets(&mut follower, &[4, 5, 5]);
    follower.received(at(20), GAP, &message(1, Cause::New, 0));
    follower.refused();
    follower.exited();
    tickets(&mut follower, &[1]);
    follower.received(at(30), GAP, &message(2, Cause::Wakeup, 0));
    follower.received(at(40), GAP, &message(3, Cause::Wakeup, 1));
    follower.lose_track();
    let expected = [
        " What became of the decisions: 2 times the decision was about an older message, 1 times \
         it exited, 1 times that is unknown.",
        " Without a decision: 1 times it ran without one, 1 times it exited before, 1 times that \
         is unknown.",
        " 1 decisions found the ring to the kernel full.",
    ];
    assert_eq!(follower.fates().to_string(), Vec::from(expected).concat());
}
