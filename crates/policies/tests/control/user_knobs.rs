// SPDX-License-Identifier: GPL-2.0-only

//! Knobs that the user sets, and the loop beside them.

use crate::{CPUS, MS, Machine, US, bad, idling, quiet, sleeping};
use pandemonium_engine::adapting::Adapting;
use pandemonium_engine::time::Span;
use pandemonium_policies::control::regime::Regime;
use pandemonium_policies::control::{Controller, Sample};
use pandemonium_policies::knobs::{Knobs, Rules};

#[test]
fn the_loop_does_not_change_knobs_set_by_the_user() {
    let mut machine = Machine::new(CPUS);
    let pins = "slice_us=1700\nbatch_slice_us=30000\naffinity=off\nsojourn_thresh_us=9000\n\
                lag_scale=9\npreempt_thresh_us=123\ncpu_bound_thresh_us=7000";
    let set = Knobs::of(&machine.control.pin(pins).unwrap().values);
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
fn the_loop_does_not_change_knobs_set_by_a_file() {
    let (start, named) = Knobs::parse_file("slice_us=300 # short\nrule.codel_rescue=off").unwrap();
    let mut machine = Machine::with(CPUS, start, named);
    machine.enter(Regime::Heavy);
    let knobs = machine.control.knobs();
    assert_eq!(knobs.slice, US(300));
    assert!(!knobs.rules.codel_rescue);
    assert_eq!(knobs.sleeper_credit_scale, 2);
}

#[test]
fn the_loop_changes_released_knobs_again() {
    let mut machine = Machine::with_long_batch_slices();
    machine.enter(Regime::Heavy);
    machine.control.pin("slice_us=300\nbatch_slice_us=2000\nrule.lag=off").unwrap();
    let keys = Knobs::none().with("slice_us").with("batch_slice_us").with("rule.lag");
    machine.control.release(keys).unwrap();
    let knobs = machine.control.knobs();
    assert_eq!((knobs.slice, knobs.batch_slice, knobs.rules.sleeper_credit), (MS(4), MS(20), true));
    assert_eq!(machine.control.pinned(), Knobs::none());
}

#[test]
fn a_refused_change_has_no_effect() {
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
fn the_loop_never_sets_a_slice_below_the_minimum() {
    let mut machine = Machine::new(CPUS);
    machine.control.pin("slice_min_us=900").unwrap();
    let knobs = machine.steps(10, bad());
    assert_eq!(knobs.slice, US(900));
    assert_eq!(knobs.check(), Ok(()));
}

#[test]
fn with_the_loop_off_the_knobs_are_the_user_s() {
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
fn a_step_returns_the_knobs_only_if_they_changed() {
    let mut machine = Machine::new(CPUS);
    assert_eq!(machine.step(quiet()), None);
    assert_eq!(machine.step(idling(0)), None);
    let heavy = machine.step(idling(0)).unwrap();
    assert_eq!(heavy, *machine.control.knobs());
    assert_eq!(machine.step(idling(0)), None);
}

#[test]
#[should_panic(expected = "valid")]
fn a_controller_panics_if_the_start_values_are_invalid() {
    Controller::new(CPUS, Knobs { slice: Span::ZERO, ..Knobs::default() }, Knobs::none());
}
