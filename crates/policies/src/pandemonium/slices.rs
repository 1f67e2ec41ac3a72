// SPDX-License-Identifier: GPL-2.0-only

//! The length of a slice. LatCritical and Interactive tasks get as long as they usually run,
//! because a user waits for them. Batch tasks get a long slice, because that gives throughput.

use crate::knobs::Knobs;
use pandemonium_engine::Mode;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;

/// The slice of a task of `tier` that is expected to run for `run` between two sleeps.
///
/// LatCritical gets 1.5 times its expected run, Interactive twice. The limit for both is the knob's
/// slice, or the burst slice during a burst or a long run. Batch gets the batch slice by weight: 128
/// and above the whole, nice 0 (100) 78 %, nice 19 the shortest (PANDEMONIUM 5.4.13).
pub fn slice(tier: Tier, run: Span, effective_weight: u64, mode: Mode, knobs: &Knobs) -> Span {
    let limit = if mode.short_slices() { knobs.burst_slice } else { knobs.slice };
    let (wanted, longest) = match tier {
        Tier::LatCritical => (run.scale(3, 2), limit),
        Tier::Interactive => (run.scale(2, 1), limit),
        Tier::Batch => (knobs.batch_slice.scale(effective_weight, 128), knobs.batch_slice),
    };
    wanted.min(longest).max(knobs.slice_min)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::knobs::BATCH_SLICE_PREEMPTIBLE;

    const QUIET: Mode = Mode { burst: false, longrun: false };

    fn us(tier: Tier, run_us: u64, weight: u64, mode: Mode) -> u64 {
        let knobs = Knobs { batch_slice: BATCH_SLICE_PREEMPTIBLE, ..Knobs::default() };
        slice(tier, Span::from_micros(run_us), weight, mode, &knobs).as_micros()
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
    fn bursts_and_long_runs_shorten_all_slices_but_batch_slices() {
        let knobs = Knobs {
            slice: Span::from_millis(4),
            burst_slice: Span::from_micros(500),
            ..Knobs::default()
        };
        for mode in [Mode { burst: true, ..QUIET }, Mode { longrun: true, ..QUIET }] {
            assert_eq!(
                slice(Tier::LatCritical, Span::from_micros(9_000), 200, mode, &knobs),
                knobs.burst_slice
            );
            assert_eq!(
                slice(Tier::Interactive, Span::from_micros(9_000), 150, mode, &knobs),
                knobs.burst_slice
            );
            assert_eq!(
                slice(Tier::Batch, Span::from_micros(9_000), 128, mode, &knobs),
                knobs.batch_slice
            );
        }
    }

    #[test]
    fn no_slice_is_below_the_minimum() {
        let knobs = Knobs { slice_min: Span::from_micros(300), ..Knobs::default() };
        for tier in Tier::ALL {
            assert_eq!(slice(tier, Span::from_micros(0), 1, QUIET, &knobs), knobs.slice_min);
        }
    }
}
