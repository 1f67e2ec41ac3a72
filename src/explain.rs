// SPDX-License-Identifier: GPL-2.0-only

//! `explain PID`: how the running policy classifies a task and why, and why the task waits.
//!
//! A request over the statistics socket has the target `explain` and the arguments `pid` and
//! `over_us`. The supervisor sends a query to the worker through shared memory, and puts the reply
//! ([`Reply`]) into sentences. The worker observes the task for a minute from the query on. So the
//! client sends a request, waits, and sends another one.

use super::cli::ExplainArguments;
use super::mutex::lock;
use super::shared::Shared;
use super::shared::query::Query;
use super::shared::reply::{Reply, Wait};
use super::{client, output};
use anyhow::{Context, Result, anyhow};
use pandemonium_engine::fates::Fates;
use pandemonium_engine::task::{Pid, Reason};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_host::failure::Failure;
use pandemonium_host::print::one_line;
use scx_stats::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the request's target.
pub const TARGET: &str = "explain";
/// An idle worker has a round once a second. One that does not reply for longer hangs.
const PATIENCE: Duration = Duration::from_secs(3);
/// The fate of the last decision.
const NOT_KNOWN_YET: &str = "What became of the decision is not known yet.";
/// How often the supervisor looks for the reply.
const POLL: Duration = Duration::from_millis(5);

/// The response to a request.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    /// The explanation, in lines.
    #[serde(rename = "told")]
    Explained(Vec<String>),
    Refused(String),
}

/// Sends queries to the worker, one at a time.
pub struct QueryServer {
    shared: Arc<Shared>,
    turn: Mutex<()>,
}

impl QueryServer {
    /// The server for the worker that has this memory.
    pub fn of(shared: Arc<Shared>) -> QueryServer {
        QueryServer { shared, turn: Mutex::new(()) }
    }

    fn ask(&self, query: Query) -> Result<Reply, String> {
        let _turn = lock(&self.turn);
        let cell = &self.shared.query;
        let number = cell.ask(query);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match cell.newest_reply() {
                Some(reply) if reply.number == number => return Ok(reply),
                _ => thread::sleep(POLL),
            }
        }
        Err(format!("the scheduler has not answered for {} s", PATIENCE.as_secs()))
    }
}

/// The server's side.
pub fn respond(query_server: &QueryServer, args: &BTreeMap<String, String>) -> Result<Value> {
    let response = match query(args).and_then(|query| query_server.ask(query)) {
        Ok(reply) => Response::Explained(describe(&reply, &name_of)),
        Err(sentence) => Response::Refused(sentence),
    };
    Ok(serde_json::to_value(response)?)
}

/// The query that the arguments ask for.
pub fn query(args: &BTreeMap<String, String>) -> Result<Query, String> {
    let number = |name: &str, default: u64, most: u64| match args.get(name) {
        None => Ok(default),
        Some(text) => {
            let number = text.parse().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("{name} takes 0 to {most}, not {text:?}"))
        }
    };
    let pid = number("pid", 0, i32::MAX as u64)?;
    let pid = Pid::new(pid as i32).ok_or("the argument `pid` is missing")?;
    let threshold = Span::from_micros(number("over_us", 1_000, 60_000_000)?);
    Ok(Query { pid, threshold })
}

/// The client's side: sends two requests, and prints the second response.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let mut client = client::connect("ask about its tasks", "explain PID")?;
    let mut ask = || ask(&mut client, arguments.pid, arguments.over_us).map_err(Failure::Internal);
    ask()?;
    thread::sleep(Duration::from_secs(arguments.seconds));
    output::print(&ask()?.join("\n"));
    Ok(())
}

/// Sends one request about a task, and returns the explanation in lines.
pub fn ask(client: &mut StatsClient, pid: i32, over_us: u64) -> Result<Vec<String>> {
    let request = vec![
        ("target".into(), TARGET.into()),
        ("pid".into(), pid.to_string()),
        ("over_us".into(), over_us.to_string()),
    ];
    let response = client.request("stats", request);
    match response.context("the scheduler that runs explains nothing")? {
        Response::Explained(lines) => Ok(lines),
        Response::Refused(sentence) => Err(anyhow!(sentence)),
    }
}

/// The name of a task, if it exists.
fn name_of(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(one_line(String::from_utf8_lossy(&name).trim_end()).into_owned())
}

/// The reply in sentences.
pub fn describe(reply: &Reply, name_of: &dyn Fn(u32) -> Option<String>) -> Vec<String> {
    let pid = reply.pid.map_or(0, |pid| pid.as_raw());
    let mut lines = Vec::new();
    match reply.explained.as_str() {
        "" => lines.push(match name_of(pid as u32) {
            Some(name) => format!(
                "{name} (pid {pid}) is unknown to the policy: it has not been queued to user \
                 space, or the policy keeps no records of tasks."
            ),
            None => format!("There is no task {pid}, and the policy knows none."),
        }),
        explained => lines.push(one_line(explained).into_owned()),
    }
    lines.push(describe_decisions(reply));
    if let Some(since) = reply.waiting {
        lines.push(format!("It waits for a decision now, for {}.", reply.now.since(since)));
    }
    let told =
        |wait: &Wait, fate: &str| format!("{} {fate}", describe_wait(wait, reply.now, name_of));
    lines.extend(reply.pending.map(|wait| told(&wait, NOT_KNOWN_YET)));
    let listed = (reply.nr_long as usize).min(reply.long.len());
    lines.extend(reply.long[..listed].iter().map(|wait| told(wait, &wait.fate.to_string())));
    if reply.nr_long > listed as u64 {
        lines.push(format!("{} more waits were long.", reply.nr_long - listed as u64));
    }
    lines
}

fn describe_decisions(reply: &Reply) -> String {
    let Reply { wakeups, requeues, .. } = *reply;
    let observed = reply.now.since(reply.since);
    let decisions: u64 = reply.tiers.iter().sum();
    if wakeups + requeues + decisions == 0 {
        return format!(
            "In {observed} it was not queued to user space: it slept, ran on, or the backend \
             placed it on an idle CPU."
        );
    }
    let reasons = Reason::ALL.into_iter().zip(reply.reasons).filter(|(_, times)| *times > 0);
    let reasons: Vec<String> =
        reasons.map(|(reason, times)| format!("{times} by {}", rule(reason))).collect();
    let mut text = format!(
        "In {observed} it was queued to user space {wakeups} times after a sleep and {requeues} \
         times after losing its CPU. It was dispatched {decisions} times ({})",
        if reasons.is_empty() { "never".into() } else { reasons.join(", ") },
    );
    if reply.waits > 0 {
        text += &format!(
            ", after {} us on average and {} us at most",
            reply.waited.scale(1, reply.waits).as_micros(),
            reply.longest.as_micros(),
        );
    }
    text + &format!(".{}", reply.bounded) + &describe_fates(reply, decisions)
}

/// What became of messages and decisions, as the task's next messages show it.
fn describe_fates(reply: &Reply, decisions: u64) -> String {
    let Fates { ran, ran_before, ran_sometime, cancelled, late, exited, unknown, .. } = reply.fates;
    let known = ran + ran_before + ran_sometime + cancelled + late + exited + unknown;
    let mut text = reply.fates.to_string();
    if let open @ 1.. = decisions.saturating_sub(known) {
        text += &format!(" Of {open} decisions that is not known yet.");
    }
    text
}

fn describe_wait(wait: &Wait, now: Stamp, name_of: &dyn Fn(u32) -> Option<String>) -> String {
    let why = if wait.woke { "woke up" } else { "had lost its CPU" };
    let mut text = format!(
        "{} ago it {why} and waited {} as {:?}",
        now.since(wait.at),
        wait.waited,
        wait.tier
    );
    let others: u32 = wait.others_first.iter().sum();
    if others == 0 {
        text += "; no other decision was made meanwhile";
    } else {
        let named = |pid: &u32| match name_of(*pid) {
            Some(name) => format!("{name} ({pid})"),
            None => pid.to_string(),
        };
        let last: Vec<String> =
            wait.last_others.iter().filter(|pid| **pid != 0).map(named).collect();
        text += &format!(
            "; {others} others came first, {} of them more urgent, the last: {}",
            wait.others_first[wait.tier.index() + 1..].iter().sum::<u32>(),
            last.join(", ")
        );
    }
    text + &format!(". It was chosen by {}.", rule(wait.reason))
}

/// The name of a rule.
fn rule(reason: Reason) -> &'static str {
    match reason {
        Reason::Order => "order",
        Reason::OverflowRescue => "overflow rescue",
        Reason::Deficit => "the deficit of Batch tasks",
        Reason::StarvationRescue => "starvation rescue",
        Reason::CodelRescue => "the rescue of waiting Batch tasks",
        Reason::Fifo => "arrival, since CPUs were idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandemonium_engine::explaining::BoundedText;
    use pandemonium_engine::fates::{Bounded, Fate, Waited};
    use pandemonium_engine::task::Tier;
    use std::fmt::Write;

    fn known() -> Reply {
        let wait = Wait {
            at: Stamp::from_nanos(1_000_000_000),
            waited: Waited::Exactly(Span::from_millis(7)),
            fate: Fate::Ran(Span::from_micros(40)),
            tier: Tier::Batch,
            reason: Reason::StarvationRescue,
            others_first: [2, 0, 3],
            last_others: [41, 42, 0],
            ..Wait::default()
        };
        let mut explained = BoundedText::default();
        explained.write_str("cc1 (pid 40) is Batch: it computes.").unwrap();
        let mut long = [Wait::default(); crate::shared::reply::LONG_WAITS];
        long[0] = wait;
        Reply {
            pid: Pid::new(40),
            now: Stamp::from_nanos(3_000_000_000),
            requeues: 12,
            tiers: [12, 0, 0],
            reasons: [11, 0, 0, 1, 0, 0],
            waits: 10,
            waited: Span::from_millis(20),
            longest: Span::from_millis(7),
            bounded: Bounded { count: 1, longest: Span::from_millis(3) },
            fates: Fates { ran: 9, ran_before: 1, ran_sometime: 1, ..Fates::default() },
            explained,
            pending: Some(Wait { waited: Waited::AtMost(Span::from_millis(8)), ..wait }),
            nr_long: 1,
            long,
            ..Reply::default()
        }
    }

    #[test]
    fn a_reply_is_put_into_sentences() {
        let name = |pid: u32| (pid == 41).then(|| "firefox".to_owned());
        let lines = describe(&known(), &name);
        let expected = [
            "cc1 (pid 40) is Batch: it computes.",
            "In 3000ms it was queued to user space 0 times after a sleep and 12 times after losing \
             its CPU. It was dispatched 12 times (11 by order, 1 by starvation rescue), after 2000 \
             us on average and 7000 us at most. Of 1 waits it is known only that none was longer \
             than 3000 us. What became of the decisions: 9 times it ran after the decision, 1 \
             times it ran by another way before the decision came, 1 times it ran before the \
             decision or after it. Of 1 decisions that is not known yet.",
            "2000ms ago it had lost its CPU and waited at most 8000 us as Batch; 5 others came \
             first, 3 of them more urgent, the last: firefox (41), 42. It was chosen by starvation \
             rescue. What became of the decision is not known yet.",
            "2000ms ago it had lost its CPU and waited 7000 us as Batch; 5 others came first, 3 of \
             them more urgent, the last: firefox (41), 42. It was chosen by starvation rescue. It \
             ran 40 us after the decision.",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_unknown_task_is_reported_as_unknown() {
        let unknown = Reply { pid: Pid::new(40), ..Reply::default() };
        let lines = describe(&unknown, &|_| None);
        assert_eq!(lines[0], "There is no task 40, and the policy knows none.");
        assert!(lines[1].contains("was not queued to user space"), "{lines:?}");
        let lines = describe(&unknown, &|_| Some("init".into()));
        assert!(lines[0].starts_with("init (pid 40) is unknown to the policy"), "{lines:?}");
    }

    #[test]
    fn a_wrong_request_is_refused_and_so_is_one_without_a_worker() {
        let query_server = QueryServer::of(Arc::new(Shared::create().unwrap()));
        let ask = |args: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
            let value = respond(&query_server, &args.iter().map(own).collect()).unwrap();
            match serde_json::from_value(value).unwrap() {
                Response::Refused(sentence) => sentence,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask(&[]), "the argument `pid` is missing");
        assert_eq!(ask(&[("pid", "x")]), "pid takes 0 to 2147483647, not \"x\"");
        assert_eq!(ask(&[("pid", "5")]), "the scheduler has not answered for 3 s");
    }
}
