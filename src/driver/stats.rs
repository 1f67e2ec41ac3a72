// SPDX-License-Identifier: GPL-2.0-only

//! Statistics as `scx_stats` serves them: [`Metrics`], the server, and the client for `--monitor`.

use super::shared::{Numbers, Shared};
use super::telemetry;
use super::worker;
use anyhow::Result;
use scx_pandemonium_user::time::{Span, Stamp};
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::sync::Arc;
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
    #[stat(desc = "Whether the fast path is at work: none, loaded, refused")]
    pub fast_path: String,
    #[stat(desc = "CPUs interrupted for a wake-up")]
    pub nr_kicks: u64,
    #[stat(desc = "CPUs interrupted because the policy asked")]
    pub nr_kicks_asked: u64,
    #[stat(desc = "CPUs interrupted in the interval")]
    pub kicks: u64,
    #[stat(desc = "P99 of wake-up to running, last second, us, rounded up to its bucket")]
    pub wake_p99_us: u64,
    #[stat(desc = "Rescues in the interval")]
    pub rescues: u64,
    #[stat(desc = "Longest a task may wait because of its tier, in microseconds")]
    pub starvation_limit_us: u64,
}

/// What the supervisor knows beyond the board.
#[derive(Clone)]
pub struct Source {
    pub shared: Arc<Shared>,
    pub policy: String,
    pub starvation_limit: Span,
    pub restarts: Arc<std::sync::atomic::AtomicU64>,
}

/// One reading of the board.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    pub at: Stamp,
    pub numbers: Numbers,
}

impl Source {
    /// The board as it is now.
    pub fn read(&self) -> Reading {
        Reading { at: worker::now(), numbers: self.shared.board.read() }
    }

    /// What happened between two readings.
    pub fn metrics(&self, before: &Reading, after: &Reading) -> Metrics {
        let n = &after.numbers;
        let was = &before.numbers;
        let elapsed = after.at.since(before.at).as_nanos().max(1);
        let per_sec = |now: u64, then: u64| {
            (u128::from(now.saturating_sub(then)) * 1_000_000_000 / u128::from(elapsed)) as u64
        };
        let user = n.user_dispatches.saturating_sub(was.user_dispatches);
        let kernel = n.kernel_dispatches.saturating_sub(was.kernel_dispatches);
        let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        Metrics {
            health: telemetry::health(before, after),
            policy: self.policy.clone(),
            nr_cpus: n.cpus,
            nr_running: n.running,
            nr_waiting: n.waiting,
            nr_user_dispatches: n.user_dispatches,
            nr_kernel_dispatches: n.kernel_dispatches,
            nr_cancel_dispatches: n.cancelled,
            nr_bounce_dispatches: n.bounced,
            nr_refused_dispatches: n.refused,
            nr_sched_congested: n.congested,
            nr_malformed: n.malformed,
            nr_wakeups: n.wakeups,
            nr_requeues: n.requeues,
            nr_rescues: n.rescues,
            nr_batch: n.batch,
            nr_interactive: n.interactive,
            nr_lat_critical: n.lat_critical,
            page_faults_minor: n.faults_minor,
            page_faults_major: n.faults_major,
            ring_occupancy: n.ring_peak,
            oldest_wait_us: n.wait_peak_ns / 1_000,
            decisions_per_sec: per_sec(n.user_dispatches, was.user_dispatches),
            dispatches_per_sec: per_sec(user + kernel, 0),
            idle_pct: share(kernel, user + kernel),
            own_cpu_pct: share(n.cpu_ns.saturating_sub(was.cpu_ns), elapsed),
            restarts: self.restarts.load(std::sync::atomic::Ordering::Relaxed),
            wakeups_per_sec: per_sec(n.wakeups, was.wakeups),
            requeues_per_sec: per_sec(n.requeues, was.requeues),
            rescues: n.rescues.saturating_sub(was.rescues),
            fast_path: telemetry::fast_path(n.fast_path).into(),
            nr_kicks: n.kicks,
            nr_kicks_asked: n.kicks_asked,
            kicks: (n.kicks + n.kicks_asked).saturating_sub(was.kicks + was.kicks_asked),
            wake_p99_us: n.wake_p99_ns / 1_000,
            starvation_limit_us: self.starvation_limit.as_micros(),
        }
    }
}

/// The server's description and its one target. Each client has its own "before".
fn server_data(source: Option<Source>) -> StatsServerData<(), ()> {
    let data = StatsServerData::new().add_meta(Metrics::meta());
    let Some(source) = source else { return data };
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
    data.add_ops("top", StatsOps { open, close: None })
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
