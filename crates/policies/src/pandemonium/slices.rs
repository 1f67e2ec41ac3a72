// SPDX-License-Identifier: GPL-2.0-only

//! The length of a slice. LatCritical and Interactive tasks get as long as they usually run,
//! because a user waits for them. Batch tasks get a long slice, because that gives throughput.

use super::fair::WEIGHT_ONE;
use crate::knobs::Knobs;
use pandemonium_engine::Mode;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;

/// The properties of a task that its slice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Its tier.
    pub tier: Tier,
    /// How long it is expected to run between two sleeps.
    pub run: Span,
    /// The number of its forks since it last woke up.
    pub forks: u64,
    /// Its weight in its tier.
    pub effective_weight: u64,
}

/// The slice of a task.
///
/// LatCritical gets 1.5 times its expected run, Interactive twice. The limit for both is the knob's
/// slice, or the burst slice during a burst or a long run. Each fork since the wakeup raises the
/// limit by the same amount, up to a batch slice: the CPU time of a fork is spent for the child,
/// and a parent that waits delays its next children. Batch gets the batch slice by weight:
/// [`WEIGHT_ONE`] and above the whole, nice 0 (100) 78 %, nice 19 the shortest (PANDEMONIUM
/// 5.4.13).
pub fn slice(need: &Need, mode: Mode, knobs: &Knobs) -> Span {
    let limit = if mode.short_slices() { knobs.burst_slice } else { knobs.slice };
    let longest = limit.scale(1 + need.forks, 1).min(knobs.batch_slice.max(limit));
    let (wanted, longest) = match need.tier {
        Tier::LatCritical => (need.run.scale(3, 2), longest),
        Tier::Interactive => (need.run.scale(2, 1), longest),
        Tier::Batch => {
            (knobs.batch_slice.scale(need.effective_weight, WEIGHT_ONE), knobs.batch_slice)
        }
    };
    wanted.min(longest).max(knobs.slice_min)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const QUIET: Mode = Mode { burst: false, longrun: false };
    /// Longer than the default, so that the slices of small weights are above the shortest.
    const LONG_BATCH_SLICE: Span = Span::from_millis(20);

    fn need(tier: Tier, run_us: u64, effective_weight: u64) -> Need {
        Need { tier, run: Span::from_micros(run_us), forks: 0, effective_weight }
    }

    fn us(tier: Tier, run_us: u64, weight: u64, mode: Mode) -> u64 {
        let knobs = Knobs { batch_slice: LONG_BATCH_SLICE, ..Knobs::default() };
        slice(&need(tier, run_us, weight), mode, &knobs).as_micros()
    }

    #[test]
    fn slices_follow_the_table() {
        let lat_critical = [50, 100, 700].map(|run| us(Tier::LatCritical, run, 200, QUIET));
        assert_eq!(lat_critical, [100, 150, 1_000]);
        let interactive = [40, 100, 600].map(|run| us(Tier::Interactive, run, 150, QUIET));
        assert_eq!(interactive, [100, 200, 1_000]);
        let batch = [1, 15, 36, 88, 100, 115, 128, 8_876];
        assert_eq!(
            batch.map(|weight| us(Tier::Batch, 9_999, weight, QUIET)),
            [156, 2_343, 5_625, 13_750, 15_625, 17_968, 20_000, 20_000]
        );
    }

    #[test]
    fn each_fork_raises_the_limit_by_one_slice_up_to_a_batch_slice() {
        let knobs = Knobs { batch_slice: LONG_BATCH_SLICE, ..Knobs::default() };
        let after_forks = |forks, run_us, mode| {
            let parent = Need { forks, ..need(Tier::Interactive, run_us, 150) };
            slice(&parent, mode, &knobs).as_micros()
        };
        assert_eq!(
            [0, 1, 12, 200].map(|n| after_forks(n, 90_000, QUIET)),
            [1_000, 2_000, 13_000, 20_000]
        );
        assert_eq!(after_forks(12, 600, QUIET), 1_200, "twice its run is below the limit");
        let burst = knobs.burst_slice.as_micros();
        assert_eq!(after_forks(3, 90_000, Mode { burst: true, ..QUIET }), 4 * burst);
    }

    #[test]
    fn bursts_and_long_runs_shorten_all_slices_but_batch_slices() {
        let knobs = Knobs {
            slice: Span::from_millis(4),
            burst_slice: Span::from_micros(500),
            ..Knobs::default()
        };
        for mode in [Mode { burst: true, ..QUIET }, Mode { longrun: true, ..QUIET }] {
            assert_eq!(
                slice(&need(Tier::LatCritical, 9_000, 200), mode, &knobs),
                knobs.burst_slice
            );
            assert_eq!(
                slice(&need(Tier::Interactive, 9_000, 150), mode, &knobs),
                knobs.burst_slice
            );
            assert_eq!(slice(&need(Tier::Batch, 9_000, 128), mode, &knobs), knobs.batch_slice);
        }
    }

    #[test]
    fn no_slice_is_below_the_minimum() {
        let knobs = Knobs { slice_min: Span::from_micros(300), ..Knobs::default() };
        for tier in Tier::ALL {
            assert_eq!(slice(&need(tier, 0, 1), QUIET, &knobs), knobs.slice_min);
        }
    }
}
