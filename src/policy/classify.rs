// SPDX-License-Identifier: GPL-2.0-only

//! Which [`Tier`] a task belongs to, from its name and from what the messages tell.
//!
//! What a message tells reliably is how long a task runs between two sleeps. A task that runs
//! briefly is waited for; one that runs for long wants throughput. The limits have a gap between
//! up and down, so that a task at the border does not change tier at every wake-up.

use crate::task::{Arrival, Cause, Comm, Tier};
use crate::time::Span;
use alloc::vec::Vec;

/// Programs that draw the screen: a late frame of theirs delays everybody's. A name matches when
/// it begins with one of these, so `kwin` covers `kwin_wayland`.
pub const COMPOSITORS: [&str; 10] = [
    "kwin",
    "gnome-shell",
    "mutter",
    "sway",
    "Hyprland",
    "picom",
    "weston",
    "labwc",
    "wayfire",
    "niri",
];
/// Most compositor names, the built-in ones included.
pub const COMPOSITORS_MAX: usize = 32;

/// Workqueue threads finish I/O that somebody waits for: never below Interactive.
const KWORKER: &[u8] = b"kworker/";

/// At most this long a run keeps a task LatCritical; below half of it a task becomes so. Chosen:
/// an audio period or an input event takes tens to hundreds of microseconds.
const LAT_CRITICAL_RUN: Span = Span::from_micros(1_000);
/// A run longer than this makes a task Batch; below half of it the task is Interactive again.
/// Derived: one frame at 60 Hz, so that a game's frame thread, which sleeps once a frame, never
/// comes out Batch.
const INTERACTIVE_RUN: Span = Span::from_micros(16_667);
/// Weight of the newest run in the average, as a fraction of this.
const AVERAGE_OVER: u64 = 4;

/// What is known of one task's behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habit {
    /// Its name when it was classified last.
    pub comm: Comm,
    /// Its tier.
    pub tier: Tier,
    /// How long it usually runs between two sleeps, in nanoseconds with no rounding to zero: the
    /// smallest steps of the average are a quarter of a nanosecond below anything measured.
    pub run: Span,
    /// CPU time since it last woke up.
    awake: Span,
    /// Whether it has been seen to sleep: until then `run` means nothing.
    slept: bool,
}

impl Habit {
    /// The longest run on record: the usual one, or the present one where it is longer already.
    /// For a task that never sleeps the present one is all there is.
    pub fn longest_run(&self) -> Span {
        self.run.max(self.awake)
    }

    /// A habit known from before.
    pub fn remembered(comm: Comm, tier: Tier, run: Span) -> Habit {
        Habit { comm, tier, run, awake: Span::ZERO, slept: true }
    }

    /// Takes in what a message says about the last run.
    fn observe(&mut self, arrival: &Arrival) {
        match arrival.cause {
            Cause::New => {}
            Cause::Requeue => self.awake = arrival.awake,
            Cause::Wakeup => {
                // The run that has ended: what earlier messages counted, and the last stint.
                let ended = self.awake + arrival.stint;
                self.run = if self.slept {
                    self.run.scale(AVERAGE_OVER - 1, AVERAGE_OVER) + ended.scale(1, AVERAGE_OVER)
                } else {
                    ended
                };
                self.slept = true;
                self.awake = Span::ZERO;
            }
        }
    }

    /// The tier that behaviour alone gives, starting from the present one.
    fn behaves(&self) -> Tier {
        if !self.slept {
            return if self.awake > INTERACTIVE_RUN { Tier::Batch } else { Tier::Interactive };
        }
        let run = self.longest_run();
        let half = |limit: Span| limit.scale(1, 2);
        match self.tier {
            _ if run > INTERACTIVE_RUN => Tier::Batch,
            _ if run <= half(LAT_CRITICAL_RUN) => Tier::LatCritical,
            Tier::LatCritical if run <= LAT_CRITICAL_RUN => Tier::LatCritical,
            Tier::Batch if run > half(INTERACTIVE_RUN) => Tier::Batch,
            _ => Tier::Interactive,
        }
    }
}

/// Decides tiers. Holds the names that the user added.
pub struct Classifier {
    compositors: Vec<Comm>,
}

impl Classifier {
    /// Knows the built-in compositors and `extra`, up to [`COMPOSITORS_MAX`] names together; what
    /// is beyond that is ignored.
    pub fn new(extra: &[Comm]) -> Self {
        let built_in = COMPOSITORS.iter().map(|name| Comm::from_text(name));
        let named = extra.iter().copied().filter(|name| !name.as_bytes().is_empty());
        Classifier { compositors: built_in.chain(named).take(COMPOSITORS_MAX).collect() }
    }

    /// Takes in an arrival of the task that `habit` belongs to and settles its tier.
    pub fn classify(&self, habit: &mut Habit, arrival: &Arrival) -> Tier {
        if arrival.cause == Cause::New && habit.comm != arrival.comm {
            // What was remembered over a restart belongs to a task of another name.
            *habit = Habit::default();
        }
        habit.observe(arrival);
        habit.comm = arrival.comm;
        let name = arrival.comm.as_bytes();
        // The first message tells nothing about behaviour, so what was remembered stands.
        let behaviour = if arrival.cause == Cause::New { habit.tier } else { habit.behaves() };
        habit.tier = if self.compositors.iter().any(|c| name.starts_with(c.as_bytes())) {
            Tier::LatCritical
        } else if name.starts_with(KWORKER) {
            behaviour.max(Tier::Interactive)
        } else {
            behaviour
        };
        habit.tier
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::task::{ENQ_WAKEUP, RawArrival};

    /// One task whose life is told by the messages that the kernel would send.
    struct Life {
        classifier: Classifier,
        habit: Habit,
        comm: Comm,
        ticket: u64,
    }

    impl Life {
        fn of(name: &str) -> Life {
            let classifier = Classifier::new(&[Comm::from_text("gamescope")]);
            let comm = Comm::from_text(name);
            let mut life = Life { classifier, habit: Habit::default(), comm, ticket: 0 };
            life.message(0, 0, 0);
            life
        }

        fn message(&mut self, flags: u64, stint_us: u64, awake_us: u64) -> Tier {
            self.ticket += 1;
            let raw = RawArrival {
                pid: 1,
                flags,
                stop_ts: stint_us * 1_000,
                exec_runtime: awake_us * 1_000,
                weight: 100,
                enq_cnt: self.ticket,
                ..Default::default()
            };
            let mut arrival = raw.decode().unwrap();
            arrival.comm = self.comm;
            self.classifier.classify(&mut self.habit, &arrival)
        }

        /// Runs for `us` in stints of up to 4 ms, then sleeps and wakes up.
        fn run(&mut self, us: u64) -> Tier {
            let mut ran = 0;
            while us - ran > 4_000 {
                ran += 4_000;
                self.message(0, 4_000, ran);
            }
            self.message(ENQ_WAKEUP, us - ran, 0)
        }

        fn settle(&mut self, us: u64) -> Tier {
            (0..20).map(|_| self.run(us)).last().unwrap()
        }
    }

    #[test]
    fn short_runs_are_latency_critical_and_long_ones_batch() {
        assert_eq!(Life::of("pipewire").settle(200), Tier::LatCritical);
        assert_eq!(Life::of("bash").settle(3_000), Tier::Interactive);
        assert_eq!(Life::of("xz").settle(60_000), Tier::Batch);
    }

    #[test]
    fn a_frame_thread_at_60_hz_is_never_batch() {
        for work in [1_500, 5_000, 10_000, 16_000] {
            assert_eq!(Life::of("game").settle(work), Tier::Interactive, "{work} us a frame");
        }
    }

    #[test]
    fn a_task_that_never_sleeps_becomes_batch_and_sleep_lifts_it_again() {
        let mut life = Life::of("hog");
        assert_eq!(life.message(0, 4_000, 4_000), Tier::Interactive);
        assert_eq!(life.message(0, 4_000, 20_000), Tier::Batch);
        life.message(ENQ_WAKEUP, 4_000, 0);
        assert_eq!(life.settle(2_000), Tier::Interactive);
    }

    #[test]
    fn a_task_at_the_border_does_not_flip() {
        let mut life = Life::of("border");
        life.settle(300);
        let tiers: std::vec::Vec<Tier> =
            (0..40).map(|i| life.run(if i % 2 == 0 { 450 } else { 700 })).collect();
        assert!(tiers.iter().all(|&tier| tier == Tier::LatCritical), "{tiers:?}");
        let mut life = Life::of("border");
        life.settle(60_000);
        assert!((0..40).all(|i| life.run(if i % 2 == 0 { 9_000 } else { 20_000 }) == Tier::Batch));
    }

    #[test]
    fn names_decide_before_behaviour_does() {
        assert_eq!(Life::of("kwin_wayland").settle(60_000), Tier::LatCritical);
        assert_eq!(Life::of("gamescope-wl").settle(60_000), Tier::LatCritical);
        assert_eq!(Life::of("kworker/u8:3").settle(60_000), Tier::Interactive);
        assert_eq!(Life::of("swa").settle(60_000), Tier::Batch);
    }

    #[test]
    fn an_empty_extra_name_does_not_match_everybody() {
        let classifier = Classifier::new(&[Comm::from_text("")]);
        assert_eq!(classifier.compositors.len(), COMPOSITORS.len());
    }
}
