// SPDX-License-Identifier: GPL-2.0-only

//! For how long a task may run: as long as it usually does where somebody waits for it, as long
//! as pays where nobody does.

use pandemonium_engine::Mode;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;

/// What of a task its slice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Its tier.
    pub tier: Tier,
    /// How long it usually runs, or is expected to.
    pub run: Span,
    /// Tasks that it has given fork to since it woke up.
    pub births: u64,
    /// Its weight in its tier.
    pub effective_weight: u64,
}

/// The slice of a task.
///
/// LatCritical gets half as much again as it usually needs, Interactive twice as much, both at
/// most the knob's slice, or during a burst or sustained batch pressure the burst slice. Each fork
/// allows it as much again, up to a batch slice: what a fork takes is spent for the child, and
/// while the parent waits nobody else is born. Batch gets the batch slice by weight: 128 and above
/// the whole, nice 0 (100) 78 %, nice 19 the shortest (PANDEMONIUM 5.4.13).
pub fn slice(need: &Need, mode: Mode, knobs: &Knobs) -> Span {
    let one = if mode.short_slices() { knobs.burst_slice } else { knobs.slice };
    let longest = one.scale(1 + need.births, 1).min(knobs.batch_slice.max(one));
    let (wanted, longest) = match need.tier {
        Tier::LatCritical => (need.run.scale(3, 2), longest),
        Tier::Interactive => (need.run.scale(2, 1), longest),
        Tier::Batch => (knobs.batch_slice.scale(need.effective_weight, 128), knobs.batch_slice),
    };
    wanted.min(longest).max(knobs.slice_min)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::knobs::BATCH_SLICE_PREEMPTIBLE;

    const QUIET: Mode = Mode { burst: false, longrun: false };

    fn need(tier: Tier, run_us: u64, effective_weight: u64) -> Need {
        Need { tier, run: Span::from_micros(run_us), births: 0, effective_weight }
    }

    fn us(tier: Tier, run_us: u64, weight: u64, mode: Mode) -> u64 {
        let knobs = Knobs { batch_slice: BATCH_SLICE_PREEMPTIBLE, ..Knobs::default() };
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
    fn each_birth_allows_a_parent_one_slice_more_up_to_a_batch_slice() {
        let knobs = Knobs { batch_slice: BATCH_SLICE_PREEMPTIBLE, ..Knobs::default() };
        let born = |births, run_us, mode| {
            let parent = Need { births, ..need(Tier::Interactive, run_us, 150) };
            slice(&parent, mode, &knobs).as_micros()
        };
        assert_eq!([0, 1, 12, 200].map(|n| born(n, 90_000, QUIET)), [1_000, 2_000, 13_000, 20_000]);
        assert_eq!(born(12, 600, QUIET), 1_200, "no more than it needs");
        let burst = knobs.burst_slice.as_micros();
        assert_eq!(born(3, 90_000, Mode { burst: true, ..QUIET }), 4 * burst);
    }

    #[test]
    fn pressure_shortens_what_others_wait_behind_and_batch_stays() {
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
    fn no_slice_is_below_the_shortest() {
        let knobs = Knobs { slice_min: Span::from_micros(300), ..Knobs::default() };
        for tier in Tier::ALL {
            assert_eq!(slice(&need(tier, 0, 1), QUIET, &knobs), knobs.slice_min);
        }
    }
}
