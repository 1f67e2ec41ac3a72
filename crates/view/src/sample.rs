// SPDX-License-Identifier: GPL-2.0-only

//! The statistics of one interval, as far as a view shows them.

use pandemonium_host::print::one_line;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The tiers, most urgent first: the word for a reader, and that of the statistics.
pub const TIERS: [(&str, &str); 3] =
    [("LatCritical", "lat_critical"), ("Interactive", "interactive"), ("Batch", "batch")];

/// A part of the scheduler's statistics, under the names that they have on its socket. A field that
/// the scheduler does not send is zero. `nr_` counts since its start; all else is of the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The scheduler's own description of its fields is the one to read.
pub struct Sample {
    pub health: String,
    pub policy: String,
    pub regime: String,
    pub profile: String,
    pub profile_by: String,
    pub fast_path: String,
    pub burst: u64,
    pub longrun: u64,
    pub tightened: u64,
    pub nr_cpus: u64,
    pub nr_waiting: u64,
    pub nr_user_dispatches: u64,
    pub nr_kernel_dispatches: u64,
    pub nr_orders: u64,
    pub nr_batch: u64,
    pub nr_interactive: u64,
    pub nr_lat_critical: u64,
    pub nr_sched_congested: u64,
    pub nr_stalls: u64,
    pub nr_knobs_set: u64,
    pub restarts: u64,
    pub page_faults_minor: u64,
    pub page_faults_major: u64,
    pub oldest_wait_us: u64,
    pub dispatches_per_sec: u64,
    pub decisions_per_sec: u64,
    pub wakeups_per_sec: u64,
    pub requeues_per_sec: u64,
    pub rescues: u64,
    pub kicks: u64,
    pub own_cpu_pct: f64,
    pub slice_us: u64,
    pub batch_slice_us: u64,
    pub tails: BTreeMap<String, Tail>,
}

/// The tail of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tail {
    /// Number of times.
    pub count: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
}

/// How tasks got their CPU in an interval, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The backend found an idle CPU.
    pub idle: u64,
    /// A standing order was executed.
    pub orders: u64,
    /// The policy decided in user space.
    pub user: u64,
}

impl Sample {
    /// The sample with texts that cannot control a terminal.
    pub fn cleaned(mut self) -> Sample {
        let Sample { health, policy, regime, profile, profile_by, fast_path, .. } = &mut self;
        for text in [health, policy, regime, profile, profile_by, fast_path] {
            *text = one_line(text).into_owned();
        }
        self
    }

    /// The times from wakeup to running, of a tier by its name in the statistics; `None` if none
    /// was counted.
    pub fn waits(&self, tier: &str) -> Option<Tail> {
        self.tail(&format!("wait_{tier}"))
    }

    /// The times of a stage of a decision: `received`, `decided` or `running`.
    pub fn stage(&self, stage: &str) -> Option<Tail> {
        self.tail(&format!("stage_{stage}"))
    }

    fn tail(&self, name: &str) -> Option<Tail> {
        self.tails.get(name).copied().filter(|tail| tail.count > 0)
    }

    /// How tasks got their CPU since the sample `before`; `None` if no task did.
    pub fn paths_since(&self, before: &Sample) -> Option<Paths> {
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let idle = since(self.nr_kernel_dispatches, before.nr_kernel_dispatches);
        let orders = since(self.nr_orders, before.nr_orders);
        let user = since(self.nr_user_dispatches, before.nr_user_dispatches);
        let all = Some(idle + orders + user).filter(|all| *all > 0)?;
        let percent = |part: u64| (part * 100 + all / 2) / all;
        let (orders, user) = (percent(orders), percent(user));
        // The rest, so that the parts make the whole.
        Some(Paths { idle: 100_u64.saturating_sub(orders + user), orders, user })
    }

    /// Decisions since the sample `before`, by tier as in [`TIERS`].
    pub fn decisions_since(&self, before: &Sample) -> [u64; 3] {
        let now = [self.nr_lat_critical, self.nr_interactive, self.nr_batch];
        let then = [before.nr_lat_critical, before.nr_interactive, before.nr_batch];
        std::array::from_fn(|tier| now[tier].saturating_sub(then[tier]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_read_from_the_statistics_of_any_version() {
        let json = r#"{"policy": "fifo", "nr_new": 7, "own_cpu_pct": 1.5,
                       "tails": {"wait_batch": {"count": 3, "p50_ns": 1000, "new": 0}}}"#;
        let sample: Sample = serde_json::from_str(json).unwrap();
        assert_eq!((sample.policy.as_str(), sample.own_cpu_pct), ("fifo", 1.5));
        assert_eq!(sample.waits("batch").map(|tail| tail.p50_ns), Some(1000));
        assert_eq!(sample.stage("received"), None);
    }

    #[test]
    fn no_text_of_a_sample_controls_the_terminal() {
        let hostile = || "a\x1b[2J\n".to_owned();
        let sample = Sample {
            health: hostile(),
            policy: hostile(),
            regime: hostile(),
            profile: hostile(),
            profile_by: hostile(),
            fast_path: hostile(),
            ..Sample::default()
        };
        let Sample { health, policy, regime, profile, profile_by, fast_path, .. } =
            sample.cleaned();
        for text in [health, policy, regime, profile, profile_by, fast_path] {
            assert_eq!(text, "a?[2J?");
        }
    }

    #[test]
    fn the_paths_make_a_whole() {
        let paths = |idle, orders, user| {
            let sample = Sample {
                nr_kernel_dispatches: idle,
                nr_orders: orders,
                nr_user_dispatches: user,
                ..Sample::default()
            };
            sample.paths_since(&Sample::default())
        };
        assert_eq!(paths(0, 0, 0), None);
        assert_eq!(paths(72, 20, 8), Some(Paths { idle: 72, orders: 20, user: 8 }));
        let thirds = paths(1, 1, 1).unwrap();
        assert_eq!(thirds.idle + thirds.orders + thirds.user, 100);
    }
}
