// SPDX-License-Identifier: GPL-2.0-only

//! Limits that depend on the number of CPUs.
//!
//! The formulas are those of PANDEMONIUM 5.4.13, "Core-Count Scaling", unless a field says more.
//! `N` is the number of CPUs. Every limit is one or two straight lines between a floor and a
//! ceiling; none is a special case for one machine.

use pandemonium_engine::task::CPUS_MAX;
use pandemonium_engine::time::Span;

/// From this many CPUs on the README caps the key of a Batch task, because the Batch queue is deep
/// enough that a task of high virtual time stays behind new ones for ever. PANDEMONIUM 5.5 caps at
/// every size; the README's number is kept until the lab has measured its effect.
pub const VTIME_CEILING_CPUS: u32 = 8;
/// How far ahead of the virtual clock the key of a Batch task may be, where the ceiling applies:
/// six Batch rescues of 5 ms (README, "Vtime Ceiling").
pub const VTIME_CEILING: Span = Span::from_millis(30);

/// The limits of a machine with a given number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// `N`, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// The longest that a task waits because of its tier: `min(25 ms * N, 500 ms / (N / 4))`,
    /// within 20 to 500 ms (PANDEMONIUM 5.4.13, "Hard Starvation Rescue"). It is short on few CPUs,
    /// where one waiting task is a large share of the load, and on many, where queues are long.
    pub starvation: Span,
    /// A task that waits longer in a shared queue is dispatched before the work of any single CPU:
    /// `2 ms * N`, within 4 to 10 ms.
    pub overflow_rescue: Span,
    /// Most urgent dispatches in a row while Batch work waits: `N * min(4, 2 + N / 2)`, at least 2.
    pub deficit_budget: u32,
    /// Tasks that may wait in one CPU's own queue: 1 below 4 CPUs, else 2. With few CPUs a second
    /// task would be bound to a large share of the machine.
    pub private_depth: u32,
    /// Lowest threshold of the CoDel rescue: `1 ms * N`, within 2 to 6 ms.
    pub sojourn_floor: Span,
    /// Highest threshold of the CoDel rescue: twice the floor.
    pub sojourn_ceiling: Span,
    /// More wakeups than this in one window of 4 ms are a burst: `2 * N`.
    pub burst_wakeups: u32,
    /// How far ahead of the clock a Batch key may be; `None` below `VTIME_CEILING_CPUS`.
    pub vtime_ceiling: Option<Span>,
    /// Longest slice of an urgent task in any regime: `0.5 ms * N`. On small machines the 4 ms of
    /// HEAVY were measured to give latency tails of 50 to 200 ms.
    pub slice_cap: Span,
    /// Longest preemption threshold while LIGHT or HEAVY: `0.25 ms * N`.
    pub preempt_cap: Span,
    /// Longest preemption threshold while MIXED: `0.5 ms * N`.
    pub preempt_cap_mixed: Span,
    /// Longest Batch slice while MIXED: `5 ms * N`.
    pub batch_cap_mixed: Span,
}

impl Scaling {
    /// The limits for `cpus` CPUs, 1 to [`CPUS_MAX`].
    pub fn new(cpus: u32) -> Scaling {
        let cpus = cpus.clamp(1, CPUS_MAX);
        let n = cpus as u64;
        let sojourn_floor = Span::from_millis(n.clamp(2, 6));
        Scaling {
            cpus,
            starvation: starvation(n),
            overflow_rescue: Span::from_millis((2 * n).clamp(4, 10)),
            deficit_budget: (cpus * (2 + cpus / 2).min(4)).max(2),
            private_depth: if cpus < 4 { 1 } else { 2 },
            sojourn_floor,
            sojourn_ceiling: sojourn_floor.scale(2, 1),
            burst_wakeups: 2 * cpus,
            vtime_ceiling: (cpus >= VTIME_CEILING_CPUS).then_some(VTIME_CEILING),
            slice_cap: Span::from_micros(500 * n),
            preempt_cap: Span::from_micros(250 * n),
            preempt_cap_mixed: Span::from_micros(500 * n),
            batch_cap_mixed: Span::from_millis(5 * n),
        }
    }
}

fn starvation(n: u64) -> Span {
    let rising = Span::from_millis(25 * n);
    let falling = Span::from_millis(500).scale(1, (n / 4).max(1));
    rising.min(falling).clamp(Span::from_millis(20), Span::from_millis(500))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn every_size() -> impl Iterator<Item = Scaling> {
        (1..=CPUS_MAX).map(Scaling::new)
    }

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

    #[test]
    fn limits_follow_the_readme_s_table() {
        // CPUs; ms: sojourn floor, ceiling, overflow rescue; dispatches: deficit; tasks: depth.
        let table = [
            (1, 2, 4, 4, 2, 1),
            (2, 2, 4, 4, 6, 1),
            (4, 4, 8, 8, 16, 2),
            (6, 6, 12, 10, 24, 2),
            (8, 6, 12, 10, 32, 2),
            (12, 6, 12, 10, 48, 2),
            (16, 6, 12, 10, 64, 2),
            (32, 6, 12, 10, 128, 2),
            (64, 6, 12, 10, 256, 2),
            (128, 6, 12, 10, 512, 2),
            (1024, 6, 12, 10, 4096, 2),
        ];
        for (cpus, floor, ceiling, overflow, deficit, depth) in table {
            let limits = Scaling::new(cpus);
            let ms = |span: Span| span.as_micros() / 1_000;
            let found = (
                cpus,
                ms(limits.sojourn_floor),
                ms(limits.sojourn_ceiling),
                ms(limits.overflow_rescue),
                limits.deficit_budget,
                limits.private_depth,
            );
            assert_eq!(found, (cpus, floor, ceiling, overflow, deficit, depth));
        }
    }

    #[test]
    fn the_caps_of_the_regimes_follow_the_table() {
        // CPUs; us: slice, preempt, preempt while MIXED; ms: batch while MIXED.
        let table = [
            (1, 500, 250, 500, 5),
            (2, 1_000, 500, 1_000, 10),
            (4, 2_000, 1_000, 2_000, 20),
            (6, 3_000, 1_500, 3_000, 30),
            (8, 4_000, 2_000, 4_000, 40),
            (1024, 512_000, 256_000, 512_000, 5_120),
        ];
        for (cpus, slice, preempt, preempt_mixed, batch) in table {
            let limits = Scaling::new(cpus);
            assert_eq!(limits.slice_cap, Span::from_micros(slice), "{cpus} CPUs");
            assert_eq!(limits.preempt_cap, Span::from_micros(preempt), "{cpus} CPUs");
            assert_eq!(limits.preempt_cap_mixed, Span::from_micros(preempt_mixed), "{cpus} CPUs");
            assert_eq!(limits.batch_cap_mixed, Span::from_millis(batch), "{cpus} CPUs");
        }
    }

    #[test]
    fn every_limit_stays_in_its_range_on_every_machine() {
        let within = |span: Span, low, high| {
            (Span::from_millis(low)..=Span::from_millis(high)).contains(&span)
        };
        for limits in every_size() {
            let n = limits.cpus;
            assert!(within(limits.starvation, 20, 500), "{n} CPUs");
            assert!(within(limits.overflow_rescue, 4, 10), "{n} CPUs");
            assert!(within(limits.sojourn_floor, 2, 6), "{n} CPUs");
            assert_eq!(limits.sojourn_ceiling, limits.sojourn_floor + limits.sojourn_floor);
            assert!(limits.sojourn_floor <= limits.overflow_rescue, "{n} CPUs");
            assert!(limits.overflow_rescue < limits.starvation, "{n} CPUs");
            assert!((2 * n..=4 * n).contains(&limits.deficit_budget), "{n} CPUs");
            assert_eq!(limits.burst_wakeups, 2 * n);
            assert_eq!(limits.vtime_ceiling.is_some(), n >= VTIME_CEILING_CPUS);
        }
    }

    #[test]
    fn limits_that_grow_never_shrink_and_starvation_has_one_peak() {
        let sizes: std::vec::Vec<Scaling> = every_size().collect();
        for (small, large) in sizes.iter().zip(&sizes[1..]) {
            let n = large.cpus;
            assert!(small.overflow_rescue <= large.overflow_rescue, "{n} CPUs");
            assert!(small.sojourn_floor <= large.sojourn_floor, "{n} CPUs");
            assert!(small.deficit_budget < large.deficit_budget, "{n} CPUs");
            assert!(small.private_depth <= large.private_depth, "{n} CPUs");
            assert!(small.slice_cap < large.slice_cap, "{n} CPUs");
            assert!(small.preempt_cap < large.preempt_cap, "{n} CPUs");
            assert!(small.batch_cap_mixed < large.batch_cap_mixed, "{n} CPUs");
            // 25 ms a CPU up to 11 CPUs, where N / 4 is still 2; then shared by N / 4.
            assert_eq!(small.starvation < large.starvation, n <= 10, "{n} CPUs");
        }
    }

    #[test]
    fn an_impossible_number_of_cpus_is_clamped() {
        assert_eq!(Scaling::new(0), Scaling::new(1));
        assert_eq!(Scaling::new(u32::MAX), Scaling::new(CPUS_MAX));
    }
}
