// SPDX-License-Identifier: GPL-2.0-only

//! Statistics as `scx_stats` serves them: [`Metrics`], the server, and the client for `--monitor`.

use super::adaptive::{Adaptive, Status};
use super::fast_path::State;
use super::fast_path_counters::{Event, FastPathCounters, Stage};
use super::programs::Programs;
use super::shared::{Numbers, Shared};
use super::{explain, telemetry, tune, worker};
use anyhow::Result;
use pandemonium_engine::PolicyInfo;
use pandemonium_engine::fine::Fine;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_record::Reader;
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Everything a line of statistics says, and what it is computed from. Counters run since the
/// scheduler was started, over restarts; rates are over the time since the same client asked
/// before.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    #[stat(desc = "ok, or the first reason why it is not")]
    pub health: String,
    #[stat(desc = "Name of the policy")]
    pub policy: String,
    #[stat(desc = "What the policy counts by itself, by name")]
    pub policy_counters: BTreeMap<String, u64>,
    #[stat(desc = "CPUs online")]
    pub nr_cpus: u64,
    #[stat(desc = "CPUs that run a task of ours")]
    pub nr_running: u64,
    #[stat(desc = "Tasks that wait for a decision")]
    pub nr_waiting: u64,
    #[stat(desc = "Decisions sent to the kernel")]
    pub nr_user_dispatches: u64,
    #[stat(desc = "Tasks the kernel half placed by itself: on an idle CPU, or bound kthreads")]
    pub nr_kernel_dispatches: u64,
    #[stat(desc = "Decisions the kernel dropped because the task had been queued again since")]
    pub nr_cancel_dispatches: u64,
    #[stat(desc = "Decisions for a CPU the task may not use, moved to its previous CPU")]
    pub nr_bounce_dispatches: u64,
    #[stat(desc = "Decisions that found the ring to the kernel full, and were made again")]
    pub nr_refused_dispatches: u64,
    #[stat(desc = "Tasks that bypassed the policy because the ring to user space was full")]
    pub nr_sched_congested: u64,
    #[stat(desc = "Messages that made no sense and were skipped")]
    pub nr_malformed: u64,
    #[stat(desc = "Arrivals that were wake-ups, first sight included")]
    pub nr_wakeups: u64,
    #[stat(desc = "Arrivals that had lost the CPU")]
    pub nr_requeues: u64,
    #[stat(desc = "Decisions taken for age rather than for order")]
    pub nr_rescues: u64,
    #[stat(desc = "Decisions for Batch tasks")]
    pub nr_batch: u64,
    #[stat(desc = "Decisions for Interactive tasks")]
    pub nr_interactive: u64,
    #[stat(desc = "Decisions for LatCritical tasks")]
    pub nr_lat_critical: u64,
    #[stat(
        desc = "Page faults of the scheduler without I/O since its first decision (should be 0)"
    )]
    pub page_faults_minor: u64,
    #[stat(desc = "Page faults of the scheduler with I/O since its first decision (should be 0)")]
    pub page_faults_major: u64,
    #[stat(desc = "Most messages found in the ring to user space at once, of 4096, last second")]
    pub ring_occupancy: u64,
    #[stat(desc = "Longest wait for a decision in the last second, in microseconds")]
    pub oldest_wait_us: u64,
    #[stat(desc = "Decisions a second")]
    pub decisions_per_sec: u64,
    #[stat(desc = "Tasks dispatched a second, by user space and kernel half together")]
    pub dispatches_per_sec: u64,
    #[stat(desc = "Share of dispatches that the kernel half made on its own, in percent")]
    pub idle_pct: f64,
    #[stat(desc = "CPU time of the scheduler, in percent of one CPU")]
    pub own_cpu_pct: f64,
    #[stat(desc = "Times the scheduler was started again because CPUs came or went")]
    pub restarts: u64,
    #[stat(desc = "Wake-ups a second")]
    pub wakeups_per_sec: u64,
    #[stat(desc = "Requeues a second")]
    pub requeues_per_sec: u64,
    #[stat(
        desc = "Whether the fast path is at work: none, refused, or loaded and without which parts"
    )]
    pub fast_path: String,
    #[stat(desc = "CPUs interrupted for a wake-up")]
    pub nr_kicks: u64,
    #[stat(desc = "CPUs interrupted because the policy asked")]
    pub nr_kicks_asked: u64,
    #[stat(desc = "CPUs interrupted once more because the first time they served somebody else")]
    pub nr_kicks_missed: u64,
    #[stat(desc = "CPUs interrupted because a task still waited a while after its wake-up")]
    pub nr_kicks_again: u64,
    #[stat(desc = "CPUs interrupted because a task outlived its slice while somebody waited")]
    pub nr_kicks_outlived: u64,
    #[stat(desc = "CPUs interrupted for a kernel thread that is bound to them")]
    pub nr_kicks_bound: u64,
    #[stat(desc = "CPUs interrupted for a LatCritical task that had lost its own")]
    pub nr_kicks_requeued: u64,
    #[stat(desc = "CPUs passed over because they were interrupted a moment ago, or too often")]
    pub nr_kicks_limited: u64,
    #[stat(desc = "Wake-ups that found no idle CPU, as the fast path sees them")]
    pub nr_busy_wakeups: u64,
    #[stat(desc = "Of these, without interruption because the waker is trusted to sleep")]
    pub nr_handed_off: u64,
    #[stat(desc = "Of these, without interruption because all CPUs run something better")]
    pub nr_no_victim: u64,
    #[stat(desc = "Times that a timer of the fast path fired")]
    pub nr_patrols: u64,
    #[stat(desc = "Facts that were lost because two tasks use one record")]
    pub nr_contended: u64,
    #[stat(desc = "Tasks that ended or began another program without our being told")]
    pub nr_untold: u64,
    #[stat(desc = "CPUs interrupted for a task that woke up, in the interval")]
    pub kicks: u64,
    #[stat(desc = "CPUs interrupted at the end of a slice between two ticks, in the interval")]
    pub kicks_slice: u64,
    #[stat(
        desc = "How long things took in the interval: from wake-up to running, by tier, and the \
                   stages of a decision"
    )]
    pub tails: BTreeMap<String, Tail>,
    #[stat(desc = "P99 of wake-up to running, in microseconds, rounded up to its bucket")]
    pub wake_p99_us: u64,
    #[stat(desc = "The same, of Batch tasks")]
    pub wake_p99_batch_us: u64,
    #[stat(desc = "The same, of Interactive tasks")]
    pub wake_p99_interactive_us: u64,
    #[stat(desc = "The same, of LatCritical tasks")]
    pub wake_p99_lat_critical_us: u64,
    #[stat(desc = "Share of Batch runs on the L2 cache of the run before, in percent; -1: no run")]
    pub l2_batch_pct: i64,
    #[stat(desc = "The same, of Interactive tasks")]
    pub l2_interactive_pct: i64,
    #[stat(desc = "The same, of LatCritical tasks")]
    pub l2_lat_critical_pct: i64,
    #[stat(desc = "Share of sleeps of up to 10 ms, which are waits for I/O, in percent; -1: none")]
    pub sleep_io_pct: i64,
    #[stat(desc = "Entries that a recording had no room for; -1 without --record")]
    pub record_dropped: i64,
    #[stat(desc = "Rescues in the interval")]
    pub rescues: u64,
    #[stat(desc = "Longest a task may wait because of its tier, in microseconds")]
    pub starvation_limit_us: u64,
    #[stat(
        desc = "Load as the adaptive loop sees it: LIGHT, MIXED, HEAVY; FIXED without the loop"
    )]
    pub regime: String,
    #[stat(desc = "1 if there was a burst in most rounds of the interval")]
    pub burst: u64,
    #[stat(desc = "1 while batch work has waited for seconds")]
    pub longrun: u64,
    #[stat(
        desc = "Time that CPUs had nothing to run, in the last second, in percent; -1: unknown"
    )]
    pub cpu_idle_pct: f64,
    #[stat(desc = "Seconds in a row in which nothing happened, up to 10")]
    pub stability: u64,
    #[stat(desc = "1 while slices are shorter than the regime's, because latency was bad")]
    pub tightened: u64,
    #[stat(desc = "How often slices were shortened because latency was bad")]
    pub nr_tightened: u64,
    #[stat(desc = "Knobs that a person has set, which the adaptive loop leaves alone")]
    pub nr_knobs_set: u64,
    #[stat(desc = "Longest slice of Interactive and LatCritical tasks, in microseconds")]
    pub slice_us: u64,
    #[stat(desc = "Longest slice of Batch tasks, in microseconds")]
    pub batch_slice_us: u64,
    #[stat(desc = "Wait after which Batch work is rescued, in microseconds")]
    pub sojourn_thresh_us: u64,
    #[stat(desc = "Programs of which something was learned")]
    pub procdb_total: u64,
    #[stat(desc = "Programs that are known well enough to predict a tier")]
    pub procdb_confident: u64,
    #[stat(desc = "Tasks of whose name something was known when they appeared")]
    pub procdb_hits: u64,
}

/// What the supervisor knows beyond the board.
#[derive(Clone)]
pub struct Source {
    pub shared: Arc<Shared>,
    pub policy: PolicyInfo,
    pub adaptive: Arc<Adaptive>,
    pub programs: Arc<Programs>,
    pub restarts: Arc<AtomicU64>,
}

/// Everything that the worker has told, at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    pub at: Stamp,
    pub numbers: Numbers,
    pub fast_path_counters: FastPathCounters,
}

impl Source {
    /// What the worker has told by now.
    pub fn read(&self) -> Reading {
        let (numbers, fast_path_counters) =
            (self.shared.board.read(), self.shared.fast_path_counters.read());
        Reading { at: worker::now(), numbers, fast_path_counters }
    }

    /// What the policy counts by itself.
    fn policy_counters(&self) -> BTreeMap<String, u64> {
        let counts = self.shared.own_counters.read();
        let names = self.policy.counters.iter().map(|counter| counter.name.to_owned());
        names.zip(counts).collect()
    }

    /// What happened between two readings.
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
        let counted = after.fast_path_counters.since(&before.fast_path_counters);
        let mut metrics = Metrics {
            health: telemetry::health(before, after),
            policy: self.policy.name.into(),
            policy_counters: self.policy_counters(),
            restarts: self.restarts.load(Ordering::Relaxed),
            decisions_per_sec: per_sec(n.user_dispatches, was.user_dispatches),
            dispatches_per_sec: per_sec(user + kernel, 0),
            idle_pct: share(kernel, user + kernel),
            own_cpu_pct: share(n.cpu_ns.saturating_sub(was.cpu_ns), elapsed),
            wakeups_per_sec: per_sec(n.wakeups, was.wakeups),
            requeues_per_sec: per_sec(n.requeues, was.requeues),
            rescues: n.rescues.saturating_sub(was.rescues),
            kicks: counted.kicks(),
            kicks_slice: counted.events(Event::Outlived),
            // Whoever prints a line once a second makes a little burst himself.
            burst: u64::from(
                n.burst_rounds.saturating_sub(was.burst_rounds) * 2
                    > n.rounds.saturating_sub(was.rounds),
            ),
            starvation_limit_us: status.report.wait_limit.as_micros(),
            ..Metrics::default()
        };
        metrics.take_numbers(n);
        let predictions = metrics.policy_counters.get("predictions");
        metrics.procdb_hits = predictions.copied().unwrap_or_default();
        metrics.take_events(&after.fast_path_counters);
        // An interval shorter than that of the counts may see none: then it is the last second.
        metrics.take_tally(if counted.is_empty() { &status.fast_path_counters } else { &counted });
        metrics.take_status(&status);
        metrics.record_dropped = match self.shared.ring() {
            Some(ring) => Reader::new(ring).dropped() as i64,
            None => -1,
        };
        let programs = self.programs.summary();
        metrics.procdb_total = programs.total as u64;
        metrics.procdb_confident = programs.confident as u64;
        metrics
    }
}

impl Metrics {
    /// What the worker counts, as it is.
    fn take_numbers(&mut self, n: &Numbers) {
        self.nr_cpus = n.cpus;
        self.nr_running = n.running;
        self.nr_waiting = n.waiting;
        self.nr_user_dispatches = n.user_dispatches;
        self.nr_kernel_dispatches = n.kernel_dispatches;
        self.nr_cancel_dispatches = n.cancelled;
        self.nr_bounce_dispatches = n.bounced;
        self.nr_refused_dispatches = n.refused;
        self.nr_sched_congested = n.congested;
        self.nr_malformed = n.malformed;
        self.nr_wakeups = n.wakeups;
        self.nr_requeues = n.requeues;
        self.nr_rescues = n.rescues;
        self.nr_batch = n.batch;
        self.nr_interactive = n.interactive;
        self.nr_lat_critical = n.lat_critical;
        self.page_faults_minor = n.faults_minor;
        self.page_faults_major = n.faults_major;
        self.ring_occupancy = n.ring_peak;
        self.oldest_wait_us = n.wait_peak_ns / 1_000;
        self.fast_path = State::from_word(n.fast_path).to_string();
        self.longrun = n.longrun;
    }

    /// What the fast path has done since the start.
    fn take_events(&mut self, total: &FastPathCounters) {
        for (field, event) in [
            (&mut self.nr_kicks, Event::Kick),
            (&mut self.nr_kicks_asked, Event::Asked),
            (&mut self.nr_kicks_missed, Event::Missed),
            (&mut self.nr_kicks_again, Event::Again),
            (&mut self.nr_kicks_outlived, Event::Outlived),
            (&mut self.nr_kicks_bound, Event::Bound),
            (&mut self.nr_kicks_requeued, Event::Requeued),
            (&mut self.nr_kicks_limited, Event::Limited),
            (&mut self.nr_busy_wakeups, Event::Wakeup),
            (&mut self.nr_handed_off, Event::HandedOff),
            (&mut self.nr_no_victim, Event::NoVictim),
            (&mut self.nr_patrols, Event::Patrol),
            (&mut self.nr_contended, Event::Contended),
            (&mut self.nr_untold, Event::Untold),
        ] {
            *field = total.events(event);
        }
    }

    fn take_tally(&mut self, fast_path_counters: &FastPathCounters) {
        self.tails = tails(fast_path_counters);
        let p99 = |tier| fast_path_counters.latency(tier).p99().as_micros();
        let l2 = |tier| fast_path_counters.l2_percent(tier).map_or(-1, |percent| percent as i64);
        self.wake_p99_us = fast_path_counters.latencies().p99().as_micros();
        self.wake_p99_batch_us = p99(Tier::Batch);
        self.wake_p99_interactive_us = p99(Tier::Interactive);
        self.wake_p99_lat_critical_us = p99(Tier::LatCritical);
        self.l2_batch_pct = l2(Tier::Batch);
        self.l2_interactive_pct = l2(Tier::Interactive);
        self.l2_lat_critical_pct = l2(Tier::LatCritical);
        self.sleep_io_pct = fast_path_counters.sleeps().io_percent().map_or(-1, i64::from);
    }

    fn take_status(&mut self, status: &Status) {
        let (report, values) = (&status.report, &status.values);
        let micros = |knob| values.time(knob).map_or(0, Span::as_micros);
        self.regime = if report.regime.is_empty() { "FIXED" } else { report.regime }.into();
        self.cpu_idle_pct = status.cpu_idle.map_or(-1.0, |idle| f64::from(idle) / 10.0);
        self.stability = u64::from(report.stability);
        self.tightened = u64::from(!report.regime.is_empty() && report.tightened);
        self.nr_tightened = report.tighten_events;
        self.nr_knobs_set = status.pinned.len() as u64;
        self.slice_us = micros("slice_us");
        self.batch_slice_us = micros("batch_slice_us");
        self.sojourn_thresh_us = micros("sojourn_thresh_us");
    }
}

/// How long something took, and how often it was seen.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
pub struct Tail {
    #[stat(desc = "How often it was seen")]
    pub count: u64,
    #[stat(desc = "What half did not exceed, in nanoseconds; rounded up by at most a quarter")]
    pub p50_ns: u64,
    #[stat(desc = "What 99 in 100 did not exceed")]
    pub p99_ns: u64,
    #[stat(desc = "What 999 in 1000 did not exceed")]
    pub p999_ns: u64,
}

/// Everything whose tail matters, by name.
fn tails(fast_path_counters: &FastPathCounters) -> BTreeMap<String, Tail> {
    let tail = |fine: Fine| {
        let [p50_ns, p99_ns, p999_ns] = fine.tail().map(Span::as_nanos);
        Tail { count: fine.counts.iter().sum(), p50_ns, p99_ns, p999_ns }
    };
    let waits = ["wait_batch", "wait_interactive", "wait_lat_critical"];
    let waits = waits.into_iter().zip(Tier::ALL.map(|tier| tail(fast_path_counters.waits(tier))));
    let stages = ["stage_received", "stage_decided", "stage_running"];
    let stages =
        stages.into_iter().zip(Stage::ALL.map(|stage| tail(fast_path_counters.stage(stage))));
    waits.chain(stages).map(|(name, tail)| (name.into(), tail)).collect()
}

/// The server's description and its targets. Each client has its own "before".
fn server_data(source: Option<Source>) -> StatsServerData<(), ()> {
    let data = StatsServerData::new().add_meta(Metrics::meta()).add_meta(Tail::meta());
    let Some(source) = source else { return data };
    let adaptive = Arc::clone(&source.adaptive);
    let query_server = explain::QueryServer::of(Arc::clone(&source.shared));
    let open: Box<dyn StatsOpener<(), ()>> = Box::new(move |_| {
        let source = source.clone();
        let mut before = source.read();
        let read: Box<dyn StatsReader<(), ()>> = Box::new(move |_args, _channels| {
            let after = source.read();
            let metrics = source.metrics(&before, &after);
            before = after;
            metrics.to_json()
        });
        Ok(read)
    });
    let tuned = move |args: &BTreeMap<String, String>, _: (&_, &_)| tune::answer(&adaptive, args);
    let explained =
        move |args: &BTreeMap<String, String>, _: (&_, &_)| explain::answer(&query_server, args);
    data.add_ops("top", StatsOps { open, close: None })
        .add_stats(tune::TARGET, Box::new(tuned))
        .add_stats(explain::TARGET, Box::new(explained))
}

/// Serves statistics for as long as the result lives.
pub fn serve(source: Source) -> Result<StatsServer<(), ()>> {
    StatsServer::new(server_data(Some(source))).launch()
}

/// Explains every field.
pub fn describe(out: &mut impl Write) -> Result<()> {
    server_data(None).describe_meta(out, None)
}

/// Prints the statistics of a running instance until interrupted.
pub fn monitor(interval: Duration) -> Result<()> {
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || false,
        |metrics| Ok(writeln!(std::io::stdout(), "{}", telemetry::line(&metrics))?),
    )
}
