// SPDX-License-Identifier: GPL-2.0-only

//! Explanations of recordings that the tests build entry by entry.

use super::explain;
use pandemonium_engine::MachineView;
use pandemonium_engine::facts::Facts;
use pandemonium_engine::task::{
    Arrival, Cause, Comm, CpuId, Dispatch, Pid, Placement, RawArrival, Reason, Ticket, Tier,
};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_record::Entry;
use pandemonium_record::file::read::Recording;
use pandemonium_record::file::write::{Header, Recorder};

/// A recording with one round for each entry.
struct Script(Vec<Entry>);

fn at(us: u64) -> Stamp {
    Stamp::from_nanos(1 << 40) + Span::from_micros(us)
}

/// A message of the task 7, whose last run ended at `stopped`.
fn message(ticket: u64, cause: Cause, stopped: u64) -> Arrival {
    let raw = RawArrival { pid: 7, enq_cnt: ticket, weight: 100, ..RawArrival::default() };
    let decoded = raw.decode().expect("the message is valid");
    let comm = Comm::from_text("parent");
    Arrival { cause, comm, stopped: Stamp::from_nanos(stopped), ..decoded }
}

/// Facts of a task that woke up at `woken`, and whose `runs`th run ended at `stopped` after 100 us.
fn facts(woken: u64, stopped: u64, runs: u64) -> Option<Facts> {
    let (woken, stopped, run_interval) = (at(woken), at(stopped), Span::from_micros(100));
    Some(Facts { woken, stopped, run_interval, voluntary: runs, ..Facts::default() })
}

fn dispatch(pid: i32, ticket: u64) -> Dispatch {
    Dispatch {
        pid: Pid::new(pid).expect("a pid"),
        ticket: Ticket(ticket),
        placement: Placement::Any { near: CpuId::default() },
        slice: Span::from_millis(1),
        vtime: Vtime::default(),
        tier: Tier::Interactive,
        preempt: false,
        reason: Reason::Order,
        order: None,
    }
}

impl Script {
    fn new() -> Script {
        Script(vec![Entry::Started { cpus: 2 }])
    }

    fn round(mut self, us: u64, entry: Entry) -> Script {
        let (now, view) = (at(us), MachineView::default());
        let ended = Entry::Ended { pending: 0, rescues: 0 };
        self.0.extend([Entry::Began { now, view }, entry, ended]);
        self
    }

    fn took(self, us: u64, arrival: Arrival) -> Script {
        self.round(us, Entry::Took(arrival))
    }

    fn sent(self, us: u64, ticket: u64) -> Script {
        self.round(us, Entry::Sent(dispatch(7, ticket)))
    }

    /// The task wakes up at `us`, and has run once since its first message, from `began` on.
    fn woke(self, us: u64, began: u64) -> Script {
        let facts = facts(us - 10, began + 100, 5);
        self.took(us, Arrival { facts, ..message(9, Cause::Wakeup, 2) })
    }

    /// What is told of waits above 1 ms.
    fn told(self) -> String {
        self.told_above(1_000)
    }

    fn told_above(self, us: u64) -> String {
        let header = Header { source: "test".into(), policy: "fifo".into(), redacted: false };
        let mut recorder = Recorder::new(Vec::new(), &header, &[]).expect("memory takes it");
        self.0.iter().for_each(|entry| recorder.add(entry));
        let bytes = recorder.finish().expect("memory takes it");
        let recording = Recording::new(&bytes[..]).expect("it was just written");
        explain(recording, "parent", Span::from_micros(us)).expect("the task is known")
    }
}

/// The first message of the task, which woke up 10 us before `us`.
fn first(us: u64, ticket: u64) -> Arrival {
    Arrival { facts: facts(us - 10, us - 20, 4), ..message(ticket, Cause::Wakeup, 1) }
}

fn assert_tells(told: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(told.contains(part), "{part:?} is missing: {told}"));
}

#[test]
fn a_decided_task_ran_and_from_when_on_is_known_from_the_facts() {
    let told = Script::new().took(1_010, first(1_010, 5)).sent(6_000, 5).woke(9_000, 6_100).told();
    assert_tells(
        &told,
        &[
            "pid 7 woke up and waited 5000 us for a decision as Interactive",
            "It ran 100 us after the decision.",
            "What became of the decisions: 1 times it ran after the decision.",
            "Without a decision: 1 times that is unknown.",
        ],
    );
}

/// The parent of a fork storm: the backend runs it by another way, 90 us after its message, and the
/// decision comes 50 ms later. It never waited for so long.
#[test]
fn a_task_that_ran_before_its_decision_did_not_wait_for_that() {
    let script = || Script::new().took(1_010, first(1_010, 5)).sent(51_009, 5).woke(61_000, 1_100);
    let told = script().told();
    assert_tells(
        &told,
        &[
            "It waited 100 us for a decision in the middle, 100 us in one of a hundred cases, 100 \
             us at most.",
            "No wait for a decision was longer than",
            "What became of the decisions: 1 times it ran by another way before the decision came.",
        ],
    );
    let told = script().told_above(50);
    assert_tells(&told, &["waited 100 us", "It ran by another way 49909 us before the decision"]);
}

#[test]
fn without_facts_a_changed_end_of_the_last_run_shows_that_it_ran_but_not_when() {
    let script = Script::new().took(0, message(5, Cause::Wakeup, 1)).sent(5_000, 5);
    let told = script.took(9_000, message(6, Cause::Requeue, 2)).told();
    assert_tells(
        &told,
        &[
            "waited at most 5000 us",
            "It ran, before the decision or after it.",
            "Of 1 waits it is known only that none was longer than 5000 us.",
        ],
    );
}

#[test]
fn a_decision_for_a_task_that_is_queued_again_before_it_ran_is_cancelled() {
    let script = Script::new().took(0, message(5, Cause::Wakeup, 1)).sent(2_000, 5);
    let told = script.took(2_100, message(6, Cause::Wakeup, 1)).told();
    assert_tells(
        &told,
        &[
            "waited at least 2000 us",
            "so the decision was cancelled",
            "1 times it was queued again before it ran",
        ],
    );
    assert!(!told.contains("times it ran"), "{told}");
}

/// The parent of a fork storm: the backend ran it while its message waited, it slept, and 50 ms
/// later it woke up again. It never waited for so long.
#[test]
fn a_task_that_ran_without_its_decision_did_not_wait_until_its_next_one() {
    let script = Script::new().took(0, message(5, Cause::Wakeup, 0));
    let script = script.took(50_000, first(50_000, 6)).sent(50_019, 6);
    assert_tells(
        &script.woke(60_000, 50_100).told(),
        &[
            "It waited 29 us for a decision in the middle",
            "No wait for a decision was longer than",
            "Without a decision: 1 times it ran without one, 1 times that is unknown.",
        ],
    );
}

/// A message can be received before the fast path has noted the wakeup that caused it.
#[test]
fn a_note_of_an_earlier_wakeup_does_not_make_a_wait_longer() {
    let late = Arrival { facts: facts(1_000, 1_100, 4), ..message(5, Cause::Wakeup, 1) };
    let told = Script::new().took(51_000, late).sent(51_009, 5).woke(60_000, 51_100).told();
    assert_tells(&told, &["none was longer than 9 us", "No wait for a decision was longer than"]);
}

#[test]
fn a_newer_message_of_a_task_that_did_not_run_continues_its_wait() {
    let script = Script::new().took(1_010, first(1_010, 5)).took(3_000, first(1_010, 6));
    let told = script.sent(5_000, 6).woke(9_000, 5_100).told();
    assert_tells(&told, &["waited 4000 us", "1 times a newer message took the place"]);
}

#[test]
fn the_wait_of_a_cancelled_decision_goes_on() {
    let script = Script::new().took(1_010, first(1_010, 5)).sent(2_000, 5);
    let told = script.took(3_000, first(1_010, 6)).sent(5_000, 6).woke(9_000, 5_100).told();
    assert_tells(&told, &["waited 4000 us", "It waited 4000 us for a decision in the middle"]);
}

#[test]
fn a_refused_decision_goes_on_waiting() {
    let script = Script::new().took(1_010, first(1_010, 5));
    let script = script.round(1_100, Entry::Refused(dispatch(7, 5))).sent(4_000, 5);
    let told = script.woke(9_000, 4_100).told();
    assert_tells(&told, &["waited 3000 us", "1 decisions found the ring to the kernel full"]);
}

#[test]
fn a_decision_about_an_older_message_does_not_end_the_wait() {
    let script = Script::new().took(1_010, first(1_010, 5)).took(1_020, first(1_010, 6));
    let told = script.sent(1_030, 5).sent(3_000, 6).woke(9_000, 3_100).told();
    assert_tells(&told, &["waited 2000 us", "1 times the decision was about an older message"]);
}

#[test]
fn an_exit_a_gap_and_the_end_leave_what_is_not_known_unknown() {
    let decided = || Script::new().took(0, message(5, Cause::Wakeup, 1)).sent(2_000, 5);
    let exit = Entry::Exited(Pid::new(7).expect("a pid"));
    let told = decided().round(3_000, exit).told();
    assert_tells(
        &told,
        &["It exited after that.", "What became of the decisions: 1 times it exited."],
    );
    for entry in [Entry::Dropped(3), Entry::Started { cpus: 2 }] {
        let told = decided().round(3_000, entry).took(9_000, message(6, Cause::Wakeup, 2)).told();
        assert_tells(
            &told,
            &["What became of the decision is unknown.", "1 times that is unknown."],
        );
    }
    let told = decided().told();
    assert_tells(&told, &["What became of the decision is unknown."]);
    let told = Script::new().took(0, message(5, Cause::Wakeup, 1)).round(3_000, exit).told();
    assert_tells(&told, &["Without a decision: 1 times it exited before."]);
}

#[test]
fn a_pid_that_is_used_again_is_another_task() {
    let script = Script::new().took(0, message(9, Cause::Wakeup, 1)).sent(2_000, 9);
    let told = script.took(5_000, message(1, Cause::New, 0)).told();
    assert_tells(&told, &["It exited after that."]);
}
