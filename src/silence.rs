// SPDX-License-Identifier: GPL-2.0-only

//! A worker that decides nothing any more: when that is told, and when the worker is ended.
//!
//! The kernel can eject a scheduler of which the worker does not come back from a round. Such a
//! worker never sees that it is ejected, and would live on as if it scheduled.

use super::health::GAP_MAX;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_host::preflight;

/// A worker that has ended by itself needs less: the kernel waits for RCU once for each of its BPF
/// programs, on Linux 6.12 for up to 15 s in all.
const UNLOADED_MAX: Span = Span::from_millis(20_000);

/// What the supervisor sees of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'n> {
    pub now: Stamp,
    /// The worker's process number, if there is one.
    pub worker: Option<u32>,
    /// How long ago its last round was.
    pub gap: Span,
    /// The name of the scheduler that is loaded, with its version.
    pub loaded: Option<&'n str>,
    /// The name of the one that the worker loads.
    pub ours: &'n str,
}

impl Seen<'_> {
    /// Whether the worker's scheduler is loaded. After an ejection another one may be.
    fn is_loaded(&self) -> bool {
        self.loaded.is_some_and(|loaded| preflight::is_version_of(loaded, self.ours))
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Nothing,
    /// It has not ended a round for so long.
    Tell(Span),
    /// Its scheduler is not loaded any more, and it has not noticed.
    End,
}

/// The state between two looks.
#[derive(Debug, Default)]
pub struct Silence {
    worker: Option<u32>,
    /// Since when this worker's scheduler is or was loaded.
    loaded: Option<Stamp>,
    /// Since when it is not.
    unloaded: Option<Stamp>,
    /// Whether the gap has been told.
    is_told: bool,
}

impl Silence {
    /// To be called about once a second.
    pub fn look(&mut self, seen: &Seen) -> Verdict {
        if self.worker != seen.worker {
            *self = Silence { worker: seen.worker, ..Silence::default() };
        }
        if seen.worker.is_none() {
            return Verdict::Nothing;
        }
        if seen.is_loaded() {
            self.loaded.get_or_insert(seen.now);
            self.unloaded = None;
        } else if self.loaded.is_some() {
            let since = *self.unloaded.get_or_insert(seen.now);
            if seen.now.since(since) >= UNLOADED_MAX {
                return Verdict::End;
            }
        }
        // The last round may be that of the worker before, and this one may load for seconds.
        let loaded = self.loaded.map_or(Span::ZERO, |since| seen.now.since(since));
        let gap = seen.gap.min(loaded);
        let is_silent = gap > GAP_MAX;
        let was_told = std::mem::replace(&mut self.is_told, is_silent);
        if is_silent && !was_told { Verdict::Tell(gap) } else { Verdict::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: Option<u32> = Some(7);

    fn seen(second: u64, worker: Option<u32>, gap_s: u64, is_loaded: bool) -> Seen<'static> {
        let now = Stamp::from_nanos(1_000_000_000 * (100 + second));
        let loaded = is_loaded.then_some("ours_0.3");
        Seen { now, worker, gap: Span::from_millis(1_000 * gap_s), loaded, ours: "ours" }
    }

    #[test]
    fn a_gap_is_told_once_and_the_next_one_again() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(&seen(0, WORKER, 0, true)), Verdict::Nothing);
        let gaps = [1, 3, 4, 5, 1, 4, 5];
        let told = gaps.map(|gap| silence.look(&seen(gap, WORKER, gap, true)));
        let tell = |gap: u64| Verdict::Tell(Span::from_millis(1_000 * gap));
        let nothing = Verdict::Nothing;
        assert_eq!(told, [nothing, nothing, tell(4), nothing, nothing, tell(4), nothing]);
    }

    #[test]
    fn a_worker_that_does_not_notice_its_ejection_is_ended() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(&seen(0, WORKER, 1, true)), Verdict::Nothing);
        let ended: Vec<u64> = (1..=40)
            .filter(|at| silence.look(&seen(*at, WORKER, *at, false)) == Verdict::End)
            .collect();
        assert_eq!(ended.first(), Some(&21));
    }

    #[test]
    fn a_slow_restart_is_no_gap_of_the_next_worker() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(&seen(0, WORKER, 0, true)), Verdict::Nothing);
        let told: Vec<Verdict> = (10..16)
            .map(|at| silence.look(&seen(at, Some(8), at, true)))
            .filter(|verdict| *verdict != Verdict::Nothing)
            .collect();
        assert_eq!(told, [Verdict::Tell(Span::from_millis(4_000))], "only its own time counts");
    }

    #[test]
    fn another_scheduler_in_its_place_does_not_keep_it() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(&seen(0, WORKER, 1, true)), Verdict::Nothing);
        let another = |at| Seen { loaded: Some("lavd_1.1"), ..seen(at, WORKER, at, false) };
        let ended = (1..=40).find(|at| silence.look(&another(*at)) == Verdict::End);
        assert_eq!(ended, Some(21));
    }

    #[test]
    fn a_worker_that_loads_or_a_pause_between_two_is_none() {
        let mut silence = Silence::default();
        for second in 0..60 {
            // The first gap is as long as the machine runs: no round has ended yet.
            assert_eq!(silence.look(&seen(second, WORKER, 100, false)), Verdict::Nothing);
        }
        assert_eq!(silence.look(&seen(60, WORKER, 0, true)), Verdict::Nothing);
        for second in 61..120 {
            assert_eq!(silence.look(&seen(second, None, 30, false)), Verdict::Nothing);
        }
        assert_eq!(silence.look(&seen(120, Some(8), 40, false)), Verdict::Nothing);
    }
}
