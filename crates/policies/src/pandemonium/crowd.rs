// SPDX-License-Identifier: GPL-2.0-only

//! A crowd: urgent tasks that take most of the machine together.
//!
//! LatCritical comes before Interactive whenever it wakes up, which is right while its tasks want
//! little. Threads that pass messages in a ring without a pause want all they can get, and run
//! briefly each time. Beside such rings on two CPUs, a game of 60 Hz missed three frames of four.
//!
//! So the CPU time of all urgent tasks is added up. When it exceeds a part of the machine, those
//! that take most are *in the crowd*: at most Interactive, where they wait their turn beside the
//! game. If that is not enough, those that take half as much follow.
//!
//! In the crowd they take less, because they wait. That is no reason to be urgent again: on one CPU
//! a ring held up a game for 10 ms in each of its turns as LatCritical. So the crowd ends when it
//! has taken little for a second.

use super::batch_starvation::WINDOW;
use super::share::Share;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};

/// Urgent tasks that take more than this part of the machine are too many. Chosen: one ring that
/// fills one CPU of two leaves the other one to Interactive tasks.
const MOST: Share = Share::HALF;
/// The first tasks in the crowd take more than this share of a CPU. Chosen: four tasks in a ring.
const LIMIT_FIRST: Share = Share::one_in(4);
/// Tasks that take less than this share are never in the crowd. Chosen: below an audio client's
/// 3 %.
const LIMIT_LEAST: Share = Share::one_in(64);
/// The crowd ends after so many windows in which its tasks and the urgent ones are not too many.
const CALM_WINDOWS: u8 = 4;

/// The CPU time of urgent tasks in the current window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    cpus: u64,
    began: Stamp,
    /// CPU time of LatCritical tasks, and of those in the crowd.
    urgent: Span,
    crowd: Span,
    /// A task that takes more than this share of a CPU joins the crowd. `None` if there is no
    /// crowd.
    limit: Option<Share>,
    /// Windows since the last one in which there were too many.
    calm: u8,
}

impl Crowd {
    pub fn new(cpus: u32) -> Crowd {
        Crowd {
            cpus: cpus.into(),
            began: Stamp::default(),
            urgent: Span::ZERO,
            crowd: Span::ZERO,
            limit: None,
            calm: 0,
        }
    }

    /// Counts a message of a task that was of `tier`, perhaps because it was in the crowd, and ran
    /// for `ran` since the last one.
    pub fn on_message(&mut self, now: Stamp, tier: Tier, in_crowd: bool, ran: Span) {
        match tier {
            Tier::LatCritical => self.urgent += ran.min(WINDOW),
            Tier::Interactive if in_crowd => self.crowd += ran.min(WINDOW),
            _ => {}
        }
        let length = now.since(self.began);
        if length >= WINDOW {
            self.evaluate(length);
            (self.began, self.urgent, self.crowd) = (now, Span::ZERO, Span::ZERO);
        }
    }

    /// Evaluates a window. While the urgent tasks outside the crowd take too much, it grows.
    fn evaluate(&mut self, length: Span) {
        let most = MOST * Share::of_cpus(self.cpus);
        let too_much = |time: Span| Share::of_time(time, length) > most;
        let is_calm = !too_much(self.urgent + self.crowd);
        self.calm = if is_calm { self.calm.saturating_add(1) } else { 0 };
        let grown = |limit: Share| (Share::HALF * limit).max(LIMIT_LEAST);
        self.limit = match self.limit {
            limit if too_much(self.urgent) => Some(limit.map_or(LIMIT_FIRST, grown)),
            limit if self.calm < CALM_WINDOWS => limit,
            _ => None,
        };
    }

    /// Whether a task that takes `share` of a CPU is in the crowd. `before` is the previous result
    /// for this task.
    pub fn holds(&self, before: bool, share: Share) -> bool {
        self.limit.is_some_and(|limit| share > if before { LIMIT_LEAST } else { limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for `windows` windows in which LatCritical tasks and those in the crowd take so many
    /// hundredths of a CPU.
    fn pass(crowd: &mut Crowd, windows: u64, urgent: u64, others: u64) {
        for _ in 0..windows {
            let (began, end) = (crowd.began, crowd.began + WINDOW);
            let time = |hundredths| WINDOW.scale(hundredths, 100);
            crowd.on_message(began, Tier::Interactive, true, time(others));
            crowd.on_message(began, Tier::LatCritical, false, time(urgent / 2));
            crowd.on_message(end, Tier::LatCritical, false, time(urgent / 2));
        }
    }

    const QUARTER: Share = Share::of(26, 100);
    const TENTH: Share = Share::of(10, 100);
    const ALL: Share = Share::one_in(1);

    #[test]
    fn nobody_is_in_the_crowd_while_urgent_tasks_leave_half_of_the_machine() {
        let mut crowd = Crowd::new(2);
        pass(&mut crowd, 8, 99, 0);
        assert!(!crowd.holds(false, ALL));
    }

    #[test]
    fn those_that_take_most_come_first_and_others_follow() {
        let mut crowd = Crowd::new(2);
        pass(&mut crowd, 1, 120, 0);
        assert!(crowd.holds(false, QUARTER) && !crowd.holds(false, TENTH));
        assert!(crowd.holds(true, Share::of(2, 100)) && !crowd.holds(false, Share::of(2, 100)));
        pass(&mut crowd, 2, 120, 0);
        assert!(crowd.holds(false, TENTH));
        pass(&mut crowd, 8, 120, 0);
        assert!(!crowd.holds(false, Share::of(1, 100)));
    }

    #[test]
    fn the_crowd_ends_when_it_has_taken_little_for_a_second() {
        let mut crowd = Crowd::new(2);
        pass(&mut crowd, 1, 120, 0);
        pass(&mut crowd, 8, 30, 90);
        assert!(crowd.holds(false, QUARTER) && !crowd.holds(false, TENTH));
        // Its tasks wait for others.
        pass(&mut crowd, 3, 30, 20);
        assert!(crowd.holds(false, QUARTER) && crowd.holds(true, Share::of(2, 100)));
        pass(&mut crowd, 1, 30, 90);
        pass(&mut crowd, 3, 30, 20);
        assert!(crowd.holds(false, QUARTER));
        pass(&mut crowd, 1, 30, 20);
        assert!(!crowd.holds(true, ALL));
    }

    /// The first window begins with the clock, at the start of the machine.
    #[test]
    fn a_window_of_a_year_on_very_many_cpus_is_not_full() {
        let mut crowd = Crowd::new(1024);
        crowd.on_message(Stamp::from_nanos(1 << 55), Tier::LatCritical, false, WINDOW);
        assert!(!crowd.holds(false, ALL));
    }

    #[test]
    fn interactive_and_batch_tasks_do_not_count() {
        let mut crowd = Crowd::new(1);
        for window in 1..8 {
            let now = Stamp::from_nanos(window * WINDOW.as_nanos());
            crowd.on_message(now, Tier::Interactive, false, WINDOW);
            crowd.on_message(now, Tier::Batch, true, WINDOW);
        }
        assert!(!crowd.holds(false, ALL));
    }
}
