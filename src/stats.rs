// SPDX-License-Identifier: GPL-2.0-only

//! The statistics server of `scx_stats`.

use super::adaptive::Adaptive;
use super::fast_path_counters::Event;
use super::group_socket::{Grant, GroupSocket};
use super::metrics::{Metrics, PolicyCounter, Tail};
use super::programs::Programs;
use super::reading::{Driver, Reading};
use super::restarts::RestartTimes;
use super::rules::RuleKeeper;
use super::shared::Shared;
use super::task_list::{self, TaskLister};
use super::worker_process::WorkerProcess;
use super::{clock, explain, exposition, health, process, tune};
use anyhow::Result;
use pandemonium_engine::PolicyInfo;
use pandemonium_host::preflight;
use pandemonium_record::Reader;
use scx_stats::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

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

/// The arguments of a request.
type Arguments = BTreeMap<String, String>;

/// Opens a target for a client. `open` makes what responds to its requests, from then on in an
/// ordinary thread.
fn opener<R>(open: impl Fn() -> R + Send + 'static) -> Box<dyn StatsOpener<(), ()>>
where
    R: FnMut(&Arguments) -> Result<Value> + 'static,
{
    Box::new(move |_| {
        process::make_this_ordinary();
        let mut respond = open();
        let read: Box<dyn StatsReader<(), ()>> = Box::new(move |args, _channels| respond(args));
        Ok(read)
    })
}

/// The server's description.
fn description() -> StatsServerData<(), ()> {
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_meta(PolicyCounter::meta())
        .add_meta(Tail::meta())
}

/// The targets that change and ask nothing. Each client has its own previous reading.
fn statistics(source: Source) -> StatsServerData<(), ()> {
    let (of_tasks, of_metrics) = (source.clone(), source.clone());
    let open = opener(move || {
        let source = source.clone();
        let mut before = source.read();
        move |_: &Arguments| {
            let after = source.read();
            let metrics = source.metrics(&before, &after);
            before = after;
            metrics.to_json()
        }
    });
    let open_tasks = opener(move || {
        let shared = Arc::clone(&of_tasks.shared);
        let mut lister = TaskLister::of(shared, of_tasks.policy.name);
        move |_: &Arguments| Ok(serde_json::to_value(lister.list())?)
    });
    let open_metrics = opener(move || {
        let source = of_metrics.clone();
        let mut before = source.read();
        move |args: &Arguments| {
            let after = source.read();
            let text = exposition::text(&source.metrics(&before, &after), &after, args);
            before = after;
            Ok(text.into())
        }
    });
    description()
        .add_ops("top", StatsOps { open, close: None })
        .add_ops(task_list::TARGET, StatsOps { open: open_tasks, close: None })
        .add_ops(exposition::TARGET, StatsOps { open: open_metrics, close: None })
}

/// All targets.
fn everything(source: Source) -> StatsServerData<(), ()> {
    let (adaptive, rules) = (Arc::clone(&source.adaptive), source.rules.clone());
    let query_server = explain::QueryServer::of(Arc::clone(&source.shared));
    let tune =
        move |args: &Arguments, _: (&_, &_)| tune::respond(&adaptive, rules.as_deref(), args);
    let explain = move |args: &Arguments, _: (&_, &_)| {
        process::make_this_ordinary();
        explain::respond(&query_server, args)
    };
    statistics(source)
        .add_stats(tune::TARGET, Box::new(tune))
        .add_stats(explain::TARGET, Box::new(explain))
}

/// The profile, to see and to choose.
fn profile(source: Source) -> StatsServerData<(), ()> {
    let adaptive = source.adaptive;
    let tune = move |args: &Arguments, _: (&_, &_)| tune::respond_with_profile(&adaptive, args);
    StatsServerData::new().add_stats(tune::TARGET, Box::new(tune))
}

/// Serves everything to the scheduler's user until the result is dropped. Replaces the socket of an
/// earlier scheduler. Real-time threads change knobs, so that the user's change need not wait for
/// the tasks that it is about.
pub fn serve(source: Source) -> Result<StatsServer<(), ()>> {
    process::start_real_time(|| StatsServer::new(everything(source)).launch())
}

/// Serves to a group what it may do, likewise.
pub fn serve_group(source: Source, socket: &GroupSocket) -> Result<StatsServer<(), ()>> {
    let grant = socket.grant();
    let targets = match grant {
        Grant::Statistics => statistics(source),
        Grant::Profile => profile(source),
    };
    let server = StatsServer::new(targets).set_path(grant.path()).launch()?;
    socket.open_to_group()?;
    Ok(server)
}

/// Describes every field.
pub fn describe(out: &mut impl Write) -> Result<()> {
    description().describe_meta(out, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::PATIENCE_MS;
    use crate::fast_path_counters::FastPathCounters;

    type Described = BTreeMap<String, StatsMeta>;

    /// What the server answers to the two requests that `scxtop` and `scxstats_to_openmetrics.py`
    /// make. Each map of the statistics has an entry.
    fn ask(test: &str) -> (Described, Value) {
        let name = format!("pandemonium-stats-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut metrics = Metrics::default();
        metrics.take_fast_path(&FastPathCounters::default());
        metrics.policy_counters.insert("predictions".into(), PolicyCounter { count: 1 });
        let top = move |_: &Arguments, _: (&_, &_)| metrics.to_json();
        let data = description().add_stats("top", Box::new(top));
        let _server = StatsServer::new(data).set_path(&path).launch().unwrap();
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
        let (described, values) = ask("fields");
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
        let (described, values) = ask("maps");
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
