// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab explain`: what a task is to the policy, why it waited, and what ran instead.

mod orders;
#[cfg(test)]
mod tests;

use self::orders::Orders;
use crate::cli::ExplainArgs;
use crate::offered::catalog;
use crate::play::Case;
use crate::simulated;
use anyhow::{Result, bail};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::fates::{Bounded, Ended, Fate, Follower};
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

/// What is noted of a wait.
#[derive(Default)]
struct Notes {
    others: Vec<Other>,
    decision: Option<Dispatch>,
}

/// What is known of a task that is to be explained.
struct Subject {
    newest: Arrival,
    first: Stamp,
    last: Stamp,
    follower: Follower<Notes>,
    /// Where the length is known.
    waits: Durations,
    bounded: Bounded,
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
    /// When the round began, and how long after the one before.
    now: Stamp,
    gap: Span,
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
        gap: Span::ZERO,
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
                (story.gap, story.now) = (now.since(story.now), now);
                story.start.get_or_insert(now);
            }
            Entry::Took(arrival) => story.took(&arrival),
            Entry::Sent(dispatch) => story.sent(&dispatch),
            Entry::Refused(dispatch) => {
                let subject = story.subjects.get_mut(&dispatch.pid);
                subject.into_iter().for_each(|subject| subject.follower.refused());
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
        let (pid, now, gap) = (arrival.pid, self.now, self.gap);
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
        let ended = subject.took(arrival, now, gap);
        ended.into_iter().for_each(|ended| self.add(pid, &ended));
    }

    fn sent(&mut self, dispatch: &Dispatch) {
        let Dispatch { pid, tier, reason, .. } = *dispatch;
        let key = dispatch.vtime.as_raw();
        for (_, subject) in self.subjects.iter_mut().filter(|(other, _)| **other != pid) {
            if let Some((_, notes)) = subject.follower.waiting()
                && notes.others.len() < OTHERS_MAX
            {
                notes.others.push(Other { pid, tier, key, reason });
            }
        }
        let Some(subject) = self.subjects.get_mut(&pid) else { return };
        subject.orders.given(self.now, dispatch);
        subject.tiers[tier.index()] += 1;
        subject.reasons[reason.index()] += 1;
        let before = subject.tier.replace(tier);
        subject.changes += u64::from(before.is_some_and(|before| before != tier));
        if let Some(notes) = subject.follower.sent(self.now, dispatch.ticket) {
            notes.decision = Some(*dispatch);
        }
    }

    fn exited(&mut self, pid: Pid) {
        let Some(subject) = self.subjects.get_mut(&pid) else { return };
        let ended = subject.follower.exited();
        ended.into_iter().for_each(|ended| self.add(pid, &ended));
    }

    /// Nothing is known of what was under way.
    fn lose_track(&mut self) {
        let lost =
            |(pid, subject): (&Pid, &mut Subject)| Some((*pid, subject.follower.lose_track()?));
        let ended: Vec<(Pid, Ended<Notes>)> = self.subjects.iter_mut().filter_map(lost).collect();
        ended.iter().for_each(|(pid, ended)| self.add(*pid, ended));
    }

    /// Takes a wait that ended with a decision. Tells of it if it was long, or counts it.
    fn add(&mut self, pid: Pid, ended: &Ended<Notes>) {
        let Some(subject) = self.subjects.get_mut(&pid) else { return };
        subject.add(ended);
        match (&ended.notes.decision, self.told.len() < TOLD_MAX) {
            _ if ended.waited.span() <= self.over => {}
            (Some(dispatch), true) => self.told.push(self.tell_wait(dispatch, ended)),
            _ => self.not_told += 1,
        }
    }

    /// One wait in sentences.
    fn tell_wait(&self, dispatch: &Dispatch, ended: &Ended<Notes>) -> String {
        let at = ended.since.since(self.start.unwrap_or_default());
        let why = match ended.cause {
            Cause::New => "was new",
            Cause::Wakeup => "woke up",
            Cause::Requeue => "had lost its CPU",
        };
        let mut text = format!(
            "After {} pid {} {why} and waited {} for a decision as {:?}.",
            milliseconds(at),
            dispatch.pid.as_raw(),
            ended.waited,
            dispatch.tier
        );
        let others = &ended.notes.others;
        if others.is_empty() {
            text += " No other decision was made meanwhile.";
        } else {
            text += &format!(" {} others came first:", others.len());
            text += &self.tell_others(dispatch, others);
        }
        text + &format!(
            " In the end it was chosen because {}. {}",
            rule(dispatch.reason),
            ended.fate
        )
    }

    fn tell_others(&self, dispatch: &Dispatch, others: &[Other]) -> String {
        let mut reasons: BTreeMap<(String, &str), u64> = BTreeMap::new();
        for other in others {
            let name = self.names.get(&other.pid).map(Comm::to_string).unwrap_or_default();
            let reason = match () {
                () if other.reason.is_rescue() => "had waited longest, and age came before order",
                () if other.reason == Reason::Deficit => {
                    "is Batch work, after enough decisions for urgent tasks"
                }
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
            follower: Follower::default(),
            waits: Durations::default(),
            bounded: Bounded::default(),
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

    /// Takes a message. Returns the wait before, if it ended with a decision.
    fn took(&mut self, arrival: &Arrival, now: Stamp, gap: Span) -> Option<Ended<Notes>> {
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
        self.follower.received(now, gap, arrival)
    }

    /// Takes a wait that ended with a decision.
    fn add(&mut self, ended: &Ended<Notes>) {
        if let Fate::Ran(after) = ended.fate {
            self.runs_after.add(after);
        }
        self.bounded.add(ended.waited).into_iter().for_each(|length| self.waits.add(length));
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
        text += &self.tell_waits();
        let chosen = Reason::ALL.into_iter().zip(self.reasons).filter(|(_, times)| *times > 0);
        let chosen: Vec<String> = chosen
            .map(|(reason, times)| format!("{times} times because {}", rule(reason)))
            .collect();
        text += &match chosen.is_empty() {
            true => " It was never chosen.".into(),
            false => format!(" It was chosen {}.", chosen.join(", ")),
        };
        text += &self.follower.fates().to_string();
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

    /// How long it waited: where that is known, and the rest.
    fn tell_waits(&self) -> String {
        let mut text = String::new();
        if self.waits.count() > 0 {
            text += &format!(
                " It waited {} us for a decision in the middle, {} us in one of a hundred cases, \
                 {} us at most.",
                self.waits.quantile(500).as_micros(),
                self.waits.quantile(990).as_micros(),
                self.waits.longest().as_micros(),
            );
        }
        text + &self.bounded.to_string()
    }
}

/// Why a task was chosen.
fn rule(reason: Reason) -> &'static str {
    match reason {
        Reason::Order => "it was its turn: the most urgent tier, and the first in its queue",
        Reason::OverflowRescue => "it had waited beyond the overflow limit",
        Reason::Deficit => "Batch work had waited through enough decisions for urgent tasks",
        Reason::StarvationRescue => "it had waited beyond the starvation limit",
        Reason::CodelRescue => "it had waited beyond the threshold of batch waits",
        Reason::Fifo => "it came first, and there were CPUs to spare",
    }
}

fn milliseconds(span: Span) -> String {
    let us = span.as_micros();
    format!("{}.{:03} ms", us / 1_000, us % 1_000)
}
