// SPDX-License-Identifier: GPL-2.0-only

//! The observed behaviour of a task, and its score: how often it wakes up, how often it gives up
//! the CPU, how long it runs between two sleeps, and how much that varies.
//!
//! Averages are exponential. They have eight fraction bits, so that small values change too: the
//! average of a task of 100 Hz that slows to 1 Hz drops as quickly as any other. After a long sleep
//! an average makes additional steps, one for each unit of time without a wakeup.

use super::forks::Forks;
use super::share::Share;
use pandemonium_engine::procdb::{Observation, Prediction, Rate};
use pandemonium_engine::task::{Arrival, Cause, Tier};
use pandemonium_engine::time::{ShortSpan, Span, Stamp};

/// Rates count events in this time, as in PANDEMONIUM.
const UNIT: Span = Span::from_millis(100);
/// Fraction bits of a rate.
const FRACTION: u32 = 8;
/// Highest rate of wakeups in 100 ms (PANDEMONIUM 5.4.13): more wakeups are not more urgent.
const WAKE_FREQ_MAX: u64 = 64;
/// Highest rate of voluntary switches in 100 ms (PANDEMONIUM 5.4.13).
const CSW_RATE_MAX: u64 = 512;
/// A new task counts as one of 200 Hz with runs of 100 us (PANDEMONIUM 5.4.13).
const WAKE_FREQ_NEW: u64 = 20;
/// See [`WAKE_FREQ_NEW`].
const RUN_NEW: Span = Span::from_micros(100);
/// From this many wakeups on the averages are used. Earlier ones are only counted, because they
/// describe the start of a program.
const WAKEUPS_KNOWN: u8 = 2;
/// Fewest wakeups after which the facts of the fast path replace the task's first messages.
/// Chosen: the last run and sleep then follow another run and sleep, so they are not the start of a
/// program.
const OBSERVED_MIN: u64 = 3;
/// From this many wakeups on averages move by an eighth, before that by a half. The count of
/// wakeups stops here.
const WAKEUPS_MATURE: u8 = 8;
/// A frame at 60 Hz. An average run longer than this is that of a hog.
pub const FRAME: Span = Span::from_micros(16_667);
/// The most that one run counts: a longer one is a hog's run too, and says no more.
const RUN_COUNTS_MAX: Span = FRAME.scale(2, 1);
/// A run this short contradicts an average of more than a [`FRAME`]: that average restarts.
/// Chosen: below the run that demotes, so that a hog's pieces of work do not contradict it.
const RUN_SHORT: Span = Span::from_millis(2);
/// A sleep of this length is long after any run. Chosen: half of the window of a CPU share.
pub const SLEEP_LONG: Span = Span::from_millis(128);
/// The time over which the share of a task is averaged. Chosen: longer than the time between two
/// bursts of forks of a shell, so that one burst changes little.
const SHARE_WINDOW: Span = Span::from_millis(256);
/// A share of 100 %.
const WHOLE: u64 = u16::MAX as u64;
/// The CPU time of a wakeup besides the task's run: a round of the scheduler process and the
/// switches to it. Measured: 24 us on a virtual machine of 1 GIPS (docs/fast-path.md).
const ROUND: Span = Span::from_micros(20);
/// The highest [`Behaviour::score`].
pub const SCORE_MAX: u32 = 255;

/// The behaviour of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Average length of a run between two sleeps.
    run: ShortSpan,
    /// Average deviation of a run from `run`.
    run_dev: ShortSpan,
    /// CPU time since the last wakeup.
    awake: ShortSpan,
    /// Time of the last wakeup.
    woken: Stamp,
    /// Total CPU time, wakeups and voluntary switches at that time, if known.
    cpu_time: Span,
    wakeups: u32,
    voluntary: u32,
    /// Wakeups and voluntary switches in 100 ms, with [`FRACTION`].
    wake_freq: u16,
    csw_rate: u32,
    /// Observed wakeups, up to [`WAKEUPS_MATURE`].
    wakeups_seen: u8,
    /// Its forks.
    pub forks: Forks,
    /// Whether the last sleep was as long as the run before it, or of [`SLEEP_LONG`].
    rested: bool,
    /// The share of a CPU that it uses, including the cost of its wakeups, of [`WHOLE`].
    cpu_share: u16,
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
            wakeups_seen: 0,
            forks: Forks::default(),
            rested: false,
            cpu_share: 0,
        }
    }
}

/// The events between two wakeups.
struct Interval {
    length: Span,
    wakeups: u64,
    voluntary: u64,
    /// CPU time of all runs.
    ran: Span,
    /// The sleep that ended last.
    slept: Span,
}

impl Interval {
    /// CPU time of one run.
    fn run(&self) -> Span {
        self.ran.scale(1, self.wakeups)
    }
}

impl Behaviour {
    /// The behaviour predicted by a name, for a task without observed behaviour.
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

    /// The behaviour restored after a restart of the scheduler.
    pub fn remembered(run: Span) -> Behaviour {
        Behaviour { run: ShortSpan::of(run), wakeups_seen: WAKEUPS_KNOWN, ..Behaviour::default() }
    }

    /// The behaviour from the facts of the fast path. It is for a task that was not queued to user
    /// space before, because its wakeups found idle CPUs. It is as if observation had begun with
    /// the task's last run, so that an urgent task is urgent at once when an idle machine becomes
    /// busy. A task that lost its CPU is urgent at its next wakeup, because its run is not over.
    pub fn observed(arrival: &Arrival) -> Option<Behaviour> {
        let facts = arrival.facts.filter(|facts| facts.wakeups >= OBSERVED_MIN)?;
        let has_slept = facts.has_slept();
        let (woken, run) = match has_slept {
            true => (facts.last_began()?, facts.run_interval),
            false => (facts.woken, arrival.awake),
        };
        Some(Behaviour {
            woken,
            cpu_time: facts.cpu_time - run,
            wakeups: (facts.wakeups as u32).wrapping_sub(has_slept.into()),
            voluntary: (facts.voluntary as u32).saturating_sub(has_slept.into()),
            wakeups_seen: WAKEUPS_KNOWN - 1,
            ..Behaviour::default()
        })
    }

    /// Learns from a message. `since` is the time since the last one, `ran` the CPU time since
    /// then.
    pub fn observe(&mut self, now: Stamp, arrival: &Arrival, since: Span, ran: Span) {
        match arrival.cause {
            Cause::Requeue => self.awake = ShortSpan::of(arrival.awake),
            Cause::New => self.begin(now, arrival),
            Cause::Wakeup => {
                let interval = self.interval(now, arrival, since, ran);
                self.note_share(&interval);
                self.wakeups_seen = self.wakeups_seen.saturating_add(1).min(WAKEUPS_MATURE);
                // The first sleep ends a run that began before observation.
                if self.wakeups_seen >= WAKEUPS_KNOWN {
                    self.learn(&interval);
                }
                self.rested = interval.slept >= interval.run().min(SLEEP_LONG);
                self.begin(now, arrival);
            }
        }
    }

    /// Starts a run.
    pub fn begin(&mut self, now: Stamp, arrival: &Arrival) {
        self.woken = now;
        self.awake = ShortSpan::default();
        self.forks.begin();
        if let Some(facts) = &arrival.facts {
            self.cpu_time = facts.cpu_time;
            self.wakeups = facts.wakeups as u32;
            self.voluntary = facts.voluntary as u32;
        }
    }

    /// The events since [`begin`](Self::begin). With facts this includes wakeups that found an
    /// idle CPU and were not queued to user space. Without facts one sleep is one voluntary switch.
    fn interval(&self, now: Stamp, arrival: &Arrival, since: Span, ran: Span) -> Interval {
        let length = now.since(self.woken).max(Span::from_micros(1));
        let slept = slept(arrival, since, ran).min(length);
        let Some(facts) = arrival.facts.filter(|_| self.wakeups > 0) else {
            let ran = self.awake() + ran;
            return Interval { length, wakeups: 1, voluntary: 1, ran, slept };
        };
        let wakeups = counted(facts.wakeups, self.wakeups).max(1);
        let voluntary = counted(facts.voluntary, self.voluntary);
        Interval { length, wakeups, voluntary, ran: facts.cpu_time - self.cpu_time, slept }
    }

    /// Averages the share of a CPU that the task uses, and notes whether it forks.
    fn note_share(&mut self, seen: &Interval) {
        let spent = (seen.ran + ROUND.scale(seen.wakeups, 1)).min(seen.length);
        // With orders a message may tell of more than a window: of that the average counts.
        let window = seen.length.max(SHARE_WINDOW);
        let share = |time: Span| time.scale(WHOLE, window.as_nanos()).as_nanos();
        let kept = u64::from(self.cpu_share) * (WHOLE - share(seen.length)) / WHOLE;
        self.cpu_share = (kept + share(spent)).min(WHOLE) as u16;
        self.forks.note_wakeup();
    }

    /// Moves the averages of rates and of the run. A hog's average restarts at the first short run:
    /// in steps of an eighth a program that has computed for seconds would be a hog for twenty
    /// wakeups more. Rates do not restart, so one short run does not make a hog LatCritical.
    fn learn(&mut self, seen: &Interval) {
        let units = seen.length.as_nanos() / UNIT.as_nanos();
        let rate = |events: u64, max: u64| {
            let doubled = UNIT.scale(events << (FRACTION + 1), seen.length.as_nanos());
            (doubled.as_nanos().saturating_add(1) / 2).min(max << FRACTION) as u32
        };
        let wakes = rate(seen.wakeups, WAKE_FREQ_MAX);
        let switches = rate(seen.voluntary, CSW_RATE_MAX);
        // One step for the wakeup, and one for each unit of time without a wakeup.
        for _ in 0..1 + units.min(u64::from(WAKEUPS_MATURE)) {
            self.wake_freq = self.rate(self.wake_freq.into(), wakes) as u16;
            self.csw_rate = self.rate(self.csw_rate, switches);
        }
        let run = self.forks.left_of(seen.run()).min(RUN_COUNTS_MAX);
        let off = Span::from_nanos(run.as_nanos().abs_diff(self.run().as_nanos()));
        let contradicts = self.run() > FRAME && run <= RUN_SHORT;
        if self.wakeups_seen == WAKEUPS_KNOWN || contradicts {
            (self.run, self.run_dev) = (ShortSpan::of(run), ShortSpan::default());
            return;
        }
        self.run_dev = self.step_span(self.run_dev, off);
        self.run = self.step_span(self.run, run);
    }

    fn rate(&self, old: u32, new: u32) -> u32 {
        match self.wakeups_seen {
            WAKEUPS_KNOWN => new,
            _ => self.step(old.into(), new.into()) as u32,
        }
    }

    /// One step of an average: half of the difference before maturity, an eighth later. It is
    /// rounded to the nearest, so that steps up and down are equal.
    fn step(&self, old: u64, new: u64) -> u64 {
        let over = if self.wakeups_seen < WAKEUPS_MATURE { 2 } else { 8 };
        let sum = u128::from(old) * (over - 1) + u128::from(new);
        ((sum + over / 2) / over) as u64
    }

    fn step_span(&self, old: ShortSpan, new: Span) -> ShortSpan {
        ShortSpan::of(Span::from_nanos(self.step(old.get().as_nanos(), new.as_nanos())))
    }

    /// Average length of a run between two sleeps, up to 4.29 s.
    pub fn run(&self) -> Span {
        self.run.get()
    }

    /// Average deviation of a run from [`run`](Self::run).
    pub fn run_dev(&self) -> Span {
        self.run_dev.get()
    }

    /// CPU time since the last wakeup, up to 4.29 s.
    pub fn awake(&self) -> Span {
        self.awake.get()
    }

    /// Whether the last sleep was as long as the run before it, or of 128 ms.
    pub fn has_rested(&self) -> bool {
        self.rested
    }

    /// The share of a CPU that it uses, including the cost of its wakeups.
    pub fn share(&self) -> Share {
        Share::of(self.cpu_share.into(), WHOLE)
    }

    /// The expected run: the average, or the current run if that is longer already.
    pub fn expected_run(&self) -> Span {
        self.run.max(self.awake).get()
    }

    /// The latency score, 0 to [`SCORE_MAX`]: wakeups times voluntary switches in 100 ms, divided
    /// by the run in units of 2^20 ns (PANDEMONIUM 5.4.13). Half of the deviation is added to the
    /// run, and a run counts as at least one unit.
    pub fn score(&self) -> u32 {
        let run = (self.run() + self.run_dev().scale(1, 2)).as_nanos() >> 20;
        let events = (u64::from(self.wake_freq) * u64::from(self.csw_rate)) >> (2 * FRACTION);
        (events / run.max(1)).min(u64::from(SCORE_MAX)) as u32
    }

    /// Wakeups in 100 ms.
    pub fn wake_freq(&self) -> u64 {
        u64::from(self.wake_freq >> FRACTION)
    }

    /// Whether it has woken up often enough that its averages are used.
    pub fn is_known(&self) -> bool {
        self.wakeups_seen >= WAKEUPS_KNOWN
    }

    /// Whether it has woken up so often that averages move slowly.
    pub fn is_mature(&self) -> bool {
        self.wakeups_seen >= WAKEUPS_MATURE
    }

    /// The observation for the process database, without a name.
    pub fn observation(&self, tier: Tier) -> Observation {
        let rate =
            |fixed: u32| Rate::from_millihertz(((u64::from(fixed) * 10_000) >> FRACTION) as u32);
        Observation {
            tier,
            run: self.expected_run(),
            run_dev: self.run_dev(),
            wake_freq: rate(self.wake_freq.into()),
            csw_rate: rate(self.csw_rate),
            ..Observation::default()
        }
    }
}

/// Events since a count of `before`. Counts wrap, and begin anew if the fast path has lost its
/// record of the task: then there was at least one.
fn counted(count: u64, before: u32) -> u64 {
    match (count as u32).wrapping_sub(before) {
        since if since > u32::MAX / 2 => 1,
        since => since.into(),
    }
}

/// The length of the sleep that a wakeup ended. Without facts, or if the fast path has lost its
/// record of the task during the sleep, it is the time since the last message in which the task did
/// not run: that includes a wait for a CPU, but [`Arrival::stopped`] is of another clock.
fn slept(arrival: &Arrival, since: Span, ran: Span) -> Span {
    match &arrival.facts {
        Some(facts) if facts.slept > Span::ZERO => facts.slept,
        _ => since - ran,
    }
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
    fn task_at(hz: u64, run_us: u64, wakeups: u64) -> Behaviour {
        continues(Behaviour::default(), hz, run_us, wakeups)
    }

    fn continues(mut seen: Behaviour, hz: u64, run_us: u64, wakeups: u64) -> Behaviour {
        let from = seen.woken;
        for n in 1..=wakeups {
            let now = from + Span::from_nanos(n * 1_000_000_000 / hz);
            seen.observe(now, &wakeup(), Span::ZERO, Span::from_micros(run_us));
        }
        seen
    }

    /// PANDEMONIUM has the same formula. Its averages have no fraction bits and stop short of their
    /// target, which gives scores of 30 at 60 Hz and 90 at 100 Hz.
    #[test]
    fn the_score_follows_the_formula() {
        for (hz, freq, score) in
            [(20, 2, 4), (40, 4, 16), (60, 6, 36), (80, 8, 64), (100, 10, 100), (200, 20, 255)]
        {
            let seen = task_at(hz, 200, 60);
            assert_eq!((seen.wake_freq(), seen.score()), (freq, score), "{hz} Hz");
        }
        assert_eq!(task_at(60, 3_500, 60).score(), 12, "three units of run");
        assert_eq!(task_at(100, 20_000, 60).score(), 100 / 19);
        assert_eq!(task_at(100, 50_000, 60).run(), RUN_COUNTS_MAX);
    }

    #[test]
    fn small_rates_move_up_and_down() {
        let slow = task_at(1, 200, 40);
        assert_eq!(slow.wake_freq(), 0);
        assert!(slow.wake_freq > 0, "0.1 in 100 ms is not nothing");
        let quick = continues(slow, 50, 200, 60);
        assert_eq!(quick.wake_freq(), 4, "approached from below");
    }

    /// Without fraction bits both rates would stay at seven for ever, a score of 49.
    #[test]
    fn the_score_of_a_task_that_slows_down_drops() {
        let quick = task_at(100, 200, 60);
        let slow = continues(quick, 1, 200, 5);
        assert!(slow.score() < 8, "{}", slow.score());
    }

    #[test]
    fn a_run_that_varies_counts_as_longer() {
        let steady = task_at(50, 4_000, 60);
        let mut varies = steady;
        for n in 0..60 {
            let run = if n % 2 == 0 { 1_000 } else { 7_000 };
            varies = continues(varies, 50, run, 1);
        }
        assert!(varies.run_dev() > Span::from_micros(2_000), "{}", varies.run_dev());
        assert!(varies.score() < steady.score());
    }

    #[test]
    fn a_run_ends_only_when_the_task_sleeps() {
        let mut seen = task_at(50, 1_000, 20);
        let woken = seen.woken;
        for part in 1..=4 {
            let awake = Span::from_millis(4 * part);
            let requeue = Arrival { cause: Cause::Requeue, awake, ..wakeup() };
            seen.observe(woken + awake, &requeue, Span::ZERO, Span::from_millis(4));
        }
        assert_eq!(seen.awake(), Span::from_millis(16));
        assert_eq!(seen.run(), Span::from_millis(1), "nothing is learned before it sleeps");
        for _ in 0..40 {
            let requeue =
                Arrival { cause: Cause::Requeue, awake: Span::from_millis(16), ..wakeup() };
            seen.observe(seen.woken, &requeue, Span::ZERO, Span::from_millis(4));
            seen = continues(seen, 50, 4_000, 1);
        }
        assert!(
            seen.run() > Span::from_millis(19),
            "16 ms and the last run interval: {}",
            seen.run()
        );
    }

    /// Nine of ten wakeups find an idle CPU.
    #[test]
    fn facts_count_wake_ups_that_were_not_queued_to_user_space() {
        let mut seen = Behaviour::default();
        for n in 1..=60u64 {
            let facts = Facts {
                wakeups: 10 * n,
                voluntary: 10 * n,
                cpu_time: Span::from_micros(10 * n * 200),
                ..Facts::default()
            };
            let arrival = Arrival { facts: Some(facts), ..wakeup() };
            let now = Stamp::from_nanos(n * 100_000_000);
            seen.observe(now, &arrival, Span::ZERO, Span::from_millis(2));
        }
        assert_eq!(seen.wake_freq(), 10);
        assert_eq!(seen.run(), Span::from_micros(200));
        assert_eq!(seen.score(), 100);
    }

    /// A wakeup at 100 ms after a sleep of 9 ms and a run of 1 ms.
    fn facts_after(wakeups: u64) -> Facts {
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
    fn facts_of_the_fast_path_count_at_the_first_message() {
        let of = |facts| Behaviour::observed(&Arrival { facts: Some(facts), ..wakeup() });
        let mut seen = of(facts_after(3)).expect("three wakeups");
        assert!(!seen.is_known(), "before the wakeup itself is taken in");
        let arrival = Arrival { facts: Some(facts_after(3)), ..wakeup() };
        let now = Stamp::from_nanos(100_000_000);
        seen.observe(now, &arrival, Span::ZERO, Span::from_millis(1));
        assert!(seen.is_known());
        assert_eq!((seen.wake_freq(), seen.run()), (10, Span::from_millis(1)));
        assert_eq!(of(facts_after(2)), None, "its last run may be the start of a program");
        let unseen = Facts { run_interval: Span::ZERO, ..facts_after(3) };
        assert_eq!(of(unseen), None);
        assert_eq!(Behaviour::observed(&wakeup()), None, "without a fast path");
    }

    #[test]
    fn a_task_that_lost_its_cpu_at_its_first_message_is_known_at_the_next_wakeup() {
        let at = |ms: u64| Stamp::from_nanos(ms * 1_000_000);
        let awake = Span::from_micros(300);
        let lost = Facts { stopped: at(101), ..facts_after(3) };
        let arrival = Arrival { facts: Some(lost), awake, cause: Cause::Requeue, ..wakeup() };
        let mut seen = Behaviour::observed(&arrival).expect("three wakeups");
        seen.observe(at(101), &arrival, Span::ZERO, Span::ZERO);
        assert!(!seen.is_known(), "its run is not over");
        let next = Facts {
            wakeups: 4,
            voluntary: 3,
            cpu_time: lost.cpu_time + Span::from_micros(200),
            woken: at(110),
            ..lost
        };
        let again = Arrival { facts: Some(next), ..wakeup() };
        seen.observe(at(110), &again, Span::ZERO, Span::ZERO);
        assert!(seen.is_known());
        assert_eq!((seen.wake_freq(), seen.run()), (10, Span::from_micros(500)));
    }

    /// A task that wakes every 5 ms for `us`, after a run of `computed` and a sleep of one second.
    fn changed(before: Behaviour, computed: Span, us: u64, wakeups: u64) -> Behaviour {
        let mut seen = before;
        seen.observe(seen.woken + Span::from_millis(2_000), &wakeup(), Span::ZERO, computed);
        continues(seen, 200, us, wakeups)
    }

    #[test]
    fn one_long_run_does_not_make_a_hog() {
        let seen = changed(task_at(200, 100, 60), Span::from_millis(4_000), 100, 0);
        assert!(seen.run() < Span::from_millis(5), "{}", seen.run());
        assert!(changed(seen, Span::from_millis(200), 100, 12).score() >= 32);
    }

    #[test]
    fn a_hogs_average_restarts_at_a_short_run() {
        let hog = task_at(5, 150_000, 60);
        assert!(hog.run() > FRAME);
        assert_eq!(changed(hog, Span::from_millis(200), 100, 1).run(), Span::from_micros(100));
        assert!(changed(hog, Span::from_millis(200), 100, 1).score() < 32, "rates do not restart");
        assert!(changed(hog, Span::from_millis(200), 100, 5).score() >= 32);
        assert!(changed(hog, Span::from_millis(200), 3_000, 1).run() > FRAME, "not so short");
    }

    #[test]
    fn a_sleep_is_long_compared_with_the_run_before() {
        let after = |ran: u64, slept: u64| {
            let begin = Stamp::from_nanos(1 << 40);
            let mut seen = Behaviour { woken: begin, ..Behaviour::default() };
            let (since, ran) = (Span::from_millis(ran + slept), Span::from_millis(ran));
            // The end of the run by another clock, which is far behind.
            let arrival = Arrival { stopped: Stamp::from_nanos(1), ..wakeup() };
            seen.observe(begin + since, &arrival, since, ran);
            seen.has_rested()
        };
        assert!(after(10, 10) && !after(10, 9));
        assert!(after(5_000, 128) && !after(5_000, 127));
    }

    #[test]
    fn a_lost_record_is_no_storm_of_wakeups_and_no_task_without_sleep() {
        let at = |ms: u64| Stamp::from_nanos(1 << 40) + Span::from_millis(ms);
        let facts = Facts { wakeups: 50, voluntary: 50, woken: at(0), ..Facts::default() };
        let mut seen = Behaviour { wakeups_seen: WAKEUPS_MATURE, ..Behaviour::default() };
        seen.begin(at(0), &Arrival { facts: Some(facts), ..wakeup() });
        // A record that was begun in the sleep knows of one wakeup, and not how long the sleep was.
        let ran = Span::from_micros(100);
        let facts = Facts { wakeups: 1, woken: at(100), cpu_time: ran, ..Facts::default() };
        let arrival = Arrival { facts: Some(facts), ..wakeup() };
        seen.observe(at(100), &arrival, Span::from_millis(100), ran);
        assert!(seen.has_rested(), "it slept for 99.9 ms");
        assert!(seen.cpu_share < u16::MAX / 100, "a share of {} of {}", seen.cpu_share, u16::MAX);
        assert!(seen.wake_freq < (WAKE_FREQ_NEW as u16) << (FRACTION + 1), "{}", seen.wake_freq);
    }

    #[test]
    fn the_time_of_forks_is_not_part_of_the_run() {
        let mut seen = task_at(10, 500, 20);
        for _ in 0..60 {
            (0..12).for_each(|_| seen.forks.note());
            seen = continues(seen, 10, 20_000, 1);
        }
        let run = seen.run().as_micros();
        assert!((7_900..=8_000).contains(&run), "20 ms without twelve forks of 1 ms: {run} us");
    }

    #[test]
    fn a_share_of_a_cpu_makes_a_fork_loop_of_a_task_that_forks() {
        let mut seen = task_at(100, 500, 20);
        for _ in 0..200 {
            seen.forks.note();
            seen = continues(seen, 100, 4_000, 1);
        }
        let percent = |seen: &Behaviour| u64::from(seen.cpu_share) * 100 / WHOLE;
        assert!((38..=41).contains(&percent(&seen)), "{}", percent(&seen));
        let is_loop = |seen: &Behaviour, before| seen.forks.is_loop(before, seen.share());
        assert!(is_loop(&seen, false), "4 ms of 10");
        let computes = continues(seen, 100, 4_000, 8);
        assert!(!is_loop(&computes, true), "as much, without forks");
        let pause = continues(seen, 10, 4_000, 1);
        assert!((22..=28).contains(&percent(&pause)), "{}", percent(&pause));
        assert!(is_loop(&pause, true) && !is_loop(&pause, false));
        let second = continues(seen, 1, 100_000, 1);
        assert_eq!(percent(&second), 10, "of the second, which is longer than the window");
    }

    #[test]
    fn a_sleep_of_days_leaves_nothing_of_a_share() {
        let mut seen = task_at(100, 9_000, 200);
        assert!(u64::from(seen.cpu_share) > WHOLE / 2);
        let (days, ran) = (Span::from_millis(5 * 86_400_000), Span::from_micros(100));
        seen.observe(seen.woken + days, &wakeup(), days, ran);
        assert_eq!(seen.cpu_share, 0);
    }

    #[test]
    fn the_first_wake_ups_are_only_counted() {
        let seen = task_at(1_000, 10, 1);
        assert!(!seen.is_known());
        assert_eq!((seen.run(), seen.wake_freq()), (RUN_NEW, WAKE_FREQ_NEW));
        assert!(task_at(1_000, 10, 2).is_known());
        assert!(!task_at(1_000, 10, 7).is_mature() && task_at(1_000, 10, 8).is_mature());
    }

    #[test]
    fn a_prediction_gives_the_observed_behaviour_back() {
        let seen = task_at(100, 700, 60);
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
        assert!(!again.is_known());
    }
}
