// SPDX-License-Identifier: GPL-2.0-only

//! How loaded the machine is, and what knobs suit that.

use crate::knobs::Affinity;
use crate::scaling::Scaling;
use core::fmt;
use pandemonium_engine::time::Span;

/// How loaded the machine is, by the share of time that its CPUs are idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regime {
    /// Half of the CPUs have nothing to do: latency is easy, slices can be long.
    Light,
    /// In between; also what nothing is known of.
    #[default]
    Mixed,
    /// Hardly any CPU is idle: throughput counts as well.
    Heavy,
}

impl Regime {
    /// All regimes, least loaded first.
    pub const ALL: [Regime; 3] = [Regime::Light, Regime::Mixed, Regime::Heavy];

    /// Position in [`Regime::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The regime that an idle share in per mille calls for, coming from this one.
    ///
    /// Two limits for each border (Schmitt trigger), so that a load near one does not flip the
    /// regime: LIGHT begins above 50 % and ends below 30 %, HEAVY begins below 10 % and ends above
    /// 25 % (PANDEMONIUM 5.4.13). LIGHT and HEAVY are never neighbours.
    pub const fn called_for(self, idle: u32) -> Regime {
        match self {
            Regime::Light if idle < 300 => Regime::Mixed,
            Regime::Mixed if idle > 500 => Regime::Light,
            Regime::Mixed if idle < 100 => Regime::Heavy,
            Regime::Heavy if idle > 250 => Regime::Mixed,
            same => same,
        }
    }

    /// A P99 of the latency above this is a spike: 3, 5 and 10 ms.
    pub const fn p99_ceiling(self) -> Span {
        match self {
            Regime::Light => Span::from_millis(3),
            Regime::Mixed => Span::from_millis(5),
            Regime::Heavy => Span::from_millis(10),
        }
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Regime {
    /// The regime in one word.
    pub const fn name(self) -> &'static str {
        match self {
            Regime::Light => "LIGHT",
            Regime::Mixed => "MIXED",
            Regime::Heavy => "HEAVY",
        }
    }
}

/// So many intervals in a row must call for another regime before it is taken.
pub const HOLD: u32 = 2;

/// The regime, which changes only after it was called for twice in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detector {
    current: Regime,
    candidate: Regime,
    seen: u32,
}

impl Detector {
    /// The regime at present.
    pub const fn regime(&self) -> Regime {
        self.current
    }

    /// Takes in the idle share of one interval, in per mille. Returns whether the regime changed.
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

    /// The next interval does not follow the last one: nothing counts as seen before it.
    pub fn interrupt(&mut self) {
        self.seen = 0;
    }
}

/// What a regime asks for, before a person or an event has a say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Longest Interactive or LatCritical slice.
    pub slice: Span,
    /// How long a Batch task runs before it gives way.
    pub preempt: Span,
    /// Credit for sleep: more where there is time to give away.
    pub lag: u32,
    /// Longest Batch slice.
    pub batch: Span,
    /// From which usual run on an Interactive task becomes Batch: the earlier, the more loaded.
    pub cpu_bound: Span,
    /// Placement near the cache: STRONG only where there are both idle CPUs and work that
    /// competes for the caches.
    pub affinity: Affinity,
}

impl Profile {
    /// The README's numbers ("Regime Profiles"); the limits of demotion are from the source of
    /// PANDEMONIUM 5.4.13.
    pub const fn of(regime: Regime) -> Profile {
        let batch = Span::from_millis(20);
        match regime {
            Regime::Light => Profile {
                slice: Span::from_millis(2),
                preempt: Span::from_millis(1),
                lag: 6,
                batch,
                cpu_bound: Span::from_micros(3_500),
                affinity: Affinity::Weak,
            },
            Regime::Mixed => Profile {
                slice: Span::from_millis(1),
                preempt: Span::from_millis(1),
                lag: 4,
                batch,
                cpu_bound: Span::from_micros(2_500),
                affinity: Affinity::Strong,
            },
            Regime::Heavy => Profile {
                slice: Span::from_millis(4),
                preempt: Span::from_millis(2),
                lag: 2,
                batch,
                cpu_bound: Span::from_micros(2_000),
                affinity: Affinity::Weak,
            },
        }
    }

    /// The same on a machine with these limits: shorter where CPUs are few.
    pub fn scaled(regime: Regime, limits: &Scaling) -> Profile {
        let full = Profile::of(regime);
        let mixed = regime == Regime::Mixed;
        Profile {
            slice: full.slice.min(limits.slice_cap),
            preempt: full.preempt.min(if mixed {
                limits.preempt_cap_mixed
            } else {
                limits.preempt_cap
            }),
            batch: if mixed { full.batch.min(limits.batch_cap_mixed) } else { full.batch },
            ..full
        }
    }
}
