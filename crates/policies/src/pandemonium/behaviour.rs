// SPDX-License-Identifier: GPL-2.0-only

//! What a task does, as numbers: how often it wakes up, how often it gives up the CPU, how long it
//! runs in between and how much that varies; and the score that follows.
//!
//! Averages are exponential, and hold eight fraction bits, so that small values move: a task of
//! 100 Hz that slows to 1 Hz is forgotten at the same pace as any other. They follow time as well
//! as events: after a long silence one wake-up counts for the wake-ups that did not happen.

use pandemonium_engine::procdb::{Observation, Prediction, Rate};
use pandemonium_engine::task::{Arrival, Cause, Tier};
use pandemonium_engine::time::{ShortSpan, Span, Stamp};

/// Rates are events in this time, as PANDEMONIUM counts them.
const UNIT: Span = Span::from_millis(100);
/// Fraction bits of a rate.
const FRACTION: u32 = 8;
/// Highest wake-ups in 100 ms that count (PANDEMONIUM 5.4.13): more often is no more urgent.
const WAKE_FREQ_MAX: u64 = 64;
/// Highest voluntary switches in 100 ms that count (PANDEMONIUM 5.4.13).
const CSW_RATE_MAX: u64 = 512;
/// A new task is taken for one of 200 Hz and 100 us (PANDEMONIUM 5.4.13) until it shows otherwise.
const WAKE_FREQ_NEW: u64 = 20;
/// See [`WAKE_FREQ_NEW`].
const RUN_NEW: Span = Span::from_micros(100);
/// The first wake-ups are only counted: they tell of the start of a program, not of its life.
const AGE_SPEAKS: u8 = 2;
/// Wake-ups that the fast path must have counted before its word stands for ours. Chosen: the last
/// run and sleep then come after another of each, so they do not belong to the start of a program.
const WITNESSED: u64 = 3;
/// From this many wake-ups on averages move by an eighth; before, by a half.
pub const AGE_MATURE: u8 = 8;
/// Wake-ups are counted up to here.
const AGE_MAX: u8 = 16;
/// What of a run is taken for one fork at most. Chosen: a fork of a large process takes so long.
const BIRTH: Span = Span::from_millis(1);
/// Over this time the shares that a task and its forks take are averaged. Chosen: longer than the
/// time between two bursts of a shell, so that one of them says little.
const SHARE_WINDOW: Span = Span::from_millis(256);
/// The whole of a task's time, of which it and its forks take a share.
const WHOLE: u64 = u16::MAX as u64;
/// What a wake-up takes of the machine besides the run: a round of the scheduler process and the
/// switches to it. Measured: 24 us on a virtual machine of 1 GIPS (docs/fast-path.md).
const ROUND: Span = Span::from_micros(20);
/// Who spends more of its time than this on forks does nothing else, until they take less than
/// that. Chosen: twelve forks every 100 ms, or eight every 48 ms, take up to a quarter of a CPU; a
/// loop of forks takes half of one and more, and a fifth when it is treated as Batch beside hogs.
const BREEDS: (u64, u64) = (WHOLE * 3 / 8, WHOLE / 6);
/// The highest [`Behaviour::score`].
pub const SCORE_MAX: u32 = 255;

/// What is known of one task's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// How long it usually runs between two sleeps, and how far a run usually is from that.
    run: ShortSpan,
    run_dev: ShortSpan,
    /// CPU time since it last woke up.
    awake: ShortSpan,
    /// When it woke up last.
    woken: Stamp,
    /// CPU time, wake-ups and voluntary switches of its life when that was, where they are known.
    cpu_time: Span,
    wakeups: u32,
    voluntary: u32,
    /// Wake-ups and voluntary switches in 100 ms, with [`FRACTION`].
    wake_freq: u16,
    csw_rate: u32,
    /// Wake-ups seen, up to [`AGE_MAX`].
    age: u8,
    /// Tasks that it has given fork to since it last woke up.
    births: u8,
    /// What of its time forks take, of [`WHOLE`].
    breeding: u16,
    /// What it takes of a CPU, its wake-ups included, of [`WHOLE`].
    taking: u16,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            run: ShortSpan::of(RUN_NEW),
            run_dev: ShortSpan::default(),
            awake: ShortSpan::default(),
            woken: Stamp::default(),
            cpu_time: Span::ZERO,
            wakeups: 0,
            voluntary: 0,
            wake_freq: (WAKE_FREQ_NEW as u16) << FRACTION,
            csw_rate: 0,
            age: 0,
            births: 0,
            breeding: 0,
            taking: 0,
        }
    }
}

/// What happened between two wake-ups.
struct Interval {
    length: Span,
    wakeups: u64,
    voluntary: u64,
    /// CPU time of one run, without that of its forks.
    run: Span,
    /// CPU time of all runs, with that of their forks.
    all: Span,
}

impl Behaviour {
    /// What a name promises, for a task that has shown nothing yet.
    pub fn predicted(prediction: &Prediction) -> Behaviour {
        let rate = |rate: Rate, max: u64| {
            let per_unit = (u64::from(rate.as_millihertz()) << FRACTION) / 10_000;
            per_unit.min(max << FRACTION) as u32
        };
        Behaviour {
            run: ShortSpan::of(prediction.run),
            run_dev: ShortSpan::of(prediction.run_dev),
            wake_freq: rate(prediction.wake_freq, WAKE_FREQ_MAX) as u16,
            csw_rate: rate(prediction.csw_rate, CSW_RATE_MAX),
            ..Behaviour::default()
        }
    }

    /// What was remembered over a restart of the scheduler.
    pub fn remembered(run: Span) -> Behaviour {
        Behaviour { run: ShortSpan::of(run), age: AGE_SPEAKS, ..Behaviour::default() }
    }

    /// A life that the fast path has watched while its wake-ups found idle CPUs and never came up:
    /// as if we had begun to look when its last run began. So whoever is urgent is so at once when
    /// a quiet machine becomes a busy one. Who has lost a CPU has come up before.
    pub fn witnessed(arrival: &Arrival) -> Option<Behaviour> {
        let facts = arrival.facts.filter(|facts| facts.woken > facts.stopped)?;
        let whole = facts.wakeups >= WITNESSED && facts.run_interval > Span::ZERO;
        whole.then(|| Behaviour {
            woken: facts.stopped.before(facts.run_interval),
            cpu_time: facts.cpu_time - facts.run_interval,
            wakeups: facts.wakeups as u32 - 1,
            voluntary: (facts.voluntary as u32).saturating_sub(1),
            age: AGE_SPEAKS - 1,
            ..Behaviour::default()
        })
    }

    /// Takes in a message. `ran` is the CPU time since the last message.
    pub fn observe(&mut self, now: Stamp, arrival: &Arrival, ran: Span) {
        match arrival.cause {
            Cause::New => self.begin(now, arrival),
            Cause::Requeue => self.awake = ShortSpan::of(arrival.awake),
            Cause::Wakeup => {
                let interval = self.interval(now, arrival, ran);
                self.note_shares(&interval);
                self.age = self.age.saturating_add(1).min(AGE_MAX);
                // The very first sleep ends a run that began before we looked.
                if self.age >= AGE_SPEAKS {
                    self.learn(&interval);
                }
                self.begin(now, arrival);
            }
        }
    }

    /// A run begins now.
    pub fn begin(&mut self, now: Stamp, arrival: &Arrival) {
        self.woken = now;
        self.awake = ShortSpan::default();
        self.births = 0;
        if let Some(facts) = &arrival.facts {
            self.cpu_time = facts.cpu_time;
            self.wakeups = facts.wakeups as u32;
            self.voluntary = facts.voluntary as u32;
        }
    }

    /// What happened since [`begin`](Self::begin). Wake-ups that found an idle CPU never came up
    /// to us; where the fast path counts, they count. Without it one sleep is one voluntary
    /// switch. What a fork takes is spent for the child: a shell is no hog for its commands.
    fn interval(&self, now: Stamp, arrival: &Arrival, ran: Span) -> Interval {
        let length = now.since(self.woken).max(Span::from_micros(1));
        let own = |run: Span| without_births(run, self.births());
        let Some(facts) = arrival.facts.filter(|_| self.wakeups > 0) else {
            let all = self.awake() + ran;
            return Interval { length, wakeups: 1, voluntary: 1, run: own(all), all };
        };
        let wakeups = u64::from((facts.wakeups as u32).wrapping_sub(self.wakeups)).max(1);
        let voluntary = u64::from((facts.voluntary as u32).wrapping_sub(self.voluntary));
        let all = facts.cpu_time - self.cpu_time;
        let run = own(all).scale(1, wakeups);
        Interval { length, wakeups, voluntary, run, all }
    }

    /// How much of the time between two wake-ups it took, and how much went into forks.
    fn note_shares(&mut self, seen: &Interval) {
        let share =
            |time: Span| time.min(SHARE_WINDOW).as_nanos() * WHOLE / SHARE_WINDOW.as_nanos();
        let left = WHOLE - share(seen.length);
        let average = |old: u16, spent: Span| {
            let kept = u64::from(old) * left / WHOLE;
            (kept + share(spent.min(seen.length))).min(WHOLE) as u16
        };
        let bred = if self.births > 0 { seen.all } else { Span::ZERO };
        self.breeding = average(self.breeding, bred);
        self.taking = average(self.taking, seen.all + ROUND.scale(seen.wakeups, 1));
    }

    fn learn(&mut self, seen: &Interval) {
        let units = seen.length.as_nanos() / UNIT.as_nanos();
        let rate = |events: u64, max: u64| {
            let doubled = UNIT.scale(events << (FRACTION + 1), seen.length.as_nanos());
            (doubled.as_nanos().saturating_add(1) / 2).min(max << FRACTION) as u32
        };
        let wakes = rate(seen.wakeups, WAKE_FREQ_MAX);
        let switches = rate(seen.voluntary, CSW_RATE_MAX);
        // One step for the wake-up, and one for every unit of time without any.
        for _ in 0..1 + units.min(u64::from(AGE_MATURE)) {
            self.wake_freq = self.rate(self.wake_freq.into(), wakes) as u16;
            self.csw_rate = self.rate(self.csw_rate, switches);
        }
        let off = Span::from_nanos(seen.run.as_nanos().abs_diff(self.run().as_nanos()));
        if self.age == AGE_SPEAKS {
            (self.run, self.run_dev) = (ShortSpan::of(seen.run), ShortSpan::default());
            return;
        }
        self.run_dev = self.step_span(self.run_dev, off);
        self.run = self.step_span(self.run, seen.run);
    }

    fn rate(&self, old: u32, new: u32) -> u32 {
        if self.age == AGE_SPEAKS { new } else { self.step(old.into(), new.into()) as u32 }
    }

    /// A step of an average: half the way while young, an eighth later; rounded to the nearest,
    /// so that it goes up and down alike.
    fn step(&self, old: u64, new: u64) -> u64 {
        let over = if self.age < AGE_MATURE { 2 } else { 8 };
        let sum = u128::from(old) * (over - 1) + u128::from(new);
        ((sum + over / 2) / over) as u64
    }

    fn step_span(&self, old: ShortSpan, new: Span) -> ShortSpan {
        ShortSpan::of(Span::from_nanos(self.step(old.get().as_nanos(), new.as_nanos())))
    }

    /// How long it usually runs between two sleeps, up to 4.29 s.
    pub fn run(&self) -> Span {
        self.run.get()
    }

    /// How far a run usually is from [`run`](Self::run).
    pub fn run_dev(&self) -> Span {
        self.run_dev.get()
    }

    /// CPU time since it last woke up, up to 4.29 s.
    pub fn awake(&self) -> Span {
        self.awake.get()
    }

    /// It has given fork to a task.
    pub fn note_fork(&mut self) {
        self.births = self.births.saturating_add(1);
    }

    /// Tasks that it has given fork to since it last woke up, up to 255.
    pub fn births(&self) -> u64 {
        self.births.into()
    }

    /// Whether forks take so much of its time that it does nothing else; `before` is what this was
    /// the last time.
    pub fn is_fork_loop(&self, before: bool) -> bool {
        u64::from(self.breeding) > if before { BREEDS.1 } else { BREEDS.0 }
    }

    /// What it takes of a CPU, and what the whole would be.
    pub fn takes(&self) -> (u64, u64) {
        (self.taking.into(), WHOLE)
    }

    /// How long it is expected to run: as usual, or as long as it does already.
    pub fn expected_run(&self) -> Span {
        self.run.max(self.awake).get()
    }

    /// How critical it is that the task runs soon, 0 to [`SCORE_MAX`]: wake-ups times voluntary
    /// switches in 100 ms, divided by the run in units of 2^20 ns (PANDEMONIUM 5.4.13). A run that
    /// varies counts half of its deviation more, and none counts less than one unit.
    pub fn score(&self) -> u32 {
        let run = (self.run() + self.run_dev().scale(1, 2)).as_nanos() >> 20;
        let events = (u64::from(self.wake_freq) * u64::from(self.csw_rate)) >> (2 * FRACTION);
        (events / run.max(1)).min(u64::from(SCORE_MAX)) as u32
    }

    /// Wake-ups in 100 ms.
    pub fn wake_freq(&self) -> u64 {
        u64::from(self.wake_freq >> FRACTION)
    }

    /// Whether it has slept often enough that its averages mean something.
    pub fn speaks(&self) -> bool {
        self.age >= AGE_SPEAKS
    }

    /// Whether it is mature.
    pub fn is_mature(&self) -> bool {
        self.age >= AGE_MATURE
    }

    /// What the process database learns of it.
    pub fn observation(&self, tier: Tier) -> Observation {
        let rate =
            |fixed: u32| Rate::from_millihertz(((u64::from(fixed) * 10_000) >> FRACTION) as u32);
        Observation {
            tier,
            run: self.run(),
            run_dev: self.run_dev(),
            wake_freq: rate(self.wake_freq.into()),
            csw_rate: rate(self.csw_rate),
            ..Observation::default()
        }
    }
}

/// What a run takes besides its forks: each of them takes [`BIRTH`], but no more than is left for
/// the run, which would otherwise be nothing where forks are quick.
fn without_births(run: Span, births: u64) -> Span {
    (run - BIRTH.scale(births, 1)).max(run.scale(1, births + 1))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::facts::Facts;
    use pandemonium_engine::task::RawArrival;

    fn wakeup() -> Arrival {
        let raw = RawArrival { pid: 1, flags: 1, weight: 100, enq_cnt: 2, ..Default::default() };
        raw.decode().unwrap()
    }

    /// The behaviour of a task that wakes `hz` times a second and runs for `run_us` each time.
    fn lives(hz: u64, run_us: u64, wakeups: u64) -> Behaviour {
        continues(Behaviour::default(), hz, run_us, wakeups)
    }

    fn continues(mut seen: Behaviour, hz: u64, run_us: u64, wakeups: u64) -> Behaviour {
        let from = seen.woken;
        for n in 1..=wakeups {
            let now = from + Span::from_nanos(n * 1_000_000_000 / hz);
            seen.observe(now, &wakeup(), Span::from_micros(run_us));
        }
        seen
    }

    /// PANDEMONIUM's own averages stop short of 30 at 60 Hz and of 90 at 100 Hz, for want of
    /// fraction bits; the formula is the same.
    #[test]
    fn the_score_is_the_formula_s() {
        for (hz, freq, score) in
            [(20, 2, 4), (40, 4, 16), (60, 6, 36), (80, 8, 64), (100, 10, 100), (200, 20, 255)]
        {
            let seen = lives(hz, 200, 60);
            assert_eq!((seen.wake_freq(), seen.score()), (freq, score), "{hz} Hz");
        }
        assert_eq!(lives(60, 3_500, 60).score(), 12, "three units of run");
        assert_eq!(lives(100, 50_000, 60).score(), 100 / 47);
    }

    #[test]
    fn small_values_move_both_ways() {
        let slow = lives(1, 200, 40);
        assert_eq!(slow.wake_freq(), 0);
        assert!(slow.wake_freq > 0, "0.1 in 100 ms is not nothing");
        let quick = continues(slow, 50, 200, 60);
        assert_eq!(quick.wake_freq(), 4, "approached from below");
    }

    /// F2: in whole numbers seven and seven stay for ever, a score of 49.
    #[test]
    fn a_task_that_slows_down_is_forgotten() {
        let quick = lives(100, 200, 60);
        let slow = continues(quick, 1, 200, 5);
        assert!(slow.score() < 8, "{}", slow.score());
    }

    #[test]
    fn a_run_that_varies_counts_as_longer() {
        let steady = lives(50, 4_000, 60);
        let mut varies = steady;
        for n in 0..60 {
            let run = if n % 2 == 0 { 1_000 } else { 7_000 };
            varies = continues(varies, 50, run, 1);
        }
        assert!(varies.run_dev() > Span::from_micros(2_000), "{}", varies.run_dev());
        assert!(varies.score() < steady.score());
    }

    #[test]
    fn a_run_goes_on_while_the_task_only_loses_the_cpu() {
        let mut seen = lives(50, 1_000, 20);
        let woken = seen.woken;
        for part in 1..=4 {
            let awake = Span::from_millis(4 * part);
            let requeue = Arrival { cause: Cause::Requeue, awake, ..wakeup() };
            seen.observe(woken + awake, &requeue, Span::from_millis(4));
        }
        assert_eq!(seen.awake(), Span::from_millis(16));
        assert_eq!(seen.run(), Span::from_millis(1), "nothing is learned before it sleeps");
        for _ in 0..40 {
            let requeue =
                Arrival { cause: Cause::Requeue, awake: Span::from_millis(16), ..wakeup() };
            seen.observe(seen.woken, &requeue, Span::from_millis(4));
            seen = continues(seen, 50, 4_000, 1);
        }
        assert!(seen.run() > Span::from_millis(19), "16 ms and the last stint: {}", seen.run());
    }

    /// Nine of ten wake-ups find an idle CPU and never come up.
    #[test]
    fn facts_count_what_never_came_up() {
        let mut seen = Behaviour::default();
        for n in 1..=60u64 {
            let facts = Facts {
                wakeups: 10 * n,
                voluntary: 10 * n,
                cpu_time: Span::from_micros(10 * n * 200),
                ..Facts::default()
            };
            let arrival = Arrival { facts: Some(facts), ..wakeup() };
            seen.observe(Stamp::from_nanos(n * 100_000_000), &arrival, Span::from_millis(2));
        }
        assert_eq!(seen.wake_freq(), 10);
        assert_eq!(seen.run(), Span::from_micros(200));
        assert_eq!(seen.score(), 100);
    }

    /// A wake-up at 100 ms after a sleep of 9 ms and a run of 1 ms.
    fn watched(wakeups: u64) -> Facts {
        let at = |ms: u64| Stamp::from_nanos(ms * 1_000_000);
        let run = Span::from_millis(1);
        let (woken, stopped, cpu_time) = (at(100), at(91), run.scale(wakeups, 1));
        Facts {
            wakeups,
            voluntary: wakeups - 1,
            cpu_time,
            woken,
            run_interval: run,
            stopped,
            ..Facts::default()
        }
    }

    #[test]
    fn what_the_fast_path_watched_counts_at_the_first_wake_up() {
        let of = |facts| Behaviour::witnessed(&Arrival { facts: Some(facts), ..wakeup() });
        let mut seen = of(watched(3)).expect("three wake-ups");
        assert!(!seen.speaks(), "before the wake-up itself is taken in");
        let arrival = Arrival { facts: Some(watched(3)), ..wakeup() };
        seen.observe(Stamp::from_nanos(100_000_000), &arrival, Span::from_millis(1));
        assert!(seen.speaks());
        assert_eq!((seen.wake_freq(), seen.run()), (10, Span::from_millis(1)));
        assert_eq!(of(watched(2)), None, "its last run may be the start of a program");
        let lost = Facts { stopped: watched(3).woken, ..watched(3) };
        assert_eq!(of(lost), None, "it has lost its CPU, not slept");
        let unseen = Facts { run_interval: Span::ZERO, ..watched(3) };
        assert_eq!(of(unseen), None);
        assert_eq!(Behaviour::witnessed(&wakeup()), None, "without a fast path");
    }

    #[test]
    fn what_births_take_is_not_the_parent_s_run() {
        let mut seen = lives(10, 500, 20);
        for _ in 0..60 {
            (0..12).for_each(|_| seen.note_fork());
            seen = continues(seen, 10, 20_000, 1);
        }
        let run = seen.run().as_micros();
        assert!((7_900..=8_000).contains(&run), "20 ms without twelve births of 1 ms: {run} us");
        let quick = without_births(Span::from_micros(400), 1);
        assert_eq!(quick, Span::from_micros(200), "half of a run that is one quick birth");
    }

    #[test]
    fn what_births_take_of_its_time_is_an_average() {
        let mut seen = lives(100, 500, 20);
        for _ in 0..200 {
            seen.note_fork();
            seen = continues(seen, 100, 4_000, 1);
        }
        let percent = |seen: &Behaviour| u64::from(seen.breeding) * 100 / WHOLE;
        assert!((38..=40).contains(&percent(&seen)), "{}", percent(&seen));
        assert!(seen.is_fork_loop(false), "4 ms of 10");
        let pause = continues(seen, 10, 4_000, 1);
        assert!((22..=26).contains(&percent(&pause)), "{}", percent(&pause));
        let silence = continues(seen, 1, 4_000, 1);
        assert_eq!(silence.breeding, 0, "longer than it remembers");
    }

    #[test]
    fn the_first_wakeups_say_nothing() {
        let seen = lives(1_000, 10, 1);
        assert!(!seen.speaks());
        assert_eq!((seen.run(), seen.wake_freq()), (RUN_NEW, WAKE_FREQ_NEW));
        assert!(lives(1_000, 10, 2).speaks());
        assert!(!lives(1_000, 10, 7).is_mature() && lives(1_000, 10, 8).is_mature());
    }

    #[test]
    fn what_is_predicted_is_what_was_observed() {
        let seen = lives(100, 700, 60);
        let observed = seen.observation(Tier::LatCritical);
        assert_eq!(observed.wake_freq, Rate::from_millihertz(100_000));
        let prediction = Prediction {
            tier: observed.tier,
            run: observed.run,
            run_dev: observed.run_dev,
            wake_freq: observed.wake_freq,
            csw_rate: observed.csw_rate,
            confidence: pandemonium_engine::procdb::Confidence::LIMIT,
        };
        let again = Behaviour::predicted(&prediction);
        assert_eq!((again.score(), again.run()), (seen.score(), seen.run()));
        assert!(!again.speaks());
    }
}
