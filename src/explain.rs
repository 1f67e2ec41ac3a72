// SPDX-License-Identifier: GPL-2.0-only

//! `explain PID`: what a task is to the running policy, on what that rests, and why it waits.
//!
//! A request over the statistics socket has the target `explain` and the arguments `pid` and
//! `over_us`. The supervisor asks the worker through shared memory and tells in sentences what came
//! back ([`Answer`]). From the first question on the worker watches the task for a minute; so the
//! client asks, waits, and asks again.

use super::cli::ExplainArguments;
use super::listen::{Answer, Wait};
use super::procdb_file::text::without_controls;
use super::shared::Shared;
use super::shared::query::Question;
use super::telemetry;
use super::tune::{PATIENCE_MS, unconnected};
use anyhow::{Result, anyhow};
use pandemonium_engine::task::{Pid, Reason};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_host::failure::Failure;
use scx_stats::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the request's target.
pub const TARGET: &str = "explain";
/// A worker with nothing to do runs once a second; one that does not answer for longer hangs.
const PATIENCE: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(5);

/// The answer to a client.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Told(Vec<String>),
    Refused(String),
}

/// Where questions are asked, one after the other.
pub struct QueryServer {
    shared: Arc<Shared>,
    turn: Mutex<()>,
}

impl QueryServer {
    /// Questions to the worker behind this memory.
    pub fn of(shared: Arc<Shared>) -> QueryServer {
        QueryServer { shared, turn: Mutex::new(()) }
    }

    fn ask(&self, question: Question) -> Result<Answer, String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let query = &self.shared.query;
        let number = query.ask(question);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match query.answered() {
                Some(answer) if answer.number == number => return Ok(answer),
                _ => thread::sleep(GLANCE),
            }
        }
        Err(format!("the scheduler has not answered for {} s", PATIENCE.as_secs()))
    }
}

/// The server's side.
pub fn answer(query_server: &QueryServer, args: &BTreeMap<String, String>) -> Result<Value> {
    let reply = match question(args).and_then(|question| query_server.ask(question)) {
        Ok(answer) => Reply::Told(tell(&answer, &name_of)),
        Err(sentence) => Reply::Refused(sentence),
    };
    Ok(serde_json::to_value(reply)?)
}

fn question(args: &BTreeMap<String, String>) -> Result<Question, String> {
    let number = |name: &str, default: u64, most: u64| match args.get(name) {
        None => Ok(default),
        Some(text) => {
            let number = text.parse().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("{name} takes 0 to {most}, not {text:?}"))
        }
    };
    let pid = number("pid", 0, i32::MAX as u64)?;
    let pid = Pid::new(pid as i32).ok_or("which task? `pid` says it")?;
    let over = Span::from_micros(number("over_us", 1_000, 60_000_000)?);
    Ok(Question { pid, over })
}

/// The client's side: asks, and prints.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let mut client = StatsClient::new()
        .connect(Some(PATIENCE_MS))
        .map_err(|error| unconnected(error, "ask about its tasks", "explain PID"))?;
    let request = vec![
        ("target".into(), TARGET.into()),
        ("pid".into(), arguments.pid.to_string()),
        ("over_us".into(), arguments.over_us.to_string()),
    ];
    let mut ask = || {
        let reply = client.request("stats", request.clone());
        let unanswered = |error: anyhow::Error| {
            Failure::Internal(error.context("the scheduler that runs explains nothing"))
        };
        match reply.map_err(unanswered)? {
            Reply::Told(lines) => Ok(lines),
            Reply::Refused(sentence) => Err(Failure::Internal(anyhow!(sentence))),
        }
    };
    ask()?;
    thread::sleep(Duration::from_secs(arguments.seconds));
    telemetry::print(&ask()?.join("\n"));
    Ok(())
}

/// What a task is called that is somebody's present, if there is one.
fn name_of(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(without_controls(String::from_utf8_lossy(&name).trim_end()))
}

/// The answer in sentences.
fn tell(answer: &Answer, name_of: &dyn Fn(u32) -> Option<String>) -> Vec<String> {
    let pid = answer.pid.map_or(0, |pid| pid.as_raw());
    let mut lines = Vec::new();
    match answer.explained.as_str() {
        "" => lines.push(match name_of(pid as u32) {
            Some(name) => format!(
                "{name} (pid {pid}) is nothing to the policy: it has not come up, or the policy \
                 keeps nothing of tasks."
            ),
            None => format!("There is no task {pid}, and the policy knows none."),
        }),
        explained => lines.push(without_controls(explained)),
    }
    lines.push(tell_decisions(answer));
    if let Some(since) = answer.waiting {
        lines.push(format!("It waits now, for {}.", answer.now.since(since)));
    }
    let told = (answer.nr_long as usize).min(answer.long.len());
    lines.extend(answer.long[..told].iter().map(|wait| tell_wait(wait, answer.now, name_of)));
    if answer.nr_long > told as u64 {
        lines.push(format!("{} more waits were long.", answer.nr_long - told as u64));
    }
    lines
}

fn tell_decisions(answer: &Answer) -> String {
    let Answer { wakeups, requeues, .. } = *answer;
    let watched = answer.now.since(answer.since);
    let decisions: u64 = answer.tiers.iter().sum();
    if wakeups + requeues + decisions == 0 {
        return format!(
            "In {watched} it did not come up: it slept, ran on, or the kernel half placed it on an \
             idle CPU."
        );
    }
    let reasons = Reason::ALL.into_iter().zip(answer.reasons).filter(|(_, times)| *times > 0);
    let reasons: Vec<String> =
        reasons.map(|(reason, times)| format!("{times} by {}", rule(reason))).collect();
    format!(
        "In {watched} it came up {wakeups} times after a sleep and {requeues} times after losing \
         its CPU. It was decided for {decisions} times ({}), {} us after it came up on average and \
         {} us at most.",
        if reasons.is_empty() { "never".into() } else { reasons.join(", ") },
        answer.waited.scale(1, decisions.max(1)).as_micros(),
        answer.longest.as_micros(),
    )
}

fn tell_wait(wait: &Wait, now: Stamp, name_of: &dyn Fn(u32) -> Option<String>) -> String {
    let why = if wait.woke { "woke up" } else { "had lost its CPU" };
    let mut text = format!(
        "{} ago it {why} and waited {} us as {:?}",
        now.since(wait.at),
        wait.waited.as_micros(),
        wait.tier
    );
    let passed: u32 = wait.passed.iter().sum();
    if passed == 0 {
        text += "; nobody was decided for meanwhile: the scheduler had no CPU";
    } else {
        let named = |pid: &u32| match name_of(*pid) {
            Some(name) => format!("{name} ({pid})"),
            None => pid.to_string(),
        };
        let others: Vec<String> = wait.others.iter().filter(|pid| **pid != 0).map(named).collect();
        text += &format!(
            "; {passed} others came first, {} of them more urgent, the last: {}",
            wait.passed[wait.tier.index() + 1..].iter().sum::<u32>(),
            others.join(", ")
        );
    }
    text + &format!(". It was chosen by {}.", rule(wait.reason))
}

/// The rules by name.
fn rule(reason: Reason) -> &'static str {
    match reason {
        Reason::Order => "order",
        Reason::OverflowRescue => "overflow rescue",
        Reason::Deficit => "the deficit of batch work",
        Reason::StarvationRescue => "starvation rescue",
        Reason::CodelRescue => "the rescue of batch work that waits",
        Reason::Fifo => "arrival, since there were CPUs to spare",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::explaining::BoundedText;
    use pandemonium_engine::task::Tier;
    use std::fmt::Write;

    fn known() -> Answer {
        let wait = Wait {
            at: Stamp::from_nanos(1_000_000_000),
            waited: Span::from_millis(7),
            tier: Tier::Batch,
            reason: Reason::StarvationRescue,
            passed: [2, 0, 3],
            others: [41, 42, 0],
            ..Wait::default()
        };
        let mut explained = BoundedText::default();
        explained.write_str("cc1 (pid 40) is Batch: it computes.").unwrap();
        let mut long = [Wait::default(); crate::listen::TOLD];
        long[0] = wait;
        Answer {
            pid: Pid::new(40),
            now: Stamp::from_nanos(3_000_000_000),
            requeues: 12,
            tiers: [12, 0, 0],
            reasons: [11, 0, 0, 1, 0, 0],
            waited: Span::from_millis(24),
            longest: Span::from_millis(7),
            explained,
            nr_long: 1,
            long,
            ..Answer::default()
        }
    }

    #[test]
    fn a_task_is_told_in_sentences() {
        let name = |pid: u32| (pid == 41).then(|| "firefox".to_owned());
        let lines = tell(&known(), &name);
        let expected = [
            "cc1 (pid 40) is Batch: it computes.",
            "In 3000ms it came up 0 times after a sleep and 12 times after losing its CPU. It was \
             decided for 12 times (11 by order, 1 by starvation rescue), 2000 us after it came up \
             on average and 7000 us at most.",
            "2000ms ago it had lost its CPU and waited 7000 us as Batch; 5 others came first, 3 of \
             them more urgent, the last: firefox (41), 42. It was chosen by starvation rescue.",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_task_that_nobody_knows_is_told_to_be_none() {
        let nobody = Answer { pid: Pid::new(40), ..Answer::default() };
        let lines = tell(&nobody, &|_| None);
        assert_eq!(lines[0], "There is no task 40, and the policy knows none.");
        assert!(lines[1].contains("did not come up"), "{lines:?}");
        assert!(tell(&nobody, &|_| Some("init".into()))[0].starts_with("init (pid 40) is nothing"));
    }

    #[test]
    fn a_question_that_makes_no_sense_is_refused_and_so_is_one_that_nobody_answers() {
        let query_server = QueryServer::of(Arc::new(Shared::create().unwrap()));
        let ask = |args: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
            let value = answer(&query_server, &args.iter().map(own).collect()).unwrap();
            match serde_json::from_value(value).unwrap() {
                Reply::Refused(sentence) => sentence,
                told => panic!("{told:?}"),
            }
        };
        assert_eq!(ask(&[]), "which task? `pid` says it");
        assert_eq!(ask(&[("pid", "x")]), "pid takes 0 to 2147483647, not \"x\"");
        assert_eq!(ask(&[("pid", "5")]), "the scheduler has not answered for 3 s");
    }
}
