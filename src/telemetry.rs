// SPDX-License-Identifier: GPL-2.0-only

//! The line of statistics.

use super::metrics::Metrics;
use pandemonium_engine::Limits;
use pandemonium_engine::adapting::Report;
use pandemonium_engine::time::Span;

/// The load as the adaptive loop and the policy's detectors classify it: `HEAVY BURST`. For a
/// policy without both, its name.
pub fn tag(m: &Metrics) -> String {
    if m.policy != "pandemonium" {
        return m.policy.to_uppercase();
    }
    let burst = if m.burst != 0 { " BURST" } else { "" };
    let longrun = if m.longrun != 0 { " LONGRUN" } else { "" };
    format!("{}{burst}{longrun}", m.regime)
}

/// One line: rates, health, and the counters behind it.
pub fn line(m: &Metrics) -> String {
    let us = Span::from_micros;
    let tiers = [m.nr_batch, m.nr_interactive, m.nr_lat_critical];
    let all = tiers.iter().sum::<u64>().max(1);
    let [batch, interactive, lat_critical] = tiers.map(|n| n * 100 / all);
    let p99s = [m.wake_p99_batch_us, m.wake_p99_interactive_us, m.wake_p99_lat_critical_us];
    let [p99_b, p99_i, p99_lc] = p99s.map(us);
    let l2 = [m.l2_batch_pct, m.l2_interactive_pct, m.l2_lat_critical_pct].map(percent);
    format!(
        "d/s: {} idle: {:.0}% shared: {} kick: H={} enq: W={} R={} p99: {} \
         [B={p99_b} I={p99_i} LC={p99_lc}] tier: B={batch}% I={interactive}% LC={lat_critical}% \
         l2: B={} I={} LC={} trip: {} procdb: {}/{} hits: {} sleep: io={} slice: {}us batch: {}us \
         sjrn: {}/{} rescue: {} [{}] health: {} | faults: {}+{} congested: {} bounced: {} \
         cancelled: {} refused: {} ring: {}/{} cpu: {:.1}%{}{}",
        m.dispatches_per_sec,
        m.idle_pct,
        m.decisions_per_sec,
        m.kicks,
        m.wakeups_per_sec,
        m.requeues_per_sec,
        us(m.wake_p99_us),
        l2[0],
        l2[1],
        l2[2],
        trip(m),
        m.procdb_total,
        m.procdb_confident,
        m.procdb_hits,
        percent(m.sleep_io_pct),
        m.slice_us,
        m.batch_slice_us,
        us(m.oldest_wait_us),
        us(m.sojourn_thresh_us),
        m.rescues,
        tag(m),
        m.health,
        m.page_faults_minor,
        m.page_faults_major,
        m.nr_sched_congested,
        m.nr_bounce_dispatches,
        m.nr_cancel_dispatches,
        m.nr_refused_dispatches,
        m.ring_occupancy,
        Limits::ARRIVALS,
        m.own_cpu_pct,
        recording(m.record_dropped),
        profile(m),
    )
}

/// The profile in force and by what it was chosen; empty for the defaults.
fn profile(m: &Metrics) -> String {
    match (m.profile.as_str(), m.profile_by.as_str()) {
        ("" | "auto", "") => String::new(),
        (name, by) => format!(" profile: {name} (by {by})"),
    }
}

/// The entries that a recording has dropped; empty without one.
fn recording(dropped: i64) -> String {
    if dropped < 0 { String::new() } else { format!(" recording: {dropped} dropped") }
}

/// The times of the stages of a decision: median, p99 and p99.9 of each, in microseconds.
fn trip(m: &Metrics) -> String {
    let us = |ns: u64| (ns + 500) / 1_000;
    let stage = |name: &str| match m.tails.get(name).filter(|tail| tail.count > 0) {
        Some(tail) => format!("{}/{}/{}", us(tail.p50_ns), us(tail.p99_ns), us(tail.p999_ns)),
        None => "-".into(),
    };
    format!(
        "recv={} decide={} run={}",
        stage("stage_received"),
        stage("stage_decided"),
        stage("stage_running")
    )
}

/// A share; `-` if the whole was zero.
fn percent(share: i64) -> String {
    if share < 0 { "-".into() } else { format!("{share}%") }
}

/// The last line: the controller's knobs and the cache hits.
pub fn knobs_line(report: &Report, since_start: &Metrics) -> String {
    let m = since_start;
    let [b, i, lc] = [m.l2_batch_pct, m.l2_interactive_pct, m.l2_lat_critical_pct].map(percent);
    let begin =
        if report.last_words.is_empty() { "[KNOBS] regime=FIXED" } else { &report.last_words };
    format!("{begin} l2_hit=B:{b}/I:{i}/L:{lc}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Tail;
    use pandemonium_engine::PolicyType;
    use pandemonium_policies::Pandemonium;
    use pandemonium_policies::knobs::{Knobs, TABLE};

    #[test]
    fn the_line_shows_the_fields_under_their_names() {
        let decided = Tail { count: 9, p50_ns: 4_600, p99_ns: 20_480, p999_ns: 1_048_576 };
        let metrics = Metrics {
            health: "ok".into(),
            policy: "pandemonium".into(),
            dispatches_per_sec: 2510,
            decisions_per_sec: 2300,
            idle_pct: 8.4,
            kicks: 640,
            wake_p99_us: 250,
            wake_p99_batch_us: 5_000,
            wake_p99_lat_critical_us: 100,
            l2_batch_pct: 67,
            l2_interactive_pct: -1,
            l2_lat_critical_pct: 85,
            sleep_io_pct: 87,
            procdb_total: 42,
            procdb_confident: 5,
            procdb_hits: 17,
            slice_us: 750,
            batch_slice_us: 4_000,
            sojourn_thresh_us: 2_000,
            regime: "HEAVY".into(),
            burst: 1,
            longrun: 1,
            wakeups_per_sec: 800,
            requeues_per_sec: 1500,
            nr_batch: 60,
            nr_interactive: 30,
            nr_lat_critical: 10,
            oldest_wait_us: 3_000,
            starvation_limit_us: 50_000,
            ring_occupancy: 12,
            own_cpu_pct: 1.25,
            record_dropped: -1,
            tails: [("stage_decided".into(), decided)].into(),
            ..Metrics::default()
        };
        assert_eq!(
            line(&metrics),
            "d/s: 2510 idle: 8% shared: 2300 kick: H=640 enq: W=800 R=1500 p99: 250us \
             [B=5ms I=0ns LC=100us] tier: B=60% I=30% LC=10% l2: B=67% I=- LC=85% \
             trip: recv=- decide=5/20/1049 run=- procdb: 42/5 hits: 17 \
             sleep: io=87% slice: 750us batch: 4000us sjrn: 3ms/2ms rescue: 0 [HEAVY BURST \
             LONGRUN] health: ok | faults: 0+0 congested: 0 bounced: 0 cancelled: 0 \
             refused: 0 ring: 12/4096 cpu: 1.2%"
        );
        let recorded = Metrics { record_dropped: 3, ..metrics.clone() };
        assert!(line(&recorded).ends_with("cpu: 1.2% recording: 3 dropped"));
        let (profile, by) = ("gaming".into(), "GameMode".into());
        let gaming = Metrics { profile, profile_by: by, ..metrics.clone() };
        assert!(line(&gaming).ends_with("cpu: 1.2% profile: gaming (by GameMode)"));
        let fifo = Metrics { policy: "fifo".into(), ..metrics };
        assert!(line(&fifo).contains("[FIFO] health: ok"), "fifo has no regime");
    }

    #[test]
    fn the_last_line_shows_the_knobs_and_the_cache_hits() {
        let control = Pandemonium::adapting(8, TABLE.defaults(), Knobs::none());
        let metrics = Metrics { l2_batch_pct: 50, l2_lat_critical_pct: -1, ..Metrics::default() };
        assert_eq!(
            knobs_line(&control.report(), &metrics),
            "[KNOBS] regime=MIXED slice_ns=1000000 batch_ns=4000000 preempt_ns=1000000 \
             demotion_ns=2500000 sleeper_credit_scale=4 tightened=false tighten_events=0 \
             ticks=L:0/M:0/H:0 l2_hit=B:50%/I:0%/L:-"
        );
    }
}
