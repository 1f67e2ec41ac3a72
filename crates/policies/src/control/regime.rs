// SPDX-License-Identifier: GPL-2.0-only

//! The regime: how loaded the machine is, and the knobs for that load.

use crate::knobs::Affinity;
use crate::scaling::Scaling;
use pandemonium_engine::time::Span;

/// How loaded the machine is, by the share of time in which its CPUs are idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regime {
    /// Half of the CPUs are idle: latencies are low, so slices can be long.
    Light,
    /// In between. Also the regime before the first sample.
    #[default]
    Mixed,
    /// Hardly any CPU is idle: throughput matters as well.
    Heavy,
}

impl Regime {
    /// All regimes, least loaded first.
    pub const ALL: [Regime; 3] = [Regime::Light, Regime::Mixed, Regime::Heavy];

    /// Position in [`Regime::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The regime for an idle share in per mille, if this is the present one.
    ///
    /// Each border has two limits (hysteresis), so that a load near a border does not flip the
    /// regime. LIGHT begins above 50 % and ends below 30 %, HEAVY begins below 10 % and ends above
    /// 25 % (PANDEMONIUM 5.4.13). There is no direct change between LIGHT
    /// and HEAVY.
    pub const fn called_for(self, idle: u32) -> Regime {
        match self {
            Regime::Light if idle < 300 => Regime::Mixed,
            Regime::Mixed if idle > 500 => Regime::Light,
            Regime::Mixed if idle < 100 => Regime::Heavy,
            Regime::Heavy if idle > 250 => Regime::Mixed,
            same => same,
        }
    }

    /// A P99 latency above this is a spike: 3, 5 and 10 ms.
    pub const fn p99_ceiling(self) -> Span {
        match self {
            Regime::Light => Span::from_millis(3),
            Regime::Mixed => Span::from_millis(5),
            Regime::Heavy => Span::from_millis(10),
        }
    }

    /// The regime in one word.
    pub const fn name(self) -> &'static str {
        match self {
            Regime::Light => "LIGHT",
            Regime::Mixed => "MIXED",
            Regime::Heavy => "HEAVY",
        }
    }
}

/// The regime changes after this many intervals in a row that call for the same other one.
pub const HOLD: u32 = 2;

/// The present regime. It changes after [`HOLD`] intervals in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detector {
    current: Regime,
    candidate: Regime,
    seen: u32,
}

impl Detector {
    /// The present regime.
    pub const fn regime(&self) -> Regime {
        self.current
    }

    /// Processes the idle share of one interval in per mille. Returns whether the regime changed.
    pub fn observe(&mut self, idle: u32) -> bool {
        let called_for = self.current.called_for(idle);
        if called_for != self.candidate {
            self.candidate = called_for;
            self.seen = 0;
        }
        self.seen = if called_for == self.current { 0 } else { self.seen + 1 };
        if self.seen < HOLD {
            return false;
        }
        self.current = called_for;
        self.seen = 0;
        true
    }

    /// There was a pause before the next interval, so the count of intervals in a row restarts.
    pub fn interrupt(&mut self) {
        self.seen = 0;
    }
}

/// The knobs of a regime, before user settings and events change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Longest Interactive or LatCritical slice.
    pub slice: Span,
    /// How long a running Batch task is protected from preemption by other Batch tasks. Tasks of
    /// higher tiers preempt it at once.
    pub preempt: Span,
    /// Scale of sleeper credit: higher where CPUs are idle.
    pub sleeper_credit: u32,
    /// Longest Batch slice.
    pub batch: Span,
    /// From this usual run on an Interactive task becomes Batch: shorter under more load.
    pub cpu_bound: Span,
    /// Placement near the cache: STRONG only if there are both idle CPUs and tasks that compete for
    /// the caches.
    pub affinity: Affinity,
}

impl Profile {
    /// The numbers of the README ("Regime Profiles"); `cpu_bound` is from the source of PANDEMONIUM
    /// 5.4.13.
    pub const fn of(regime: Regime) -> Profile {
        // Times in microseconds, in the order of the fields.
        let (slice, preempt, sleeper_credit, cpu_bound, affinity) = match regime {
            Regime::Light => (2_000, 1_000, 6, 3_500, Affinity::Weak),
            Regime::Mixed => (1_000, 1_000, 4, 2_500, Affinity::Strong),
            Regime::Heavy => (4_000, 2_000, 2, 2_000, Affinity::Weak),
        };
        Profile {
            slice: Span::from_micros(slice),
            preempt: Span::from_micros(preempt),
            sleeper_credit,
            batch: Span::from_millis(20),
            cpu_bound: Span::from_micros(cpu_bound),
            affinity,
        }
    }

    /// The profile within the limits of a machine: with few CPUs slices are shorter.
    pub fn scaled(regime: Regime, limits: &Scaling) -> Profile {
        let full = Profile::of(regime);
        let mixed = regime == Regime::Mixed;
        let preempt_cap = if mixed { limits.preempt_cap_mixed } else { limits.preempt_cap };
        Profile {
            slice: full.slice.min(limits.slice_cap),
            preempt: full.preempt.min(preempt_cap),
            batch: if mixed { full.batch.min(limits.batch_cap_mixed) } else { full.batch },
            ..full
        }
    }
}
