// SPDX-License-Identifier: GPL-2.0-only

//! The knobs of [`Pandemonium`](crate::Pandemonium): every setting, and a switch for every
//! mechanism.
//!
//! Numbers come from PANDEMONIUM 5.4.13, "Tuning Knobs", unless a constant says otherwise.

use pandemonium_engine::knobs::{FileError, KeySet, Kind, KnobError, Setting, Table, Values};
use pandemonium_engine::placement::PlaceRules;
use pandemonium_engine::time::Span;

/// The default of the longest Batch slice: 4 ms instead of the README's 20 ms, because a task for
/// which no CPU can be interrupted waits for the end of a slice. 4 ms is a tick at HZ=250, which
/// ends such a slice without a timer.
pub const BATCH_SLICE: Span = Span::from_millis(4);

/// All knobs of the policy.
pub static TABLE: Table = Table::with_order(
    &[Knobs::KNOBS, Rules::KNOBS],
    &[
        ("slice_min_us", "slice_us"),
        ("slice_min_us", "batch_slice_us"),
        ("slice_min_us", "burst_slice_us"),
        ("lat_cri_low", "lat_cri_high"),
    ],
);

/// Whether a task is placed near the CPU on which it ran last, by second-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affinity {
    /// Anywhere.
    Off,
    /// Near, if a CPU there is idle; else anywhere.
    #[default]
    Weak,
    /// Near, even if that means to wait a little for it.
    Strong,
}

impl Affinity {
    /// All modes, in the order of their numbers 0, 1, 2.
    pub const ALL: [Affinity; 3] = [Affinity::Off, Affinity::Weak, Affinity::Strong];
    const NAMES: &[&str] = &["off", "weak", "strong"];
}

impl Setting for Affinity {
    fn to_word(self) -> u64 {
        self as u64
    }
    fn from_word(word: u64) -> Affinity {
        Affinity::ALL.get(word as usize).copied().unwrap_or_default()
    }
}

// Slices: below 100 us a CPU would mostly switch tasks; beyond 100 ms a person sees the machine
// stutter. A score ends at 255, so 256 as a limit is one that no task reaches.
pandemonium_engine::knobs! {
    /// Settings that a person or the adaptive loop may change while the scheduler runs.
    pub struct Knobs {
        /// Longest slice of Interactive and LatCritical tasks.
        "slice_us": slice: Span = Span::from_millis(1), Kind::micros(100, 100_000);
        /// Shortest slice of any task.
        "slice_min_us": slice_min: Span = Span::from_micros(100), Kind::micros(100, 100_000);
        /// A Batch task that has run for less is not interrupted for another Batch task.
        "preempt_thresh_us": preempt_thresh: Span = Span::from_millis(1), Kind::micros(0, 100_000);
        /// How much credit sleep earns a task that wakes often.
        "sleeper_credit_scale" | "lag_scale": sleeper_credit_scale: u32 = 4, Kind::Count(1, 64);
        /// Longest slice of Batch tasks.
        "batch_slice_us": batch_slice: Span = BATCH_SLICE, Kind::micros(100, 100_000);
        /// Longest slice during a burst or sustained batch pressure.
        "burst_slice_us": burst_slice: Span = Span::from_millis(1), Kind::micros(100, 100_000);
        /// Usual run without a sleep that makes an Interactive task Batch.
        "cpu_bound_thresh_us": cpu_bound_thresh: Span = Span::from_micros(2_500),
            Kind::micros(100, 100_000);
        /// Score from which on a task is LatCritical.
        "lat_cri_high": lat_cri_high: u32 = 32, Kind::Count(1, 256);
        /// Score from which on a task is Interactive.
        "lat_cri_low": lat_cri_low: u32 = 8, Kind::Count(0, 256);
        /// Placement near the cache of the last run.
        "affinity": affinity: Affinity = Affinity::Weak, Kind::Choice(Affinity::NAMES);
        /// Wait after which Batch work is rescued.
        "sojourn_thresh_us": sojourn_thresh: Span = Span::from_millis(5),
            Kind::micros(500, 500_000);
        /// Tasks bound to one CPU go into its own queue.
        "percpu_local": percpu_local: bool = false, Kind::Switch;
        /// Performance that a CPU is asked for while it runs a Batch task, percent of its highest.
        "batch_perf_pct": batch_perf: u32 = 100, Kind::Count(1, 100);
        /// The same while it runs an Interactive task.
        "interactive_perf_pct": interactive_perf: u32 = 100, Kind::Count(1, 100);
        /// The same while it runs a LatCritical task.
        "lat_critical_perf_pct": lat_critical_perf: u32 = 100, Kind::Count(1, 100);
    }
    with rules: Rules;
}

pandemonium_engine::knobs! {
    /// A switch for every mechanism, so that an experiment can tell what each is worth.
    pub struct Rules {
        /// Tiers follow behaviour; off, every task is Interactive unless its name says more.
        "rule.classifier": classifier: bool = true, Kind::Switch;
        /// Programs that draw the screen are LatCritical by name.
        "rule.compositors": compositors: bool = true, Kind::Switch;
        /// Workqueue threads, and kernel threads at nice 0 or below, are never below Interactive.
        "rule.kworker_floor": kworker_floor: bool = true, Kind::Switch;
        /// A task with the rhythm of one that draws frames is not Batch by its score.
        "rule.frame_floor": frame_floor: bool = true, Kind::Switch;
        /// A task that has slept as long as it ran before is not Batch by its score.
        "rule.rested": rested: bool = true, Kind::Switch;
        /// A task that uses up its slices for longer than it usually runs is Batch until it sleeps.
        "rule.cpu_bound_demotion": cpu_bound_demotion: bool = true, Kind::Switch;
        /// A task that does next to nothing but fork is Batch, and so are its new children.
        "rule.fork_loops": fork_loops: bool = true, Kind::Switch;
        /// Sleep earns credit in virtual time, within a limit.
        "rule.sleeper_credit" | "rule.lag": sleeper_credit: bool = true, Kind::Switch;
        /// CPU time since the last wakeup counts against a task only up to a limit.
        "rule.awake_cap": awake_cap: bool = true, Kind::Switch;
        /// No Batch task is queued further behind than a limit.
        "rule.vtime_ceiling": vtime_ceiling: bool = true, Kind::Switch;
        /// A task that has waited beyond the rescue limit goes first, whatever its tier.
        "rule.overflow_rescue": overflow_rescue: bool = true, Kind::Switch;
        /// After a budget of other dispatches waiting Batch work gets one.
        "rule.deficit": deficit: bool = true, Kind::Switch;
        /// Batch work is served once it has waited for the hard limit.
        "rule.starvation_rescue": starvation_rescue: bool = true, Kind::Switch;
        /// Batch work is served once it has waited for the adaptive threshold.
        "rule.codel_rescue": codel_rescue: bool = true, Kind::Switch;
        /// While Batch work gets next to nothing, a task that takes a large share is Batch.
        "rule.batch_starvation" | "rule.famine": batch_starvation: bool = true, Kind::Switch;
        /// While LatCritical tasks take most of the machine, those that take most are Interactive.
        "rule.crowd": crowd: bool = true, Kind::Switch;
        /// Batch work that has waited for seconds changes budget, slices and placement.
        "rule.longrun": longrun: bool = true, Kind::Switch;
        /// A sudden rise of the rate of enqueues is a burst.
        "rule.burst_cusum": burst_cusum: bool = true, Kind::Switch;
        /// Very many wakeups at once are a burst.
        "rule.burst_wakeups": burst_wakeups: bool = true, Kind::Switch;
        /// Placement prefers the memory node of the last run.
        "rule.numa": numa: bool = true, Kind::Switch;
        /// Few tasks may wait in one CPU's own queue.
        "rule.depth_gate": depth_gate: bool = true, Kind::Switch;
        /// A task woken by one that is about to sleep takes its CPU.
        "rule.sync_wakeups": sync_wakeups: bool = true, Kind::Switch;
        /// While CPUs are free, tasks run in the order of their arrival.
        "rule.fifo_mode": fifo_mode: bool = false, Kind::Switch;
        /// Batch work leaves CPUs idle rather than waking them.
        "rule.low_power": low_power: bool = false, Kind::Switch;
        /// A running task may be interrupted for one that is more urgent.
        "rule.preempt": preempt: bool = true, Kind::Switch;
        /// An urgent task gets a standing order: its next wakeups need no decision.
        "rule.orders": orders: bool = true, Kind::Switch;
        /// The controller changes knobs once a second.
        "rule.adaptive": adaptive: bool = true, Kind::Switch;
        /// What was learned of a program is applied when its name appears.
        "rule.procdb": procdb: bool = true, Kind::Switch;
    }
}

impl Knobs {
    /// The values of these knobs.
    pub fn values(&self) -> Values {
        TABLE.defaults().with_words(|each| self.for_each_word(each))
    }

    /// Changes one knob, given as `KEY=VALUE`. On an error nothing is changed.
    pub fn set(&mut self, assignment: &str) -> Result<(), KnobError> {
        let mut values = self.values();
        values.set(assignment)?;
        *self = Knobs::of(&values);
        Ok(())
    }

    /// The defaults, changed by a file: lines `KEY=VALUE`; what follows a `#` is a comment.
    pub fn parse_file(text: &str) -> Result<(Knobs, KeySet), FileError> {
        let amended = TABLE.defaults().amended(text)?;
        Ok((Knobs::of(&amended.values), amended.named))
    }

    /// Whether every knob is within its range and none contradicts another.
    pub fn check(&self) -> Result<(), KnobError> {
        self.values().check()
    }

    /// What may be done to place a task.
    pub fn place_rules(&self) -> PlaceRules {
        PlaceRules { preempt: self.rules.preempt, bound_local: self.percpu_local }
    }

    /// Whether tasks get standing orders. Orders preempt, and do not know the order of arrival.
    pub fn gives_orders(&self) -> bool {
        let rules = &self.rules;
        rules.orders && rules.preempt && !rules.fifo_mode
    }

    /// No knob of the table.
    pub const fn none() -> KeySet {
        KeySet::none(&TABLE)
    }
}
