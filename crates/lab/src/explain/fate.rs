// SPDX-License-Identifier: GPL-2.0-only

//! What became of the messages and decisions of one task, as far as a recording shows it.
//!
//! A message carries the end of the task's last run. If two messages in a row agree in it, the task
//! did not run between them, and the backend has cancelled a decision about the first one: its
//! ticket is old. If they differ, the task ran. The facts of the fast path say how often, and when
//! its last run began.

use pandemonium_engine::task::{Arrival, Cause};
use pandemonium_engine::time::{Span, Stamp};

/// What a task did between two of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// It ran, as often as the fast path counted, if that is known; the only run began then.
    Ran {
        /// Since when it ran, if it ran once and the fast path saw it.
        began: Option<Stamp>,
    },
    /// It did not run.
    DidNotRun,
    /// The messages are of two tasks with the same pid.
    OtherTask,
}

/// What the task did between two messages.
pub fn between(before: &Arrival, after: &Arrival) -> Between {
    if after.ticket <= before.ticket {
        return Between::OtherTask;
    }
    if before.stopped == after.stopped {
        return Between::DidNotRun;
    }
    let began = before.facts.zip(after.facts).and_then(|(was, is)| {
        let runs = (is.voluntary + is.involuntary).checked_sub(was.voluntary + was.involuntary)?;
        let is_new = is.stopped > was.stopped;
        let began = is.stopped.as_nanos().checked_sub(is.run_interval.as_nanos())?;
        let is_known = runs == 1 && is_new && is.run_interval > Span::ZERO;
        is_known.then(|| Stamp::from_nanos(began))
    });
    Between::Ran { began }
}

/// Since when a task waits that sent this message, which was received at `now`.
///
/// The fast path notes a wakeup only after the backend has sent its message. If the message is
/// received before that, the note is of an earlier wakeup, after which the task has run and slept.
pub fn waits_since(arrival: &Arrival, now: Stamp) -> Stamp {
    let woken = match (arrival.cause, arrival.facts) {
        (Cause::Requeue, _) | (_, None) => return now,
        (_, Some(facts)) => facts.has_slept().then_some(facts.woken),
    };
    woken.filter(|woken| *woken <= now).unwrap_or(now)
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The task ran; since when, if that is known.
    Ran(Option<Stamp>),
    /// The task was queued again before it ran, so the backend dropped the decision.
    Cancelled,
    /// The decision was about an older message than the last one.
    Late,
    /// The task exited, and nothing shows whether it ran before.
    Exited,
    /// Nothing shows it: the recording has a gap, or ends.
    Unknown,
}

/// Counts of what became of messages and decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Decisions after which the task ran.
    pub ran: u64,
    /// Decisions that the backend dropped.
    pub cancelled: u64,
    /// Decisions about an older message.
    pub late: u64,
    /// Decisions after which the task exited.
    pub exited: u64,
    /// Decisions of which nothing is known.
    pub unknown: u64,
    /// Messages that got no decision: the task ran otherwise,
    pub ran_undecided: u64,
    /// or a newer message took their place,
    pub replaced: u64,
    /// or the task exited,
    pub exited_undecided: u64,
    /// or nothing is known.
    pub unknown_undecided: u64,
    /// Decisions that the full ring refused; they were made again later.
    pub refused: u64,
}

impl Fates {
    /// Counts a decision.
    pub fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Ran(_) => self.ran += 1,
            Fate::Cancelled => self.cancelled += 1,
            Fate::Late => self.late += 1,
            Fate::Exited => self.exited += 1,
            Fate::Unknown => self.unknown += 1,
        }
    }

    /// In sentences: of decisions, then of messages without one.
    pub fn tell(&self) -> String {
        let list = |parts: &[(u64, &str)]| {
            let some = parts.iter().filter(|(count, _)| *count > 0);
            some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
        };
        let decided = list(&[
            (self.ran, "times it ran"),
            (self.cancelled, "times it was queued again before it ran, which cancels the decision"),
            (self.late, "times the decision was about an older message"),
            (self.exited, "times it exited"),
            (self.unknown, "times that is unknown"),
        ]);
        let undecided = list(&[
            (self.ran_undecided, "times it ran without one"),
            (self.replaced, "times a newer message took the place of an older one"),
            (self.exited_undecided, "times it exited before"),
            (self.unknown_undecided, "times that is unknown"),
        ]);
        let mut text = String::new();
        if !decided.is_empty() {
            text += &format!(" After a decision: {decided}.");
        }
        if !undecided.is_empty() {
            text += &format!(" Without a decision: {undecided}.");
        }
        if self.refused > 0 {
            text += &format!(" {} decisions found the ring to the kernel full.", self.refused);
        }
        text
    }
}
