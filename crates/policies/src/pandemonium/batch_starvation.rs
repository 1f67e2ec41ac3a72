// SPDX-License-Identifier: GPL-2.0-only

//! Batch work that starves, and who takes its share.
//!
//! Rescues bound how long a Batch task waits, not how long it may run then: beside tasks that wake
//! up every few microseconds it is interrupted before it has done anything. A pair that hands a
//! byte to and fro on one CPU left a hog 1 % of what it has under the kernel's own scheduler. So
//! what Batch gets is compared with what it waits, and while it starves, whoever above Batch takes
//! more than a part of a fair share is Batch too: *hoarders* then share the machine by virtual
//! time, as the hogs do. Who is urgent and takes little, as sound does, remains what it is.

use pandemonium_engine::task::{Cause, Tier};
use pandemonium_engine::time::{Span, Stamp};

/// What Batch gets is judged over this time. Chosen: several rescues long, and short against what
/// a person calls a standstill.
const WINDOW: Span = Span::from_millis(256);
/// No Batch task of ordinary weight waits for longer, since rescues come after 500 ms at most. Who
/// has not told anything for hours has run alone, which says nothing about this window.
const SINCE_MAX: Span = Span::from_millis(1_024);
/// Batch starves if it gets less than a fair share divided by this. Chosen: who is urgent may have
/// most of the machine for as long as something remains.
const STARVED: u64 = 8;
/// From a fair share divided by this on a task uses more than its share, and until it takes half of that. Chosen:
/// together, four of them take a fair share.
const HOARD: u64 = 4;

/// What all Batch tasks got, and what they waited for, since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStarvation {
    cpus: u64,
    began: Stamp,
    ran: Span,
    waited: Span,
    /// Whether the window before this one was one of Batch starvation, and how many wanted a CPU then.
    starves: bool,
    crowd: u64,
}

impl BatchStarvation {
    pub fn new(cpus: u32) -> BatchStarvation {
        let cpus = cpus.into();
        BatchStarvation {
            cpus,
            began: Stamp::default(),
            ran: Span::ZERO,
            waited: Span::ZERO,
            starves: false,
            crowd: cpus,
        }
    }

    /// Takes in a message of a task that was of `tier`. If it is one of Batch that has lost its
    /// CPU, it has wanted one for all the time since its message before, and `ran` for a part.
    pub fn on_message(&mut self, now: Stamp, tier: Tier, cause: Cause, since: Span, ran: Span) {
        if tier != Tier::Batch || cause != Cause::Requeue {
            return;
        }
        let length = now.since(self.began);
        let (since, ran) = (since.min(SINCE_MAX), ran.min(SINCE_MAX));
        self.ran += ran;
        self.waited += since - ran;
        if length >= WINDOW {
            self.judge(length);
            (self.began, self.ran, self.waited) = (now, Span::ZERO, Span::ZERO);
        }
    }

    /// On average there were as many Batch tasks as they spent time together (Little's law), and at
    /// worst others on all CPUs.
    fn judge(&mut self, length: Span) {
        let wanted = self.ran + self.waited;
        self.crowd = self.cpus + wanted.as_nanos() / length.as_nanos().max(1);
        // Less waiting than that is no Batch starvation, however little was run.
        let long = self.waited >= WINDOW.scale(1, 2);
        self.starves = long && !self.exceeds(self.ran.as_nanos(), wanted.as_nanos(), STARVED);
    }

    /// Whether `taken` of `whole` is more than a fair share divided by `parts`.
    fn exceeds(&self, taken: u64, whole: u64, parts: u64) -> bool {
        let [taken, whole, crowd, cpus] = [taken, whole, self.crowd, self.cpus].map(u128::from);
        taken * crowd * u128::from(parts) > whole * cpus
    }

    /// Whether Batch starves. That it did once is forgotten when none of it comes any more.
    fn active(&self, now: Stamp) -> bool {
        self.starves && now.since(self.began) < WINDOW.scale(2, 1)
    }

    /// Whether a task that takes `taken` of `whole`, a CPU's time, uses more than its share; `before` is what this
    /// was the last time.
    pub fn over_share(&self, now: Stamp, before: bool, (taken, whole): (u64, u64)) -> bool {
        let parts = if before { 2 * HOARD } else { HOARD };
        (before || self.active(now)) && self.exceeds(taken, whole, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: (u64, u64) = (1, 2);

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos((1 << 40) + ms * 1_000_000)
    }

    fn lost_cpu(batch_starvation: &mut BatchStarvation, ms: u64, since: Span, ran: Span) {
        batch_starvation.on_message(at(ms), Tier::Batch, Cause::Requeue, since, ran);
    }

    /// A second on one CPU in which a Batch task runs for so long out of every 20 ms.
    fn second_of(ran: Span) -> BatchStarvation {
        let mut batch_starvation = BatchStarvation::new(1);
        for turn in 0..50 {
            lost_cpu(&mut batch_starvation, turn * 20, Span::from_millis(20), ran);
        }
        batch_starvation
    }

    #[test]
    fn an_eighth_of_a_fair_share_is_no_famine() {
        // Two want the CPU, so a fair share is 10 ms.
        assert!(second_of(Span::from_micros(20)).active(at(1_000)));
        assert!(second_of(Span::from_micros(1_200)).active(at(1_000)));
        assert!(!second_of(Span::from_micros(1_300)).active(at(1_000)));
    }

    #[test]
    fn waits_for_a_moment_are_no_famine() {
        let mut batch_starvation = BatchStarvation::new(1);
        for turn in 0..50 {
            lost_cpu(&mut batch_starvation, turn * 20, Span::from_millis(1), Span::ZERO);
        }
        assert!(!batch_starvation.active(at(1_000)));
    }

    #[test]
    fn who_is_urgent_or_has_slept_does_not_starve() {
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
    fn a_crowd_of_hogs_is_no_famine() {
        let mut batch_starvation = BatchStarvation::new(2);
        for turn in 0..1_000 {
            lost_cpu(&mut batch_starvation, turn * 2, Span::from_millis(128), Span::from_millis(4));
        }
        assert!(!batch_starvation.active(at(2_000)));
    }

    #[test]
    fn a_hog_that_ran_alone_for_years_is_no_crowd() {
        let mut batch_starvation = second_of(Span::ZERO);
        let years = Span::from_millis(100_000_000_000);
        lost_cpu(&mut batch_starvation, 1_000, years, years);
        lost_cpu(&mut batch_starvation, 1_300, Span::ZERO, Span::ZERO);
        assert!(batch_starvation.crowd < 8, "{batch_starvation:?}");
    }

    #[test]
    fn a_famine_ends_with_the_last_batch_task() {
        let batch_starvation = second_of(Span::ZERO);
        assert!(batch_starvation.active(at(1_000)));
        assert!(!batch_starvation.active(at(2_000)));
    }

    #[test]
    fn who_takes_little_does_not_hoard() {
        let batch_starvation = second_of(Span::ZERO);
        let now = at(1_000);
        assert!(batch_starvation.over_share(now, false, HALF));
        assert!(!batch_starvation.over_share(now, false, (1, 9)));
        assert!(batch_starvation.over_share(now, true, (1, 9)));
        assert!(!batch_starvation.over_share(now, true, (1, 17)));
    }

    #[test]
    fn without_famine_nobody_begins_to_hoard() {
        let batch_starvation = second_of(Span::from_millis(10));
        assert!(!batch_starvation.over_share(at(1_000), false, HALF));
        assert!(batch_starvation.over_share(at(1_000), true, HALF));
    }
}
