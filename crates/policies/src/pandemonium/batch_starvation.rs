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
//!
//! Very many tasks may starve Batch although each uses little: hundreds of processes that fork and
//! compute for a few milliseconds. Then the tasks that use most become over share too. While Batch
//! still starves, tasks that use less follow.

use core::num::NonZeroU8;
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
/// second above half of one, and from the third on above a fair share divided by this. While Batch
/// starves it stays so down to half of the latter, and then down to half of what it was above.
/// Chosen: four such tasks together use a fair share.
const OVER_SHARE: u64 = 4;

/// Very many are more than this many for each CPU. Chosen: as many as no desktop has busy at once.
const VERY_MANY: u64 = 16;
/// The first of very many tasks to become over share take more than a CPU divided by this: the
/// average of so many.
const MANY_MIN: u64 = VERY_MANY;
/// A task that takes less than a CPU divided by this never is over share as one of very many.
/// Chosen: 0.2 %, far above a clock on the screen.
const MANY_MAX: u64 = 500;

/// A part of a fair share: one divided by this.
pub type Part = NonZeroU8;

/// What a message tells about the CPU time of its task.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The tier that the task had.
    pub tier: Tier,
    /// Why the message was sent.
    pub cause: Cause,
    /// The time since the last message.
    pub since: Span,
    /// How long the task ran since then.
    pub ran: Span,
    /// The CPU time that the task takes lately, of so much time.
    pub takes: (u64, u64),
}

/// What happened since a window began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    began: Stamp,
    /// CPU time and waits of all Batch tasks.
    ran: Span,
    waited: Span,
    /// Tasks above Batch of which each takes little, and their CPU time.
    small: u64,
    small_ran: Span,
}

/// Whether Batch starves, and from which use of CPU time on a task is over share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStarvation {
    cpus: u64,
    window: Window,
    /// While Batch starves, a task that takes more than a fair share divided by this becomes over
    /// share. 0 if Batch did not starve in the last window.
    parts: u64,
    /// While very many tasks starve Batch, one that takes more than a CPU divided by this becomes
    /// over share, however small its part. 0 if they do not.
    parts_of_many: u64,
    /// How many tasks contended for the CPUs in the last window.
    contenders: u64,
}

impl BatchStarvation {
    pub fn new(cpus: u32) -> BatchStarvation {
        let cpus = cpus.into();
        let window = Window::default();
        BatchStarvation { cpus, window, parts: 0, parts_of_many: 0, contenders: cpus }
    }

    /// Counts a message. A Batch task that lost its CPU was runnable since its last message.
    pub fn on_message(&mut self, now: Stamp, message: &Use) {
        let (since, ran) = (message.since.min(SINCE_MAX), message.ran.min(SINCE_MAX));
        let length = now.since(self.window.began);
        match message.tier {
            Tier::Batch if message.cause == Cause::Requeue => {
                self.window.ran += ran;
                self.window.waited += since - ran;
                if length >= WINDOW {
                    self.evaluate(length);
                    self.window = Window { began: now, ..Window::default() };
                }
            }
            Tier::Batch => {}
            _ if self.exceeds(message.takes, OVER_SHARE) => {}
            _ => {
                self.window.small_ran += ran;
                // Each task counts once in a window.
                self.window.small += u64::from(message.since >= length);
            }
        }
    }

    /// Evaluates a window. The average number of runnable Batch tasks is their total time divided
    /// by the length of the window (Little's law). In the worst case all CPUs run other tasks
    /// besides.
    fn evaluate(&mut self, length: Span) {
        let Window { ran, waited, .. } = self.window;
        let wanted = ran + waited;
        self.contenders = self.cpus + wanted.as_nanos() / length.as_nanos().max(1);
        // With less waiting than this Batch does not starve, however little it ran.
        let waited_long = waited >= WINDOW.scale(1, 2);
        let starves = waited_long && !self.exceeds((ran.as_nanos(), wanted.as_nanos()), STARVING);
        self.parts_of_many = match (starves, self.parts_of_many) {
            (true, parts) if self.is_starved_by_many(length) => {
                (parts + parts / 2).clamp(MANY_MIN, MANY_MAX)
            }
            (true, parts) => parts,
            (false, parts) if parts > MANY_MIN => parts - parts / 4,
            (false, _) => 0,
        };
        self.parts = if starves { (2 * self.parts).clamp(1, OVER_SHARE) } else { 0 };
    }

    /// Whether very many tasks that take little each take more than half of the machine, although
    /// those that take more are over share.
    fn is_starved_by_many(&self, length: Span) -> bool {
        let Window { small, small_ran, .. } = self.window;
        let most = small_ran > length.scale(self.cpus, 2);
        most && small > VERY_MANY * self.cpus && self.parts == OVER_SHARE
    }

    /// Whether `taken` of `whole` is more than a fair share divided by `parts`.
    fn exceeds(&self, (taken, whole): (u64, u64), parts: u64) -> bool {
        let [taken, whole, contenders, cpus] =
            [taken, whole, self.contenders, self.cpus].map(u128::from);
        taken * contenders * u128::from(parts) > whole * cpus
    }

    /// Whether Batch starves. The result expires when no Batch task sends messages any more.
    fn active(&self, now: Stamp) -> bool {
        self.parts > 0 && now.since(self.window.began) < WINDOW.scale(2, 1)
    }

    /// Whether a task of this tier that uses `taken` of `whole`, the time of one CPU, is over
    /// share, and above which part of one it became so. `before` is the previous result for this
    /// task.
    pub fn over_share(
        &self,
        now: Stamp,
        before: Option<Part>,
        tier: Tier,
        (taken, whole): (u64, u64),
    ) -> Option<Part> {
        let active = self.active(now);
        let (parts, parts_of_many) = match before {
            None => (self.parts, self.parts_of_many),
            Some(_) if active => (2 * OVER_SHARE, 2 * self.parts_of_many),
            Some(part) => (2 * u64::from(part.get()), 2 * self.parts_of_many),
        };
        let is_one_of_many = tier != Tier::LatCritical && taken * parts_of_many > whole;
        let takes_much = taken * little(tier) >= whole && self.exceeds((taken, whole), parts);
        let is_over = (before.is_some() || active) && (takes_much || is_one_of_many);
        // While Batch starves the parts are 1 to 4.
        before.or_else(|| Part::new(self.parts as u8)).filter(|_| is_over)
    }
}

/// A task that takes less than a CPU divided by this is over share as one of very many only, since
/// among thousands of tasks a fair share is less than what a clock on the screen takes.
///
/// Chosen: 2 %, and for LatCritical tasks 12.5 %, as audio and input are not why Batch starves, and
/// [`crowd`](super::crowd) lowers those that together take much.
const fn little(tier: Tier) -> u64 {
    match tier {
        Tier::LatCritical => 8,
        Tier::Interactive | Tier::Batch => 50,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const HALF: (u64, u64) = (1, 2);
    const QUARTER: Option<Part> = Part::new(4);
    const MIDDLE: Tier = Tier::Interactive;

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos((1 << 40) + ms * 1_000_000)
    }

    fn message(tier: Tier, cause: Cause, since: Span, ran: Span) -> Use {
        Use { tier, cause, since, ran, takes: (0, 1) }
    }

    fn lost_cpu(batch_starvation: &mut BatchStarvation, ms: u64, since: Span, ran: Span) {
        batch_starvation.on_message(at(ms), &message(Tier::Batch, Cause::Requeue, since, ran));
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
            for (tier, cause) in [(Tier::Interactive, Cause::Requeue), (Tier::Batch, Cause::Wakeup)]
            {
                let message = message(tier, cause, since, Span::ZERO);
                batch_starvation.on_message(at(turn * 20), &message);
            }
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
        assert!(batch_starvation.over_share(now, None, MIDDLE, HALF).is_some());
        assert!(batch_starvation.over_share(now, None, MIDDLE, (1, 9)).is_none());
        assert!(batch_starvation.over_share(now, QUARTER, MIDDLE, (1, 9)).is_some());
        assert!(batch_starvation.over_share(now, QUARTER, MIDDLE, (1, 17)).is_none());
    }

    #[test]
    fn those_that_take_most_are_over_share_first() {
        let mut batch_starvation = BatchStarvation::new(1);
        lost_cpu(&mut batch_starvation, 0, Span::ZERO, Span::ZERO);
        let mut enter = Vec::new();
        for window in 1..=4 {
            lost_cpu(&mut batch_starvation, window * 256, Span::from_millis(256), Span::ZERO);
            let now = at(window * 256);
            let of =
                |percent| batch_starvation.over_share(now, None, MIDDLE, (percent, 100)).is_some();
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
        let over_share = |tier, parts| {
            batch_starvation.over_share(at(1_000), QUARTER, tier, (parts, 1_000)).is_some()
        };
        assert!(over_share(MIDDLE, 20) && !over_share(MIDDLE, 19));
        assert!(over_share(Tier::LatCritical, 125) && !over_share(Tier::LatCritical, 124));
    }

    #[test]
    fn without_starvation_no_task_becomes_over_share() {
        let batch_starvation = second_of(Span::from_millis(10));
        assert!(batch_starvation.over_share(at(1_000), None, MIDDLE, HALF).is_none());
        assert!(batch_starvation.over_share(at(1_000), QUARTER, MIDDLE, HALF).is_some());
    }

    /// Two tasks contend for the CPU.
    #[test]
    fn without_starvation_a_task_stays_over_share_down_to_half_of_what_it_was_above() {
        let batch_starvation = second_of(Span::from_millis(10));
        for (part, least) in [(1, 25), (2, 12), (4, 6)] {
            let over_share = |percent| {
                let takes = (percent, 100);
                batch_starvation.over_share(at(1_000), Part::new(part), MIDDLE, takes).is_some()
            };
            assert!(over_share(least + 1) && !over_share(least), "1/{part}");
        }
    }

    /// One CPU, on which a hog waits and `number` Interactive tasks take all of it together, for so
    /// many windows.
    fn beside_many(number: u64, windows: u64) -> BatchStarvation {
        let mut batch_starvation = BatchStarvation::new(1);
        lost_cpu(&mut batch_starvation, 0, Span::ZERO, Span::ZERO);
        let ran = Span::from_nanos(WINDOW.as_nanos() / number);
        for window in 1..=windows {
            let end = window * 256;
            for _ in 0..number {
                let it = Use { takes: (1, number), ..message(MIDDLE, Cause::Wakeup, WINDOW, ran) };
                batch_starvation.on_message(at(end - 1), &it);
            }
            lost_cpu(&mut batch_starvation, end, Span::from_millis(256), Span::ZERO);
        }
        batch_starvation
    }

    #[test]
    fn of_very_many_tasks_those_that_take_most_become_over_share() {
        let (late, takes) = (at(12 * 256), |percent| (percent, 100));
        let few = beside_many(VERY_MANY, 12);
        assert!(few.over_share(late, None, MIDDLE, takes(1)).is_none(), "{few:?}");
        for (windows, over) in [(3, [false; 3]), (5, [true, false, false]), (12, [true; 3])] {
            let many = beside_many(200, windows);
            let now = at(windows * 256);
            let of = |percent| many.over_share(now, None, MIDDLE, takes(percent)).is_some();
            assert_eq!([6, 2, 1].map(of), over, "{many:?}");
            assert!(many.over_share(now, None, Tier::LatCritical, takes(6)).is_none());
        }
        assert!(beside_many(200, 40).over_share(at(40 * 256), None, MIDDLE, (1, 600)).is_none());
    }

    #[test]
    fn the_limit_for_very_many_tasks_rises_when_batch_no_longer_starves() {
        let mut many = beside_many(200, 12);
        let of = |many: &BatchStarvation, end| {
            many.over_share(at(end), QUARTER, MIDDLE, (1, 100)).is_some()
        };
        assert!(of(&many, 12 * 256));
        for window in 13..30 {
            lost_cpu(&mut many, window * 256, Span::from_millis(256), Span::from_millis(128));
        }
        assert!(!of(&many, 30 * 256), "{many:?}");
    }
}
