// SPDX-License-Identifier: GPL-2.0-only

//! The adaptive loop, its detectors and the knobs, from outside.
//!
//! Numbers are those that PANDEMONIUM 5.4.13 documents or, for its tests, demands. No formula is
//! repeated here: every expectation is a number that somebody can check by hand.

use pandemonium_engine::Mode;
use pandemonium_engine::histogram::{Latencies, Sleeps};
use pandemonium_engine::knobs::{FileError, KeySet, KnobError};
use pandemonium_engine::task::{Cause, Tier};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::Scaling;
use pandemonium_policies::control::detect::{
    BURST_QUIET, Burst, Cusum, Detectors, LONGRUN, Longrun, WAKE_WINDOW, WakeRate,
};
use pandemonium_policies::control::regime::{Detector, Profile, Regime};
use pandemonium_policies::control::tune::{
    Reflex, SLICE_FLOOR, STABLE, Sojourn, sleep_adjusted, spikes, stability, worth_a_line,
};
use pandemonium_policies::control::{Controller, GAP, INTERVAL, Sample, idle_per_mille};
use pandemonium_policies::knobs::{Affinity, BATCH_SLICE, BATCH_SLICE_PREEMPTIBLE, Knobs, Rules};
use proptest::prelude::*;

const US: fn(u64) -> Span = Span::from_micros;
const MS: fn(u64) -> Span = Span::from_millis;

/// A CPU count at which no cap of a profile matters.
const CPUS: u32 = 8;

/// A machine whose controller is stepped once a second.
struct Machine {
    control: Controller,
    now: Stamp,
}

impl Machine {
    fn new(cpus: u32) -> Machine {
        Machine::with(cpus, Knobs::default(), Knobs::none())
    }

    /// One whose backend can interrupt a task, so that the README's batch slices apply.
    fn preemptible() -> Machine {
        let start = Knobs { batch_slice: BATCH_SLICE_PREEMPTIBLE, ..Knobs::default() };
        Machine::with(CPUS, start, Knobs::none())
    }

    fn with(cpus: u32, start: Knobs, pinned: KeySet) -> Machine {
        Machine { control: Controller::new(cpus, start, pinned), now: Stamp::default() }
    }

    fn step(&mut self, sample: Sample) -> Option<Knobs> {
        self.now = self.now + INTERVAL;
        self.control.step(self.now, &sample)
    }

    fn steps(&mut self, times: usize, sample: Sample) -> Knobs {
        for _ in 0..times {
            self.step(sample);
        }
        *self.control.knobs()
    }

    /// Brings the machine into a regime, through MIXED if need be.
    fn enter(&mut self, regime: Regime) {
        let idle = match regime {
            Regime::Light => 900,
            Regime::Mixed => 290,
            Regime::Heavy => 0,
        };
        self.steps(4, idling(idle));
        assert_eq!(self.control.regime(), regime);
    }

    /// How often it has tightened, as it says itself.
    fn tightenings(&self) -> String {
        let line = self.control.line().to_string();
        line.split(' ').filter(|word| word.starts_with("tighten_events=")).collect()
    }
}

/// A second in which nothing is remarkable and the regime stays MIXED.
fn quiet() -> Sample {
    idling(290)
}

fn idling(idle: u32) -> Sample {
    Sample { elapsed: INTERVAL, idle: Some(idle), ..Sample::default() }
}

/// A quiet second in which every task of `tier` waited so long.
fn waits(tier: Tier, wait: Span) -> Sample {
    let mut sample = quiet();
    for _ in 0..100 {
        sample.latency[tier.index()].record(wait);
    }
    sample
}

/// A second with a P99 far above every ceiling.
fn bad() -> Sample {
    waits(Tier::Batch, MS(20))
}

/// A quiet second in which so many of 100 sleeps were waits for I/O.
fn sleeping(io: u64) -> Sample {
    Sample { sleep: sleeps(io), ..quiet() }
}

fn sleeps(io: u64) -> Sleeps {
    let mut sleeps = Sleeps::default();
    (0..100).for_each(|i| sleeps.record(if i < io { MS(1) } else { MS(500) }));
    sleeps
}

fn latencies(counts: &[(u64, Span)]) -> Latencies {
    let mut latencies = Latencies::default();
    for &(count, wait) in counts {
        (0..count).for_each(|_| latencies.record(wait));
    }
    latencies
}

// ---- Histograms -------------------------------------------------------------------------------

#[test]
fn edges_belong_to_the_bucket_below_them() {
    let mut latencies = Latencies::default();
    for (wait, bucket) in [
        (Span::ZERO, 0),
        (US(10), 0),
        (Span::from_nanos(10_001), 1),
        (US(100), 3),
        (MS(1), 6),
        (MS(20), 10),
        (Span::from_nanos(20_000_001), 11),
        (Span::from_nanos(u64::MAX), 11),
    ] {
        let before = latencies.counts[bucket];
        latencies.record(wait);
        assert_eq!(latencies.counts[bucket], before + 1, "{wait:?}");
    }
    let mut sleeps = Sleeps::default();
    for wait in [MS(1), MS(10), MS(100), US(100_001)] {
        sleeps.record(wait);
    }
    assert_eq!(sleeps.counts, [1, 1, 1, 1]);
}

#[test]
fn the_p99_is_the_edge_that_99_of_100_did_not_exceed() {
    let cases: [(&[(u64, Span)], Span); 7] = [
        (&[], Span::ZERO),
        (&[(5_000, US(42))], US(50)),
        (&[(99, US(10)), (1, MS(10))], US(10)),
        (&[(98, US(10)), (2, MS(10))], MS(10)),
        (&[(500, MS(60))], MS(20)),
        (&[(1, US(200))], US(250)),
        (&[(100, US(100))], US(100)),
    ];
    for (counts, p99) in cases {
        assert_eq!(latencies(counts).p99(), p99, "{counts:?}");
    }
}

#[test]
fn the_p99_needs_99_of_100_and_rounds_up() {
    // Of so many, so many below the edge are just enough.
    for (total, needed) in [(1, 1), (50, 50), (99, 99), (100, 99), (101, 100), (200, 198)] {
        let split = |low: u64| latencies(&[(low, US(10)), (total - low, MS(10))]).p99();
        assert_eq!(split(needed), US(10), "{needed} of {total}");
        assert_eq!(split(needed - 1), MS(10), "{needed} of {total}");
    }
    assert_eq!(latencies(&[(990, US(10)), (10, MS(10))]).p99(), US(10));
}

#[test]
fn tiers_do_not_mix() {
    let mut latency = [Latencies::default(); 3];
    latency[Tier::Interactive.index()] = latencies(&[(100, US(50))]);
    latency[Tier::Batch.index()] = latencies(&[(100, MS(1))]);
    assert_eq!(latency[Tier::Interactive.index()].p99(), US(50));
    assert_eq!(latency[Tier::Batch.index()].p99(), MS(1));
    assert_eq!(latency[Tier::LatCritical.index()].p99(), Span::ZERO);
    assert_eq!(latency[0].plus(&latency[1]).p99(), MS(1));
}

#[test]
fn a_snapshot_gives_what_was_counted_since_and_never_less_than_nothing() {
    let early = latencies(&[(3, US(10))]);
    let late = latencies(&[(5, US(10)), (1, MS(1))]);
    assert_eq!(late.since(&early), latencies(&[(2, US(10)), (1, MS(1))]));
    assert_eq!(early.since(&late), Latencies::default());
}

#[test]
fn the_share_of_io_is_unknown_when_nobody_slept() {
    assert_eq!(Sleeps::default().io_percent(), None);
    assert_eq!(sleeps(0).io_percent(), Some(0));
    assert_eq!(sleeps(61).io_percent(), Some(61));
    assert_eq!(Sleeps { counts: [1, 1, 1, 0] }.io_percent(), Some(66));
    assert_eq!(Sleeps { counts: [u64::MAX; 4] }.io_percent(), Some(50));
}

// ---- Regimes ----------------------------------------------------------------------------------

#[test]
fn a_regime_ends_at_another_share_than_it_begins() {
    use Regime::{Heavy, Light, Mixed};
    for (from, idle, to) in [
        (Light, 290, Mixed),
        (Mixed, 90, Heavy),
        (Heavy, 260, Mixed),
        (Mixed, 510, Light),
        (Light, 350, Light),
        (Heavy, 150, Heavy),
        (Light, 300, Light),
        (Mixed, 100, Mixed),
        (Heavy, 250, Heavy),
        (Mixed, 500, Mixed),
        (Light, 0, Mixed),
        (Heavy, 1_000, Mixed),
    ] {
        assert_eq!(from.called_for(idle), to, "{from} at {idle} per mille");
    }
}

#[test]
fn a_regime_is_held_until_another_is_called_for_twice_in_a_row() {
    let play = |idles: &[u32]| {
        let mut detector = Detector::default();
        idles.iter().for_each(|&idle| _ = detector.observe(idle));
        detector.regime()
    };
    assert_eq!(play(&[]), Regime::Mixed);
    assert_eq!(play(&[50]), Regime::Mixed);
    assert_eq!(play(&[50, 50]), Regime::Heavy);
    assert_eq!(play(&[550, 550]), Regime::Light);
    assert_eq!(play(&[50, 550].repeat(20)), Regime::Mixed);
    assert_eq!(play(&[50, 550, 550]), Regime::Light);
    assert_eq!(play(&[50, 300, 50]), Regime::Mixed);
}

#[test]
fn the_profiles_are_the_readme_s() {
    let profile = |slice, preempt, lag, cpu_bound, affinity| Profile {
        slice: MS(slice),
        preempt: MS(preempt),
        lag,
        batch: MS(20),
        cpu_bound: US(cpu_bound),
        affinity,
    };
    let light = profile(2, 1, 6, 3_500, Affinity::Weak);
    let mixed = profile(1, 1, 4, 2_500, Affinity::Strong);
    let heavy = profile(4, 2, 2, 2_000, Affinity::Weak);
    for (regime, full) in Regime::ALL.into_iter().zip([light, mixed, heavy]) {
        assert_eq!(Profile::of(regime), full);
        assert_eq!(Profile::scaled(regime, &Scaling::new(CPUS)), full);
    }
}

#[test]
fn profiles_are_shorter_on_few_cpus() {
    use Regime::{Heavy, Light, Mixed};
    // us: slice, preempt; ms: batch.
    for (regime, cpus, slice, preempt, batch) in [
        (Heavy, 1, 500, 250, 20),
        (Heavy, 2, 1_000, 500, 20),
        (Heavy, 4, 2_000, 1_000, 20),
        (Heavy, 6, 3_000, 1_500, 20),
        (Heavy, 8, 4_000, 2_000, 20),
        (Light, 1, 500, 250, 20),
        (Light, 2, 1_000, 500, 20),
        (Light, 4, 2_000, 1_000, 20),
        (Mixed, 1, 500, 500, 5),
        (Mixed, 2, 1_000, 1_000, 10),
        (Mixed, 4, 1_000, 1_000, 20),
    ] {
        let found = Profile::scaled(regime, &Scaling::new(cpus));
        let expected = (US(slice), US(preempt), MS(batch));
        assert_eq!((found.slice, found.preempt, found.batch), expected, "{regime}, {cpus} CPUs");
    }
}

#[test]
fn the_idle_share_is_of_all_cpus() {
    assert_eq!(idle_per_mille(MS(1_500), MS(1_000), 2), Some(750));
    assert_eq!(idle_per_mille(MS(9_000), MS(1_000), 2), Some(1_000));
    assert_eq!(idle_per_mille(MS(1), Span::ZERO, 2), None);
    assert_eq!(idle_per_mille(MS(1), MS(1), 0), None);
}

#[test]
fn what_cannot_be_measured_changes_no_regime() {
    let mut machine = Machine::new(CPUS);
    machine.enter(Regime::Heavy);
    machine.steps(10, Sample { idle: None, ..quiet() });
    assert_eq!(machine.control.regime(), Regime::Heavy);
}

#[test]
fn a_regime_brings_its_profile_along() {
    let mut machine = Machine::preemptible();
    for regime in [Regime::Heavy, Regime::Mixed, Regime::Light] {
        machine.enter(regime);
        let (knobs, profile) = (*machine.control.knobs(), Profile::of(regime));
        assert_eq!(knobs.slice, profile.slice);
        assert_eq!(knobs.preempt_thresh, profile.preempt);
        assert_eq!(knobs.sleeper_credit_scale, profile.lag);
        assert_eq!(knobs.batch_slice, profile.batch);
        assert_eq!(knobs.cpu_bound_thresh, profile.cpu_bound);
        assert_eq!(knobs.affinity, profile.affinity);
        assert_eq!((knobs.lat_cri_high, knobs.lat_cri_low), (32, 8));
        assert_eq!(knobs.burst_slice, MS(1));
        assert_eq!(knobs.sojourn_thresh, MS(6));
    }
}

#[test]
fn intervals_on_both_sides_of_a_pause_are_not_in_a_row() {
    let mut machine = Machine::new(CPUS);
    machine.step(idling(50));
    machine.now = machine.now + GAP;
    machine.step(idling(50));
    assert_eq!(machine.control.regime(), Regime::Mixed);
    machine.step(idling(50));
    assert_eq!(machine.control.regime(), Regime::Heavy);

    let mut machine = Machine::new(CPUS);
    machine.step(bad());
    machine.now = machine.now + GAP;
    machine.step(bad());
    assert_eq!(machine.tightenings(), "tighten_events=0");
    machine.step(bad());
    assert_eq!(machine.tightenings(), "tighten_events=1");
}

// ---- Tighten and relax ------------------------------------------------------------------------

#[test]
fn either_p99_above_the_ceiling_is_a_spike() {
    let (low, high) = (MS(5), Span::from_nanos(5_000_001));
    let ceiling = Regime::Mixed.p99_ceiling();
    assert!(!spikes(low, low, ceiling));
    assert!(spikes(high, low, ceiling));
    assert!(spikes(low, high, ceiling));
    assert!(spikes(high, high, ceiling));
    assert_eq!(Regime::Light.p99_ceiling(), MS(3));
    assert_eq!(Regime::Heavy.p99_ceiling(), MS(10));
}

#[test]
fn two_spikes_in_a_row_tighten_by_a_quarter() {
    let mut machine = Machine::new(CPUS);
    assert_eq!(machine.steps(1, bad()).slice, MS(1));
    assert_eq!(machine.steps(1, quiet()).slice, MS(1));
    assert_eq!(machine.steps(1, bad()).slice, MS(1));
    let knobs = machine.steps(1, bad());
    assert_eq!((knobs.slice, knobs.preempt_thresh), (US(750), US(750)));
    assert_eq!(machine.tightenings(), "tighten_events=1");
}

#[test]
fn only_mixed_tightens() {
    for regime in [Regime::Light, Regime::Heavy] {
        let mut machine = Machine::new(CPUS);
        machine.enter(regime);
        let before = *machine.control.knobs();
        let idle = if regime == Regime::Light { 900 } else { 0 };
        let after = machine.steps(20, Sample { idle: Some(idle), ..bad() });
        assert_eq!(after.slice, before.slice, "{regime}");
        assert_eq!(machine.tightenings(), "tighten_events=0", "{regime}");
    }
}

#[test]
fn tightening_goes_on_step_by_step_down_to_the_floor() {
    let mut machine = Machine::new(CPUS);
    for ns in [750_000, 562_500, 500_000, 500_000] {
        assert_eq!(machine.steps(2, bad()).slice, Span::from_nanos(ns));
    }
    // A step that changes nothing is none.
    assert_eq!(machine.tightenings(), "tighten_events=3");
    assert_eq!(SLICE_FLOOR, US(500));
}

#[test]
fn the_interactive_p99_alone_is_enough() {
    let mut sample = waits(Tier::Interactive, MS(20));
    sample.latency[Tier::Batch.index()].counts[0] = 1_000_000;
    let mut machine = Machine::new(CPUS);
    assert_eq!(machine.steps(2, sample).slice, US(750));
}

#[test]
fn two_good_intervals_in_a_row_relax_by_a_step() {
    let mut machine = Machine::new(CPUS);
    machine.steps(6, bad());
    assert_eq!(machine.steps(1, quiet()).slice, US(500));
    assert!(machine.control.line().to_string().contains("tightened=true"));
    let knobs = machine.steps(1, quiet());
    assert_eq!((knobs.slice, knobs.preempt_thresh), (MS(1), MS(1)));
    assert!(machine.control.line().to_string().contains("tightened=false"));
}

#[test]
fn a_bad_interval_starts_the_calm_over() {
    let mut machine = Machine::new(CPUS);
    machine.steps(6, bad());
    for _ in 0..5 {
        machine.step(quiet());
        assert_eq!(machine.steps(1, bad()).slice, US(500));
    }
}

#[test]
fn the_interactive_p99_alone_prevents_relaxing() {
    let mut late = waits(Tier::Interactive, MS(20));
    late.latency[Tier::Batch.index()].counts[0] = 1_000_000;
    let mut machine = Machine::new(CPUS);
    machine.steps(6, bad());
    assert_eq!(machine.steps(10, late).slice, US(500));
}

#[test]
fn the_interval_that_tightens_does_not_count_towards_relaxing() {
    let mut machine = Machine::new(CPUS);
    machine.steps(2, bad());
    assert_eq!(machine.steps(1, quiet()).slice, US(750));
    assert_eq!(machine.steps(1, quiet()).slice, MS(1));
}

#[test]
fn relaxing_leaves_the_batch_slice_alone() {
    let mut machine = Machine::preemptible();
    machine.steps(6, bad());
    for _ in 0..6 {
        assert_eq!(machine.steps(1, quiet()).batch_slice, MS(20));
    }
}

#[test]
fn the_threshold_of_preemption_follows_the_slice_up_to_its_baseline() {
    let baseline = Profile::of(Regime::Mixed);
    let mut reflex = Reflex { slice: US(250), preempt: US(250), ..Reflex::new(&baseline) };
    for us in [250, 750, 750, 1_000] {
        reflex.observe(Regime::Mixed, &baseline, false);
        assert_eq!((reflex.slice, reflex.preempt), (US(us), US(us)));
    }
    assert!(!reflex.tightened(&baseline));
}

#[test]
fn what_is_not_tightened_does_not_relax() {
    let baseline = Profile::of(Regime::Mixed);
    let mut reflex = Reflex::new(&baseline);
    for _ in 0..10 {
        assert!(!reflex.observe(Regime::Mixed, &baseline, false));
    }
    assert_eq!(reflex, Reflex::new(&baseline));
}

#[test]
fn another_regime_ends_the_tightening() {
    let mut machine = Machine::new(CPUS);
    machine.steps(6, bad());
    machine.steps(2, idling(0));
    assert_eq!(machine.control.knobs().slice, MS(4));
    machine.enter(Regime::Mixed);
    assert_eq!(machine.control.knobs().slice, MS(1));
    assert_eq!(machine.tightenings(), "tighten_events=3");
}

// ---- Batch slice, longrun ---------------------------------------------------------------------

#[test]
fn the_share_of_io_moves_the_batch_slice_by_a_quarter() {
    for (batch, io, adjusted) in [
        (20, Some(0), 15),
        (20, Some(10), 15),
        (20, Some(14), 15),
        (20, Some(15), 20),
        (20, Some(30), 20),
        (20, Some(60), 20),
        (20, Some(61), 25),
        (20, Some(70), 25),
        (24, Some(100), 25),
        (22, Some(70), 25),
        (30, Some(70), 30),
        (4, Some(61), 5),
        (4, Some(0), 3),
        (20, None, 20),
    ] {
        assert_eq!(sleep_adjusted(MS(batch), io), MS(adjusted), "{batch} ms, {io:?} %");
    }
}

#[test]
fn the_loop_moves_the_batch_slice_by_the_sleeps_it_saw() {
    let mut machine = Machine::preemptible();
    assert_eq!(machine.steps(1, sleeping(70)).batch_slice, MS(25));
    assert_eq!(machine.steps(1, sleeping(30)).batch_slice, MS(20));
    assert_eq!(machine.steps(1, sleeping(10)).batch_slice, MS(15));
    assert_eq!(machine.steps(1, quiet()).batch_slice, MS(20));
}

#[test]
fn no_regime_asks_for_a_longer_batch_slice_than_the_start_allows() {
    let mut machine = Machine::new(CPUS);
    for regime in Regime::ALL {
        machine.enter(Regime::Mixed);
        machine.enter(regime);
        assert_eq!(machine.control.knobs().batch_slice, BATCH_SLICE, "{regime}");
    }
    assert_eq!(machine.steps(1, sleeping(90)).batch_slice, MS(5));
}

#[test]
fn no_slice_is_longer_than_the_start_allows_unless_a_person_says_so() {
    let start = Knobs { batch_slice: US(700), burst_slice: US(700), ..Knobs::default() };
    let mut machine = Machine::with(CPUS, start, Knobs::none().with("batch_slice_us"));
    for regime in Regime::ALL {
        machine.enter(regime);
        let knobs = machine.control.knobs();
        assert_eq!((knobs.slice, knobs.batch_slice), (US(700), US(700)), "{regime}");
    }
    machine.control.pin("slice_us=3000").unwrap();
    assert_eq!(machine.control.knobs().slice, MS(3));
}

#[test]
fn a_long_run_keeps_the_batch_slice_whatever_the_sleeps_say() {
    for io in [70, 0] {
        let sample = Sample { longrun: true, ..sleeping(io) };
        assert_eq!(Machine::preemptible().steps(3, sample).batch_slice, MS(20));
    }
}

#[test]
fn a_long_run_weakens_affinity_in_every_regime() {
    let mut machine = Machine::new(CPUS);
    for (regime, idle) in [(Regime::Light, 900), (Regime::Mixed, 290), (Regime::Heavy, 0)] {
        machine.enter(regime);
        let knobs = machine.steps(1, Sample { longrun: true, ..idling(idle) });
        assert_eq!(knobs.affinity, Affinity::Weak, "{regime}");
    }
}

#[test]
fn without_a_long_run_mixed_keeps_its_affinity() {
    let mut machine = Machine::new(CPUS);
    machine.step(Sample { longrun: true, ..quiet() });
    assert_eq!(machine.steps(1, quiet()).affinity, Affinity::Strong);
    machine.control.pin("rule.longrun=off").unwrap();
    let ignored = Sample { longrun: true, ..quiet() };
    assert_eq!(machine.steps(1, ignored).affinity, Affinity::Strong);
}

// ---- Sojourn threshold ------------------------------------------------------------------------

/// So many seconds of so many dispatches.
fn sojourn(cpus: u32, start: Option<Span>, dispatches: u64, seconds: usize) -> Span {
    let limits = Scaling::new(cpus);
    let mut sojourn = Sojourn::new(&limits);
    sojourn.thresh = start.unwrap_or(sojourn.thresh);
    (0..seconds).for_each(|_| sojourn.observe(dispatches, INTERVAL, &limits));
    sojourn.thresh
}

fn within_a_hundredth(found: Span, expected: Span) -> bool {
    let (found, expected) = (found.as_nanos(), expected.as_nanos());
    found.abs_diff(expected) <= expected / 100
}

#[test]
fn the_threshold_starts_at_the_floor_of_the_machine() {
    for (cpus, floor) in [(1, 2), (2, 2), (4, 4), (8, 6), (16, 6), (64, 6)] {
        assert_eq!(sojourn(cpus, None, 0, 0), MS(floor), "{cpus} CPUs");
        assert_eq!(Machine::new(cpus).control.knobs().sojourn_thresh, MS(floor));
    }
}

#[test]
fn the_threshold_stays_between_floor_and_twice_the_floor() {
    for cpus in [2, 4, 8, 16, 64] {
        let floor = sojourn(cpus, None, 0, 0);
        assert_eq!(sojourn(cpus, None, 500_000, 1), floor, "{cpus} CPUs");
        assert!(within_a_hundredth(sojourn(cpus, None, 10, 100), floor + floor), "{cpus} CPUs");
    }
}

#[test]
fn the_threshold_goes_an_eighth_of_the_way() {
    let up = [6_750_000, 7_406_250, 7_980_469, 8_482_911, 8_922_548];
    let down = [11_250_000, 10_593_750, 10_019_532, 9_517_091, 9_077_455];
    for (index, (up, down)) in up.into_iter().zip(down).enumerate() {
        assert_eq!(sojourn(8, Some(MS(6)), 10, index + 1), Span::from_nanos(up));
        assert_eq!(sojourn(8, Some(MS(12)), 500_000, index + 1), Span::from_nanos(down));
    }
}

#[test]
fn the_threshold_converges_both_ways_and_in_between() {
    assert!(within_a_hundredth(sojourn(8, Some(MS(6)), 10, 100), MS(12)));
    assert!(within_a_hundredth(sojourn(8, Some(MS(12)), 500_000, 100), MS(6)));
    // 4 s / 571 are 7.005 ms.
    assert!(within_a_hundredth(sojourn(8, None, 571, 200), MS(7)));
}

#[test]
fn the_rate_is_that_of_the_time_that_passed() {
    let limits = Scaling::new(8);
    let (mut short, mut long) = (Sojourn::new(&limits), Sojourn::new(&limits));
    short.observe(500, MS(1_000), &limits);
    long.observe(2_000, MS(4_000), &limits);
    assert_eq!(short, long);
    assert_eq!(short.thresh, US(6_250));
}

#[test]
fn without_dispatches_or_without_time_there_is_no_rate() {
    let limits = Scaling::new(8);
    let mut sojourn = Sojourn { thresh: MS(9) };
    sojourn.observe(0, INTERVAL, &limits);
    sojourn.observe(1_000, Span::ZERO, &limits);
    assert_eq!(sojourn.thresh, MS(9));
}

// ---- Stability and telemetry ------------------------------------------------------------------

#[test]
fn quiet_intervals_add_up_to_ten() {
    let mut machine = Machine::new(CPUS);
    for score in 1..=STABLE {
        machine.step(quiet());
        assert_eq!(machine.control.stability(), score);
    }
    machine.steps(5, quiet());
    assert_eq!(machine.control.stability(), 10);
    assert_eq!(stability(u32::MAX, false, Span::ZERO, MS(5)), 10);
}

#[test]
fn an_event_ends_stability() {
    let after = |samples: &[Sample]| {
        let mut machine = Machine::new(CPUS);
        machine.steps(10, quiet());
        samples.iter().for_each(|&sample| _ = machine.step(sample));
        machine.control.stability()
    };
    assert_eq!(after(&[idling(0)]), 10);
    assert_eq!(after(&[idling(0), idling(0)]), 0);
    assert_eq!(after(&[bad()]), 0);
    assert_eq!(after(&[Sample { burst: true, ..quiet() }]), 0);
    // A tightening by itself, since its P99 would end stability anyway.
    assert_eq!(stability(9, true, Span::ZERO, MS(5)), 0);
}

#[test]
fn half_the_ceiling_is_stable_and_more_is_not() {
    let ceiling = MS(5);
    assert_eq!(stability(3, false, US(2_500), ceiling), 4);
    assert_eq!(stability(3, false, Span::from_nanos(2_500_001), ceiling), 0);
}

#[test]
fn a_stable_machine_is_reported_every_other_second() {
    assert!((0..10).all(|score| worth_a_line(score, 7) && worth_a_line(score, 8)));
    assert!(worth_a_line(10, 8) && !worth_a_line(10, 7));
    let mut machine = Machine::new(CPUS);
    machine.steps(10, quiet());
    assert!(machine.control.worth_a_line());
    machine.step(quiet());
    assert!(!machine.control.worth_a_line());
}

#[test]
fn the_last_line_tells_what_the_loop_did() {
    let mut machine = Machine::preemptible();
    machine.enter(Regime::Light);
    machine.enter(Regime::Mixed);
    machine.steps(2, bad());
    assert_eq!(
        machine.control.line().to_string(),
        "[KNOBS] regime=MIXED slice_ns=750000 batch_ns=20000000 preempt_ns=750000 \
         demotion_ns=2500000 lag=4 tightened=true tighten_events=1 ticks=L:4/M:6/H:0"
    );
    machine.control.pin("rule.adaptive=off").unwrap();
    assert_eq!(
        machine.control.line().to_string(),
        "[KNOBS] regime=FIXED slice_ns=1000000 batch_ns=20000000 preempt_ns=1000000 \
         demotion_ns=2500000 lag=4"
    );
}

// ---- A person's knobs -------------------------------------------------------------------------

#[test]
fn what_a_person_sets_the_loop_leaves_alone() {
    let mut machine = Machine::new(CPUS);
    let pins = "slice_us=1700\nbatch_slice_us=30000\naffinity=off\nsojourn_thresh_us=9000\n\
                lag_scale=9\npreempt_thresh_us=123\ncpu_bound_thresh_us=7000";
    let set = machine.control.pin(pins).unwrap();
    assert_eq!(set.slice, US(1_700));
    for sample in [bad(), idling(0), sleeping(90), sleeping(0), idling(900)] {
        for longrun in [true, false] {
            machine.steps(6, Sample { longrun, dispatches: 10, ..sample });
            assert_eq!(*machine.control.knobs(), set);
        }
    }
    assert_eq!(machine.tightenings(), "tighten_events=0");
    assert!(machine.control.pinned().holds("slice_us"));
    assert!(!machine.control.pinned().holds("slice_min_us"));
}

#[test]
fn what_a_file_set_at_the_start_is_set_by_a_person() {
    let (start, named) = Knobs::parse_file("slice_us=300 # short\nrule.codel_rescue=off").unwrap();
    let mut machine = Machine::with(CPUS, start, named);
    machine.enter(Regime::Heavy);
    let knobs = machine.control.knobs();
    assert_eq!(knobs.slice, US(300));
    assert!(!knobs.rules.codel_rescue);
    assert_eq!(knobs.sleeper_credit_scale, 2);
}

#[test]
fn what_a_person_gives_back_the_loop_moves_again() {
    let mut machine = Machine::preemptible();
    machine.enter(Regime::Heavy);
    machine.control.pin("slice_us=300\nbatch_slice_us=2000\nrule.lag=off").unwrap();
    let keys = Knobs::none().with("slice_us").with("batch_slice_us").with("rule.lag");
    let knobs = machine.control.release(keys).unwrap();
    assert_eq!((knobs.slice, knobs.batch_slice, knobs.rules.sleeper_credit), (MS(4), MS(20), true));
    assert_eq!(machine.control.pinned(), Knobs::none());
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut machine = Machine::new(CPUS);
    machine.control.pin("slice_us=3000\nslice_min_us=900").unwrap();
    let before = machine.control.clone();
    assert!(machine.control.pin("lag_scale=2\nslice_us=5").is_err());
    assert!(machine.control.pin("slice_us=800").is_err());
    machine.control.pin("slice_min_us=1000\nburst_slice_us=1500").unwrap();
    machine.control.pin("slice_min_us=1400").unwrap();
    let error = machine.control.release(Knobs::none().with("slice_us")).unwrap_err();
    assert_eq!(error.to_string(), "slice_min_us (1400) must not be above slice_us (1000)");
    assert_eq!(before.knobs().slice, MS(3));
    assert_eq!(machine.control.knobs().slice, MS(3));
    assert_eq!(machine.control.knobs().sleeper_credit_scale, 4);
}

#[test]
fn no_slice_of_the_loop_is_below_the_shortest() {
    let mut machine = Machine::new(CPUS);
    machine.control.pin("slice_min_us=900").unwrap();
    let knobs = machine.steps(10, bad());
    assert_eq!(knobs.slice, US(900));
    assert_eq!(knobs.check(), Ok(()));
}

#[test]
fn without_the_loop_knobs_are_what_a_person_wants() {
    let start = Knobs { rules: Rules { adaptive: false, ..Rules::default() }, ..Knobs::default() };
    let mut machine = Machine::with(CPUS, start, Knobs::none());
    for sample in [bad(), idling(0), sleeping(90), idling(900)] {
        assert_eq!(machine.steps(4, sample), start);
    }
    machine.control.pin("rule.adaptive=on").unwrap();
    machine.enter(Regime::Heavy);
    assert_eq!(machine.control.knobs().slice, MS(4));
    machine.control.pin("rule.adaptive=off").unwrap();
    assert_eq!(*machine.control.knobs(), start);
    assert_eq!(machine.step(idling(0)), None);
    assert_eq!(machine.control.regime(), Regime::Mixed);
}

#[test]
fn a_step_reports_a_change_and_only_a_change() {
    let mut machine = Machine::new(CPUS);
    assert_eq!(machine.step(quiet()), None);
    assert_eq!(machine.step(idling(0)), None);
    let heavy = machine.step(idling(0)).unwrap();
    assert_eq!(heavy, *machine.control.knobs());
    assert_eq!(machine.step(idling(0)), None);
}

#[test]
#[should_panic(expected = "valid")]
fn a_controller_refuses_to_start_from_nonsense() {
    Controller::new(CPUS, Knobs { slice: Span::ZERO, ..Knobs::default() }, Knobs::none());
}

// ---- The registry -----------------------------------------------------------------------------

#[test]
fn the_defaults_are_the_readme_s_but_for_the_batch_slice() {
    let knobs = Knobs::default();
    assert_eq!(knobs.slice, MS(1));
    assert_eq!(knobs.slice_min, US(100));
    assert_eq!(knobs.preempt_thresh, MS(1));
    assert_eq!(knobs.sleeper_credit_scale, 4);
    assert_eq!(knobs.batch_slice, MS(4));
    assert_eq!(BATCH_SLICE_PREEMPTIBLE, MS(20));
    assert_eq!(knobs.burst_slice, MS(1));
    assert_eq!(knobs.cpu_bound_thresh, US(2_500));
    assert_eq!((knobs.lat_cri_high, knobs.lat_cri_low), (32, 8));
    assert_eq!(knobs.affinity, Affinity::Weak);
    assert_eq!(knobs.sojourn_thresh, MS(5));
    assert!(!knobs.percpu_local);
    assert_eq!(knobs.check(), Ok(()));
}

/// What must be asked for is off; everything else is the policy.
#[test]
fn every_mechanism_has_a_switch() {
    let on = "classifier compositors kworker_floor frame_floor cpu_bound_demotion lag awake_cap \
              vtime_ceiling overflow_rescue deficit starvation_rescue codel_rescue batch_starvation longrun \
              burst_cusum burst_wakeups affinity numa depth_gate sync_wakeups preempt adaptive \
              procdb";
    let off = "fifo_mode low_power";
    let rules = on.split(' ').map(|name| (name, 1)).chain(off.split(' ').map(|name| (name, 0)));
    let mut known = 0;
    for (name, default) in rules.filter(|(name, _)| !name.is_empty()) {
        let key = Key::named(&format!("rule.{name}")).expect(name);
        assert_eq!(key.get(&Knobs::default()), default, "{name}");
        let mut knobs = Knobs::default();
        let assignment = format!("{}={}", key.name, if default == 1 { "off" } else { "on" });
        knobs.set(&assignment).unwrap();
        assert_eq!(key.get(&knobs), 1 - default, "{name}");
        assert_ne!(knobs.rules, Rules::default(), "{name}");
        known += 1;
    }
    assert_eq!(known, keys().filter(|key| key.name.starts_with("rule.")).count());
}

#[test]
fn every_key_is_named_once_and_explained_in_one_sentence() {
    assert_eq!(keys().count(), KEYS);
    for (at, key) in keys().enumerate() {
        assert_eq!(keys().position(|other| other.name == key.name), Some(at), "{}", key.name);
        assert!(key.doc.ends_with('.') && !key.doc.contains(['#', '\n']), "{}", key.name);
        assert_eq!(key.doc, key.doc.trim(), "{}", key.name);
        assert!(!key.range().to_string().is_empty());
        assert_eq!(Knobs::none().with(key.name).bits(), 1 << at);
    }
    assert_eq!(KeySet::from_bits(u64::MAX).iter().count(), KEYS);
}

#[test]
fn an_assignment_sets_one_knob() {
    let mut knobs = Knobs::default();
    for assignment in [
        "slice_us=2000",
        "preempt_thresh_us = 0",
        "batch_slice_us=20000",
        "sojourn_thresh_us=562.5",
        "lag_scale=64",
        "affinity=strong",
        "percpu_local=on",
        "rule.deficit=off",
    ] {
        knobs.set(assignment).unwrap();
    }
    let expected = Knobs {
        slice: MS(2),
        preempt_thresh: Span::ZERO,
        batch_slice: MS(20),
        sojourn_thresh: Span::from_nanos(562_500),
        sleeper_credit_scale: 64,
        affinity: Affinity::Strong,
        percpu_local: true,
        rules: Rules { deficit: false, ..Rules::default() },
        ..Knobs::default()
    };
    assert_eq!(knobs, expected);
    for (word, affinity) in [("off", Affinity::Off), ("1", Affinity::Weak), ("2", Affinity::Strong)]
    {
        knobs.set(&format!("affinity={word}")).unwrap();
        assert_eq!(knobs.affinity, affinity);
    }
}

#[test]
fn a_refusal_is_one_sentence_with_the_range() {
    let refused = |assignment: &str| {
        let mut knobs = Knobs::default();
        let said = knobs.set(assignment).unwrap_err().to_string();
        assert_eq!(knobs, Knobs::default(), "{assignment}");
        said
    };
    let range = "slice_us takes 100 to 100000 microseconds, not";
    for value in ["99", "100001", "abc", "", "-5", "+500", "500.", "500.1234", ".5", "0x64", "1e3"]
    {
        assert_eq!(refused(&format!("slice_us={value}")), format!("{range} \"{value}\""));
    }
    let huge = "99999999999999999999";
    assert_eq!(refused(&format!("slice_us={huge}")), format!("{range} \"{huge}\""));
    assert_eq!(refused("slice_us=18446744073709551"), format!("{range} \"18446744073709551\""));
    assert_eq!(refused("lag_scale=0"), "lag_scale takes 1 to 64, not \"0\"");
    assert_eq!(refused("affinity=3"), "affinity takes off, weak or strong, not \"3\"");
    assert_eq!(refused("rule.lag=maybe"), "rule.lag takes on or off, not \"maybe\"");
    assert_eq!(refused("slice_us 5"), "\"slice_us 5\" is not of the form KEY=VALUE");
    assert_eq!(refused("slice=5"), "there is no knob \"slice\"");
    assert_eq!(refused("\u{1b}[2J=5"), "there is no knob \"\\u{1b}[2J\"");
    assert_eq!(refused(&"x".repeat(9_999)).len(), 40 + "\"\" is not of the form KEY=VALUE".len());
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let refused = |text: &str| Knobs::parse_file(text).unwrap_err().to_string();
    let above = "must not be above";
    assert_eq!(
        refused("slice_min_us=1200"),
        format!("slice_min_us (1200) {above} slice_us (1000)")
    );
    assert_eq!(
        refused("slice_us=9000\nslice_min_us=4500"),
        format!("slice_min_us (4500) {above} batch_slice_us (4000)")
    );
    assert_eq!(
        refused("burst_slice_us=150.5\nslice_min_us=200"),
        format!("slice_min_us (200) {above} burst_slice_us (150.5)")
    );
    assert_eq!(refused("lat_cri_low=33"), format!("lat_cri_low (33) {above} lat_cri_high (32)"));
    assert!(Knobs::parse_file("lat_cri_low=33\nlat_cri_high=33").is_ok());
    let mut knobs = Knobs::default();
    let said = knobs.set("lat_cri_high=7").unwrap_err().to_string();
    assert_eq!(said, format!("lat_cri_low (8) {above} lat_cri_high (7)"));
    assert_eq!(knobs, Knobs::default());
}

#[test]
fn a_file_is_lines_with_comments() {
    let text = "# knobs of the render farm\n\n  slice_us = 2000 # long\r\n\trule.lag=off\n#x=y";
    let (knobs, named) = Knobs::parse_file(text).unwrap();
    assert_eq!((knobs.slice, knobs.rules.sleeper_credit), (MS(2), false));
    assert_eq!(named, Knobs::none().with("slice_us").with("rule.lag"));
    assert_eq!(Knobs::parse_file("").unwrap(), (Knobs::default(), Knobs::none()));
}

#[test]
fn an_error_in_a_file_names_the_line() {
    let error = Knobs::parse_file("# one\nslice_us=2000\nslice_us=1").unwrap_err();
    assert_eq!(error.to_string(), "line 3: slice_us takes 100 to 100000 microseconds, not \"1\"");
    let error = Knobs::parse_file("slice_us=2000\n\nslice_us=2000").unwrap_err();
    assert_eq!(error, FileError { line: Some(3), error: KnobError::Twice("slice_us") });
    assert_eq!(error.to_string(), "line 3: slice_us is given twice");
    let error = Knobs::parse_file("nonsense").unwrap_err();
    assert_eq!(error.to_string(), "line 1: \"nonsense\" is not of the form KEY=VALUE");
}

#[test]
fn a_printed_file_explains_itself() {
    let printed = Knobs::default().to_string();
    assert!(printed.starts_with(
        "# Longest slice of Interactive and LatCritical tasks. Takes 100 to 100000 microseconds.\n\
         slice_us=1000\n"
    ));
    assert!(printed.contains("\naffinity=weak\n"));
    assert!(printed.contains("Takes on or off.\nrule.deficit=on\n"));
    assert_eq!(printed.lines().count(), 2 * KEYS);
}

#[test]
fn numbers_that_are_no_knobs_are_not_read_as_such() {
    let good = Knobs::default().to_raw();
    assert_eq!(Knobs::from_raw(&good), Some(Knobs::default()));
    for at in 0..KEYS {
        let mut raw = good;
        raw[at] = u64::MAX;
        assert_eq!(Knobs::from_raw(&raw), None);
    }
    let contradiction = Knobs { slice_min: MS(5), ..Knobs::default() };
    assert_eq!(Knobs::from_raw(&contradiction.to_raw()), None);
}

// ---- Bursts -----------------------------------------------------------------------------------

/// Feeds one sample, 64 enqueues of which the last is so much later. Returns whether it fires.
fn enqueue_64(cusum: &mut Cusum, now: &mut Stamp, length: Span) -> bool {
    for _ in 0..63 {
        assert_eq!(cusum.observe(*now), None);
    }
    *now = *now + length;
    cusum.observe(*now).expect("64 enqueues are a sample")
}

/// At which sample the burst begins after samples of length `usual` become `then`, and for how
/// many it lasts.
fn response(usual: Span, then: Span) -> (Option<usize>, usize) {
    let (mut cusum, mut now) = (Cusum::default(), Stamp::from_nanos(7));
    assert_eq!(cusum.observe(now), None, "the first enqueue only starts the clock");
    for _ in 0..50 {
        assert!(!enqueue_64(&mut cusum, &mut now, usual));
    }
    let fired: Vec<bool> = (0..200).map(|_| enqueue_64(&mut cusum, &mut now, then)).collect();
    assert!(!fired[199], "a burst ends by itself");
    let first = fired.iter().position(|&fires| fires);
    (first.map(|index| index + 1), fired.iter().filter(|&&fires| fires).count())
}

#[test]
fn the_cumulative_sum_answers_to_a_step_of_the_rate() {
    assert_eq!(response(US(1_000), US(500)), (None, 0));
    assert_eq!(response(US(1_000), US(300)), (Some(5), 11));
    assert_eq!(response(US(1_000), US(200)), (Some(4), 17));
    assert_eq!(response(US(1_000), US(100)), (Some(3), 26));
    assert_eq!(response(US(1_000), US(20)), (Some(3), 41));
}

/// Arrivals of one round have one stamp, so a sample can be a few nanoseconds.
#[test]
fn the_cumulative_sum_answers_the_same_however_short_a_sample_is() {
    let ns = Span::from_nanos;
    assert_eq!(response(ns(10), ns(5)), (None, 0));
    assert_eq!(response(ns(10), ns(3)), (Some(5), 11));
    assert_eq!(response(ns(10), ns(2)), (Some(4), 17));
    assert_eq!(response(ns(10), ns(1)), (Some(3), 26));
}

#[test]
fn work_after_a_pause_is_no_burst() {
    // A machine that rested for an hour and then does its usual 100 enqueues a second.
    let (mut cusum, mut now) = (Cusum::default(), Stamp::default());
    cusum.observe(now);
    now = now + MS(3_600_000);
    for _ in 0..20 {
        assert!(!enqueue_64(&mut cusum, &mut now, MS(640)));
    }
}

#[test]
fn more_wakeups_than_the_limit_in_a_window_are_a_burst() {
    let mut wakes = WakeRate::new(2 * CPUS);
    let mut now = Stamp::from_nanos(1_000_000_000);
    for _ in 0..100 {
        // 16 in one window are as many as 8 CPUs may have.
        assert!((0..16).all(|_| !wakes.observe(now)));
        now = now + WAKE_WINDOW;
    }
    // After a pause that many are not usual any more.
    now = now + MS(1_000);
    assert!((0..16).all(|_| !wakes.observe(now)));
    assert!(wakes.observe(now + Span::from_nanos(3_999_999)));
    assert!(!wakes.observe(now + WAKE_WINDOW));
}

/// Whether any of the next `windows` was a burst, of so many wake-ups each.
fn storms(wakes: &mut WakeRate, now: &mut Stamp, windows: u32, wakeups: u32) -> bool {
    let mut any = false;
    for _ in 0..windows {
        (0..wakeups).for_each(|_| any |= wakes.observe(*now));
        *now = *now + WAKE_WINDOW;
    }
    any
}

#[test]
fn a_load_that_always_wakes_up_often_is_no_burst_and_a_storm_on_top_of_it_is() {
    let (mut wakes, mut now) = (WakeRate::new(4), Stamp::from_nanos(1_000_000_000));
    assert!(storms(&mut wakes, &mut now, 75, 20), "it begins");
    assert!(!storms(&mut wakes, &mut now, 1_000, 20), "it is usual");
    assert!(storms(&mut wakes, &mut now, 1, 45));
    assert!(!storms(&mut wakes, &mut now, 75, 20), "and goes on");
    // After a second without any the same load is news.
    now = now + MS(1_000);
    assert!(storms(&mut wakes, &mut now, 1, 20));
}

#[test]
fn a_window_does_not_outlive_a_clock_that_steps_back() {
    let mut wakes = WakeRate::new(2);
    let late = Stamp::from_nanos(1 << 50);
    assert!(!wakes.observe(late) && !wakes.observe(late));
    assert!(!wakes.observe(Stamp::from_nanos(5)));
}

#[test]
fn a_storm_of_forks_is_a_burst_until_it_has_been_quiet() {
    let rules = Rules::default();
    let mut burst = Burst::new(2 * CPUS);
    let now = Stamp::from_nanos(1_000_000_000);
    for _ in 0..16 {
        burst.on_enqueue(now, Cause::New, &rules);
        assert!(!burst.active(now));
    }
    burst.on_enqueue(now, Cause::New, &rules);
    assert!(burst.active(now));
    let last = now + Span::from_nanos(BURST_QUIET.as_nanos() - 1);
    assert!(burst.active(last));
    // Single messages do not prolong it, and none are needed to end it.
    burst.on_enqueue(last, Cause::Wakeup, &rules);
    assert!(!burst.active(now + BURST_QUIET));
}

#[test]
fn requeues_are_no_wakeups() {
    let rules = Rules::default();
    let mut burst = Burst::new(2);
    let now = Stamp::from_nanos(1_000_000_000);
    (0..60).for_each(|_| burst.on_enqueue(now, Cause::Requeue, &rules));
    assert!(!burst.active(now));
    (0..3).for_each(|_| burst.on_enqueue(now, Cause::Wakeup, &rules));
    assert!(burst.active(now));
}

/// A rate of requeues that rises to 50 times, for so many samples. Returns when it ended.
fn requeue_storm(burst: &mut Burst, rules: &Rules, samples: usize) -> Stamp {
    let mut now = Stamp::from_nanos(1);
    for (count, apart) in [(50, US(100)), (samples, US(2))] {
        for _ in 0..64 * count {
            now = now + apart;
            burst.on_enqueue(now, Cause::Requeue, rules);
        }
    }
    now
}

#[test]
fn requeues_count_for_the_rate_of_enqueues() {
    let after = |samples, rules: Rules| {
        let mut burst = Burst::new(u32::MAX);
        let now = requeue_storm(&mut burst, &rules, samples);
        burst.active(now)
    };
    assert!(!after(2, Rules::default()));
    assert!(after(4, Rules::default()));
    assert!(!after(4, Rules { burst_cusum: false, ..Rules::default() }));
}

#[test]
fn what_trickles_in_after_a_storm_does_not_prolong_it() {
    let rules = Rules::default();
    let mut burst = Burst::new(u32::MAX);
    let now = requeue_storm(&mut burst, &rules, 4);
    // Completes the sample that the very first message had begun: it fires for the last time.
    burst.on_enqueue(now, Cause::Requeue, &rules);
    burst.on_enqueue(now + MS(50), Cause::Wakeup, &rules);
    assert!(burst.active(now + MS(50)));
    burst.on_enqueue(now + MS(99), Cause::Wakeup, &rules);
    assert!(!burst.active(now + BURST_QUIET));
}

#[test]
fn each_detector_of_bursts_can_be_switched_off() {
    let now = Stamp::from_nanos(1_000_000_000);
    let burst = |rules: Rules| {
        let mut detectors = Detectors::new(2);
        (0..3).for_each(|_| detectors.on_enqueue(now, Cause::Wakeup, &rules));
        detectors.mode(now, &rules).burst
    };
    assert!(burst(Rules::default()));
    assert!(burst(Rules { burst_cusum: false, ..Rules::default() }));
    assert!(!burst(Rules { burst_wakeups: false, ..Rules::default() }));
    let neither = Rules { burst_wakeups: false, burst_cusum: false, ..Rules::default() };
    let mut detectors = Detectors::new(2);
    (0..3).for_each(|_| detectors.on_enqueue(now, Cause::Wakeup, &Rules::default()));
    assert!(!detectors.mode(now, &neither).burst, "switched off while it lasts");
}

// ---- Long runs --------------------------------------------------------------------------------

#[test]
fn batch_work_that_waits_without_a_pause_is_a_long_run() {
    let mut longrun = Longrun::default();
    let start = Stamp::from_nanos(5);
    assert!(!longrun.active(start));
    // Served a hundred times, but never empty.
    (0..=100).for_each(|i| longrun.observe(start + MS(20 * i), true));
    assert!(!longrun.active(start + LONGRUN));
    assert!(longrun.active(start + LONGRUN + Span::from_nanos(1)));
    longrun.observe(start + MS(3_000), false);
    assert!(!longrun.active(start + MS(3_000)));
    longrun.observe(start + MS(3_000), true);
    assert!(!longrun.active(start + MS(5_000)));
    assert!(longrun.active(start + MS(5_001)));
}

#[test]
fn a_long_run_outlives_no_clock_that_steps_back() {
    let mut longrun = Longrun::default();
    longrun.observe(Stamp::from_nanos(1 << 50), true);
    longrun.observe(Stamp::from_nanos(1), true);
    assert!(!longrun.active(Stamp::from_nanos(1)));
    assert!(longrun.active(Stamp::from_nanos(1) + MS(2_001)));
}

#[test]
fn the_detectors_answer_with_the_readme_s_effects() {
    let effects = |mode: Mode| {
        [
            mode.short_slices(),
            mode.preempt_at_once(),
            mode.shallow_queues(),
            mode.tight_deficit(),
            mode.weak_affinity(),
            mode.base_batch_slice(),
        ]
    };
    let (burst, longrun) = (true, true);
    assert_eq!(effects(Mode::default()), [false; 6]);
    let only_burst = Mode { burst, longrun: false };
    assert_eq!(effects(only_burst), [true, true, true, false, false, false]);
    let only_longrun = Mode { burst: false, longrun };
    assert_eq!(effects(only_longrun), [true, false, false, true, true, true]);
    assert_eq!(effects(Mode { burst, longrun }), [true; 6]);
}

#[test]
fn a_long_run_can_be_switched_off() {
    let mut detectors = Detectors::new(2);
    detectors.on_batch(Stamp::default(), true);
    let late = Stamp::default() + MS(2_001);
    assert!(detectors.mode(late, &Rules::default()).longrun);
    let off = Rules { longrun: false, ..Rules::default() };
    assert!(!detectors.mode(late, &off).longrun);
    detectors.on_batch(late, false);
    assert!(!detectors.mode(late, &Rules::default()).longrun);
}

// ---- Whatever happens -------------------------------------------------------------------------

/// A number that is likely to hurt: none, few, any, or as many as there are.
fn hostile(draw: u64) -> u64 {
    match draw % 4 {
        0 => 0,
        1 => u64::MAX,
        2 => (draw >> 2) % 200,
        _ => draw,
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    let idle = prop_oneof![Just(None), (0..1_000u32).prop_map(Some), any::<u32>().prop_map(Some)];
    let numbers = prop::collection::vec(any::<u64>(), 2 + 3 * 12 + 4);
    (idle, numbers, any::<(bool, bool)>()).prop_map(|(idle, numbers, (longrun, burst))| {
        let mut numbers = numbers.into_iter().map(hostile);
        let mut next = || numbers.next().expect("there are as many as asked for");
        Sample {
            elapsed: Span::from_nanos(next()),
            idle,
            dispatches: next(),
            latency: [(); 3].map(|()| Latencies { counts: [(); 12].map(|()| next()) }),
            sleep: Sleeps { counts: [(); 4].map(|()| next()) },
            longrun,
            burst,
        }
    })
}

/// Any knobs that pass their own check.
fn knobs() -> impl Strategy<Value = Knobs> {
    prop::collection::vec(any::<u64>(), KEYS).prop_map(|draws| {
        let mut knobs = Knobs::default();
        for (key, draw) in keys().zip(draws) {
            let (low, high) = key.limits();
            // Now and then a value is as far out as it may be.
            let raw = match draw % 8 {
                0 => low,
                1 => high,
                _ => low + (draw >> 3) % (high - low + 1),
            };
            assert!(key.set(&mut knobs, raw), "{}", key.name);
        }
        knobs.slice_min =
            knobs.slice_min.min(knobs.slice).min(knobs.batch_slice).min(knobs.burst_slice);
        knobs.lat_cri_low = knobs.lat_cri_low.min(knobs.lat_cri_high);
        assert_eq!(knobs.check(), Ok(()));
        knobs
    })
}

fn config() -> ProptestConfig {
    // A case that fails is printed whole and belongs into a test with a name, not into a file.
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn knobs_stay_in_their_ranges_and_regimes_next_to_each_other(
        cpus in prop_oneof![1..=16u32, any::<u32>()],
        start in knobs(),
        pinned in any::<u64>(),
        seconds in prop::collection::vec((any::<u64>(), samples(), 1..5usize), 1..20),
    ) {
        let pinned = KeySet::from_bits(pinned);
        let mut control = Controller::new(cpus, start, pinned);
        let mut now = Stamp::default();
        // What lasts for some seconds gets through to the knobs; now and then the clock jumps.
        let steps = seconds.into_iter().flat_map(|(jump, it, times)| vec![(jump, it); times]);
        for (jump, sample) in steps {
            now = if jump % 16 == 0 { Stamp::from_nanos(jump) } else { now + INTERVAL };
            let (regime, before) = (control.regime(), *control.knobs());
            let changed = control.step(now, &sample);
            prop_assert_eq!(control.knobs().check(), Ok(()));
            prop_assert_eq!(changed.unwrap_or(before), *control.knobs());
            prop_assert!(changed != Some(before));
            prop_assert!(regime.index().abs_diff(control.regime().index()) <= 1);
            prop_assert!(control.stability() <= STABLE);
            for key in pinned.iter() {
                prop_assert_eq!(key.get(control.knobs()), key.get(&start), "{}", key.name);
            }
        }
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same_knobs(knobs in knobs()) {
        let (read, named) = Knobs::parse_file(&knobs.to_string()).unwrap();
        prop_assert_eq!(read, knobs);
        prop_assert_eq!(named.iter().count(), KEYS);
        prop_assert_eq!(Knobs::from_raw(&knobs.to_raw()), Some(knobs));
    }

    #[test]
    fn what_a_person_writes_never_panics(
        text in "(slice_us|affinity|.{0,9})[=# ]?[-0-9.]{0,24}.{0,9}",
    ) {
        if let Ok((knobs, _)) = Knobs::parse_file(&text) {
            prop_assert_eq!(knobs.check(), Ok(()));
        }
        let mut knobs = Knobs::default();
        let _ = knobs.set(&text);
        prop_assert_eq!(knobs.check(), Ok(()));
    }

    #[test]
    fn detectors_bear_any_clock_and_find_their_way_back(
        messages in prop::collection::vec((any::<u64>(), 0..3u8, any::<bool>()), 0..400),
    ) {
        let rules = Rules::default();
        let mut detectors = Detectors::new(2 * CPUS);
        let mut last = 0;
        for (now, cause, waiting) in messages {
            let cause = [Cause::New, Cause::Wakeup, Cause::Requeue][cause as usize];
            // Mostly forwards, in steps of any size.
            last = if now % 16 == 0 { now } else { u64::saturating_add(last, now >> (now % 64)) };
            let now = Stamp::from_nanos(last);
            detectors.on_enqueue(now, cause, &rules);
            detectors.on_batch(now, waiting);
            detectors.mode(now, &rules);
        }
        let now = Stamp::from_nanos(last);
        detectors.on_batch(now, false);
        prop_assert!(!detectors.mode(now, &rules).longrun);
        if last < u64::MAX - BURST_QUIET.as_nanos() {
            prop_assert!(!detectors.mode(now + BURST_QUIET, &rules).burst);
        }
    }
}
