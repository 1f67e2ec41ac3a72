// SPDX-License-Identifier: GPL-2.0-only

//! The functions of fuzz targets: each takes any bytes as one kind of input of the driver. The
//! outcome is an error or a result, never a panic.
//!
//! The fuzzer calls them, and so do tests.

use crate::adaptive::Adaptive;
use crate::cli::Options;
use crate::fast_path_counters::FastPathCounters;
use crate::metrics::Metrics;
use crate::programs::Programs;
use crate::reading::{Driver, Reading};
use crate::server::{Session, Targets};
use crate::shared::Shared;
use crate::shared::reply::{REPLY_WORDS, Reply};
use crate::stats::Source;
use crate::upgrade::Handover;
use crate::{explain, health, stats, task_list, tasks, telemetry, tune};
use clap::Parser;
use pandemonium_engine::knobs::KeySet;
use pandemonium_engine::time::Stamp;
use pandemonium_host::ejection::Ejection;
use pandemonium_policies::Pandemonium;
use pandemonium_policies::knobs::TABLE;
use pandemonium_rules::{Process, Processes, Rules, Users, demand_text};
use pandemonium_view::monitor::{self, Monitor};
use pandemonium_view::plain;
use pandemonium_view::style::Palette;
use pandemonium_view::tasks::{Key, TaskList};
use pandemonium_view::terminal::{View, drawn};
use pandemonium_view::top::{self, Top};
use scx_stats::prelude::StatsResponse;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A command line: words with newlines between them, which need not be UTF-8.
pub fn options(data: &[u8]) {
    let words = data.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
    match Options::try_parse_from([OsStr::new("scx_pandemonium_user")].into_iter().chain(words)) {
        Ok(options) => drop((options.check(), options.policy())),
        Err(error) => drop(error.to_string()),
    }
}

/// What a client sends: lines to the server of each group; and all of it as the arguments of a
/// request, as JSON or as lines `NAME=VALUE`: to turn knobs, and to explain a task.
pub fn request(data: &[u8]) {
    static GROUPS: OnceLock<[Targets; 2]> = OnceLock::new();
    let groups = GROUPS.get_or_init(|| {
        let source = source(KeySet::none(&TABLE), 0);
        [stats::statistics(source.clone(), task_list::MOST_FOR_GROUP), stats::profile(source)]
    });
    for mut session in groups.iter().map(Session::of) {
        for line in data.split_inclusive(|byte| *byte == b'\n') {
            let response = session.answer(line);
            assert_eq!(response.iter().position(|byte| *byte == b'\n'), Some(response.len() - 1));
            let response = serde_json::from_slice::<StatsResponse>(&response);
            assert!(response.is_ok_and(|response| response.args.contains_key("resp")));
        }
    }
    static ADAPTIVE: OnceLock<Adaptive> = OnceLock::new();
    let adaptive = ADAPTIVE.get_or_init(|| {
        let shared = Arc::new(Shared::create().expect("there is memory for one"));
        Adaptive::of_four_cpus(shared, KeySet::none(&TABLE))
    });
    let Ok(text) = std::str::from_utf8(data) else { return };
    let args: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_else(|_| {
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    });
    let response = tune::respond(adaptive, None, &args);
    assert!(response.is_ok_and(|response| response.is_object()));
    drop(explain::query(&args));
}

/// The shared memory, each of its words as it may be while the other side writes, or after a fault.
pub fn shared(data: &[u8]) {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    let shared = SHARED.get_or_init(|| Shared::create().expect("there is memory for one"));
    let words: Vec<u64> = data
        .chunks(8)
        .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
        .collect();
    // The input repeats: every part of the memory gets words of it.
    for (cell, word) in shared.words().iter().zip(words.iter().cycle()) {
        cell.store(*word, Ordering::Relaxed);
    }
    let (driver, at) = (Driver::default(), Stamp::from_nanos(words.first().copied().unwrap_or(0)));
    let (numbers, fast_path) = (shared.counters.read(), shared.fast_path.read());
    let after = Reading { at, numbers, fast_path, driver };
    let before = Reading { fast_path: FastPathCounters::default(), ..after };
    drop((health::health(&Reading::default(), &before), health::health(&before, &after)));
    let _ = shared.knobs.newer(&TABLE, &mut 0);
    let _ = shared.query.newer(&mut 0);
    drop(shared.programs.read());
    drop(shared.ejection.take());
    assert!(!tasks::table(shared.take_memos()).contains('\x1b'));
    let reply =
        std::array::from_fn::<u64, REPLY_WORDS, _>(|at| words.get(at).copied().unwrap_or_default());
    if let Some(reply) = Reply::from_words(&reply) {
        let lines = explain::describe(&reply, &|_| None);
        assert!(!lines.iter().any(|line| line.contains(char::is_control)), "{lines:?}");
    }
}

/// The kernel's exit text and debug dump: the first line is the reason, the second the message, and
/// the rest the dump.
pub fn ejection(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let ejection = Ejection {
        kind: 1026,
        reason: text(),
        message: text(),
        dump: text(),
        gap_ns: data.len() as u64 * 100_000_000,
    };
    let sentence = ejection.sentence();
    assert!(!sentence.contains(char::is_control), "{sentence:?}");
    let report = ejection.redacted();
    assert!(!report.contains(|c: char| c.is_control() && c != '\n'), "{report:?}");
}

/// A file of rules, and behind each zero byte the name of a process, which is also its command line
/// and its cgroup. Each process is the parent of the next one.
pub fn rules(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split('\0');
    let rules = match Rules::parse("rules.toml", parts.next().unwrap_or_default()) {
        Ok(rules) => rules,
        Err(error) => return assert!(!error.is_empty()),
    };
    let process = |(number, name): (usize, &str)| Process {
        pid: number as i32 + 1,
        parent: number as i32,
        user: 1000 + number as u32 % 2,
        nice: number as i64 % 40 - 20,
        name: name.into(),
        executable: name.into(),
        command: name.into(),
        cgroup: name.into(),
        ..Process::default()
    };
    let processes = Processes::of(parts.enumerate().map(process));
    let users = Users::of("root:x:0:0\nuser:x:1000:1000", [1000].into());
    let found = rules.explain(&processes, &users);
    for (number, rule) in rules.rules().iter().enumerate() {
        drop(demand_text(rule));
        let withheld = found.iter().any(|it| it.rule == number && it.withheld);
        assert!(!withheld || rule.raises(), "{rule:?}");
    }
}

/// What an old program hands on to a new one.
pub fn handover(data: &[u8]) {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    let Ok(handover) = serde_json::from_slice::<Handover>(data) else { return };
    handover.restore(SOURCE.get_or_init(|| source(KeySet::none(&TABLE), 0)));
}

/// The side of a supervisor that upgrades write to: its options have set these knobs, and it has
/// been upgraded so often.
pub(crate) fn source(chosen: KeySet, upgrades: u64) -> Source {
    let shared = Arc::new(Shared::create().expect("there is memory for one"));
    Source {
        policy: pandemonium_engine::policies![Pandemonium][0],
        adaptive: Arc::new(Adaptive::of_four_cpus(Arc::clone(&shared), chosen)),
        programs: Arc::new(Programs::load(Arc::clone(&shared), None)),
        rules: None,
        restarts: Arc::default(),
        worker: Arc::default(),
        upgrades,
        shared,
    }
}

/// Replies of a scheduler, one a line, as statistics and as a list of tasks, in each view of them.
pub fn view(data: &[u8]) {
    let mut monitor = Monitor::new(Duration::from_secs(1), Palette::plain());
    let mut top = Top::new(Key::Cpu, Palette::plain());
    for (number, reply) in data.split(|byte| *byte == b'\n').enumerate() {
        if let Ok(metrics) = serde_json::from_slice::<Metrics>(reply) {
            drop(telemetry::line(&metrics));
        }
        if let Ok(sample) = serde_json::from_slice(reply) {
            let at = Duration::from_secs(number as u64);
            monitor.news(monitor::News::Sample(at, Box::new(sample)));
        }
        if let Ok(list) = serde_json::from_slice::<TaskList>(reply) {
            let table = plain::table(&list.clone().cleaned(), Key::Wait, 20);
            assert!(!table.contains(|c: char| c.is_control() && c != '\n'), "{table:?}");
            top.news(top::News::Tasks(list));
        }
    }
    for shown in [drawn(&monitor, 80, 24), drawn(&top, 80, 24), drawn(&top, 20, 3)] {
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }
}

#[cfg(test)]
mod tests {
    use pandemonium_seeds::survives;

    #[test]
    fn any_words_are_options_or_refused() {
        survives("options", 200, super::options);
    }

    #[test]
    fn any_request_is_answered_or_refused() {
        survives("request", 1_000, super::request);
    }

    #[test]
    fn any_shared_memory_is_read() {
        survives("shared", 20, super::shared);
    }

    #[test]
    fn any_rules_are_applied_or_refused() {
        survives("rules", 1_000, super::rules);
    }

    #[test]
    fn any_handover_is_restored_or_refused() {
        survives("handover", 100, super::handover);
    }

    #[test]
    fn any_reply_is_shown() {
        survives("view", 200, super::view);
    }

    #[test]
    fn any_end_by_the_kernel_is_told() {
        survives("ejection", 1_000, super::ejection);
    }
}
