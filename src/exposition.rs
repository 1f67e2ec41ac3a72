// SPDX-License-Identifier: GPL-2.0-only

//! The statistics for Prometheus: the target `metrics` of the `scx_stats` protocol. The response is
//! the text, as OpenMetrics, or with the argument `format=textfile` in the older text format, which
//! is the one that the textfile collector of node_exporter reads.

mod writer;

use self::writer::{Format, Kind, Sample, Writer};
use super::fast_path_counters::{FastPathCounters, Stage};
use super::metrics::Metrics;
use super::reading::Reading;
use pandemonium_engine::fine::Fine;
use pandemonium_engine::task::Tier;
use std::collections::BTreeMap;

/// The name of the request's target.
pub const TARGET: &str = "metrics";
/// The argument that chooses the format, and its value for the older one.
pub const FORMAT: &str = "format";
pub const TEXTFILE: &str = "textfile";
/// Tiers as label values.
const TIERS: [(&str, Tier); 3] = [
    ("batch", Tier::Batch),
    ("interactive", Tier::Interactive),
    ("lat_critical", Tier::LatCritical),
];
const REGIMES: [&str; 4] = ["LIGHT", "MIXED", "HEAVY", "FIXED"];

/// The text of one scrape.
pub fn text(metrics: &Metrics, reading: &Reading, args: &BTreeMap<String, String>) -> String {
    let is_textfile = args.get(FORMAT).is_some_and(|format| format == TEXTFILE);
    let format = if is_textfile { Format::Text } else { Format::OpenMetrics };
    let mut out = Writer::new(format);
    state(&mut out, metrics);
    decisions(&mut out, metrics);
    faults(&mut out, metrics);
    interrupts(&mut out, metrics);
    resources(&mut out, metrics, reading);
    times(&mut out, &reading.fast_path);
    out.finish()
}

fn state(out: &mut Writer, m: &Metrics) {
    let version = env!("CARGO_PKG_VERSION");
    let labels = vec![("version", version), ("policy", &m.policy), ("fast_path", &m.fast_path)];
    let info = Sample::new(&labels, 1.0);
    out.family(Kind::Gauge, "info", "The version, the policy and the fast path", &[info]);
    let healthy = f64::from(m.health == "ok");
    out.one(Kind::Gauge, "healthy", "1 if there is no reason against health", healthy);
    let regimes = REGIMES.map(|regime| labelled("regime", regime, u64::from(regime == m.regime)));
    out.family(Kind::Gauge, "regime", "1 for the load as the adaptive loop sees it", &regimes);
    for (name, help, value) in [
        ("burst", "1 if there was a burst in most rounds of the interval", m.burst),
        ("longrun", "1 while Batch tasks have waited for seconds", m.longrun),
        ("cpus_online", "CPUs online", m.nr_cpus),
        ("cpus_running", "CPUs that run a SCHED_EXT task", m.nr_running),
        ("tasks_waiting", "Tasks that wait for a decision", m.nr_waiting),
        ("ring_messages", "Most messages at once in the last second, of 4096", m.ring_occupancy),
        ("knobs_set", "Knobs that the user has set", m.nr_knobs_set),
    ] {
        out.one(Kind::Gauge, name, help, value as f64);
    }
    let programs = [("known", m.procdb_total), ("predicted", m.procdb_confident)]
        .map(|(state, count)| labelled("state", state, count));
    out.family(Kind::Gauge, "programs", "Programs with a learned profile", &programs);
    let help = "Longest wait for a decision in the last second";
    out.one(Kind::Gauge, "oldest_wait_seconds", help, seconds(m.oldest_wait_us));
    let slices = [("batch", m.batch_slice_us), ("other", m.slice_us)]
        .map(|(tasks, us)| Sample::new(&[("tasks", tasks)], seconds(us)));
    out.family(Kind::Gauge, "slice_seconds", "Longest slice", &slices);
}

fn decisions(out: &mut Writer, m: &Metrics) {
    let paths =
        [("idle", m.nr_kernel_dispatches), ("order", m.nr_orders), ("user", m.nr_user_dispatches)];
    let paths = paths.map(|(path, count)| labelled("path", path, count));
    let help =
        "Tasks that got a CPU: an idle one, by a standing order, by a decision in user space";
    out.family(Kind::Counter, "dispatches", help, &paths);
    let tiers = [
        ("batch", m.nr_batch),
        ("interactive", m.nr_interactive),
        ("lat_critical", m.nr_lat_critical),
    ];
    let tiers = tiers.map(|(tier, count)| labelled("tier", tier, count));
    out.family(Kind::Counter, "decisions", "Decisions in user space", &tiers);
    let causes = [("wakeup", m.nr_wakeups), ("requeue", m.nr_requeues)];
    let causes = causes.map(|(cause, count)| labelled("cause", cause, count));
    out.family(Kind::Counter, "messages", "Tasks that were queued to user space", &causes);
    out.one(Kind::Counter, "rescues", "Decisions by age rather than by order", m.nr_rescues as f64);
    let help = "Counters that the policy declares";
    let events = m.policy_counters.iter();
    let events: Vec<Sample> =
        events.map(|(name, counter)| labelled("event", name, counter.count)).collect();
    out.family(Kind::Counter, "policy_events", help, &events);
    let help = "Times that slices were shortened because latency was bad";
    out.one(Kind::Counter, "tightened", help, m.nr_tightened as f64);
}

fn faults(out: &mut Writer, m: &Metrics) {
    let void = [
        ("cancelled", m.nr_cancel_dispatches),
        ("bounced", m.nr_bounce_dispatches),
        ("refused", m.nr_refused_dispatches),
    ];
    let void = void.map(|(reason, count)| labelled("reason", reason, count));
    out.family(Kind::Counter, "void_decisions", "Decisions that had no effect", &void);
    let faults = [("minor", m.page_faults_minor), ("major", m.page_faults_major)];
    let faults = faults.map(|(kind, count)| labelled("kind", kind, count));
    let help = "Page faults of the scheduler since its first decision";
    out.family(Kind::Counter, "page_faults", help, &faults);
    let dropped = m.record_dropped.max(0) as u64;
    for (name, help, value) in [
        (
            "congested_tasks",
            "Tasks that bypassed the policy: a ring was full",
            m.nr_sched_congested,
        ),
        ("malformed_messages", "Messages that were skipped", m.nr_malformed),
        ("stalls", "Times that the backend decided instead", m.nr_stalls),
        ("restarts", "Starts because a CPU came or went, or after a kill", m.restarts),
        ("unprinted_lines", "Lines that were dropped because the output was full", m.nr_unprinted),
        ("recording_dropped", "Entries that a recording had no room for", dropped),
    ] {
        out.one(Kind::Counter, name, help, value as f64);
    }
    let help = "Time for which the backend decided instead";
    out.one(Kind::Counter, "stalled_seconds", help, m.stalled_ms as f64 / 1e3);
}

fn interrupts(out: &mut Writer, m: &Metrics) {
    let kicks = [
        ("wakeup", m.nr_kicks),
        ("asked", m.nr_kicks_asked),
        ("lost", m.nr_kicks_lost),
        ("again", m.nr_kicks_again),
        ("slice", m.nr_kicks_slice),
        ("bound", m.nr_kicks_bound),
        ("requeued", m.nr_kicks_requeued),
    ];
    let kicks = kicks.map(|(reason, count)| labelled("reason", reason, count));
    out.family(Kind::Counter, "kicks", "CPUs that were interrupted", &kicks);
    let spared = [
        ("limited", m.nr_kicks_limited),
        ("handed_off", m.nr_handed_off),
        ("no_victim", m.nr_no_victim),
    ];
    let spared = spared.map(|(reason, count)| labelled("reason", reason, count));
    out.family(Kind::Counter, "kicks_spared", "CPUs that were not interrupted", &spared);
    out.one(Kind::Counter, "timers", "Calls of the fast path's timer", m.nr_timers as f64);
}

fn resources(out: &mut Writer, m: &Metrics, reading: &Reading) {
    let own = reading.numbers.cpu_ns as f64 / 1e9;
    out.one(Kind::Counter, "cpu_seconds", "CPU time of the scheduling process", own);
    if m.cpu_idle_pct >= 0.0 {
        let help = "Share of the last second in which CPUs were idle";
        out.one(Kind::Gauge, "cpu_idle_ratio", help, m.cpu_idle_pct / 100.0);
    }
}

fn times(out: &mut Writer, counters: &FastPathCounters) {
    let waits = TIERS.map(|(name, tier)| (name, doublings(&counters.waits(tier))));
    let help = "From wakeup to running";
    out.histogram("wakeup_latency_seconds", help, "tier", &waits);
    let stages = ["received", "decided", "running"].into_iter().zip(Stage::ALL);
    let stages: Vec<_> =
        stages.map(|(name, stage)| (name, doublings(&counters.stage(stage)))).collect();
    let help = "Until a message is received, from then until it is decided, until the task runs";
    out.histogram("decision_stage_seconds", help, "stage", &stages);
}

fn labelled<'a>(label: &'a str, value: &'a str, count: u64) -> Sample {
    Sample::new(&[(label, value)], count as f64)
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Counts up to each doubling from 2^10 ns on, and all: four fine buckets are one doubling.
fn doublings(fine: &Fine) -> Vec<(f64, u64)> {
    let mut sum = 0;
    let mut buckets = Vec::new();
    for (at, count) in fine.counts.iter().enumerate() {
        sum += count;
        let edge = (1_u64 << (10 + at / 4)) as f64 / 1e9;
        let is_last = at + 1 == Fine::BUCKETS;
        if at.is_multiple_of(4) || is_last {
            buckets.push((if is_last { f64::INFINITY } else { edge }, sum));
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_path_counters::tests::fast_path_counters;
    use crate::metrics::PolicyCounter;
    use pandemonium_engine::time::Span;
    use prometheus_parse::{Scrape, Value};

    const DASHBOARD: &str = include_str!("../packaging/grafana-dashboard.json");

    fn metrics() -> Metrics {
        Metrics {
            health: "a task waited 3s for a decision".into(),
            policy: "pandemonium".into(),
            fast_path: "loaded without \"timers\"\n".into(),
            regime: "HEAVY".into(),
            policy_counters: [("predictions".to_owned(), PolicyCounter { count: 17 })].into(),
            nr_orders: 5,
            nr_kernel_dispatches: 72,
            stalled_ms: 1_500,
            oldest_wait_us: 3_000,
            cpu_idle_pct: 12.5,
            ..Metrics::default()
        }
    }

    fn written(format: &str) -> String {
        let ms = Span::from_millis(1);
        let mut reading = Reading {
            fast_path: fast_path_counters(Tier::Interactive, 7, ms, (5, ms)),
            ..Reading::default()
        };
        reading.numbers.cpu_ns = 2_500_000_000;
        let args = BTreeMap::from([(FORMAT.to_owned(), format.to_owned())]);
        text(&metrics(), &reading, &args)
    }

    fn parsed(text: &str) -> Scrape {
        Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap()
    }

    fn value(scrape: &Scrape, name: &str, label: Option<(&str, &str)>) -> f64 {
        let fits = |it: &&prometheus_parse::Sample| {
            it.metric == name && label.is_none_or(|(key, value)| it.labels.get(key) == Some(value))
        };
        match scrape.samples.iter().find(fits).map(|it| &it.value) {
            Some(Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value)) => *value,
            other => panic!("{name} {label:?}: {other:?}"),
        }
    }

    #[test]
    fn a_prometheus_parser_reads_the_textfile_with_types() {
        let text = written(TEXTFILE);
        let scrape = parsed(&text);
        let orders = value(&scrape, "pandemonium_dispatches_total", Some(("path", "order")));
        assert_eq!(orders, 5.0);
        assert_eq!(value(&scrape, "pandemonium_healthy", None), 0.0);
        assert_eq!(value(&scrape, "pandemonium_stalled_seconds_total", None), 1.5);
        assert_eq!(value(&scrape, "pandemonium_cpu_seconds_total", None), 2.5);
        assert_eq!(value(&scrape, "pandemonium_oldest_wait_seconds", None), 0.003);
        assert_eq!(value(&scrape, "pandemonium_regime", Some(("regime", "HEAVY"))), 1.0);
        assert_eq!(value(&scrape, "pandemonium_regime", Some(("regime", "LIGHT"))), 0.0);
        let counters = scrape.samples.iter().filter(|it| it.metric.ends_with("_total"));
        assert!(counters.clone().count() > 30);
        for sample in counters {
            assert!(matches!(sample.value, Value::Counter(_)), "{sample:?}");
        }
        assert!(!text.contains("# EOF"));
    }

    #[test]
    fn a_histogram_counts_up_to_each_edge() {
        let scrape = parsed(&written(TEXTFILE));
        let of = |tier: &str| {
            let fits = |it: &&prometheus_parse::Sample| {
                it.metric == "pandemonium_wakeup_latency_seconds"
                    && it.labels.get("tier") == Some(tier)
            };
            match scrape.samples.iter().find(fits).map(|it| &it.value) {
                Some(Value::Histogram(buckets)) => buckets.clone(),
                other => panic!("{tier}: {other:?}"),
            }
        };
        // One wait of a millisecond, which is in the bucket below 2^20 ns.
        let counts: Vec<f64> = of("interactive").iter().map(|bucket| bucket.count).collect();
        assert_eq!((counts.len(), counts[9], counts[10]), (24, 0.0, 1.0));
        assert!(counts.is_sorted());
        assert_eq!(of("interactive")[10].less_than, 1_048_576.0 / 1e9);
        assert!(of("batch").iter().all(|bucket| bucket.count == 0.0));
        assert_eq!(of("batch").last().unwrap().less_than, f64::INFINITY);
    }

    /// Rules of the format that the parser above does not check.
    #[test]
    fn the_text_is_openmetrics() {
        let text = written("openmetrics");
        assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
        let mut family = "";
        let mut families = Vec::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(!families.contains(&name), "{name} comes twice");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(!name.ends_with("_total"), "the suffix is not part of a family's name");
                families.push(name);
                family = name;
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(rest.starts_with(&format!("{family} ")), "{line} is out of place");
            } else {
                let name = line.split(['{', ' ']).next().unwrap();
                let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line}"));
                assert!(["", "_total", "_bucket"].contains(&suffix), "{line}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(families.len() > 30);
        assert!(
            text.contains("fast_path=\"loaded without \\\"timers\\\"\\n\""),
            "labels are escaped"
        );
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_exist() {
        let text = written(TEXTFILE);
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        let expressions: Vec<&str> = targets.filter_map(|it| it["expr"].as_str()).collect();
        assert!(expressions.len() >= 12, "{}", expressions.len());
        for expression in expressions {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = expression.split(|c| !is_part(c));
            let names: Vec<&str> = words.filter(|word| word.starts_with("pandemonium_")).collect();
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(text.contains(&format!("\n{name}")), "{name} of {expression}");
            }
        }
    }
}
