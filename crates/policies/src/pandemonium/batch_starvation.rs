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

use super::share::Share;
use pandemonium_engine::task::{Cause, Tier};
use pandemonium_engine::time::{Span, Stamp};

/// The window over which Batch's CPU time is measured. Chosen: longer than several rescues, and
/// shorter than a user takes to call a program frozen.
pub(super) const WINDOW: Span = Span::from_millis(256);
/// The longest time between two messages that counts. No Batch task of ordinary weight waits
/// longer, because rescues come after 500 ms at most. A task without a message for hours ran alone,
/// which is no information about this window.
const SINCE_MAX: Span = Span::from_millis(1_024);
/// Batch starves if it gets no more than this part of a fair share. Chosen: urgent tasks may use
/// most of the machine as long as some of it remains for Batch.
const STARVING: Share = Share::one_in(8);
/// Tasks that each take little starve Batch if together they take more than this part of the
/// machine.
const MOST: Share = Share::HALF;

/// Very many are more than this many for each CPU. Chosen: as many as no desktop has busy at once.
const VERY_MANY: u64 = 16;
/// The first of very many tasks to become over share take more than this share of a CPU: the
/// average of so many.
const LIMIT_OF_MANY_FIRST: Share = Share::one_in(VERY_MANY);
/// A task that takes less than this share of a CPU never is over share as one of very many. Chosen:
/// 0.2 %, far above a clock on the screen.
const LIMIT_OF_MANY_LEAST: Share = Share::one_in(500);

/// The part of a fair share above which a task becomes over share: the whole in the first window in
/// which Batch starves, a half in the second, a quarter from the third on. A task stays over share
/// down to half of a quarter while Batch starves, and afterwards down to half of its own part.
/// Chosen: four tasks that take a quarter each together use a fair share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole = 1,
    Half = 2,
    Quarter = 4,
}

impl Part {
    /// That of the next window in which Batch starves.
    fn next(self) -> Part {
        match self {
            Part::Whole => Part::Half,
            Part::Half | Part::Quarter => Part::Quarter,
        }
    }

    /// This part of `fair`.
    fn of(self, fair: Share) -> Share {
        Share::one_in(self as u64) * fair
    }
}

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
    /// The share of a CPU that the task takes lately.
    pub share: Share,
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
    /// While Batch starves, a task that takes more than this part of a fair share becomes over
    /// share. `None` if Batch did not starve in the last window.
    part: Option<Part>,
    /// While very many tasks starve Batch, one that takes more than this share of a CPU becomes
    /// over share, however small that is beside a fair share. `None` if they do not.
    limit_of_many: Option<Share>,
    /// How many tasks contended for the CPUs in the last window.
    contenders: u64,
}

impl BatchStarvation {
    pub fn new(cpus: u32) -> BatchStarvation {
        let cpus = cpus.into();
        let window = Window::default();
        BatchStarvation { cpus, window, part: None, limit_of_many: None, contenders: cpus }
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
            _ if message.share > Part::Quarter.of(self.fair_share()) => {}
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
        let starves = waited_long && Share::of_time(ran, wanted) <= STARVING * self.fair_share();
        let lowered = |limit: Share| limit.less_a_third().max(LIMIT_OF_MANY_LEAST);
        self.limit_of_many = match (starves, self.limit_of_many) {
            (true, limit) if self.is_starved_by_many(length) => {
                Some(limit.map_or(LIMIT_OF_MANY_FIRST, lowered))
            }
            (true, limit) => limit,
            (false, Some(limit)) if limit < LIMIT_OF_MANY_FIRST => Some(limit.plus_a_third()),
            (false, _) => None,
        };
        self.part = starves.then(|| self.part.map_or(Part::Whole, Part::next));
    }

    /// Whether very many tasks that take little each take more than half of the machine, although
    /// those that take more are over share.
    fn is_starved_by_many(&self, length: Span) -> bool {
        let Window { small, small_ran, .. } = self.window;
        let take_most = Share::of_time(small_ran, length) > MOST * Share::of_cpus(self.cpus);
        take_most && small > VERY_MANY * self.cpus && self.part == Some(Part::Quarter)
    }

    /// The share of a CPU that each contender would have if all had the same.
    fn fair_share(&self) -> Share {
        Share::of(self.cpus, self.contenders)
    }

    /// Whether Batch starves. The result expires when no Batch task sends messages any more.
    fn active(&self, now: Stamp) -> bool {
        self.part.is_some() && now.since(self.window.began) < WINDOW.scale(2, 1)
    }

    /// Whether a task of this tier that takes `share` of a CPU is over share, and above which part
    /// of a fair share it became so. `before` is the previous result for this task: it stays over
    /// share down to half of the limits.
    pub fn over_share(
        &self,
        now: Stamp,
        before: Option<Part>,
        tier: Tier,
        share: Share,
    ) -> Option<Part> {
        let active = self.active(now);
        let (part, down_to) = match before {
            None => (self.part, Share::of_cpus(1)),
            Some(_) if active => (Some(Part::Quarter), Share::HALF),
            Some(part) => (Some(part), Share::HALF),
        };
        let exceeds = |limit: Option<Share>| limit.is_some_and(|limit| share > down_to * limit);
        let is_one_of_many = tier != Tier::LatCritical && exceeds(self.limit_of_many);
        let limit = part.map(|part| part.of(self.fair_share()));
        let takes_much = share >= little(tier) && exceeds(limit);
        let is_over = (before.is_some() || active) && (takes_much || is_one_of_many);
        before.or(self.part).filter(|_| is_over)
    }
}

/// A task that takes less than this share of a CPU is over share as one of very many only, since
/// among thousands of tasks a fair share is less than what a clock on the screen takes.
///
/// Chosen: 2 %, and for LatCritical tasks 12.5 %, as audio and input are not why Batch starves, and
/// [`crowd`](super::crowd) lowers those that together take much.
const fn little(tier: Tier) -> Share {
    match tier {
        Tier::LatCritical => Share::one_in(8),
        Tier::Interactive | Tier::Batch => Share::one_in(50),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const HALF: Share = Share::HALF;
    const QUARTER: Option<Part> = Some(Part::Quarter);
    const MIDDLE: Tier = Tier::Interactive;

    fn percent(hundredths: u64) -> Share {
        Share::of(hundredths, 100)
    }

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos((1 << 40) + ms * 1_000_000)
    }

    fn message(tier: Tier, cause: Cause, since: Span, ran: Span) -> Use {
        Use { tier, cause, since, ran, share: Share::of(0, 1) }
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
        assert!(batch_starvation.over_share(now, None, MIDDLE, Share::one_in(9)).is_none());
        assert!(batch_starvation.over_share(now, QUARTER, MIDDLE, Share::one_in(9)).is_some());
        assert!(batch_starvation.over_share(now, QUARTER, MIDDLE, Share::one_in(17)).is_none());
    }

    #[test]
    fn those_that_take_most_are_over_share_first() {
        let mut batch_starvation = BatchStarvation::new(1);
        lost_cpu(&mut batch_starvation, 0, Span::ZERO, Span::ZERO);
        let mut enter = Vec::new();
        for window in 1..=4 {
            lost_cpu(&mut batch_starvation, window * 256, Span::from_millis(256), Span::ZERO);
            let now = at(window * 256);
            let of = |hundredths| {
                batch_starvation.over_share(now, None, MIDDLE, percent(hundredths)).is_some()
            };
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
        let over_share = |tier, thousandths| {
            let share = Share::of(thousandths, 1_000);
            batch_starvation.over_share(at(1_000), QUARTER, tier, share).is_some()
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
        for (part, least) in [(Part::Whole, 25), (Part::Half, 12), (Part::Quarter, 6)] {
            let over_share =
                |share| batch_starvation.over_share(at(1_000), Some(part), MIDDLE, share).is_some();
            let [above, at_limit] = [least + 1, least].map(percent);
            assert!(over_share(above) && !over_share(at_limit), "{part:?}");
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
                let it = Use {
                    share: Share::one_in(number),
                    ..message(MIDDLE, Cause::Wakeup, WINDOW, ran)
                };
                batch_starvation.on_message(at(end - 1), &it);
            }
            lost_cpu(&mut batch_starvation, end, Span::from_millis(256), Span::ZERO);
        }
        batch_starvation
    }

    #[test]
    fn of_very_many_tasks_those_that_take_most_become_over_share() {
        let late = at(12 * 256);
        let few = beside_many(VERY_MANY, 12);
        assert!(few.over_share(late, None, MIDDLE, percent(1)).is_none(), "{few:?}");
        for (windows, over) in [(3, [false; 3]), (5, [true, false, false]), (12, [true; 3])] {
            let many = beside_many(200, windows);
            let now = at(windows * 256);
            let of = |share| many.over_share(now, None, MIDDLE, share).is_some();
            assert_eq!([6, 2, 1].map(percent).map(of), over, "{many:?}");
            assert!(many.over_share(now, None, Tier::LatCritical, percent(6)).is_none());
        }
        let least = beside_many(200, 40);
        let little = Share::one_in(600);
        assert!(least.over_share(at(40 * 256), None, MIDDLE, little).is_none());
    }

    #[test]
    fn the_limit_for_very_many_tasks_rises_when_batch_no_longer_starves() {
        let mut many = beside_many(200, 12);
        let of = |many: &BatchStarvation, end| {
            many.over_share(at(end), QUARTER, MIDDLE, percent(1)).is_some()
        };
        assert!(of(&many, 12 * 256));
        for window in 13..30 {
            lost_cpu(&mut many, window * 256, Span::from_millis(256), Span::from_millis(128));
        }
        assert!(!of(&many, 30 * 256), "{many:?}");
    }
}
