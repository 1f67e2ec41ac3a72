// SPDX-License-Identifier: GPL-2.0-only

//! The [`Tier`] of a task: by its name if the name is listed, else by its behaviour.
//!
//! ```text
//! score >= lat_cri_high -> LatCritical
//! score >= lat_cri_low  -> Interactive     a task keeps its tier until the score is a quarter
//! below                 -> Batch           below the limit, so that it does not flip at the limit
//! ```
//!
//! The score depends mostly on how *often* a task wakes up. Three rules correct it:
//!
//! - *Frame floor*: a task that sleeps as often as frames are drawn, or has only short runs, is
//!   never Batch.
//! - *Demotion*: a task that has used up its slices for longer than it usually runs is Batch until
//!   it sleeps.
//! - *Kernel thread floor*: kernel threads are never below Interactive, because other tasks wait
//!   for their work.

use super::behaviour::{Behaviour, FRAME};
use crate::knobs::Knobs;
use alloc::vec::Vec;
use pandemonium_engine::NAMES_MAX;
use pandemonium_engine::task::{Arrival, Cause, Comm, Tier};
use pandemonium_engine::time::Span;

/// Programs that draw the screen: a late frame of theirs delays the frames of all programs. A name
/// matches if it begins with one of these, so `kwin` covers `kwin_wayland`.
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
/// The prefix of a workqueue thread's name, for messages without facts.
const KWORKER: &[u8] = b"kworker/";
/// From this many wakeups in 100 ms on a task may be drawing frames: 20 a second, below the 24 of
/// film.
const FRAME_FREQ: u64 = 2;

/// The classification of a task, which is valid until its next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classification {
    /// Its tier.
    pub tier: Tier,
    /// The tier by behaviour alone.
    pub behaves: Tier,
    /// The tier by name, if the name is listed.
    pub named: Option<Tier>,
    /// It has used up its slices for so long that it is Batch until it sleeps.
    pub cpu_bound: bool,
    /// It uses more than its share while Batch starves
    /// ([`batch_starvation`](super::batch_starvation)), so it is Batch.
    pub over_share: bool,
    /// The number of the treatment that the user demands for its process; 0 for none.
    pub treatment: u8,
}

/// The names that decide a task's tier before its behaviour does.
pub struct Classifier {
    /// Names with a tier chosen by the user.
    boosts: Vec<(Comm, Tier)>,
    compositors: Vec<Comm>,
}

impl Classifier {
    /// With the names in `extra` and the built-in compositors, together up to [`NAMES_MAX`].
    /// Further names of `extra` are ignored.
    pub fn new(extra: &[(Comm, Tier)]) -> Self {
        let compositors: Vec<Comm> = COMPOSITORS.iter().map(|name| Comm::from_text(name)).collect();
        let named = extra.iter().copied().filter(|(name, _)| !name.as_bytes().is_empty());
        let boosts = named.take(NAMES_MAX - compositors.len()).collect();
        Classifier { boosts, compositors }
    }

    /// The tier by name. The user's names come before the built-in ones.
    pub fn named(&self, comm: &Comm, knobs: &Knobs) -> Option<Tier> {
        let begins = |prefix: &Comm| comm.as_bytes().starts_with(prefix.as_bytes());
        let boost = self.boosts.iter().find(|(name, _)| begins(name)).map(|(_, tier)| *tier);
        let draws = || knobs.rules.compositors && self.compositors.iter().any(begins);
        boost.or_else(|| draws().then_some(Tier::LatCritical))
    }
}

/// Classifies a task after its message `arrival`. `seen` is its behaviour. `rested` says whether
/// the task has slept as long as it ran before. `used_up` says whether it used up its last slice,
/// as far as that is known.
pub fn classify(
    before: &Classification,
    seen: &Behaviour,
    arrival: &Arrival,
    rested: bool,
    used_up: bool,
    knobs: &Knobs,
) -> Classification {
    let mut now = *before;
    match arrival.cause {
        Cause::New => {}
        Cause::Wakeup => {
            now.cpu_bound = false;
            if seen.is_known() {
                now.behaves = behaves(before.behaves, seen, knobs);
            }
            if rested && knobs.rules.rested && !is_fork_loop(before.behaves, seen, knobs) {
                now.behaves = now.behaves.max(Tier::Interactive);
            }
        }
        Cause::Requeue => {
            let limit = usual_limit(seen, knobs);
            // A task that is often preempted never uses up a slice, but can be a hog all the same.
            let limit = if used_up { limit } else { limit.scale(2, 1) };
            now.cpu_bound |= seen.awake() > limit;
        }
    }
    let demoted = knobs.rules.cpu_bound_demotion && now.cpu_bound || now.over_share;
    let tier = match () {
        () if demoted => Tier::Batch,
        // A fork takes long, and its child starts as Interactive, so the parent is no more urgent.
        () if knobs.rules.classifier && seen.forks() > 0 => now.behaves.min(Tier::Interactive),
        () if knobs.rules.classifier => now.behaves,
        () => Tier::Interactive,
    };
    now.tier = now.named.unwrap_or(match knobs.rules.kworker_floor && is_floored(arrival) {
        true => tier.max(Tier::Interactive),
        false => tier,
    });
    if has_lowest_weight(arrival) {
        now.tier = Tier::Batch;
    }
    now
}

/// The tier by behaviour. `before` is the previous one.
fn behaves(before: Tier, seen: &Behaviour, knobs: &Knobs) -> Tier {
    let score = seen.score();
    // A task enters a tier at the limit and leaves it a quarter below.
    let reaches =
        |limit: u32, holds: bool| score >= if holds { limit - limit.div_ceil(4) } else { limit };
    match () {
        () if is_fork_loop(before, seen, knobs) => Tier::Batch,
        () if reaches(knobs.lat_cri_high, before == Tier::LatCritical) => Tier::LatCritical,
        () if reaches(knobs.lat_cri_low, before >= Tier::Interactive) => Tier::Interactive,
        () if knobs.rules.frame_floor && may_draw(before, seen, knobs) => Tier::Interactive,
        () => Tier::Batch,
    }
}

/// Whether the task does next to nothing but fork. `before` is its previous tier.
fn is_fork_loop(before: Tier, seen: &Behaviour, knobs: &Knobs) -> bool {
    knobs.rules.fork_loops && seen.is_fork_loop(before == Tier::Batch)
}

/// Whether a task sleeps as often as frames are drawn, or has only short runs.
fn may_draw(before: Tier, seen: &Behaviour, knobs: &Knobs) -> bool {
    let slack = |limit: Span| if before == Tier::Batch { limit } else { limit.scale(5, 4) };
    seen.run() <= slack(knobs.cpu_bound_thresh)
        || seen.wake_freq() >= FRAME_FREQ && seen.run() <= slack(FRAME)
}

/// How long a task may run without a sleep before it is CPU-bound: `cpu_bound_thresh`, or twice its
/// usual run if that run is at most a frame, so that a game that computes for 10 ms a frame is not
/// demoted in the middle of every frame.
///
/// A new task gets four times the threshold, because the start of a program, or of a shell, takes
/// longer than its later runs. Each fork adds the threshold once, because the CPU time of a fork is
/// spent for the child.
fn usual_limit(seen: &Behaviour, knobs: &Knobs) -> Span {
    let limit = match seen.is_known() {
        true if seen.run() <= FRAME => seen.run().scale(2, 1).max(knobs.cpu_bound_thresh),
        true => knobs.cpu_bound_thresh,
        false => knobs.cpu_bound_thresh.scale(4, 1),
    };
    limit + knobs.cpu_bound_thresh.scale(seen.forks(), 1)
}

/// Whether the kernel thread floor applies: to workqueue threads, and to other kernel threads that
/// are not nice. Decided by facts, without facts by name.
fn is_floored(arrival: &Arrival) -> bool {
    match &arrival.facts {
        Some(facts) => facts.workqueue || facts.kthread && facts.nice <= 0,
        None => arrival.comm.as_bytes().starts_with(KWORKER),
    }
}

/// SCHED_IDLE or nice 19: the kernel maps both to the lowest weight.
fn has_lowest_weight(arrival: &Arrival) -> bool {
    arrival.weight.get() == 1
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::facts::Facts;
    use pandemonium_engine::task::{RawArrival, Weight};
    use pandemonium_engine::time::Stamp;

    /// One task, driven by the messages that the kernel would send.
    struct TestTask {
        knobs: Knobs,
        seen: Behaviour,
        classification: Classification,
        arrival: Arrival,
        now: Stamp,
    }

    impl TestTask {
        fn of(name: &str) -> TestTask {
            TestTask::under(name, Knobs::default())
        }

        fn under(name: &str, knobs: Knobs) -> TestTask {
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
            TestTask { knobs, seen: Behaviour::default(), classification, arrival, now }
        }

        fn message(&mut self, cause: Cause, ran_us: u64, awake_us: u64) -> Tier {
            let awake = Span::from_micros(awake_us);
            let arrival = Arrival { cause, awake, ..self.arrival };
            let ran = Span::from_micros(ran_us);
            let rested = self.seen.observe(self.now, &arrival, ran);
            let used_up = ran_us >= 1_000;
            self.classification =
                classify(&self.classification, &self.seen, &arrival, rested, used_up, &self.knobs);
            self.classification.tier
        }

        /// Runs for `us` in run intervals of up to 1 ms, then sleeps until `period_us` after the
        /// last wakeup, and wakes up.
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
    fn typical_programs_get_the_expected_tier() {
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
            assert_eq!(TestTask::of(name).settle(run_us, period_us), tier, "{name}");
        }
    }

    #[test]
    fn a_frame_thread_at_60_hz_is_never_batch_even_in_the_middle_of_a_frame() {
        for work in [1_500, 5_000, 10_000, 15_000] {
            let mut task = TestTask::of("game");
            task.settle(work, 16_667);
            for ran in 1..=work / 1_000 {
                let tier = task.message(Cause::Requeue, 1_000, ran * 1_000);
                assert!(tier >= Tier::Interactive, "{ran} of {work} us");
            }
        }
    }

    #[test]
    fn a_task_that_never_sleeps_becomes_batch_until_it_sleeps() {
        let mut task = TestTask::of("hog");
        assert_eq!(task.message(Cause::New, 0, 0), Tier::Interactive);
        assert_eq!(task.message(Cause::Requeue, 1_000, 1_000), Tier::Interactive);
        assert_eq!(task.message(Cause::Requeue, 1_000, 9_000), Tier::Interactive, "a new task");
        assert_eq!(task.message(Cause::Requeue, 1_000, 11_000), Tier::Batch);
        assert_eq!(task.message(Cause::Requeue, 100, 11_100), Tier::Batch);
        assert_eq!(task.settle(2_000, 100_000), Tier::Interactive);
    }

    #[test]
    fn a_parent_is_not_demoted_for_the_time_of_its_forks() {
        let mut task = TestTask::of("make");
        task.settle(500, 100_000);
        for forks in 1..=8 {
            task.seen.note_fork();
            let tier = task.message(Cause::Requeue, 1_000, forks * 2_000);
            assert_eq!(tier, Tier::Interactive, "{forks}");
        }
        assert_eq!(task.message(Cause::Requeue, 1_000, 23_000), Tier::Batch, "it computes");
        task.settle(500, 100_000);
        assert_eq!(
            task.message(Cause::Requeue, 1_000, 3_000),
            Tier::Batch,
            "a wakeup resets the count of forks"
        );
    }

    #[test]
    fn a_shell_with_bursts_of_forks_is_not_batch() {
        let mut task = TestTask::of("make");
        for _ in 0..20 {
            (0..12).for_each(|_| task.seen.note_fork());
            task.cycle(9_000, 100_000);
        }
        assert_eq!(task.classification.tier, Tier::Interactive);
        assert_eq!(task.settle(9_000, 100_000), Tier::Batch, "it computes");
    }

    /// The same forks at growing intervals.
    #[test]
    fn a_fork_loop_is_batch_until_it_forks_much_less() {
        let mut task = TestTask::of("loop");
        let mut fork = |period_us| {
            task.seen.note_fork();
            task.cycle(700, period_us)
        };
        let tiers: Vec<Tier> = (0..400).map(|_| fork(1_100)).collect();
        assert!(tiers[..100].iter().all(|tier| *tier > Tier::Batch), "the first tenth of a second");
        assert!(tiers[300..].iter().all(|tier| *tier == Tier::Batch));
        let slower = |period_us, fork: &mut dyn FnMut(u64) -> Tier| {
            (0..800).map(|_| fork(period_us)).last().unwrap()
        };
        assert_eq!(slower(3_500, &mut fork), Tier::Batch, "a fifth of its time, as beside hogs");
        assert!(slower(5_000, &mut fork) > Tier::Batch, "a seventh of its time");
        assert!(
            slower(2_200, &mut fork) > Tier::Batch,
            "a third of its time is below the limit to enter"
        );
    }

    #[test]
    fn a_parent_is_not_more_urgent_than_its_children() {
        let mut task = TestTask::of("server");
        assert_eq!(task.settle(300, 5_000), Tier::LatCritical);
        assert_eq!(task.message(Cause::Requeue, 300, 300), Tier::LatCritical);
        task.seen.note_fork();
        assert_eq!(task.message(Cause::Requeue, 300, 600), Tier::Interactive);
        assert_eq!(task.settle(300, 5_000), Tier::LatCritical, "after it has slept");
    }

    /// A task that is preempted in the middle of each slice never uses one up, but is a hog all the
    /// same.
    #[test]
    fn a_task_that_is_preempted_is_demoted_later() {
        let mut task = TestTask::of("interrupted");
        task.message(Cause::New, 0, 0);
        assert_eq!(task.message(Cause::Requeue, 300, 19_000), Tier::Interactive);
        assert_eq!(task.message(Cause::Requeue, 300, 21_000), Tier::Batch);
    }

    /// A score that swings between 28 and 36 crosses the limit of 32 every time.
    #[test]
    fn a_task_near_a_limit_keeps_its_tier() {
        let mut task = TestTask::of("border");
        assert_eq!(task.settle(200, 15_000), Tier::LatCritical);
        let tiers: Vec<Tier> =
            (0..60).map(|n| task.cycle(200, if n % 20 < 10 { 19_000 } else { 16_500 })).collect();
        assert!(tiers.iter().all(|tier| *tier == Tier::LatCritical), "{tiers:?}");
        let mut task = TestTask::of("border");
        assert_eq!(task.settle(200, 25_000), Tier::Interactive);
        assert!((0..60).all(|n| {
            task.cycle(200, if n % 20 < 10 { 19_000 } else { 18_000 }) == Tier::Interactive
        }));
    }

    #[test]
    fn names_decide_before_behaviour_does() {
        let settle = |name| TestTask::of(name).settle(60_000, 61_000);
        assert_eq!(settle("kwin_wayland"), Tier::LatCritical);
        assert_eq!(settle("gamescope-wl"), Tier::LatCritical);
        assert_eq!(settle("sshd-session"), Tier::Interactive);
        assert_eq!(settle("sway"), Tier::LatCritical);
        assert_eq!(settle("swaybg"), Tier::Batch, "the user's names come first");
        assert_eq!(settle("swa"), Tier::Batch);
    }

    #[test]
    fn kernel_threads_are_at_least_interactive() {
        let settle = |facts: Option<Facts>, name| {
            let mut task = TestTask::of(name);
            task.arrival.facts = facts;
            // These facts count no wakeups, so only the floor can raise the tier.
            task.classification.behaves = Tier::Batch;
            task.message(Cause::Requeue, 4_000, 60_000)
        };
        let kthread = Facts { kthread: true, ..Facts::default() };
        assert_eq!(settle(None, "kworker/u8:3"), Tier::Interactive);
        assert_eq!(settle(None, "kworkerish"), Tier::Batch);
        assert_eq!(settle(Some(kthread), "rcu_preempt"), Tier::Interactive);
        assert_eq!(settle(Some(Facts { nice: 5, ..kthread }), "ksmd"), Tier::Batch);
        let workqueue = Facts { workqueue: true, nice: 5, ..kthread };
        assert_eq!(settle(Some(workqueue), "renamed"), Tier::Interactive);
        assert_eq!(
            settle(Some(Facts::default()), "kworker/fake"),
            Tier::Batch,
            "facts come before the name"
        );
    }

    #[test]
    fn the_lowest_weight_is_batch_whatever_its_name() {
        let mut task = TestTask::of("kwin_wayland");
        task.arrival.weight = Weight::new(1);
        assert_eq!(task.settle(200, 5_000), Tier::Batch);
    }

    #[test]
    fn every_rule_can_be_switched_off() {
        let without = |change: fn(&mut Knobs)| {
            let mut knobs = Knobs::default();
            change(&mut knobs);
            knobs
        };
        let off = without(|knobs| knobs.rules.classifier = false);
        assert_eq!(TestTask::under("pipewire", off).settle(200, 5_000), Tier::Interactive);
        let off = without(|knobs| knobs.rules.compositors = false);
        assert_eq!(TestTask::under("kwin_x11", off).settle(60_000, 61_000), Tier::Batch);
        assert_eq!(TestTask::under("gamescope", off).settle(60_000, 61_000), Tier::LatCritical);
        let off = without(|knobs| knobs.rules.frame_floor = false);
        assert_eq!(TestTask::under("browser", off).settle(8_000, 40_000), Tier::Batch);
        let off = without(|knobs| knobs.rules.cpu_bound_demotion = false);
        assert_eq!(
            TestTask::under("hog", off).message(Cause::Requeue, 19_000, 19_000),
            Tier::Interactive
        );
        let off = without(|knobs| knobs.rules.kworker_floor = false);
        assert_eq!(TestTask::under("kworker/0:1", off).settle(60_000, 61_000), Tier::Batch);
    }

    #[test]
    fn an_empty_name_matches_no_task_and_excess_names_are_ignored() {
        let classifier = Classifier::new(&[(Comm::from_text(""), Tier::LatCritical)]);
        assert_eq!(classifier.named(&Comm::from_text("any"), &Knobs::default()), None);
        let many = std::vec![(Comm::from_text("x"), Tier::Batch); 200];
        let names = Classifier::new(&many);
        assert_eq!(names.boosts.len() + names.compositors.len(), NAMES_MAX);
    }
}
