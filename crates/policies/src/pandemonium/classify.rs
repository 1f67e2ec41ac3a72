// SPDX-License-Identifier: GPL-2.0-only

//! Which [`Tier`] a task belongs to: by name where a name says all, by behaviour otherwise.
//!
//! ```text
//! score >= lat_cri_high -> LatCritical
//! score >= lat_cri_low  -> Interactive     a task of a tier stays until the score falls a quarter
//! below                 -> Batch           below the limit, so that the border is no swing door
//! ```
//!
//! The score knows how *often* a task wakes up; three rules know better in its blind spots. The
//! *frame floor*: a task that sleeps often enough to draw frames, or that only ever runs for a
//! moment, is never Batch. *Demotion*: a task that has used up its slices for longer than it
//! usually runs is Batch until it sleeps, whatever it was. The *kernel thread floor*: threads of
//! the kernel finish work that somebody waits for.

use super::behaviour::Behaviour;
use alloc::vec::Vec;
use pandemonium_engine::NAMES_MAX;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::task::{Arrival, Cause, Comm, Tier};
use pandemonium_engine::time::Span;

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
/// How a workqueue thread's name begins, for when there are no facts.
const KWORKER: &[u8] = b"kworker/";
/// A frame at 60 Hz: whoever runs no longer than this between two sleeps may be drawing one.
const FRAME: Span = Span::from_micros(16_667);
/// Wake-ups in 100 ms from which on a task may be drawing frames: 20 a second, below the 24 of
/// film.
const FRAME_FREQ: u64 = 2;

/// What of a task is settled until its next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classification {
    /// Its tier.
    pub tier: Tier,
    /// The tier that behaviour alone gives.
    pub behaves: Tier,
    /// What its name decides, if it does.
    pub named: Option<Tier>,
    /// It has used up its slices for so long that it counts as Batch until it sleeps.
    pub cpu_bound: bool,
    /// It takes what Batch work lacks ([`batch_starvation`](super::batch_starvation)), and so counts as Batch.
    pub over_share: bool,
}

/// Decides tiers. Holds the names that decide before behaviour does.
pub struct Classifier {
    /// Names that the user gave a tier.
    boosts: Vec<(Comm, Tier)>,
    compositors: Vec<Comm>,
}

impl Classifier {
    /// Knows `extra` and the built-in compositors, in this order, up to [`NAMES_MAX`] names
    /// together; what is beyond that is ignored.
    pub fn new(extra: &[(Comm, Tier)]) -> Self {
        let compositors: Vec<Comm> = COMPOSITORS.iter().map(|name| Comm::from_text(name)).collect();
        let named = extra.iter().copied().filter(|(name, _)| !name.as_bytes().is_empty());
        let boosts = named.take(NAMES_MAX - compositors.len()).collect();
        Classifier { boosts, compositors }
    }

    /// What a name decides. The user's word counts before ours.
    pub fn named(&self, comm: &Comm, knobs: &Knobs) -> Option<Tier> {
        let begins = |begin: &Comm| comm.as_bytes().starts_with(begin.as_bytes());
        let boost = self.boosts.iter().find(|(name, _)| begins(name)).map(|(_, tier)| *tier);
        let draws = || knobs.rules.compositors && self.compositors.iter().any(begins);
        boost.or_else(|| draws().then_some(Tier::LatCritical))
    }
}

/// Settles the tier of a task that has just sent `arrival` and behaves as seen. `used_up` tells
/// whether its last slice was used up, as far as that is known.
pub fn classify(
    before: &Classification,
    seen: &Behaviour,
    arrival: &Arrival,
    used_up: bool,
    knobs: &Knobs,
) -> Classification {
    let mut now = *before;
    match arrival.cause {
        Cause::New => {}
        Cause::Wakeup => {
            now.cpu_bound = false;
            if seen.speaks() {
                now.behaves = behaves(before.behaves, seen, knobs);
            }
        }
        Cause::Requeue => {
            let limit = usual_limit(seen, knobs);
            // Who is interrupted all the time never uses up a slice, and is no less a hog for that.
            let limit = if used_up { limit } else { limit.scale(2, 1) };
            now.cpu_bound |= seen.awake() > limit;
        }
    }
    let demoted = knobs.rules.cpu_bound_demotion && now.cpu_bound || now.over_share;
    let tier = match () {
        () if demoted => Tier::Batch,
        // A fork takes long, and what waits for it is a task that is Interactive itself.
        () if knobs.rules.classifier && seen.births() > 0 => now.behaves.min(Tier::Interactive),
        () if knobs.rules.classifier => now.behaves,
        () => Tier::Interactive,
    };
    now.tier = now.named.unwrap_or(match knobs.rules.kworker_floor && is_floored(arrival) {
        true => tier.max(Tier::Interactive),
        false => tier,
    });
    if loses_to_everyone(arrival) {
        now.tier = Tier::Batch;
    }
    now
}

/// The tier that behaviour gives, coming from `before`.
fn behaves(before: Tier, seen: &Behaviour, knobs: &Knobs) -> Tier {
    let score = seen.score();
    // Up at the limit, down a quarter below it.
    let reaches =
        |limit: u32, holds: bool| score >= if holds { limit - limit.div_ceil(4) } else { limit };
    match () {
        () if knobs.rules.cpu_bound_demotion && seen.is_fork_loop(before == Tier::Batch) => {
            Tier::Batch
        }
        () if reaches(knobs.lat_cri_high, before == Tier::LatCritical) => Tier::LatCritical,
        () if reaches(knobs.lat_cri_low, before >= Tier::Interactive) => Tier::Interactive,
        () if knobs.rules.frame_floor && may_draw(before, seen, knobs) => Tier::Interactive,
        () => Tier::Batch,
    }
}

/// Whether a task sleeps often enough to draw frames, or only ever runs for a moment.
fn may_draw(before: Tier, seen: &Behaviour, knobs: &Knobs) -> bool {
    let slack = |limit: Span| if before == Tier::Batch { limit } else { limit.scale(5, 4) };
    seen.run() <= slack(knobs.cpu_bound_thresh)
        || seen.wake_freq() >= FRAME_FREQ && seen.run() <= slack(FRAME)
}

/// How long a task may run without a sleep before it counts as CPU-bound: the knob, or twice its
/// usual run if that is a frame's length at most. So a game that computes for 10 ms a frame is not
/// demoted in the middle of every frame. One that has just begun gets four times the knob: a
/// program starts, and a shell forks, for longer than they run later. Each fork allows it another
/// knob: what a fork takes is spent for the child, and somebody waits for all of them.
fn usual_limit(seen: &Behaviour, knobs: &Knobs) -> Span {
    let limit = match seen.speaks() {
        true if seen.run() <= FRAME => seen.run().scale(2, 1).max(knobs.cpu_bound_thresh),
        true => knobs.cpu_bound_thresh,
        false => knobs.cpu_bound_thresh.scale(4, 1),
    };
    limit + knobs.cpu_bound_thresh.scale(seen.births(), 1)
}

/// Workqueue threads, and other threads of the kernel that nobody made nice. By facts, else by
/// name.
fn is_floored(arrival: &Arrival) -> bool {
    match &arrival.facts {
        Some(facts) => facts.workqueue || facts.kthread && facts.nice <= 0,
        None => arrival.comm.as_bytes().starts_with(KWORKER),
    }
}

/// SCHED_IDLE and nice 19, which the kernel both maps to the lowest weight there is.
fn loses_to_everyone(arrival: &Arrival) -> bool {
    arrival.weight.get() == 1
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::facts::Facts;
    use pandemonium_engine::task::{RawArrival, Weight};
    use pandemonium_engine::time::Stamp;

    /// One task whose life is told by the messages that the kernel would send.
    struct Life {
        knobs: Knobs,
        seen: Behaviour,
        classification: Classification,
        arrival: Arrival,
        now: Stamp,
    }

    impl Life {
        fn of(name: &str) -> Life {
            Life::under(name, Knobs::default())
        }

        fn under(name: &str, knobs: Knobs) -> Life {
            let classifier = Classifier::new(&[
                (Comm::from_text("gamescope"), Tier::LatCritical),
                (Comm::from_text("sshd"), Tier::Interactive),
                (Comm::from_text("swaybg"), Tier::Batch),
            ]);
            let raw = RawArrival { pid: 1, weight: 100, enq_cnt: 2, ..Default::default() };
            let arrival = Arrival { comm: Comm::from_text(name), ..raw.decode().unwrap() };
            let named = classifier.named(&arrival.comm, &knobs);
            let classification = Classification { named, ..Classification::default() };
            let now = Stamp::from_nanos(1 << 40);
            Life { knobs, seen: Behaviour::default(), classification, arrival, now }
        }

        fn message(&mut self, cause: Cause, ran_us: u64, awake_us: u64) -> Tier {
            let awake = Span::from_micros(awake_us);
            let arrival = Arrival { cause, awake, ..self.arrival };
            let ran = Span::from_micros(ran_us);
            self.seen.observe(self.now, &arrival, ran);
            let used_up = ran_us >= 1_000;
            self.classification =
                classify(&self.classification, &self.seen, &arrival, used_up, &self.knobs);
            self.classification.tier
        }

        /// Runs for `us` in run intervals of up to 1 ms, then sleeps until `period_us` after the last
        /// wake-up, and wakes up.
        fn cycle(&mut self, us: u64, period_us: u64) -> Tier {
            let mut ran = 0;
            while us - ran > 1_000 {
                ran += 1_000;
                self.message(Cause::Requeue, 1_000, ran);
            }
            self.now = self.now + Span::from_micros(period_us);
            self.message(Cause::Wakeup, us - ran, 0)
        }

        fn settle(&mut self, us: u64, period_us: u64) -> Tier {
            (0..40).map(|_| self.cycle(us, period_us)).last().unwrap()
        }
    }

    #[test]
    fn a_person_s_expectations_are_met() {
        for (name, run_us, period_us, tier) in [
            ("pipewire", 200, 5_000, Tier::LatCritical),
            ("mouse", 50, 8_000, Tier::LatCritical),
            ("game at 144 Hz", 3_000, 6_944, Tier::LatCritical),
            ("bash", 300, 200_000, Tier::Interactive),
            ("clock", 100, 1_000_000, Tier::Interactive),
            ("browser", 8_000, 40_000, Tier::Interactive),
            ("xz", 60_000, 61_000, Tier::Batch),
            ("backup", 20_000, 500_000, Tier::Batch),
        ] {
            assert_eq!(Life::of(name).settle(run_us, period_us), tier, "{name}");
        }
    }

    #[test]
    fn a_frame_thread_at_60_hz_is_never_batch_not_even_in_the_middle_of_a_frame() {
        for work in [1_500, 5_000, 10_000, 15_000] {
            let mut life = Life::of("game");
            life.settle(work, 16_667);
            for ran in 1..=work / 1_000 {
                let tier = life.message(Cause::Requeue, 1_000, ran * 1_000);
                assert!(tier >= Tier::Interactive, "{ran} of {work} us");
            }
        }
    }

    #[test]
    fn a_task_that_never_sleeps_becomes_batch_and_sleep_lifts_it_again() {
        let mut life = Life::of("hog");
        assert_eq!(life.message(Cause::New, 0, 0), Tier::Interactive);
        assert_eq!(life.message(Cause::Requeue, 1_000, 1_000), Tier::Interactive);
        assert_eq!(life.message(Cause::Requeue, 1_000, 9_000), Tier::Interactive, "it starts");
        assert_eq!(life.message(Cause::Requeue, 1_000, 11_000), Tier::Batch);
        assert_eq!(life.message(Cause::Requeue, 100, 11_100), Tier::Batch);
        assert_eq!(life.settle(2_000, 100_000), Tier::Interactive);
    }

    #[test]
    fn who_bears_children_is_not_demoted_for_what_that_takes() {
        let mut life = Life::of("make");
        life.settle(500, 100_000);
        for born in 1..=8 {
            life.seen.note_fork();
            let tier = life.message(Cause::Requeue, 1_000, born * 2_000);
            assert_eq!(tier, Tier::Interactive, "{born}");
        }
        assert_eq!(life.message(Cause::Requeue, 1_000, 23_000), Tier::Batch, "it computes");
        life.settle(500, 100_000);
        assert_eq!(life.message(Cause::Requeue, 1_000, 3_000), Tier::Batch, "they are forgotten");
    }

    #[test]
    fn a_shell_that_forks_by_the_dozen_is_no_hog() {
        let mut life = Life::of("make");
        for _ in 0..20 {
            (0..12).for_each(|_| life.seen.note_fork());
            life.cycle(9_000, 100_000);
        }
        assert_eq!(life.classification.tier, Tier::Interactive);
        assert_eq!(life.settle(9_000, 100_000), Tier::Batch, "it computes");
    }

    /// The same forks, further and further apart.
    #[test]
    fn who_does_nothing_but_fork_is_batch_until_it_does_so_less() {
        let mut life = Life::of("loop");
        let mut fork = |period_us| {
            life.seen.note_fork();
            life.cycle(700, period_us)
        };
        let tiers: Vec<Tier> = (0..400).map(|_| fork(1_100)).collect();
        assert!(tiers[..100].iter().all(|tier| *tier > Tier::Batch), "a tenth of a second");
        assert!(tiers[300..].iter().all(|tier| *tier == Tier::Batch));
        let slower = |period_us, fork: &mut dyn FnMut(u64) -> Tier| {
            (0..800).map(|_| fork(period_us)).last().unwrap()
        };
        assert_eq!(slower(3_500, &mut fork), Tier::Batch, "a fifth, as it gets beside hogs");
        assert!(slower(5_000, &mut fork) > Tier::Batch, "a seventh");
        assert!(slower(2_200, &mut fork) > Tier::Batch, "it stays");
    }

    #[test]
    fn a_parent_is_not_more_critical_than_its_children() {
        let mut life = Life::of("server");
        assert_eq!(life.settle(300, 5_000), Tier::LatCritical);
        assert_eq!(life.message(Cause::Requeue, 300, 300), Tier::LatCritical);
        life.seen.note_fork();
        assert_eq!(life.message(Cause::Requeue, 300, 600), Tier::Interactive);
        assert_eq!(life.settle(300, 5_000), Tier::LatCritical, "when it has slept");
    }

    /// Who is interrupted in the middle of each slice never uses one up, and is a hog all the same.
    #[test]
    fn who_is_interrupted_is_demoted_later() {
        let mut life = Life::of("interrupted");
        life.message(Cause::New, 0, 0);
        assert_eq!(life.message(Cause::Requeue, 300, 19_000), Tier::Interactive);
        assert_eq!(life.message(Cause::Requeue, 300, 21_000), Tier::Batch);
    }

    /// A score that swings between 28 and 36 crosses the limit of 32 every time.
    #[test]
    fn a_task_at_the_border_does_not_flip() {
        let mut life = Life::of("border");
        assert_eq!(life.settle(200, 15_000), Tier::LatCritical);
        let tiers: Vec<Tier> =
            (0..60).map(|n| life.cycle(200, if n % 20 < 10 { 19_000 } else { 16_500 })).collect();
        assert!(tiers.iter().all(|tier| *tier == Tier::LatCritical), "{tiers:?}");
        let mut life = Life::of("border");
        assert_eq!(life.settle(200, 25_000), Tier::Interactive);
        assert!((0..60).all(|n| {
            life.cycle(200, if n % 20 < 10 { 19_000 } else { 18_000 }) == Tier::Interactive
        }));
    }

    #[test]
    fn names_decide_before_behaviour_does() {
        let settle = |name| Life::of(name).settle(60_000, 61_000);
        assert_eq!(settle("kwin_wayland"), Tier::LatCritical);
        assert_eq!(settle("gamescope-wl"), Tier::LatCritical);
        assert_eq!(settle("sshd-session"), Tier::Interactive);
        assert_eq!(settle("sway"), Tier::LatCritical);
        assert_eq!(settle("swaybg"), Tier::Batch, "the user's word is before ours");
        assert_eq!(settle("swa"), Tier::Batch);
    }

    #[test]
    fn threads_of_the_kernel_are_at_least_interactive() {
        let settle = |facts: Option<Facts>, name| {
            let mut life = Life::of(name);
            life.arrival.facts = facts;
            // Facts that stand still count no wake-ups: only the floor is asked here.
            life.classification.behaves = Tier::Batch;
            life.message(Cause::Requeue, 4_000, 60_000)
        };
        let kthread = Facts { kthread: true, ..Facts::default() };
        assert_eq!(settle(None, "kworker/u8:3"), Tier::Interactive);
        assert_eq!(settle(None, "kworkerish"), Tier::Batch);
        assert_eq!(settle(Some(kthread), "rcu_preempt"), Tier::Interactive);
        assert_eq!(settle(Some(Facts { nice: 5, ..kthread }), "ksmd"), Tier::Batch);
        let workqueue = Facts { workqueue: true, nice: 5, ..kthread };
        assert_eq!(settle(Some(workqueue), "renamed"), Tier::Interactive);
        assert_eq!(settle(Some(Facts::default()), "kworker/fake"), Tier::Batch, "facts know");
    }

    #[test]
    fn the_lowest_weight_is_batch_whatever_its_name() {
        let mut life = Life::of("kwin_wayland");
        life.arrival.weight = Weight::new(1);
        assert_eq!(life.settle(200, 5_000), Tier::Batch);
    }

    #[test]
    fn every_rule_can_be_switched_off() {
        let without = |change: fn(&mut Knobs)| {
            let mut knobs = Knobs::default();
            change(&mut knobs);
            knobs
        };
        let off = without(|knobs| knobs.rules.classifier = false);
        assert_eq!(Life::under("pipewire", off).settle(200, 5_000), Tier::Interactive);
        let off = without(|knobs| knobs.rules.compositors = false);
        assert_eq!(Life::under("kwin_x11", off).settle(60_000, 61_000), Tier::Batch);
        assert_eq!(Life::under("gamescope", off).settle(60_000, 61_000), Tier::LatCritical);
        let off = without(|knobs| knobs.rules.frame_floor = false);
        assert_eq!(Life::under("browser", off).settle(8_000, 40_000), Tier::Batch);
        let off = without(|knobs| knobs.rules.cpu_bound_demotion = false);
        assert_eq!(
            Life::under("hog", off).message(Cause::Requeue, 19_000, 19_000),
            Tier::Interactive
        );
        let off = without(|knobs| knobs.rules.kworker_floor = false);
        assert_eq!(Life::under("kworker/0:1", off).settle(60_000, 61_000), Tier::Batch);
    }

    #[test]
    fn an_empty_name_does_not_match_everybody_and_too_many_are_cut() {
        let classifier = Classifier::new(&[(Comm::from_text(""), Tier::LatCritical)]);
        assert_eq!(classifier.named(&Comm::from_text("anybody"), &Knobs::default()), None);
        let many = std::vec![(Comm::from_text("x"), Tier::Batch); 200];
        let names = Classifier::new(&many);
        assert_eq!(names.boosts.len() + names.compositors.len(), NAMES_MAX);
    }
}
