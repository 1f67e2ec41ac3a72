// SPDX-License-Identifier: GPL-2.0-only

//! Tightening and relaxing the slice.

use crate::{CPUS, MS, Machine, US, bad, idling, quiet, waits};
use pandemonium_engine::adapting::Adapting;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;
use pandemonium_policies::control::Sample;
use pandemonium_policies::control::regime::{Profile, Regime};
use pandemonium_policies::control::tune::{Reflex, SLICE_FLOOR, spikes};

#[test]
fn one_p99_above_the_ceiling_is_a_spike() {
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
        assert_eq!(after.slice, before.slice, "{regime:?}");
        assert_eq!(machine.tightenings(), "tighten_events=0", "{regime:?}");
    }
}

#[test]
fn spikes_tighten_step_by_step_down_to_the_floor() {
    let mut machine = Machine::new(CPUS);
    for ns in [750_000, 562_500, 500_000, 500_000] {
        assert_eq!(machine.steps(2, bad()).slice, Span::from_nanos(ns));
    }
    // A step that does not change the slice is not counted.
    assert_eq!(machine.tightenings(), "tighten_events=3");
    assert_eq!(SLICE_FLOOR, US(500));
}

#[test]
fn the_interactive_p99_alone_tightens() {
    let mut sample = waits(Tier::Interactive, MS(20));
    sample.latency[Tier::Batch.index()].counts[0] = 1_000_000;
    let mut machine = Machine::new(CPUS);
    assert_eq!(machine.steps(2, sample).slice, US(750));
}

#[test]
fn two_good_intervals_in_a_row_relax_by_one_step() {
    let mut machine = Machine::new(CPUS);
    machine.steps(6, bad());
    assert_eq!(machine.steps(1, quiet()).slice, US(500));
    assert!(machine.control.report().last_words.contains("tightened=true"));
    let knobs = machine.steps(1, quiet());
    assert_eq!((knobs.slice, knobs.preempt_thresh), (MS(1), MS(1)));
    assert!(machine.control.report().last_words.contains("tightened=false"));
}

#[test]
fn a_bad_interval_restarts_the_count_of_good_ones() {
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
fn relaxing_does_not_change_the_batch_slice() {
    let mut machine = Machine::with_long_batch_slices();
    machine.steps(6, bad());
    for _ in 0..6 {
        assert_eq!(machine.steps(1, quiet()).batch_slice, MS(20));
    }
}

#[test]
fn the_preemption_threshold_follows_the_slice_up_to_its_baseline() {
    let baseline = Profile::of(Regime::Mixed);
    let mut reflex = Reflex { slice: US(250), preempt: US(250), ..Reflex::new(&baseline) };
    for us in [250, 750, 750, 1_000] {
        reflex.observe(Regime::Mixed, &baseline, false);
        assert_eq!((reflex.slice, reflex.preempt), (US(us), US(us)));
    }
    assert!(!reflex.tightened(&baseline));
}

#[test]
fn a_slice_that_is_not_tightened_does_not_relax() {
    let baseline = Profile::of(Regime::Mixed);
    let mut reflex = Reflex::new(&baseline);
    for _ in 0..10 {
        assert!(!reflex.observe(Regime::Mixed, &baseline, false));
    }
    assert_eq!(reflex, Reflex::new(&baseline));
}

#[test]
fn a_change_of_regime_ends_tightening() {
    let mut machine = Machine::new(CPUS);
    machine.steps(6, bad());
    machine.steps(2, idling(0));
    assert_eq!(machine.control.knobs().slice, MS(4));
    machine.enter(Regime::Mixed);
    assert_eq!(machine.control.knobs().slice, MS(1));
    assert_eq!(machine.tightenings(), "tighten_events=3");
}
