// SPDX-License-Identifier: GPL-2.0-only

//! The [`Tier`] of a task. The score of its behaviour gives one; a table of rules raises or lowers
//! it:
//!
//! ```text
//! score >= lat_cri_high -> LatCritical
//! score >= lat_cri_low  -> Interactive
//! below                 -> Batch
//! tier = score, then clamped by each rule of RULES in turn; the last that changes it is the reason
//! ```

use super::batch_starvation::Part;
use super::behaviour::{Behaviour, FRAME};
use super::share::Share;
use crate::knobs::Knobs;
use alloc::vec::Vec;
use pandemonium_engine::NAMES_MAX;
use pandemonium_engine::task::{Arrival, Cause, Comm, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::treatment::TierDemand;

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

/// A task that has not slept for so long is CPU-bound, however little it ran: among thousands of
/// tasks that compute each runs for a fraction of a millisecond a second, and a task that wakes up
/// would wait for all of them. Chosen: far longer than an urgent task waits.
const RUNNABLE_MAX: Span = Span::from_millis(500);

/// The classification of a task, which is valid until its next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classification {
    /// Its tier.
    pub tier: Tier,
    /// The tier by the score alone, as of the last wakeup.
    pub tier_by_score: Tier,
    /// The tier by the [learned](Rule::learned) rules alone.
    pub tier_by_behaviour: Tier,
    /// The rule that made the tier, by its place in [`RULES`].
    pub rule: u8,
    /// What its name says.
    pub name: Name,
    /// It has run for so long without a sleep that it is Batch until it sleeps.
    pub cpu_bound: bool,
    /// The part of a fair share above which it became over share while Batch starved; `None` if it
    /// is not over share ([`batch_starvation`](super::batch_starvation)).
    pub over_share: Option<Part>,
    /// It takes much of what urgent tasks take, which is most of the machine
    /// ([`crowd`](super::crowd)).
    pub in_crowd: bool,
    /// It does next to nothing but fork, or is a child of such a task and has not slept yet.
    pub fork_loop: bool,
    /// The number of the treatment that the user demands for its process; 0 for none.
    pub treatment: u8,
}

/// What the name of a task says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Name {
    /// Nothing.
    #[default]
    Unlisted,
    /// It is that of a program that draws the screen.
    Compositor,
    /// The user demands a tier for it.
    Demands(Tier),
}

/// What a rule looks at.
struct Subject<'a> {
    now: &'a Classification,
    seen: &'a Behaviour,
    arrival: &'a Arrival,
    knobs: &'a Knobs,
    /// The tier that the user demands for the process.
    treatment: TierDemand,
}

/// A rule on the tier.
struct Rule {
    /// Why a task has its tier, if this rule made it.
    says: &'static str,
    /// It is about the task's behaviour alone. The process database learns the tier by these rules,
    /// because a program's name predicts behaviour.
    learned: bool,
    /// What it demands of a task to which behaviour gives this tier.
    demands: fn(&Subject, Tier) -> TierDemand,
}

const fn at_least(tier: Tier, applies: bool) -> TierDemand {
    if applies { TierDemand::AtLeast(tier) } else { TierDemand::None }
}

const fn at_most(tier: Tier, applies: bool) -> TierDemand {
    if applies { TierDemand::AtMost(tier) } else { TierDemand::None }
}

const fn batch(applies: bool) -> TierDemand {
    if applies { TierDemand::Fixed(Tier::Batch) } else { TierDemand::None }
}

/// All rules, in their order.
const RULES: [Rule; 14] = [
    Rule {
        says: "its behaviour says so",
        learned: true,
        demands: |it, _| match it.knobs.rules.classifier {
            true => TierDemand::Fixed(it.now.tier_by_score),
            false => TierDemand::Fixed(Tier::Interactive),
        },
    },
    Rule {
        says: "it sleeps as often as frames are drawn",
        learned: true,
        demands: |it, _| at_least(Tier::Interactive, it.knobs.rules.frame_floor && draws(it.seen)),
    },
    Rule {
        says: "it has slept as long as it ran before",
        learned: true,
        demands: |it, _| at_least(Tier::Interactive, it.knobs.rules.rested && it.seen.has_rested()),
    },
    Rule {
        says: "it does next to nothing but fork",
        learned: true,
        demands: |it, _| batch(it.knobs.rules.fork_loops && it.now.fork_loop),
    },
    Rule {
        says: "it has used up its slices for longer than it usually runs",
        learned: true,
        demands: |it, _| batch(it.knobs.rules.cpu_bound_demotion && it.now.cpu_bound),
    },
    Rule {
        says: "it takes a large part of the machine while tasks that compute get next to nothing",
        learned: false,
        demands: |it, _| batch(it.knobs.rules.batch_starvation && it.now.over_share.is_some()),
    },
    Rule {
        says: "it is one of the tasks that wake up often and take most of the machine",
        learned: false,
        demands: |it, _| at_most(Tier::Interactive, it.knobs.rules.crowd && it.now.in_crowd),
    },
    // As LatCritical it would hold up all others: beside a team with barriers that filled the
    // machine, forks took 45 ms.
    Rule {
        says: "it takes more than half of a CPU",
        learned: false,
        demands: |it, _| {
            at_most(Tier::Interactive, it.knobs.rules.classifier && takes_half(it.seen))
        },
    },
    // A fork takes long, and its child starts as Interactive, so the parent is no more urgent.
    Rule {
        says: "it has forked since it woke up",
        learned: false,
        demands: |it, _| {
            let has_forked = it.seen.forks.count() > 0;
            at_most(Tier::Interactive, it.knobs.rules.classifier && has_forked)
        },
    },
    // A late frame of a compositor delays the frames of all programs. But any program can take such
    // a name, so the name raises no task that behaves like a hog or takes more than half of a CPU.
    Rule {
        says: "its name is that of a compositor",
        learned: false,
        demands: |it, by_behaviour| {
            let draws = it.knobs.rules.compositors && it.now.name == Name::Compositor;
            let is_light = by_behaviour > Tier::Batch && !takes_half(it.seen);
            at_least(Tier::LatCritical, draws && is_light)
        },
    },
    // Other tasks wait for the work of kernel threads.
    Rule {
        says: "it is a kernel thread",
        learned: false,
        demands: |it, _| {
            let applies = it.knobs.rules.kworker_floor && is_kernel_thread(it.arrival);
            at_least(Tier::Interactive, applies)
        },
    },
    Rule {
        says: "the user demands it of its name",
        learned: false,
        demands: |it, _| match it.now.name {
            Name::Demands(tier) => TierDemand::Fixed(tier),
            _ => TierDemand::None,
        },
    },
    Rule {
        says: "a rule of the user applies to its process",
        learned: false,
        demands: |it, _| it.treatment,
    },
    // SCHED_IDLE or nice 19: the kernel maps both to the lowest weight.
    Rule {
        says: "its class or nice value lets every task pass",
        learned: false,
        demands: |it, _| batch(it.arrival.weight.get() == 1),
    },
];

impl Classification {
    /// The classification of a task of which nothing but its name is known.
    pub fn of(name: Name) -> Classification {
        Classification { name, ..Classification::default() }
    }

    /// The reason for the tier.
    pub fn reason(&self) -> &'static str {
        RULES.get(usize::from(self.rule)).map_or("", |rule| rule.says)
    }

    /// Classifies the task after its message `arrival`. `seen` is its behaviour, `treatment` the
    /// tier that the user demands for its process.
    pub fn update(
        &mut self,
        now: Stamp,
        seen: &Behaviour,
        arrival: &Arrival,
        treatment: TierDemand,
        knobs: &Knobs,
    ) {
        match arrival.cause {
            Cause::New => {}
            Cause::Wakeup => {
                self.cpu_bound = false;
                self.fork_loop = seen.forks.is_loop(self.fork_loop, seen.share());
                if seen.is_known() {
                    self.tier_by_score = tier_by_score(seen.score(), knobs);
                }
            }
            Cause::Requeue => {
                self.cpu_bound |= seen.awake() > usual_limit(seen, arrival, knobs)
                    || is_long_runnable(now, arrival);
            }
        }
        let (mut tier, mut reason, mut by_behaviour) = (self.tier_by_score, 0, self.tier_by_score);
        let subject = Subject { now: self, seen, arrival, knobs, treatment };
        for (number, rule) in RULES.iter().enumerate() {
            let demand = (rule.demands)(&subject, by_behaviour);
            let demanded = demand.apply(tier);
            if demanded != tier {
                (tier, reason) = (demanded, number as u8);
            }
            if rule.learned {
                by_behaviour = demand.apply(by_behaviour);
            }
        }
        (self.tier, self.rule, self.tier_by_behaviour) = (tier, reason, by_behaviour);
    }
}

fn tier_by_score(score: u32, knobs: &Knobs) -> Tier {
    match score {
        score if score >= knobs.lat_cri_high => Tier::LatCritical,
        score if score >= knobs.lat_cri_low => Tier::Interactive,
        _ => Tier::Batch,
    }
}

/// Whether a task sleeps as often as frames are drawn.
fn draws(seen: &Behaviour) -> bool {
    seen.is_known() && seen.wake_freq() >= FRAME_FREQ && seen.run() <= FRAME
}

/// Whether a task takes more than half of a CPU.
fn takes_half(seen: &Behaviour) -> bool {
    seen.share() > Share::HALF
}

/// Whether the task has not slept for [`RUNNABLE_MAX`], as far as that is known.
fn is_long_runnable(now: Stamp, arrival: &Arrival) -> bool {
    let woken = arrival.facts.map_or(Stamp::default(), |facts| facts.woken);
    woken > Stamp::default() && now.since(woken) > RUNNABLE_MAX
}

/// How long a task may run without a sleep before it is CPU-bound: `cpu_bound_thresh`, or twice its
/// usual run if that run is at most a frame, so that a game that computes for 10 ms a frame is not
/// demoted in the middle of every frame.
///
/// A new process gets four times the threshold, because the start of a program, or of a shell,
/// takes longer than its later runs. A new thread starts no program: threads that compute for 5 ms
/// each, one after the other, would take most of a CPU. Each fork adds the threshold once, because
/// the CPU time of a fork is spent for the child.
fn usual_limit(seen: &Behaviour, arrival: &Arrival, knobs: &Knobs) -> Span {
    let limit = match seen.is_known() {
        true if seen.run() <= FRAME => seen.run().scale(2, 1).max(knobs.cpu_bound_thresh),
        false if !is_thread(arrival) => knobs.cpu_bound_thresh.scale(4, 1),
        _ => knobs.cpu_bound_thresh,
    };
    limit + knobs.cpu_bound_thresh.scale(seen.forks.count(), 1)
}

/// Whether the task is a thread of a process, and not the first one, as far as that is known.
fn is_thread(arrival: &Arrival) -> bool {
    let process = arrival.facts.and_then(|facts| facts.process);
    process.is_some_and(|process| process != arrival.pid)
}

/// Whether it is a workqueue thread, or another kernel thread that is not nice. Decided by facts,
/// without facts by name.
fn is_kernel_thread(arrival: &Arrival) -> bool {
    match &arrival.facts {
        Some(facts) => facts.workqueue || facts.kthread && facts.nice <= 0,
        None => arrival.comm.as_bytes().starts_with(KWORKER),
    }
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

    /// What a name says. The user's names come before the built-in ones.
    pub fn look_up(&self, comm: &Comm) -> Name {
        let begins = |prefix: &Comm| comm.as_bytes().starts_with(prefix.as_bytes());
        match self.boosts.iter().find(|(name, _)| begins(name)) {
            Some((_, tier)) => Name::Demands(*tier),
            None if self.compositors.iter().any(begins) => Name::Compositor,
            None => Name::Unlisted,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::facts::Facts;
    use pandemonium_engine::task::{Pid, RawArrival, Weight};

    /// One task, driven by the messages that the kernel would send.
    struct TestTask {
        knobs: Knobs,
        seen: Behaviour,
        classification: Classification,
        arrival: Arrival,
        now: Stamp,
        /// When it sent its last message.
        heard: Stamp,
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
            let classification = Classification::of(classifier.look_up(&arrival.comm));
            let now = Stamp::from_nanos(1 << 40);
            let seen = Behaviour::default();
            TestTask { knobs, seen, classification, arrival, now, heard: now }
        }

        fn message(&mut self, cause: Cause, ran_us: u64, awake_us: u64) -> Tier {
            let awake = Span::from_micros(awake_us);
            let arrival = Arrival { cause, awake, ..self.arrival };
            let since = self.now.since(self.heard);
            self.heard = self.now;
            self.seen.observe(self.now, &arrival, since, Span::from_micros(ran_us));
            let (its, none) = (&mut self.classification, TierDemand::None);
            its.update(self.now, &self.seen, &arrival, none, &self.knobs);
            self.classification.tier
        }

        /// Runs for `us` in run intervals of up to 1 ms, then sleeps until `period_us` after the
        /// last wakeup, and wakes up.
        fn cycle(&mut self, us: u64, period_us: u64) -> Tier {
            let (woken, mut ran) = (self.now, 0);
            while us - ran > 1_000 {
                ran += 1_000;
                self.now = woken + Span::from_micros(ran);
                self.message(Cause::Requeue, 1_000, ran);
            }
            self.now = woken + Span::from_micros(period_us);
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
            ("backup", 20_000, 25_000, Tier::Batch),
        ] {
            assert_eq!(TestTask::of(name).settle(run_us, period_us), tier, "{name}");
        }
    }

    #[test]
    fn a_task_that_takes_more_than_half_of_a_cpu_is_at_most_interactive() {
        for (period_us, tier) in [(600, Tier::LatCritical), (260, Tier::Interactive)] {
            let mut team = TestTask::of("omp");
            let tiers: Vec<Tier> = (0..40).map(|_| team.settle(230, period_us)).collect();
            assert_eq!(tiers.last(), Some(&tier), "each {period_us} us");
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
    fn a_new_thread_becomes_batch_earlier_than_a_new_process() {
        for (process, tier) in [(1, Tier::Interactive), (2, Tier::Batch)] {
            let mut task = TestTask::of("worker");
            let facts = Facts { process: Pid::new(process), ..Facts::default() };
            task.arrival = Arrival { facts: Some(facts), ..task.arrival };
            assert_eq!(task.message(Cause::New, 0, 0), Tier::Interactive);
            assert_eq!(task.message(Cause::Requeue, 1_000, 2_000), Tier::Interactive);
            assert_eq!(task.message(Cause::Requeue, 1_000, 3_000), tier, "of process {process}");
        }
    }

    #[test]
    fn a_task_that_has_not_slept_for_half_a_second_is_cpu_bound_however_little_it_ran() {
        let mut task = TestTask::of("hog");
        let woken = task.now;
        let facts = Facts { woken, wakeups: 1, ..Facts::default() };
        task.arrival = Arrival { facts: Some(facts), ..task.arrival };
        task.now = woken + Span::from_millis(499);
        assert_eq!(task.message(Cause::Requeue, 1_000, 100), Tier::Interactive);
        task.now = woken + Span::from_millis(502);
        assert_eq!(task.message(Cause::Requeue, 1_000, 100), Tier::Batch);
        task.arrival = Arrival { facts: None, ..task.arrival };
        task.classification.cpu_bound = false;
        assert_eq!(task.message(Cause::Requeue, 1_000, 100), Tier::Interactive, "not known");
    }

    #[test]
    fn a_parent_is_not_demoted_for_the_time_of_its_forks() {
        let mut task = TestTask::of("make");
        task.settle(500, 100_000);
        for forks in 1..=8 {
            task.seen.forks.note();
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

    /// The same forks at growing intervals.
    #[test]
    fn a_fork_loop_is_batch_until_it_forks_much_less() {
        let mut task = TestTask::of("loop");
        let mut fork = |period_us| {
            task.seen.forks.note();
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
        task.seen.forks.note();
        assert_eq!(task.message(Cause::Requeue, 300, 600), Tier::Interactive);
        assert_eq!(task.settle(300, 5_000), Tier::LatCritical, "after it has slept");
    }

    #[test]
    fn names_of_the_user_decide_before_behaviour_does() {
        let settle = |name| TestTask::of(name).settle(60_000, 61_000);
        assert_eq!(settle("gamescope-wl"), Tier::LatCritical);
        assert_eq!(settle("sshd-session"), Tier::Interactive);
        assert_eq!(TestTask::of("swaybg").settle(200, 5_000), Tier::Batch, "before the built-in");
        assert_eq!(settle("swa"), Tier::Batch);
    }

    #[test]
    fn the_name_of_a_compositor_raises_it_unless_it_is_a_hog() {
        for (run_us, period_us) in [(200, 1_000_000), (3_000, 33_000), (7_000, 16_667)] {
            let mut compositor = TestTask::of("kwin_wayland");
            assert_eq!(compositor.settle(run_us, period_us), Tier::LatCritical, "{run_us} us");
            assert!(TestTask::of("dolphin").settle(run_us, period_us) <= Tier::Interactive);
        }
        let tiers = |name| {
            [(60_000, 61_000), (15_000, 15_100)].map(|(run_us, period_us)| {
                let mut hog = TestTask::of(name);
                [hog.settle(run_us, period_us), hog.message(Cause::Requeue, 1_000, 40_000)]
            })
        };
        assert_eq!(tiers("kwin"), tiers("hog"));
        assert!(tiers("kwin").as_flattened().iter().all(|tier| *tier < Tier::LatCritical));
        let mut unseen = TestTask::of("kwin");
        assert_eq!(unseen.message(Cause::New, 0, 0), Tier::LatCritical);
        assert_eq!(unseen.message(Cause::Requeue, 1_000, 12_000), Tier::Batch, "it never slept");
    }

    #[test]
    fn kernel_threads_are_at_least_interactive() {
        let settle = |facts: Option<Facts>, name| {
            let mut task = TestTask::of(name);
            task.arrival.facts = facts;
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
        assert_eq!(TestTask::under("browser", off).settle(12_000, 20_000), Tier::Batch);
        assert_eq!(TestTask::of("browser").settle(12_000, 20_000), Tier::Interactive);
        let off = without(|knobs| knobs.rules.rested = false);
        assert_eq!(TestTask::under("script", off).settle(20_000, 50_000), Tier::Batch);
        assert_eq!(TestTask::of("script").settle(20_000, 50_000), Tier::Interactive);
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
        assert_eq!(classifier.look_up(&Comm::from_text("any")), Name::Unlisted);
        let many = std::vec![(Comm::from_text("x"), Tier::Batch); 200];
        let names = Classifier::new(&many);
        assert_eq!(names.boosts.len() + names.compositors.len(), NAMES_MAX);
    }
}
