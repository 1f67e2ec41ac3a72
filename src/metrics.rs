// SPDX-License-Identifier: GPL-2.0-only

//! The fields of the statistics, and which counter each of them shows.

use super::adaptive::Status;
use super::fast_path::State;
use super::fast_path_counters::{Event, FastPathCounters, Stage};
use super::shared::Numbers;
use pandemonium_engine::fine::Fine;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All statistics. Counters run since the start of the scheduler, across restarts of the worker.
/// Rates and shares are over the interval since the same client's previous request.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    #[stat(desc = "ok, or the first reason why it is not")]
    pub health: String,
    #[stat(desc = "Name of the policy")]
    pub policy: String,
    #[stat(desc = "Profile in force: a named set of knobs; auto is the defaults")]
    pub profile: String,
    #[stat(desc = "By what it was chosen: --profile, tune or another program; empty: \
                   by nothing")]
    pub profile_by: String,
    #[stat(desc = "Counters that the policy declares, by name")]
    pub policy_counters: BTreeMap<String, PolicyCounter>,
    #[stat(desc = "CPUs online")]
    pub nr_cpus: u64,
    #[stat(desc = "CPUs that run a SCHED_EXT task")]
    pub nr_running: u64,
    #[stat(desc = "Tasks that wait for a decision")]
    pub nr_waiting: u64,
    #[stat(desc = "Decisions sent to the kernel")]
    pub nr_user_dispatches: u64,
    #[stat(desc = "Tasks that the backend placed itself: on an idle CPU, or bound kthreads")]
    pub nr_kernel_dispatches: u64,
    #[stat(desc = "Decisions the backend dropped because the task had been queued again since")]
    pub nr_cancel_dispatches: u64,
    #[stat(desc = "Decisions for a CPU that the task may not use; it used its previous CPU")]
    pub nr_bounce_dispatches: u64,
    #[stat(desc = "Decisions that found the ring to the kernel full, and were made again")]
    pub nr_refused_dispatches: u64,
    #[stat(desc = "Tasks that bypassed the policy because the ring to user space was full")]
    pub nr_sched_congested: u64,
    #[stat(desc = "Times that the backend decided because the scheduling process did not")]
    pub nr_stalls: u64,
    #[stat(desc = "How long it did so altogether, in milliseconds")]
    pub stalled_ms: u64,
    #[stat(desc = "Wakeups without a decision, by a standing order")]
    pub nr_orders: u64,
    #[stat(desc = "Of these, wakeups that waited for a CPU; the others ran at once")]
    pub nr_orders_queued: u64,
    #[stat(desc = "Tasks that an order preempted, and that went on without a decision")]
    pub nr_resumed: u64,
    #[stat(desc = "Further slices of Batch tasks without a decision, by a standing order")]
    pub nr_continued: u64,
    #[stat(desc = "Orders for which another one was asked before they ended")]
    pub nr_renewed: u64,
    #[stat(desc = "Valid orders that were lost because another task took their slot")]
    pub nr_displaced: u64,
    #[stat(desc = "Times that a CPU was asked for another performance, by the tier that it runs")]
    pub nr_performance_changes: u64,
    #[stat(desc = "Malformed messages, which were skipped")]
    pub nr_malformed: u64,
    #[stat(desc = "Arrivals of tasks that woke up, new tasks included")]
    pub nr_wakeups: u64,
    #[stat(desc = "Arrivals of tasks that had lost their CPU")]
    pub nr_requeues: u64,
    #[stat(desc = "Decisions by age rather than by order")]
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
    #[stat(desc = "Most messages in the ring to user space at once, of 4096, in the last second")]
    pub ring_occupancy: u64,
    #[stat(desc = "Longest wait for a decision in the last second, in microseconds")]
    pub oldest_wait_us: u64,
    #[stat(desc = "Decisions a second")]
    pub decisions_per_sec: u64,
    #[stat(desc = "Tasks dispatched a second, by user space and backend together")]
    pub dispatches_per_sec: u64,
    #[stat(desc = "Share of dispatches that the backend made itself, in percent")]
    pub idle_pct: f64,
    #[stat(desc = "CPU time of the scheduler, in percent of one CPU")]
    pub own_cpu_pct: f64,
    #[stat(desc = "Times the scheduler was started again: a CPU went on- or offline, or a kill")]
    pub restarts: u64,
    #[stat(desc = "Times this program was replaced by a newer one while it ran")]
    pub upgrades: u64,
    #[stat(desc = "How long the kernel's own scheduler ran the tasks at that, in microseconds")]
    pub upgrade_pause_us: u64,
    #[stat(desc = "How long no scheduling process decided at that, in microseconds")]
    pub upgrade_undecided_us: u64,
    #[stat(desc = "Wakeups a second")]
    pub wakeups_per_sec: u64,
    #[stat(desc = "Requeues a second")]
    pub requeues_per_sec: u64,
    #[stat(
        desc = "State of the fast path: none, refused, or loaded and the parts that are missing"
    )]
    pub fast_path: String,
    #[stat(desc = "CPUs kicked for a wakeup")]
    pub nr_kicks: u64,
    #[stat(desc = "CPUs kicked because the policy asked")]
    pub nr_kicks_asked: u64,
    #[stat(
        desc = "Times that tasks of a CPU were enqueued again: a higher scheduling class kept it"
    )]
    pub nr_reenqueued: u64,
    #[stat(desc = "Idle CPUs woken because tasks waited when the scheduler left its CPU")]
    pub nr_kicks_idle: u64,
    #[stat(desc = "Old name of nr_kicks_idle")]
    pub nr_kicks_lost: u64,
    #[stat(desc = "CPUs kicked by a timer because a task still waited")]
    pub nr_kicks_again: u64,
    #[stat(desc = "CPUs kicked at the end of a slice between two ticks while a task waited")]
    pub nr_kicks_slice: u64,
    #[stat(desc = "Old name of nr_kicks_slice")]
    pub nr_kicks_outlived: u64,
    #[stat(desc = "CPUs kicked for a kernel thread that is bound to them")]
    pub nr_kicks_bound: u64,
    #[stat(desc = "CPUs kicked for a task above Batch that had lost its CPU")]
    pub nr_kicks_requeued: u64,
    #[stat(desc = "CPUs passed over because they were kicked too recently or too often")]
    pub nr_kicks_limited: u64,
    #[stat(desc = "Wakeups of tasks that were queued to user space")]
    pub nr_busy_wakeups: u64,
    #[stat(desc = "Of these, without a kick because the waker is trusted to hand over its CPU")]
    pub nr_handed_off: u64,
    #[stat(desc = "Of these, without a kick because no CPU gave way")]
    pub nr_no_victim: u64,
    #[stat(desc = "Times that a timer of the fast path fired")]
    pub nr_timers: u64,
    #[stat(desc = "Old name of nr_timers")]
    pub nr_patrols: u64,
    #[stat(desc = "Updates dropped because another CPU was writing the task's record")]
    pub nr_contended: u64,
    #[stat(desc = "Records and hints of the fast path that were taken from a living task")]
    pub nr_stolen: u64,
    #[stat(desc = "News of exits and execs that were dropped because their ring was full")]
    pub nr_news_dropped: u64,
    #[stat(desc = "Old name of nr_news_dropped")]
    pub nr_untold: u64,
    #[stat(desc = "CPUs kicked for a waiting task, in the interval")]
    pub kicks: u64,
    #[stat(desc = "CPUs kicked at the end of a slice between two ticks, in the interval")]
    pub kicks_slice: u64,
    #[stat(desc = "Times in the interval: from wakeup to running, by tier, and the stages of a \
                   decision")]
    pub tails: BTreeMap<String, Tail>,
    #[stat(desc = "P99 from wakeup to running, in microseconds, rounded up to its bucket")]
    pub wake_p99_us: u64,
    #[stat(desc = "The same, of Batch tasks")]
    pub wake_p99_batch_us: u64,
    #[stat(desc = "The same, of Interactive tasks")]
    pub wake_p99_interactive_us: u64,
    #[stat(desc = "The same, of LatCritical tasks")]
    pub wake_p99_lat_critical_us: u64,
    #[stat(
        desc = "Share of Batch run intervals on the previous one's L2 cache, in percent; -1: none"
    )]
    pub l2_batch_pct: i64,
    #[stat(desc = "The same, of Interactive tasks")]
    pub l2_interactive_pct: i64,
    #[stat(desc = "The same, of LatCritical tasks")]
    pub l2_lat_critical_pct: i64,
    #[stat(desc = "Share of sleeps of up to 10 ms, mostly waits for I/O, in percent; -1: none")]
    pub sleep_io_pct: i64,
    #[stat(desc = "Lines that were dropped because the output was full")]
    pub nr_unprinted: u64,
    #[stat(desc = "Entries that a recording had no room for; -1 without --record")]
    pub record_dropped: i64,
    #[stat(desc = "Rescues in the interval")]
    pub rescues: u64,
    #[stat(desc = "Longest wait that the policy allows because of a tier, in microseconds")]
    pub starvation_limit_us: u64,
    #[stat(
        desc = "Load as the adaptive loop classifies it: LIGHT, MIXED, HEAVY; FIXED without it"
    )]
    pub regime: String,
    #[stat(desc = "1 if there was a burst in most rounds of the interval")]
    pub burst: u64,
    #[stat(desc = "1 while Batch tasks have waited for seconds")]
    pub longrun: u64,
    #[stat(desc = "Idle time of the CPUs in the last second, in percent; -1: unknown")]
    pub cpu_idle_pct: f64,
    #[stat(desc = "Seconds in a row without a change of the load, up to 10")]
    pub stability: u64,
    #[stat(desc = "1 while slices are shorter than the regime's, because latency was bad")]
    pub tightened: u64,
    #[stat(desc = "How often slices were shortened because latency was bad")]
    pub nr_tightened: u64,
    #[stat(desc = "Knobs that the user has set, which the adaptive loop leaves alone")]
    pub nr_knobs_set: u64,
    #[stat(desc = "Longest slice of Interactive and LatCritical tasks, in microseconds")]
    pub slice_us: u64,
    #[stat(desc = "Longest slice of Batch tasks, in microseconds")]
    pub batch_slice_us: u64,
    #[stat(desc = "Wait after which Batch work is rescued, in microseconds")]
    pub sojourn_thresh_us: u64,
    #[stat(desc = "Rules for processes")]
    pub nr_rules: u64,
    #[stat(desc = "Processes to which a rule applies")]
    pub nr_ruled: u64,
    #[stat(desc = "Programs with a learned profile")]
    pub procdb_total: u64,
    #[stat(desc = "Programs whose profile predicts a tier")]
    pub procdb_confident: u64,
    #[stat(desc = "New tasks with a tier predicted from their program")]
    pub procdb_hits: u64,
}

impl Metrics {
    /// Takes the worker's counters.
    pub fn take_numbers(&mut self, n: &Numbers) {
        self.nr_cpus = n.cpus;
        self.upgrade_pause_us = n.unloaded_ns / 1_000;
        self.upgrade_undecided_us = n.undecided_ns / 1_000;
        self.nr_running = n.running;
        self.nr_waiting = n.waiting;
        self.nr_user_dispatches = n.user_dispatches;
        self.nr_kernel_dispatches = n.kernel_dispatches;
        self.nr_cancel_dispatches = n.cancelled;
        self.nr_bounce_dispatches = n.bounced;
        self.nr_refused_dispatches = n.refused;
        self.nr_sched_congested = n.congested;
        self.nr_stalls = n.stalls;
        self.stalled_ms = n.stalled_ns / 1_000_000;
        self.nr_orders = n.orders_preempted + n.orders_queued;
        self.nr_orders_queued = n.orders_queued;
        self.nr_resumed = n.resumed;
        self.nr_continued = n.continued;
        self.nr_renewed = n.renewed;
        self.nr_displaced = n.displaced;
        self.nr_performance_changes = n.performance_changes;
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

    /// Takes the fast path's events since the start.
    pub fn take_events(&mut self, total: &FastPathCounters) {
        for (field, event) in [
            (&mut self.nr_kicks, Event::Kick),
            (&mut self.nr_kicks_asked, Event::Asked),
            (&mut self.nr_reenqueued, Event::Reenqueued),
            (&mut self.nr_kicks_idle, Event::WokenIdle),
            (&mut self.nr_kicks_lost, Event::WokenIdle),
            (&mut self.nr_kicks_again, Event::Rechecked),
            (&mut self.nr_kicks_slice, Event::SliceKick),
            (&mut self.nr_kicks_outlived, Event::SliceKick),
            (&mut self.nr_kicks_bound, Event::Bound),
            (&mut self.nr_kicks_requeued, Event::Requeued),
            (&mut self.nr_kicks_limited, Event::Limited),
            (&mut self.nr_busy_wakeups, Event::Wakeup),
            (&mut self.nr_handed_off, Event::HandedOff),
            (&mut self.nr_no_victim, Event::NoVictim),
            (&mut self.nr_timers, Event::Timer),
            (&mut self.nr_patrols, Event::Timer),
            (&mut self.nr_contended, Event::Contended),
            (&mut self.nr_stolen, Event::Stolen),
            (&mut self.nr_news_dropped, Event::NewsDropped),
            (&mut self.nr_untold, Event::NewsDropped),
        ] {
            *field = total.events(event);
        }
    }

    /// Takes the fast path's counters of the interval.
    pub fn take_fast_path(&mut self, counters: &FastPathCounters) {
        self.tails = tails(counters);
        let p99 = |tier| counters.latency(tier).p99().as_micros();
        let l2 = |tier| counters.l2_percent(tier).map_or(-1, |percent| percent as i64);
        self.wake_p99_us = counters.latencies().p99().as_micros();
        self.wake_p99_batch_us = p99(Tier::Batch);
        self.wake_p99_interactive_us = p99(Tier::Interactive);
        self.wake_p99_lat_critical_us = p99(Tier::LatCritical);
        self.l2_batch_pct = l2(Tier::Batch);
        self.l2_interactive_pct = l2(Tier::Interactive);
        self.l2_lat_critical_pct = l2(Tier::LatCritical);
        self.sleep_io_pct = counters.sleeps().io_percent().map_or(-1, i64::from);
    }

    /// Takes the adaptive loop's state.
    pub fn take_status(&mut self, status: &Status) {
        let (report, values) = (&status.report, &status.values);
        let micros = |knob| values.time(knob).map_or(0, Span::as_micros);
        self.regime = if report.regime.is_empty() { "FIXED" } else { report.regime }.into();
        self.profile = status.profile.name().into();
        self.profile_by = status.profile.by.clone();
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

/// A counter that the policy declares.
#[stat_doc]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "policy_", _om_label = "event")]
pub struct PolicyCounter {
    #[stat(desc = "How often it was counted")]
    pub count: u64,
}

/// The tail of a distribution of times.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "tail_", _om_label = "times")]
pub struct Tail {
    #[stat(desc = "Number of times")]
    pub count: u64,
    #[stat(desc = "Median, in nanoseconds; rounded up by at most a quarter")]
    pub p50_ns: u64,
    #[stat(desc = "99th percentile")]
    pub p99_ns: u64,
    #[stat(desc = "99.9th percentile")]
    pub p999_ns: u64,
}

/// The distributions of the fast path's counters, by name.
fn tails(counters: &FastPathCounters) -> BTreeMap<String, Tail> {
    let tail = |fine: Fine| {
        let [p50_ns, p99_ns, p999_ns] = fine.tail().map(Span::as_nanos);
        Tail { count: fine.counts.iter().sum(), p50_ns, p99_ns, p999_ns }
    };
    let waits = ["wait_batch", "wait_interactive", "wait_lat_critical"];
    let waits = waits.into_iter().zip(Tier::ALL.map(|tier| tail(counters.waits(tier))));
    let stages = ["stage_received", "stage_decided", "stage_running"];
    let stages = stages.into_iter().zip(Stage::ALL.map(|stage| tail(counters.stage(stage))));
    waits.chain(stages).map(|(name, tail)| (name.into(), tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_path_counters::tests::fast_path_counters;

    #[test]
    fn a_renamed_counter_has_its_old_name_too() {
        let mut metrics = Metrics::default();
        let ms = Span::from_millis(1);
        metrics.take_events(&fast_path_counters(Tier::Batch, 1, ms, (1, ms)));
        let m = &metrics;
        assert_eq!([m.nr_kicks_idle, m.nr_kicks_slice], [m.nr_kicks_lost, m.nr_kicks_outlived]);
        assert_eq!([m.nr_timers, m.nr_news_dropped], [m.nr_patrols, m.nr_untold]);
        assert!(m.nr_kicks_idle > 0 && m.nr_timers > 0);
    }
}
