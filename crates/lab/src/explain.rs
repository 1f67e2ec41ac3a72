// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab explain`: what a task is to the policy, why it waited, and what ran instead.

mod fate;
mod orders;
#[cfg(test)]
mod tests;

use self::fate::{Between, Fate, Fates, between, waits_since};
use self::orders::Orders;
use crate::cli::{ExplainArgs, catalog};
use crate::play::Case;
use crate::simulated;
use anyhow::{Result, bail};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::task::{Arrival, Cause, Comm, Dispatch, Pid, Reason, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_record::Entry;
use pandemonium_record::file::read::Recording;
use pandemonium_record::file::write::Header;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::ExitCode;

/// Waits that are told one by one; the others are counted.
const TOLD_MAX: usize = 12;
/// Tasks of one name that are told of: those queued to the policy most often; the others are
/// counted.
const SUBJECTS_MAX: usize = 8;
/// Decisions for others that are remembered of one wait.
const OTHERS_MAX: usize = 256;
/// Most tasks of the name that are followed, some 20 KB each. Each counts as told of.
const FOLLOWED_MAX: usize = 2_048;
/// Most pids with a name: the kernel's limit. No file can exhaust the memory.
const PIDS_MAX: usize = 1 << 22;
/// Most names in the list of those that there are.
const NAMES_LISTED_MAX: usize = 200;

pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let over = Span::from_micros(args.over_us);
    let told = if args.what.workload.ends_with(".rec") {
        explain(Recording::open(&args.what.workload)?, &args.task, over)?
    } else {
        let case = Case::new(
            &args.what,
            args.policy.unwrap_or_else(|| catalog().default_policy()),
            args.seed,
        )?;
        let mut recorder = simulated::begin(Vec::new(), &case, false)?;
        case.play(&mut recorder);
        explain(Recording::new(&recorder.finish()?[..])?, &args.task, over)?
    };
    pandemonium_print::print(told.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// A decision for another task while a task waited.
struct Other {
    pid: Pid,
    tier: Tier,
    key: u64,
    reason: Reason,
}

struct Waiting {
    message: Arrival,
    since: Stamp,
    others: Vec<Other>,
}

/// A decision of which it is not known yet what became of it.
struct Decided {
    message: Arrival,
    /// When it was sent.
    at: Stamp,
    /// Its sentences, if the wait was long, up to what became of it.
    told: Option<String>,
}

/// What is known of a task that is to be explained.
struct Subject {
    newest: Arrival,
    first: Stamp,
    last: Stamp,
    waiting: Option<Waiting>,
    decided: Option<Decided>,
    fates: Fates,
    waits: Durations,
    /// From a decision to the run, where that is known.
    runs_after: Durations,
    run_intervals: Durations,
    wakeups: u64,
    requeues: u64,
    /// Decisions by tier, and how often the tier changed.
    tiers: [u64; 3],
    tier: Option<Tier>,
    changes: u64,
    /// Decisions by [`Reason::index`].
    reasons: [u64; Reason::ALL.len()],
    orders: Orders,
}

/// Everything that is read so far.
struct Story<'a> {
    task: &'a str,
    over: Span,
    now: Stamp,
    start: Option<Stamp>,
    names: BTreeMap<Pid, Comm>,
    subjects: BTreeMap<Pid, Subject>,
    not_followed: u64,
    told: Vec<String>,
    not_told: u64,
}

/// Explains the tasks of this name, or the one of this pid.
pub fn explain<R: Read>(mut recording: Recording<R>, task: &str, over: Span) -> Result<String> {
    let mut story = Story {
        task,
        over,
        now: Stamp::default(),
        start: None,
        names: BTreeMap::new(),
        subjects: BTreeMap::new(),
        not_followed: 0,
        told: Vec::new(),
        not_told: 0,
    };
    while let Some(entry) = recording.next_entry()? {
        match entry {
            Entry::Began { now, .. } => {
                story.now = now;
                story.start.get_or_insert(now);
            }
            Entry::Took(arrival) => story.took(&arrival),
            Entry::Sent(dispatch) => story.sent(&dispatch),
            Entry::Refused(dispatch) => {
                let subject = story.subjects.get_mut(&dispatch.pid);
                subject.into_iter().for_each(|subject| subject.fates.refused += 1);
            }
            Entry::Exited(pid) => story.exited(pid),
            // Of what is missing, or what another worker did, nothing is known.
            Entry::Dropped(_) | Entry::Started { .. } => story.lose_track(),
            _ => {}
        }
    }
    story.lose_track();
    if story.subjects.is_empty() {
        let mut names: Vec<&Comm> = story.names.values().collect();
        names.sort_unstable();
        names.dedup();
        let listed = names.iter().take(NAMES_LISTED_MAX).map(|name| name.to_string());
        let list: Vec<String> = listed.collect();
        bail!("no task {task:?} was queued to the policy; those that were: {}", list.join(", "));
    }
    Ok(story.tell(&recording.header))
}

impl Story<'_> {
    fn took(&mut self, arrival: &Arrival) {
        let (pid, now) = (arrival.pid, self.now);
        if self.names.len() < PIDS_MAX || self.names.contains_key(&pid) {
            self.names.insert(pid, arrival.comm);
        }
        let is_wanted =
            arrival.comm.to_string() == self.task || pid.as_raw().to_string() == self.task;
        if !is_wanted && !self.subjects.contains_key(&pid) {
            return;
        }
        if self.subjects.len() >= FOLLOWED_MAX && !self.subjects.contains_key(&pid) {
            self.not_followed += 1;
            return;
        }
        let subject = self.subjects.entry(pid).or_insert_with(|| Subject::new(arrival, now));
        let told = subject.took(arrival, now);
        told.into_iter().for_each(|told| self.add(told));
    }

    fn sent(&mut self, dispatch: &Dispatch) {
        let Dispatch { pid, tier, reason, .. } = *dispatch;
        let key = dispatch.vtime.as_raw();
        for (_, subject) in self.subjects.iter_mut().filter(|(other, _)| **other != pid) {
            if let Some(waiting) = &mut subject.waiting
                && waiting.others.len() < OTHERS_MAX
            {
                waiting.others.push(Other { pid, tier, key, reason });
            }
        }
        let Some(subject) = self.subjects.get_mut(&pid) else { return };
        subject.orders.given(self.now, dispatch);
        subject.tiers[tier.index()] += 1;
        subject.reasons[reason.index()] += 1;
        let before = subject.tier.replace(tier);
        subject.changes += u64::from(before.is_some_and(|before| before != tier));
        let Some(waiting) = subject.waiting.take_if(|it| it.message.ticket == dispatch.ticket)
        else {
            return subject.fates.count(Fate::Late);
        };
        let waited = self.now.since(waiting.since);
        subject.waits.add(waited);
        let told = (waited > self.over).then(|| self.tell_wait(dispatch, &waiting, waited));
        let Some(subject) = self.subjects.get_mut(&pid) else { return };
        let message = waiting.message;
        let before = subject.settle(Fate::Unknown);
        subject.decided = Some(Decided { message, at: self.now, told });
        before.into_iter().for_each(|told| self.add(told));
    }

    fn exited(&mut self, pid: Pid) {
        let Some(subject) = self.subjects.get_mut(&pid) else { return };
        subject.fates.exited_undecided += u64::from(subject.waiting.take().is_some());
        let told = subject.settle(Fate::Exited);
        told.into_iter().for_each(|told| self.add(told));
    }

    /// Nothing is known of what was under way.
    fn lose_track(&mut self) {
        let mut told = Vec::new();
        for subject in self.subjects.values_mut() {
            subject.fates.unknown_undecided += u64::from(subject.waiting.take().is_some());
            told.extend(subject.settle(Fate::Unknown));
        }
        told.into_iter().for_each(|told| self.add(told));
    }

    /// Adds the sentences of a long wait, or counts it.
    fn add(&mut self, told: String) {
        match self.told.len() < TOLD_MAX {
            true => self.told.push(told),
            false => self.not_told += 1,
        }
    }

    /// One wait in sentences.
    fn tell_wait(&self, dispatch: &Dispatch, waiting: &Waiting, waited: Span) -> String {
        let at = waiting.since.since(self.start.unwrap_or_default());
        let why = match waiting.message.cause {
            Cause::New => "was new",
            Cause::Wakeup => "woke up",
            Cause::Requeue => "had lost its CPU",
        };
        let mut text = format!(
            "After {} pid {} {why} and waited {} us for a decision as {:?}.",
            milliseconds(at),
            dispatch.pid.as_raw(),
            waited.as_micros(),
            dispatch.tier
        );
        if waiting.others.is_empty() {
            text += " No other decision was made meanwhile.";
        } else {
            text += &format!(" {} others came first:", waiting.others.len());
            text += &self.tell_others(dispatch, &waiting.others);
        }
        text + &format!(" In the end it was chosen because {}.", rule(dispatch.reason))
    }

    fn tell_others(&self, dispatch: &Dispatch, others: &[Other]) -> String {
        let mut reasons: BTreeMap<(String, &str), u64> = BTreeMap::new();
        for other in others {
            let name = self.names.get(&other.pid).map(Comm::to_string).unwrap_or_default();
            let reason = match () {
                () if other.reason.is_rescue() => "had waited longest, and age came before order",
                () if other.reason == Reason::Deficit => "is Batch work that was owed a turn",
                () if other.reason == Reason::Fifo => "came first, and there were CPUs to spare",
                () if other.tier > dispatch.tier => "belongs to a more urgent tier",
                () if other.tier < dispatch.tier => "belongs to a lower tier whose turn it was",
                () if other.key < dispatch.vtime.as_raw() => "had the earlier deadline",
                () => "was there before",
            };
            *reasons.entry((name, reason)).or_default() += 1;
        }
        let list: Vec<String> = reasons
            .into_iter()
            .map(|((name, reason), times)| match times {
                1 => format!(" {name} {reason}"),
                _ => format!(" {name} {reason} ({times} times)"),
            })
            .collect();
        list.join(";") + "."
    }

    fn tell(&self, header: &Header) -> String {
        let mut text = format!("{}, policy {}\n", header.source, header.policy);
        let mut subjects: Vec<(&Pid, &Subject)> = self.subjects.iter().collect();
        subjects.sort_by_key(|(pid, subject)| (Reverse(subject.wakeups + subject.requeues), *pid));
        for (pid, subject) in subjects.iter().take(SUBJECTS_MAX) {
            let name = self.names.get(*pid).map(Comm::to_string).unwrap_or_default();
            text += &subject.tell(**pid, &name, self.start.unwrap_or_default(), &self.names);
        }
        if let Some(more @ 1..) = subjects.len().checked_sub(SUBJECTS_MAX) {
            text += &format!("{more} more tasks bear the name {}.\n", self.task);
        }
        if self.not_followed > 0 {
            let messages = self.not_followed;
            text +=
                &format!("{messages} messages of further tasks of this name were not followed.\n");
        }
        if self.told.is_empty() {
            text += &format!("No wait for a decision was longer than {}.\n", self.over);
        }
        for told in &self.told {
            text += told;
            text += "\n";
        }
        if self.not_told > 0 {
            let (not_told, over) = (self.not_told, self.over);
            text += &format!("{not_told} more waits were longer than {over}.\n");
        }
        text
    }
}

impl Subject {
    fn new(first: &Arrival, now: Stamp) -> Subject {
        Subject {
            newest: *first,
            first: now,
            last: now,
            waiting: None,
            decided: None,
            fates: Fates::default(),
            waits: Durations::default(),
            runs_after: Durations::default(),
            run_intervals: Durations::default(),
            wakeups: 0,
            requeues: 0,
            tiers: [0; 3],
            tier: None,
            changes: 0,
            reasons: [0; Reason::ALL.len()],
            orders: Orders::default(),
        }
    }

    /// Takes a message: now it is known what became of the one before. Returns the sentences of a
    /// long wait that ended with a decision.
    fn took(&mut self, arrival: &Arrival, now: Stamp) -> Option<String> {
        if let Some(facts) = &arrival.facts {
            self.orders.executed(facts);
        }
        (self.newest, self.last) = (*arrival, now);
        if arrival.run_interval > Span::ZERO {
            self.run_intervals.add(arrival.run_interval);
        }
        match arrival.cause {
            Cause::Requeue => self.requeues += 1,
            Cause::New | Cause::Wakeup => self.wakeups += 1,
        }
        let told = self.decided.as_ref().map(|it| between(&it.message, arrival)).and_then(|did| {
            self.settle(match did {
                Between::Ran { began } => Fate::Ran(began),
                Between::DidNotRun => Fate::Cancelled,
                Between::OtherTask => Fate::Exited,
            })
        });
        let (message, mut since) = (*arrival, waits_since(arrival, now));
        if let Some(before) = self.waiting.take() {
            match between(&before.message, arrival) {
                Between::Ran { .. } => self.fates.ran_undecided += 1,
                Between::OtherTask => self.fates.exited_undecided += 1,
                Between::DidNotRun => {
                    self.fates.replaced += 1;
                    // It still waits.
                    since = before.since.min(since);
                }
            }
        }
        self.waiting = Some(Waiting { message, since, others: Vec::new() });
        told
    }

    /// Ends the decision that is open, if there is one. Returns its sentences if the wait was long.
    fn settle(&mut self, fate: Fate) -> Option<String> {
        let Decided { at, told, .. } = self.decided.take()?;
        self.fates.count(fate);
        let after = match fate {
            Fate::Ran(Some(began)) if began >= at => {
                self.runs_after.add(began.since(at));
                format!("It ran {} us after the decision.", began.since(at).as_micros())
            }
            Fate::Ran(_) => "It ran then; the recording does not show since when.".to_owned(),
            Fate::Cancelled => {
                "It was queued again before it ran, so the decision was cancelled.".to_owned()
            }
            Fate::Late => "The decision was about an older message.".to_owned(),
            Fate::Exited => "It exited after that.".to_owned(),
            Fate::Unknown => "What became of the decision is unknown.".to_owned(),
        };
        told.map(|told| format!("{told} {after}"))
    }

    /// What the task is to the policy, and what that rests on.
    fn tell(&self, pid: Pid, name: &str, start: Stamp, names: &BTreeMap<Pid, Comm>) -> String {
        let decisions: u64 = self.tiers.iter().sum();
        let tier = self.tier.unwrap_or_default();
        let seconds = self.last.since(self.first).as_nanos() / 1_000_000_000;
        let mut text = format!(
            "{name} (pid {}) is {tier:?}: so in {} of {decisions} decisions, {} changes. It was \
             queued {} times after a sleep and {} times after losing its CPU in {seconds} s; a run \
             interval was {} us in the middle and {} us at most.",
            pid.as_raw(),
            self.tiers[tier.index()],
            self.changes,
            self.wakeups,
            self.requeues,
            self.run_intervals.quantile(500).as_micros(),
            self.run_intervals.longest().as_micros(),
        );
        if let Some(facts) = &self.newest.facts {
            text += &format!(
                " The kernel counts {} wakeups, {} sleeps and {} preemptions, nice {}, {} of CPU \
                 time.",
                facts.wakeups, facts.voluntary, facts.involuntary, facts.nice, facts.cpu_time
            );
        }
        text += &self.orders.tell(start, names);
        text += &format!(
            " It waited {} us for a decision in the middle, {} us in one of a hundred cases, {} us \
             at most. It was chosen",
            self.waits.quantile(500).as_micros(),
            self.waits.quantile(990).as_micros(),
            self.waits.longest().as_micros(),
        );
        let chosen = Reason::ALL.into_iter().zip(self.reasons).filter(|(_, times)| *times > 0);
        let chosen: Vec<String> = chosen
            .map(|(reason, times)| format!(" {times} times because {}", rule(reason)))
            .collect();
        text += &chosen.join(",");
        text += ".";
        text += &self.fates.tell();
        if self.runs_after.longest() > Span::ZERO {
            text += &format!(
                " From the decision to the run it took {} us in the middle and {} us at most, \
                 where the recording shows it.",
                self.runs_after.quantile(500).as_micros(),
                self.runs_after.longest().as_micros(),
            );
        }
        text + "\n"
    }
}

/// Why a task was chosen.
fn rule(reason: Reason) -> &'static str {
    match reason {
        Reason::Order => "it was its turn: the most urgent tier, and the first in its queue",
        Reason::OverflowRescue => "it had waited beyond the overflow limit",
        Reason::Deficit => "Batch work was owed a turn",
        Reason::StarvationRescue => "it had waited beyond the starvation limit",
        Reason::CodelRescue => "it had waited beyond the threshold of batch waits",
        Reason::Fifo => "it came first, and there were CPUs to spare",
    }
}

fn milliseconds(span: Span) -> String {
    let us = span.as_micros();
    format!("{}.{:03} ms", us / 1_000, us % 1_000)
}
