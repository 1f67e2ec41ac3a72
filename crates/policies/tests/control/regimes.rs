// SPDX-License-Identifier: GPL-2.0-only

//! Regimes, their profiles, and when they change.

use crate::{CPUS, MS, Machine, US, bad, idling, quiet};
use pandemonium_engine::time::Span;
use pandemonium_policies::Scaling;
use pandemonium_policies::control::regime::{Detector, Profile, Regime};
use pandemonium_policies::control::{GAP, Sample, idle_per_mille};
use pandemonium_policies::knobs::Affinity;

#[test]
fn a_regime_begins_and_ends_at_different_idle_shares() {
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
        assert_eq!(from.called_for(idle), to, "{from:?} at {idle} per mille");
    }
}

#[test]
fn a_regime_changes_after_two_intervals_in_a_row() {
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
fn profiles_have_the_readme_s_numbers() {
    let profile = |slice, preempt, sleeper_credit, cpu_bound, affinity| Profile {
        slice: MS(slice),
        preempt: MS(preempt),
        sleeper_credit,
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
        assert_eq!((found.slice, found.preempt, found.batch), expected, "{regime:?}, {cpus} CPUs");
    }
}

#[test]
fn the_idle_share_is_the_share_of_the_time_of_all_cpus() {
    assert_eq!(idle_per_mille(MS(1_500), MS(1_000), 2), Some(750));
    assert_eq!(idle_per_mille(MS(9_000), MS(1_000), 2), Some(1_000));
    assert_eq!(idle_per_mille(MS(1), Span::ZERO, 2), None);
    assert_eq!(idle_per_mille(MS(1), MS(1), 0), None);
}

#[test]
fn without_a_measured_idle_share_the_regime_does_not_change() {
    let mut machine = Machine::new(CPUS);
    machine.enter(Regime::Heavy);
    machine.steps(10, Sample { idle: None, ..quiet() });
    assert_eq!(machine.control.regime(), Regime::Heavy);
}

#[test]
fn the_knobs_follow_the_profile_of_the_regime() {
    let mut machine = Machine::with_long_batch_slices();
    for regime in [Regime::Heavy, Regime::Mixed, Regime::Light] {
        machine.enter(regime);
        let (knobs, profile) = (*machine.control.knobs(), Profile::of(regime));
        assert_eq!(knobs.slice, profile.slice);
        assert_eq!(knobs.preempt_thresh, profile.preempt);
        assert_eq!(knobs.sleeper_credit_scale, profile.sleeper_credit);
        assert_eq!(knobs.batch_slice, profile.batch);
        assert_eq!(knobs.cpu_bound_thresh, profile.cpu_bound);
        assert_eq!(knobs.affinity, profile.affinity);
        assert_eq!((knobs.lat_cri_high, knobs.lat_cri_low), (32, 8));
        assert_eq!(knobs.burst_slice, MS(1));
        assert_eq!(knobs.sojourn_thresh, MS(6));
    }
}

#[test]
fn a_pause_restarts_the_count_of_intervals_in_a_row() {
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
