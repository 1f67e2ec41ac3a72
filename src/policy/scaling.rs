// SPDX-License-Identifier: GPL-2.0-only

//! Limits that follow from the number of CPUs, each a formula of it.

use crate::task::CPUS_MAX;
use crate::time::Span;

/// The limits of a machine with so many CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// No task waits longer behind others because of its tier: `min(25 ms * N, 500 ms / (N / 4))`,
    /// within 20 to 500 ms (PANDEMONIUM 5.4.13, "Hard Starvation Rescue"). Short on few CPUs,
    /// where one wait is a large share of everything, and on many, where queues are long.
    pub starvation: Span,
}

impl Scaling {
    /// The limits for `cpus` CPUs, 1 to [`CPUS_MAX`].
    pub fn new(cpus: u32) -> Scaling {
        let cpus = cpus.clamp(1, CPUS_MAX) as u64;
        let rising = Span::from_millis(25 * cpus);
        let falling = Span::from_millis(500).scale(1, (cpus / 4).max(1));
        Scaling {
            starvation: rising.min(falling).clamp(Span::from_millis(20), Span::from_millis(500)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starvation_limit_follows_the_readme() {
        let table = [
            (1, 25_000),
            (2, 50_000),
            (4, 100_000),
            (6, 150_000),
            (8, 200_000),
            (12, 166_666),
            (16, 125_000),
            (32, 62_500),
            (64, 31_250),
            (128, 20_000),
            (1024, 20_000),
        ];
        for (cpus, us) in table {
            assert_eq!(Scaling::new(cpus).starvation.as_micros(), us, "{cpus} CPUs");
        }
    }
}
