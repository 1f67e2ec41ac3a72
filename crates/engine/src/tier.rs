// SPDX-License-Identifier: GPL-2.0-only

//! The tiers.

/// How urgent a runnable task is. Ordered: a higher tier is more urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Uses whole slices and needs throughput.
    Batch,
    /// Runs for a while, then sleeps. A user may be waiting for its result.
    #[default]
    Interactive,
    /// Runs briefly and often. A user sees or hears a late start.
    LatCritical,
}

impl Tier {
    /// All tiers, least urgent first.
    pub const ALL: [Tier; 3] = [Tier::Batch, Tier::Interactive, Tier::LatCritical];

    /// Position in [`Tier::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}
