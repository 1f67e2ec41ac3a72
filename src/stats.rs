// SPDX-License-Identifier: GPL-2.0-only

//! The statistics, and the targets by which clients of each socket get them.

use super::adaptive::Adaptive;
use super::fast_path_counters::Event;
use super::group_socket::{Grant, GroupSocket};
use super::metrics::{Metrics, PolicyCounter, Tail};
use super::programs::Programs;
use super::reading::{Driver, Reading};
use super::restarts::RestartTimes;
use super::rules::RuleKeeper;
use super::server::{Arguments, Limits, Targets};
use super::shared::Shared;
use super::task_list::{self, TaskLister};
use super::worker_process::WorkerProcess;
use super::{clock, explain, exposition, health, output, process, server, tune};
use anyhow::Result;
use pandemonium_engine::PolicyInfo;
use pandemonium_host::preflight;
use pandemonium_record::Reader;
use scx_stats::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The socket of the scheduler's user, where the clients of `scx_stats` look for it.
const SOCKET: &str = "/var/run/scx/root/stats";

/// Everything that the statistics are computed from.
#[derive(Clone)]
pub struct Source {
    pub shared: Arc<Shared>,
    pub policy: PolicyInfo,
    pub adaptive: Arc<Adaptive>,
    pub programs: Arc<Programs>,
    pub rules: Option<Arc<RuleKeeper>>,
    pub restarts: Arc<RestartTimes>,
    pub worker: Arc<WorkerProcess>,
    /// How often the program was replaced by a newer one.
    pub upgrades: u64,
}

impl Source {
    /// Reads the worker's counters, and what the supervisor knows.
    pub fn read(&self) -> Reading {
        let driver = Driver {
            is_unloaded: preflight::is_enabled() == Some(false) && !self.worker.is_stopping(),
            recent_restarts: self.restarts.recent(clock::now()),
            adapted: self.adaptive.ran(),
            not_real_time: process::is_real_time_refused(),
            save_failed: self.programs.save_failed(),
            record_dropped: self.record_dropped().unwrap_or_default(),
            unprinted: output::dropped(),
        };
        Reading::of(&self.shared, driver)
    }

    /// The rounds of all workers so far.
    pub fn rounds(&self) -> u64 {
        self.shared.counters.read().rounds
    }

    /// The entries that the recording has dropped, if there is one.
    fn record_dropped(&self) -> Option<u64> {
        self.shared.ring().map(|ring| Reader::new(ring).dropped())
    }

    /// The counters that the policy declares.
    fn policy_counters(&self) -> BTreeMap<String, PolicyCounter> {
        let counts = self.shared.policy.read().into_iter().map(|count| PolicyCounter { count });
        let names = self.policy.counters.iter().map(|counter| counter.name.to_owned());
        names.zip(counts).collect()
    }

    /// The statistics of the interval between two readings.
    pub fn metrics(&self, before: &Reading, after: &Reading) -> Metrics {
        let (was, n) = (&before.numbers, &after.numbers);
        let elapsed = after.at.since(before.at).as_nanos().max(1);
        let per_sec = |now: u64, then: u64| {
            (u128::from(now.saturating_sub(then)) * 1_000_000_000 / u128::from(elapsed)) as u64
        };
        let user = n.user_dispatches.saturating_sub(was.user_dispatches);
        let kernel = n.kernel_dispatches.saturating_sub(was.kernel_dispatches);
        let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let status = self.adaptive.status();
        let counted = after.fast_path.since(&before.fast_path);
        let mut metrics = Metrics {
            health: health::health(before, after),
            policy: self.policy.name.into(),
            policy_counters: self.policy_counters(),
            restarts: self.restarts.count(),
            upgrades: self.upgrades,
            decisions_per_sec: per_sec(n.user_dispatches, was.user_dispatches),
            dispatches_per_sec: per_sec(user + kernel, 0),
            idle_pct: share(kernel, user + kernel),
            own_cpu_pct: share(n.cpu_ns.saturating_sub(was.cpu_ns), elapsed),
            wakeups_per_sec: per_sec(n.wakeups, was.wakeups),
            requeues_per_sec: per_sec(n.requeues, was.requeues),
            rescues: n.rescues.saturating_sub(was.rescues),
            kicks: counted.kicks(),
            kicks_slice: counted.events(Event::SliceKick),
            // To print a line causes a short burst itself, so a burst must last for most rounds.
            burst: u64::from(
                n.burst_rounds.saturating_sub(was.burst_rounds) * 2
                    > n.rounds.saturating_sub(was.rounds),
            ),
            starvation_limit_us: status.report.wait_limit.as_micros(),
            ..Metrics::default()
        };
        metrics.take_numbers(n);
        let predictions = metrics.policy_counters.get("predictions");
        metrics.procdb_hits = predictions.map_or(0, |counter| counter.count);
        metrics.take_events(&after.fast_path);
        // The worker publishes these four times a second: a shorter interval may have none, and
        // shows the last second instead.
        metrics.take_fast_path(if counted.is_empty() { &status.fast_path } else { &counted });
        metrics.take_status(&status);
        metrics.nr_unprinted = after.driver.unprinted;
        metrics.record_dropped = self.record_dropped().map_or(-1, |dropped| dropped as i64);
        if let Some(rules) = &self.rules {
            let (rules, processes) = rules.counts();
            (metrics.nr_rules, metrics.nr_ruled) = (rules as u64, processes as u64);
        }
        let programs = self.programs.summary();
        metrics.procdb_total = programs.total as u64;
        metrics.procdb_confident = programs.confident as u64;
        metrics
    }
}

/// Makes what opens a target, in a thread that is an ordinary one from then on.
fn ordinary<R>(open: impl Fn() -> R) -> impl Fn() -> R {
    move || {
        process::make_this_ordinary();
        open()
    }
}

/// The structs of the statistics, the top one first.
fn structs() -> [StatsMeta; 3] {
    [Metrics::meta(), PolicyCounter::meta(), Tail::meta()]
}

/// The targets that change and ask nothing, which a group may have: `tasks` lists so many at most.
/// Each client has its own previous reading.
pub fn statistics(source: Source, tasks_max: usize) -> Targets {
    let (of_tasks, of_metrics) = (source.clone(), source.clone());
    let open = move || {
        let source = source.clone();
        let mut before = source.read();
        move |_: &Arguments| {
            let after = source.read();
            let metrics = source.metrics(&before, &after);
            before = after;
            Ok(metrics)
        }
    };
    let open_tasks = move || {
        let shared = Arc::clone(&of_tasks.shared);
        let mut lister = TaskLister::of(shared, of_tasks.policy.name, tasks_max);
        move |_: &Arguments| Ok(lister.list())
    };
    let open_metrics = move || {
        let source = of_metrics.clone();
        let mut before = source.read();
        move |args: &Arguments| {
            let after = source.read();
            let text = exposition::text(&source.metrics(&before, &after), &after, args);
            before = after;
            Ok(text)
        }
    };
    structs()
        .into_iter()
        .fold(Targets::default(), Targets::describe)
        .add("top", ordinary(open))
        .add(task_list::TARGET, ordinary(open_tasks))
        .add(exposition::TARGET, ordinary(open_metrics))
}

/// All targets.
fn everything(source: Source) -> Targets {
    let (adaptive, rules) = (Arc::clone(&source.adaptive), source.rules.clone());
    let query_server = Arc::new(explain::QueryServer::of(Arc::clone(&source.shared)));
    let tune = move || {
        let (adaptive, rules) = (Arc::clone(&adaptive), rules.clone());
        move |args: &Arguments| tune::respond(&adaptive, rules.as_deref(), args)
    };
    let explain = move || {
        let query_server = Arc::clone(&query_server);
        move |args: &Arguments| explain::respond(&query_server, args)
    };
    statistics(source, task_list::MOST_FOR_USER)
        .add(tune::TARGET, tune)
        .add(explain::TARGET, ordinary(explain))
}

/// The profile, to see and to choose.
pub fn profile(source: Source) -> Targets {
    let adaptive = source.adaptive;
    let tune = move || {
        let adaptive = Arc::clone(&adaptive);
        move |args: &Arguments| tune::respond_with_profile(&adaptive, args)
    };
    Targets::default().add(tune::TARGET, tune)
}

/// Serves everything to the scheduler's user. Real-time threads change knobs, so that the user's
/// change need not wait for the tasks that it is about.
pub fn serve(source: Source) -> Result<()> {
    let launch = || server::launch(everything(source), Limits::USER, Path::new(SOCKET));
    process::start_real_time(launch)
}

/// Serves to a group what it may do, in ordinary threads.
pub fn serve_group(source: Source, socket: &GroupSocket) -> Result<()> {
    let grant = socket.grant();
    let targets = match grant {
        Grant::Statistics => statistics(source, task_list::MOST_FOR_GROUP),
        Grant::Profile => profile(source),
    };
    server::launch(targets, Limits::GROUP, &grant.path())?;
    socket.open_to_group()
}

/// Describes every field.
pub fn describe(out: &mut impl Write) -> Result<()> {
    let data = StatsServerData::<(), ()>::new();
    structs().into_iter().fold(data, StatsServerData::add_meta).describe_meta(out, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::PATIENCE_MS;
    use crate::fast_path_counters::FastPathCounters;
    use crate::procdb_file::tests::Scratch;
    use serde_json::Value;

    type Described = BTreeMap<String, StatsMeta>;

    /// What the server answers to the two requests that `scxtop` and `scxstats_to_openmetrics.py`
    /// make. Each map of the statistics has an entry.
    fn ask() -> (Described, Value) {
        let folder = Scratch::new();
        let path = folder.path().with_file_name("stats");
        let mut metrics = Metrics::default();
        metrics.take_fast_path(&FastPathCounters::default());
        metrics.policy_counters.insert("predictions".into(), PolicyCounter { count: 1 });
        let top = move || {
            let metrics = metrics.clone();
            move |_: &Arguments| Ok(metrics.clone())
        };
        let targets = structs().into_iter().fold(Targets::default(), Targets::describe);
        server::launch(targets.add("top", top), Limits::USER, &path).unwrap();
        let mut client = StatsClient::new().set_path(&path).connect(Some(PATIENCE_MS)).unwrap();
        let described = client.request("stats_meta", vec![]).unwrap();
        (described, client.request("stats", vec![]).unwrap())
    }

    /// The description of the statistics themselves.
    fn top(described: &Described) -> &StatsMeta {
        let tops: Vec<_> = described.values().filter(|it| it.attrs.top.is_some()).collect();
        let [top] = tops.as_slice() else { panic!("{} structs are the top one", tops.len()) };
        top
    }

    #[test]
    fn other_tools_find_the_statistics_by_their_metadata() {
        let (described, values) = ask();
        let top = top(&described);
        for name in top.fields.keys() {
            assert!(values.get(name).is_some(), "{name} is described and not given");
        }
        assert_eq!(values.as_object().unwrap().len(), top.fields.len());
    }

    /// `scxstats_to_openmetrics.py` takes a map of structs only, and tells its entries apart by a
    /// label.
    #[test]
    fn the_tools_of_scx_stats_can_read_every_map() {
        let (described, values) = ask();
        let maps = values.as_object().unwrap().iter().filter(|(_, value)| value.is_object());
        let mut seen = 0;
        for (name, value) in maps {
            let entries: Vec<_> = value.as_object().unwrap().values().collect();
            assert!(!entries.is_empty() && entries.iter().all(|entry| entry.is_object()), "{name}");
            let field = serde_json::to_value(&top(&described).fields[name.as_str()]).unwrap();
            let entry = field["dict"]["datum"]["struct"].as_str().expect("a map of structs");
            let user = &described[entry].attrs.user;
            assert!(user.contains_key("_om_label") && user.contains_key("_om_prefix"), "{name}");
            seen += 1;
        }
        assert_eq!(seen, described.len() - 1, "all structs but the top one are entries of maps");
    }
}
