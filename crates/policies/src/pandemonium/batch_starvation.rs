// SPDX-License-Identifier: GPL-2.0-only

//! Batch starvation: its detection, and the tasks that use more than their share meanwhile.
//!
//! Rescues bound how long a Batch task waits, but not how long it then runs: beside tasks that wake
//! up every few microseconds it is preempted before it makes progress. Beside a pair of tasks that
//! pass a byte back and forth on one CPU, a hog got 1 % of what it gets under EEVDF.
//!
//! So the CPU time of all Batch tasks is compared with their waits. While Batch starves, a task of
//! a higher tier that uses more than a part of a fair share is *over share* and becomes Batch, so
//! that it shares the machine with the hogs by virtual time. An urgent task that uses little, such
//! as audio, keeps its tier.

use pandemonium_engine::task::{Cause, Tier};
use pandemonium_engine::time::{Span, Stamp};

/// The window over which Batch's CPU time is measured. Chosen: longer than several rescues, and
/// shorter than a user takes to call a program frozen.
pub(super) const WINDOW: Span = Span::from_millis(256);
/// The longest time between two messages that counts. No Batch task of ordinary weight waits
/// longer, because rescues come after 500 ms at most. A task without a message for hours ran alone,
/// which is no information about this window.
const SINCE_MAX: Span = Span::from_millis(1_024);
/// Batch starves if it gets less than a fair share divided by this. Chosen: urgent tasks may use
/// most of the machine as long as some of it remains for Batch.
const STARVING: u64 = 8;
/// In the first window in which Batch starves, a task becomes over share above a fair share, in the
/// second above half of one, and from the third on above a fair share divided by this; it stays so
/// down to half of the latter. Chosen: four such tasks together use a fair share.
const OVER_SHARE: u64 = 4;

/// A task that takes less than one part in this many of a CPU is never over share: among thousands
/// of tasks a fair share is less than what a clock on the screen takes. Chosen: 2 %.
const LITTLE: u64 = 50;

/// The CPU time and the waits of all Batch tasks in the current window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStarvation {
    cpus: u64,
    began: Stamp,
    ran: Span,
    waited: Span,
    /// While Batch starves, a task that takes more than a fair share divided by this becomes over
    /// share. 0 if Batch did not starve in the last window.
    parts: u64,
    /// How many tasks contended for the CPUs in the last window.
    contenders: u64,
}

impl BatchStarvation {
    pub fn new(cpus: u32) -> BatchStarvation {
        let cpus = cpus.into();
        BatchStarvation {
            cpus,
            began: Stamp::default(),
            ran: Span::ZERO,
            waited: Span::ZERO,
            parts: 0,
            contenders: cpus,
        }
    }

    /// Counts a message of a task that was of `tier`. A Batch task that lost its CPU was runnable
    /// for all of `since`, the time since its last message, and ran for `ran` of it.
    pub fn on_message(&mut self, now: Stamp, tier: Tier, cause: Cause, since: Span, ran: Span) {
        if tier != Tier::Batch || cause != Cause::Requeue {
            return;
        }
        let length = now.since(self.began);
        let (since, ran) = (since.min(SINCE_MAX), ran.min(SINCE_MAX));
        self.ran += ran;
        self.waited += since - ran;
        if length >= WINDOW {
            self.evaluate(length);
            (self.began, self.ran, self.waited) = (now, Span::ZERO, Span::ZERO);
        }
    }

    /// Evaluates a window. The average number of runnable Batch tasks is their total time divided
    /// by the length of the window (Little's law). In the worst case all CPUs run other tasks
    /// besides.
    fn evaluate(&mut self, length: Span) {
        let wanted = self.ran + self.waited;
        self.contenders = self.cpus + wanted.as_nanos() / length.as_nanos().max(1);
        // With less waiting than this Batch does not starve, however little it ran.
        let waited_long = self.waited >= WINDOW.scale(1, 2);
        let starves =
            waited_long && !self.exceeds(self.ran.as_nanos(), wanted.as_nanos(), STARVING);
        self.parts = if starves { (2 * self.parts).clamp(1, OVER_SHARE) } else { 0 };
    }

    /// Whether `taken` of `whole` is more than a fair share divided by `parts`.
    fn exceeds(&self, taken: u64, whole: u64, parts: u64) -> bool {
        let [taken, whole, contenders, cpus] =
            [taken, whole, self.contenders, self.cpus].map(u128::from);
        taken * contenders * u128::from(parts) > whole * cpus
    }

    /// Whether Batch starves. The result expires when no Batch task sends messages any more.
    fn active(&self, now: Stamp) -> bool {
        self.parts > 0 && now.since(self.began) < WINDOW.scale(2, 1)
    }

    /// Whether a task that uses `taken` of `whole`, the time of one CPU, is over share. `before` is
    /// the previous result for this task.
    pub fn over_share(&self, now: Stamp, before: bool, (taken, whole): (u64, u64)) -> bool {
        let parts = if before { 2 * OVER_SHARE } else { self.parts };
        let is_little = taken * LITTLE < whole;
        (before || self.active(now)) && !is_little && self.exceeds(taken, whole, parts)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const HALF: (u64, u64) = (1, 2);

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos((1 << 40) + ms * 1_000_000)
    }

    fn lost_cpu(batch_starvation: &mut BatchStarvation, ms: u64, since: Span, ran: Span) {
        batch_starvation.on_message(at(ms), Tier::Batch, Cause::Requeue, since, ran);
    }

    /// One second on one CPU, in which a Batch task runs for `ran` out of every 20 ms.
    fn second_of(ran: Span) -> BatchStarvation {
        let mut batch_starvation = BatchStarvation::new(1);
        for turn in 0..50 {
            lost_cpu(&mut batch_starvation, turn * 20, Span::from_millis(20), ran);
        }
        batch_starvation
    }

    #[test]
    fn batch_starves_below_an_eighth_of_a_fair_share() {
        // Two tasks contend for the CPU, so a fair share is 10 ms.
        assert!(second_of(Span::from_micros(20)).active(at(1_000)));
        assert!(second_of(Span::from_micros(1_200)).active(at(1_000)));
        assert!(!second_of(Span::from_micros(1_300)).active(at(1_000)));
    }

    #[test]
    fn short_waits_are_not_starvation() {
        let mut batch_starvation = BatchStarvation::new(1);
        for turn in 0..50 {
            lost_cpu(&mut batch_starvation, turn * 20, Span::from_millis(1), Span::ZERO);
        }
        assert!(!batch_starvation.active(at(1_000)));
    }

    #[test]
    fn messages_of_urgent_tasks_and_wake_ups_do_not_count() {
        let mut batch_starvation = BatchStarvation::new(1);
        let since = Span::from_millis(20);
        for turn in 0..50 {
            batch_starvation.on_message(
                at(turn * 20),
                Tier::Interactive,
                Cause::Requeue,
                since,
                Span::ZERO,
            );
            batch_starvation.on_message(
                at(turn * 20),
                Tier::Batch,
                Cause::Wakeup,
                since,
                Span::ZERO,
            );
        }
        assert!(!batch_starvation.active(at(1_000)));
    }

    #[test]
    fn many_hogs_that_share_fairly_do_not_starve() {
        let mut batch_starvation = BatchStarvation::new(2);
        for turn in 0..1_000 {
            lost_cpu(&mut batch_starvation, turn * 2, Span::from_millis(128), Span::from_millis(4));
        }
        assert!(!batch_starvation.active(at(2_000)));
    }

    #[test]
    fn a_hog_that_ran_alone_for_years_does_not_count_as_many() {
        let mut batch_starvation = second_of(Span::ZERO);
        let years = Span::from_millis(100_000_000_000);
        lost_cpu(&mut batch_starvation, 1_000, years, years);
        lost_cpu(&mut batch_starvation, 1_300, Span::ZERO, Span::ZERO);
        assert!(batch_starvation.contenders < 8, "{batch_starvation:?}");
    }

    #[test]
    fn starvation_ends_when_no_batch_task_sends_messages() {
        let batch_starvation = second_of(Span::ZERO);
        assert!(batch_starvation.active(at(1_000)));
        assert!(!batch_starvation.active(at(2_000)));
    }

    #[test]
    fn a_task_is_over_share_above_a_quarter_of_a_share_and_down_to_an_eighth() {
        let batch_starvation = second_of(Span::ZERO);
        let now = at(1_000);
        assert!(batch_starvation.over_share(now, false, HALF));
        assert!(!batch_starvation.over_share(now, false, (1, 9)));
        assert!(batch_starvation.over_share(now, true, (1, 9)));
        assert!(!batch_starvation.over_share(now, true, (1, 17)));
    }

    #[test]
    fn those_that_take_most_are_over_share_first() {
        let mut batch_starvation = BatchStarvation::new(1);
        lost_cpu(&mut batch_starvation, 0, Span::ZERO, Span::ZERO);
        let mut enter = Vec::new();
        for window in 1..=4 {
            lost_cpu(&mut batch_starvation, window * 256, Span::from_millis(256), Span::ZERO);
            let of = |percent| batch_starvation.over_share(at(window * 256), false, (percent, 100));
            enter.push([of(90), of(40), of(20), of(10)].iter().filter(|over| **over).count());
        }
        assert_eq!(enter, [1, 2, 3, 3]);
    }

    #[test]
    fn among_thousands_a_task_that_takes_little_is_not_over_share() {
        let mut batch_starvation = BatchStarvation::new(1);
        for turn in 0..4_000 {
            lost_cpu(&mut batch_starvation, turn / 4, Span::from_millis(1_024), Span::ZERO);
        }
        let over_share = |parts| batch_starvation.over_share(at(1_000), true, (parts, 1_000));
        assert!(over_share(21) && !over_share(19));
    }

    #[test]
    fn without_starvation_no_task_becomes_over_share() {
        let batch_starvation = second_of(Span::from_millis(10));
        assert!(!batch_starvation.over_share(at(1_000), false, HALF));
        assert!(batch_starvation.over_share(at(1_000), true, HALF));
    }
}
