// SPDX-License-Identifier: GPL-2.0-only

//! Forks: the account of a task's forks, fork loops, and which task was just forked.
//!
//! The CPU time of a fork is spent for the child: it counts neither towards the parent's usual run
//! nor towards demotion, and it lengthens the parent's slice.

use super::share::Share;
use pandemonium_engine::task::{Arrival, Cause};
use pandemonium_engine::time::{Span, Stamp};

/// Longest part of a run that counts as one fork. Chosen: the fork of a large process takes so
/// long.
const FORK_COST: Span = Span::from_millis(1);
/// A task forks until so many wakeups after its last fork. Chosen: more than a loop has between two
/// forks, fewer than a game has in a few frames.
const FORKS_FOR: u8 = 8;
/// A task becomes a fork loop above this share of a CPU. Chosen: twelve forks every 100 ms, or
/// eight every 48 ms, take up to a quarter of a CPU, and a fork loop takes half of one or more.
const LOOP_ENTRY: Share = Share::of(3, 8);
/// It stays one down to this share. Chosen: beside hogs, a fork loop that is Batch takes a fifth of
/// a CPU.
const LOOP_EXIT: Share = Share::one_in(6);
/// A new task that has used less CPU time than this was just forked. Chosen: the kernel charges the
/// child for its own part of a fork, which takes tens of microseconds.
const JUST_FORKED: Span = Span::from_micros(100);

/// The forks of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// Since the last wakeup, up to 255.
    count: u8,
    /// Wakeups for which it still counts as a task that forks, up to [`FORKS_FOR`].
    forks_for: u8,
}

impl Forks {
    /// The task has forked.
    pub fn note(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// A wakeup ends the run in which the task has forked, or has not.
    pub fn note_wakeup(&mut self) {
        self.forks_for = if self.count > 0 { FORKS_FOR } else { self.forks_for.saturating_sub(1) };
    }

    /// A run begins.
    pub fn begin(&mut self) {
        self.count = 0;
    }

    /// Forks since the last wakeup, up to 255.
    pub fn count(&self) -> u64 {
        self.count.into()
    }

    /// The CPU time of a run without its forks: a shell is not a hog because it starts commands.
    /// Each fork counts as [`FORK_COST`]. If forks are quicker than that, the run and each fork
    /// count as equal parts, so that the run is never zero.
    pub fn left_of(&self, run: Span) -> Span {
        (run - FORK_COST.scale(self.count(), 1)).max(run.scale(1, self.count() + 1))
    }

    /// Whether the task is a fork loop: it forks, and takes a large `share` of a CPU. `before` is
    /// the previous result.
    pub fn is_loop(&self, before: bool, share: Share) -> bool {
        let limit = if before { LOOP_EXIT } else { LOOP_ENTRY };
        self.forks_for > 0 && share > limit
    }
}

/// Whether the task is new and has not run yet. A task that was running when the scheduler was
/// loaded is new to the scheduler too, but it has used CPU time.
pub fn has_just_forked(arrival: &Arrival) -> bool {
    let has_not_run = match &arrival.facts {
        Some(facts) => facts.cpu_time < JUST_FORKED,
        None => arrival.stopped == Stamp::default(),
    };
    arrival.cause == Cause::New && has_not_run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forked(times: usize) -> Forks {
        let mut forks = Forks::default();
        (0..times).for_each(|_| forks.note());
        forks
    }

    #[test]
    fn a_run_with_quick_forks_is_never_zero() {
        let left = |us| forked(1).left_of(Span::from_micros(us)).as_micros();
        assert_eq!([left(400), left(1_500), left(5_000)], [200, 750, 4_000]);
    }

    #[test]
    fn a_task_forks_until_some_wakeups_after_its_last_fork() {
        let mut forks = forked(1);
        for wakeups in 0..=FORKS_FOR {
            forks.note_wakeup();
            forks.begin();
            assert_eq!(forks.is_loop(false, Share::HALF), wakeups < FORKS_FOR, "{wakeups}");
        }
    }
}
