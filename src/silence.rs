// SPDX-License-Identifier: GPL-2.0-only

//! A worker that decides nothing any more: when that is told, and when the worker is ended.
//!
//! The kernel can eject a scheduler of which the worker does not come back from a round. Such a
//! worker never sees that it is ejected, and would live on as if it scheduled.

use super::health::GAP_MAX;
use pandemonium_engine::time::{Span, Stamp};

/// A worker that has ended by itself needs less: the kernel waits for RCU once for each of its BPF
/// programs, on Linux 6.12 for up to 15 s in all.
const UNLOADED_MAX: Span = Span::from_millis(20_000);

/// What the supervisor sees of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub now: Stamp,
    /// The worker's process number, if there is one.
    pub worker: Option<u32>,
    /// How long ago its last round was.
    pub gap: Span,
    /// Whether a scheduler is loaded.
    pub is_loaded: bool,
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
    /// Whether this worker's scheduler was loaded.
    was_loaded: bool,
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
        if seen.is_loaded {
            (self.was_loaded, self.unloaded) = (true, None);
        } else if self.was_loaded {
            let since = *self.unloaded.get_or_insert(seen.now);
            if seen.now.since(since) >= UNLOADED_MAX {
                return Verdict::End;
            }
        }
        let is_silent = self.was_loaded && seen.gap > GAP_MAX;
        let was_told = std::mem::replace(&mut self.is_told, is_silent);
        if is_silent && !was_told { Verdict::Tell(seen.gap) } else { Verdict::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: Option<u32> = Some(7);

    fn seen(second: u64, worker: Option<u32>, gap_s: u64, is_loaded: bool) -> Seen {
        let now = Stamp::from_nanos(1_000_000_000 * (100 + second));
        Seen { now, worker, gap: Span::from_millis(1_000 * gap_s), is_loaded }
    }

    #[test]
    fn a_gap_is_told_once_and_the_next_one_again() {
        let mut silence = Silence::default();
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
