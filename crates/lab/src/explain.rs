// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab explain`: what a task is to the policy, why it waited, and what ran instead.

mod orders;

use self::orders::Orders;
use crate::cli::{ExplainArgs, catalog};
use crate::play::Case;
use crate::printed::printable;
use crate::simulated;
use anyhow::{Result, bail};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::task::{Arrival, Cause, Dispatch, Pid, Reason, Tier};
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
    print!("{}", printable(&told));
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
    since: Stamp,
    cause: Cause,
    others: Vec<Other>,
}

/// What is known of a task that is to be explained.
struct Subject {
    newest: Arrival,
    first: Stamp,
    last: Stamp,
    waiting: Option<Waiting>,
    waits: Durations,
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
    names: BTreeMap<Pid, String>,
    subjects: BTreeMap<Pid, Subject>,
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
            _ => {}
        }
    }
    if story.subjects.is_empty() {
        let mut names: Vec<&str> = story.names.values().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        bail!("no task {task:?} was queued to the policy; those that were: {}", names.join(", "));
    }
    Ok(story.tell(&recording.header))
}

impl Story<'_> {
    fn took(&mut self, arrival: &Arrival) {
        let name = arrival.comm.to_string();
        let wanted = name == self.task || arrival.pid.as_raw().to_string() == self.task;
        self.names.insert(arrival.pid, name);
        if !wanted {
            return;
        }
        let now = self.now;
        let subject = self.subjects.entry(arrival.pid).or_insert_with(|| Subject {
            newest: *arrival,
            first: now,
            last: now,
            waiting: None,
            waits: Durations::default(),
            run_intervals: Durations::default(),
            wakeups: 0,
            requeues: 0,
            tiers: [0; 3],
            tier: None,
            changes: 0,
            reasons: [0; Reason::ALL.len()],
            orders: Orders::default(),
        });
        if let Some(facts) = &arrival.facts {
            subject.orders.executed(facts);
        }
        subject.newest = *arrival;
        subject.last = now;
        if arrival.run_interval > Span::ZERO {
            subject.run_intervals.add(arrival.run_interval);
        }
        // It waits since it woke up, which the fast path has seen; the message came later.
        let woken = arrival.facts.map(|facts| facts.woken);
        let since = match arrival.cause {
            Cause::Requeue => {
                subject.requeues += 1;
                now
            }
            Cause::New | Cause::Wakeup => {
                subject.wakeups += 1;
                woken.filter(|woken| *woken <= now).unwrap_or(now)
            }
        };
        let cause = arrival.cause;
        subject.waiting.get_or_insert(Waiting { since, cause, others: Vec::new() });
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
        let Some(waiting) = subject.waiting.take() else { return };
        let waited = self.now.since(waiting.since);
        subject.waits.add(waited);
        if waited <= self.over {
            return;
        }
        if self.told.len() < TOLD_MAX {
            let told = self.tell_wait(dispatch, &waiting, waited);
            self.told.push(told);
        } else {
            self.not_told += 1;
        }
    }

    /// One wait in sentences.
    fn tell_wait(&self, dispatch: &Dispatch, waiting: &Waiting, waited: Span) -> String {
        let at = waiting.since.since(self.start.unwrap_or_default());
        let why = match waiting.cause {
            Cause::New => "was born",
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
            text += " No task was dispatched meanwhile: the scheduler process had no CPU.";
        } else {
            text += &format!(" {} others came first:", waiting.others.len());
            text += &self.tell_others(dispatch, &waiting.others);
        }
        text + &format!(" In the end it was chosen because {}.", rule(dispatch.reason))
    }

    fn tell_others(&self, dispatch: &Dispatch, others: &[Other]) -> String {
        let mut reasons: BTreeMap<(String, &str), u64> = BTreeMap::new();
        for other in others {
            let name = self.names.get(&other.pid).cloned().unwrap_or_default();
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
            let name = self.names.get(*pid).map_or("", String::as_str);
            text += &subject.tell(**pid, name, self.start.unwrap_or_default(), &self.names);
        }
        if let Some(more @ 1..) = subjects.len().checked_sub(SUBJECTS_MAX) {
            text += &format!("{more} more tasks bear the name {}.\n", self.task);
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
    /// What the task is to the policy, and what that rests on.
    fn tell(&self, pid: Pid, name: &str, start: Stamp, names: &BTreeMap<Pid, String>) -> String {
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
        text + &chosen.join(",") + ".\n"
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
