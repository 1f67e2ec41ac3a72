// SPDX-License-Identifier: GPL-2.0-only

//! What became of the messages and decisions of one task, as far as its messages show it.
//!
//! A message carries the end of the task's last run. If two messages in a row agree in it, the task
//! did not run between them, and the backend has dropped a decision about the first one: its ticket
//! is old. If they differ, the task ran, but perhaps before its decision came: the backend executes
//! standing orders, and decides by itself in a stall. The facts of the fast path say how often the
//! task ran, and when its last run began. What they do not show is said to be unknown.

use crate::facts::Facts;
use crate::task::{Arrival, Cause, Ticket};
use crate::time::{Span, Stamp};
use core::{fmt, mem};

/// In a stall the backend runs tasks that wait for decisions. It begins no earlier after a round:
/// `PATCH_CHECKS` times `PATCH_CHECK_NS` in src/bpf/backend_limits.h.
pub const STALL: Span = Span::from_millis(20);

/// What became of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// The task ran so long after the decision.
    Ran(Span),
    /// The task ran by another way, so long before the decision came.
    RanBefore(Span),
    /// The task ran. Nothing shows whether it was before the decision or after it.
    RanSometime,
    /// The task was queued again before it ran, so the backend dropped the decision.
    Cancelled,
    /// The task exited. Nothing shows whether it ran before the decision.
    Exited,
    /// Nothing shows it: there is no next message, or messages are missing.
    #[default]
    Unknown,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self {
            Fate::Ran(after) => {
                return write!(f, "It ran {} us after the decision.", after.as_micros());
            }
            Fate::RanBefore(before) => {
                let us = before.as_micros();
                return write!(f, "It ran by another way {us} us before the decision came.");
            }
            Fate::RanSometime => "It ran, before the decision or after it.",
            Fate::Cancelled => "It was queued again before it ran, so the decision was cancelled.",
            Fate::Exited => "It exited after that.",
            Fate::Unknown => "What became of the decision is unknown.",
        };
        f.write_str(sentence)
    }
}

/// How long a task waited, until its decision came or it ran, whichever was first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// So long.
    Exactly(Span),
    /// No longer than this: it may have run before its decision came.
    AtMost(Span),
    /// No shorter than this: its decision was dropped, and it waits on. Or it ran before its
    /// message was received, and nothing shows since when it had waited.
    AtLeast(Span),
}

impl Waited {
    /// The length, or what is known of it.
    pub fn span(self) -> Span {
        let (Waited::Exactly(span) | Waited::AtMost(span) | Waited::AtLeast(span)) = self;
        span
    }
}

impl Default for Waited {
    fn default() -> Self {
        Waited::AtMost(Span::ZERO)
    }
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self {
            Waited::Exactly(_) => "",
            Waited::AtMost(_) => "at most ",
            Waited::AtLeast(_) => "at least ",
        };
        write!(f, "{bound}{} us", self.span().as_micros())
    }
}

/// Waits of which only a bound is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounded {
    /// How many.
    pub count: u64,
    /// The longest that one of them can have been.
    pub longest: Span,
}

impl Bounded {
    /// Counts the wait if only an upper bound of its length is known. Returns the length if that is
    /// known.
    pub fn add(&mut self, waited: Waited) -> Option<Span> {
        match waited {
            Waited::Exactly(length) => return Some(length),
            Waited::AtMost(length) => {
                self.count += 1;
                self.longest = self.longest.max(length);
            }
            // The wait goes on, and ends with another decision, or its begin is not known.
            Waited::AtLeast(_) => {}
        }
        None
    }
}

/// In a sentence, after a space; nothing if there is none.
impl fmt::Display for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, us) = (self.count, self.longest.as_micros());
        match count {
            0 => Ok(()),
            _ => write!(f, " Of {count} waits it is known only that none was longer than {us} us."),
        }
    }
}

/// Counts of what became of messages and decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Decisions after which the task ran, and not before.
    pub ran: u64,
    /// Decisions before which the task had run by another way.
    pub ran_before: u64,
    /// Decisions before or after which the task ran.
    pub ran_sometime: u64,
    /// Decisions that the backend dropped.
    pub cancelled: u64,
    /// Decisions about an older message than the last one.
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
    /// Counts what became of a decision.
    pub fn count(&mut self, fate: Fate) {
        let count = match fate {
            Fate::Ran(_) => &mut self.ran,
            Fate::RanBefore(_) => &mut self.ran_before,
            Fate::RanSometime => &mut self.ran_sometime,
            Fate::Cancelled => &mut self.cancelled,
            Fate::Exited => &mut self.exited,
            Fate::Unknown => &mut self.unknown,
        };
        *count += 1;
    }
}

/// In sentences, each after a space: of decisions, then of messages without one.
impl fmt::Display for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decided = [
            (self.ran, "it ran after the decision"),
            (self.ran_before, "it ran by another way before the decision came"),
            (self.ran_sometime, "it ran before the decision or after it"),
            (self.cancelled, "it was queued again before it ran, which cancels the decision"),
            (self.late, "the decision was about an older message"),
            (self.exited, "it exited"),
            (self.unknown, "that is unknown"),
        ];
        write_list(f, "What became of the decisions", &decided)?;
        let undecided = [
            (self.ran_undecided, "it ran without one"),
            (self.replaced, "a newer message took the place of an older one"),
            (self.exited_undecided, "it exited before"),
            (self.unknown_undecided, "that is unknown"),
        ];
        write_list(f, "Without a decision", &undecided)?;
        match self.refused {
            0 => Ok(()),
            refused => write!(f, " {refused} decisions found the ring to the kernel full."),
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, of: &str, parts: &[(u64, &str)]) -> fmt::Result {
    let mut some = parts.iter().filter(|(times, _)| *times > 0);
    let Some((times, what)) = some.next() else { return Ok(()) };
    write!(f, " {of}: {times} times {what}")?;
    some.try_for_each(|(times, what)| write!(f, ", {times} times {what}"))?;
    f.write_str(".")
}

/// What a task did between two of its messages.
enum Between {
    Ran,
    DidNotRun,
    /// The messages are of two tasks with the same pid.
    OtherTask,
}

fn between(before: &Arrival, after: &Arrival) -> Between {
    match () {
        () if after.ticket <= before.ticket => Between::OtherTask,
        () if after.stopped == before.stopped => Between::DidNotRun,
        () => Between::Ran,
    }
}

/// Since when a task waits that sent this message, which was received at `now`.
///
/// The fast path notes a wakeup only after the backend has sent its message. If the message is
/// received before that, the note is of an earlier wakeup, after which the task has run and slept.
fn waits_since(arrival: &Arrival, now: Stamp) -> Stamp {
    let woken = match (arrival.cause, arrival.facts) {
        (Cause::Requeue, _) | (_, None) => return now,
        (_, Some(facts)) => facts.has_slept().then_some(facts.woken),
    };
    woken.filter(|woken| *woken <= now).unwrap_or(now)
}

/// A wait of a task, with what an observer notes of it.
#[derive(Clone, Copy)]
struct Wait<T> {
    /// The newest message, and when it was received.
    message: Arrival,
    received: Stamp,
    /// Whether there was no stall before it was received.
    is_prompt: bool,
    /// Since when the task waits, and why: of the first message.
    since: Stamp,
    cause: Cause,
    notes: T,
}

impl<T: Default> Wait<T> {
    fn new(now: Stamp, gap: Span, message: &Arrival) -> Self {
        Wait {
            message: *message,
            received: now,
            is_prompt: gap < STALL,
            since: waits_since(message, now),
            cause: message.cause,
            notes: T::default(),
        }
    }
}

impl<T> Wait<T> {
    /// The task still waits, since the same time and for the same cause as before.
    fn go_on(&mut self, before: &Wait<T>) {
        (self.since, self.cause) = (before.since.min(self.since), before.cause);
    }

    /// What became of the decision that came at `at`, and how long the task waited, by its next
    /// message.
    fn outcome(&self, at: Stamp, next: &Arrival) -> (Fate, Waited) {
        let length = at.since(self.since);
        match between(&self.message, next) {
            Between::DidNotRun => (Fate::Cancelled, Waited::AtLeast(length)),
            Between::OtherTask => (Fate::Exited, Waited::AtMost(length)),
            Between::Ran => {
                let shown = self.outcome_of_run(at, next);
                shown.unwrap_or((Fate::RanSometime, Waited::AtMost(length)))
            }
        }
    }

    /// The same for a task that ran; `None` if the facts do not show when.
    fn outcome_of_run(&self, at: Stamp, next: &Arrival) -> Option<(Fate, Waited)> {
        let (was, is) = self.message.facts.zip(next.facts)?;
        let began = is.last_began()?;
        let is_new = is.stopped > was.stopped;
        // The start of a run in a higher scheduling class is not noted.
        if is_new && began < was.stopped {
            return None;
        }
        // That a task lost its CPU may be noted after its message is received. A note of an earlier
        // stop may then be new in the next message.
        let lost_cpu = self.message.cause == Cause::Requeue;
        let is_after_message = began >= self.received || is_new && !lost_cpu;
        let is_newest = next.cause != Cause::Requeue;
        // The task may have run before its message was received: in a stall, or by the order that
        // the message asks to renew. A task that woke up after its last stop has not run since.
        let has_waited = if lost_cpu { self.is_prompt } else { was.has_slept() };
        let is_only = is_new && has_waited && runs(&was, &is) == Some(1);
        if began >= at {
            let outcome = (Fate::Ran(began.since(at)), Waited::Exactly(at.since(self.since)));
            return is_only.then_some(outcome);
        }
        let length = began.since(self.since);
        let waited = match is_only && is_after_message {
            _ if began < self.since => Waited::AtLeast(Span::ZERO),
            true => Waited::Exactly(length),
            false => Waited::AtMost(length),
        };
        let is_known = is_after_message || is_newest;
        is_known.then_some((Fate::RanBefore(at.since(began)), waited))
    }

    fn end(self, at: Stamp, fate: Fate, waited: Waited) -> Ended<T> {
        let Wait { since, cause, notes, .. } = self;
        Ended { since, cause, at, fate, waited, notes }
    }

    /// Ends with a fate that no next message shows.
    fn end_unseen(self, at: Stamp, fate: Fate) -> Ended<T> {
        let waited = Waited::AtMost(at.since(self.since));
        self.end(at, fate, waited)
    }
}

/// How often the task stopped between two notes. `None` if it was counted anew in between, as when
/// it executes another program.
fn runs(was: &Facts, is: &Facts) -> Option<u64> {
    is.wakeups.checked_sub(was.wakeups)?;
    let voluntary = is.voluntary.checked_sub(was.voluntary)?;
    Some(voluntary.saturating_add(is.involuntary.checked_sub(was.involuntary)?))
}

/// A wait that got a decision, and what became of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended<T> {
    /// Since when the task waited, and why.
    pub since: Stamp,
    /// Why it waited.
    pub cause: Cause,
    /// When the decision was sent.
    pub at: Stamp,
    /// What became of the decision.
    pub fate: Fate,
    /// How long the task waited.
    pub waited: Waited,
    /// What the observer noted.
    pub notes: T,
}

#[derive(Default)]
enum State<T> {
    /// Nothing is known of the task, or it has exited.
    #[default]
    Unknown,
    Waiting(Wait<T>),
    /// It got a decision at that time, and sent no message since.
    Decided(Wait<T>, Stamp),
}

/// Follows the messages and decisions of one task. `T` is what an observer notes of a wait.
/// Allocates nothing.
#[derive(Default)]
pub struct Follower<T> {
    state: State<T>,
    fates: Fates,
}

impl<T: Default> Follower<T> {
    /// The task's message is received in the round of `now`, which began `gap` after the last one:
    /// now it is known what became of the message before. Returns the wait that ended with a
    /// decision.
    pub fn received(&mut self, now: Stamp, gap: Span, message: &Arrival) -> Option<Ended<T>> {
        let mut wait = Wait::new(now, gap, message);
        let ended = match mem::take(&mut self.state) {
            State::Unknown => None,
            State::Waiting(before) => {
                match between(&before.message, message) {
                    Between::Ran => self.fates.ran_undecided += 1,
                    Between::OtherTask => self.fates.exited_undecided += 1,
                    Between::DidNotRun => {
                        self.fates.replaced += 1;
                        wait.go_on(&before);
                        wait.notes = before.notes;
                    }
                }
                None
            }
            State::Decided(before, at) => {
                let (fate, waited) = before.outcome(at, message);
                self.fates.count(fate);
                if fate == Fate::Cancelled {
                    wait.go_on(&before);
                }
                Some(before.end(at, fate, waited))
            }
        };
        self.state = State::Waiting(wait);
        ended
    }

    /// A decision about the task is sent. Returns the notes of the wait that it ends; `None` if it
    /// is about another message than the last one.
    pub fn sent(&mut self, now: Stamp, ticket: Ticket) -> Option<&mut T> {
        self.state = match mem::take(&mut self.state) {
            State::Unknown => {
                self.fates.unknown += 1;
                return None;
            }
            State::Waiting(wait) if wait.message.ticket == ticket => State::Decided(wait, now),
            state => {
                self.fates.late += 1;
                self.state = state;
                return None;
            }
        };
        match &mut self.state {
            State::Decided(wait, _) => Some(&mut wait.notes),
            _ => None,
        }
    }

    /// The full ring refuses a decision about the task.
    pub fn refused(&mut self) {
        self.fates.refused += 1;
    }

    /// The task has exited. Returns the wait that ended with a decision.
    pub fn exited(&mut self) -> Option<Ended<T>> {
        self.leave(Fate::Exited)
    }

    /// Messages may be missing from here on. Returns the wait that ended with a decision.
    pub fn lose_track(&mut self) -> Option<Ended<T>> {
        self.leave(Fate::Unknown)
    }

    fn leave(&mut self, fate: Fate) -> Option<Ended<T>> {
        match mem::take(&mut self.state) {
            State::Unknown => None,
            State::Waiting(_) => {
                match fate {
                    Fate::Exited => self.fates.exited_undecided += 1,
                    _ => self.fates.unknown_undecided += 1,
                }
                None
            }
            State::Decided(wait, at) => {
                self.fates.count(fate);
                Some(wait.end_unseen(at, fate))
            }
        }
    }

    /// Since when the task waits for a decision, and what is noted of that.
    pub fn waiting(&mut self) -> Option<(Stamp, &mut T)> {
        match &mut self.state {
            State::Waiting(wait) => Some((wait.since, &mut wait.notes)),
            State::Unknown | State::Decided(..) => None,
        }
    }

    /// The wait that ended with the last decision, while it is not known what became of that.
    pub fn decided(&self) -> Option<Ended<T>>
    where
        T: Copy,
    {
        match &self.state {
            State::Decided(wait, at) => Some(wait.end_unseen(*at, Fate::Unknown)),
            State::Unknown | State::Waiting(_) => None,
        }
    }

    /// What became of all messages and decisions so far; not of those that are under way.
    pub fn fates(&self) -> &Fates {
        &self.fates
    }
}

#[cfg(test)]
mod tests;
