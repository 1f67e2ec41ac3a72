// SPDX-License-Identifier: GPL-2.0-only

//! Stability, and what the loop reports.

use crate::{CPUS, MS, Machine, US, bad, idling, quiet};
use pandemonium_engine::adapting::Adapting;
use pandemonium_engine::time::Span;
use pandemonium_policies::control::Sample;
use pandemonium_policies::control::regime::Regime;
use pandemonium_policies::control::tune::{STABLE, stability, worth_a_line};

#[test]
fn stability_counts_quiet_intervals_up_to_ten() {
    let mut machine = Machine::new(CPUS);
    for score in 1..=STABLE {
        machine.step(quiet());
        assert_eq!(machine.control.report().stability, score);
    }
    machine.steps(5, quiet());
    assert_eq!(machine.control.report().stability, 10);
    assert_eq!(stability(u32::MAX, false, Span::ZERO, MS(5)), 10);
}

#[test]
fn an_event_resets_stability() {
    let after = |samples: &[Sample]| {
        let mut machine = Machine::new(CPUS);
        machine.steps(10, quiet());
        samples.iter().for_each(|&sample| _ = machine.step(sample));
        machine.control.report().stability
    };
    assert_eq!(after(&[idling(0)]), 10);
    assert_eq!(after(&[idling(0), idling(0)]), 0);
    assert_eq!(after(&[bad()]), 0);
    assert_eq!(after(&[Sample { burst: true, ..quiet() }]), 0);
    // Tightening is tested alone, because the P99 that causes it resets stability anyway.
    assert_eq!(stability(9, true, Span::ZERO, MS(5)), 0);
}

#[test]
fn a_p99_above_half_the_ceiling_resets_stability() {
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
    assert!(machine.control.report().worth_a_line);
    machine.step(quiet());
    assert!(!machine.control.report().worth_a_line);
}

#[test]
fn the_last_line_reports_what_the_loop_did() {
    let mut machine = Machine::with_long_batch_slices();
    machine.enter(Regime::Light);
    machine.enter(Regime::Mixed);
    machine.steps(2, bad());
    assert_eq!(
        machine.control.report().last_words,
        "[KNOBS] regime=MIXED slice_ns=750000 batch_ns=20000000 preempt_ns=750000 \
         demotion_ns=2500000 sleeper_credit_scale=4 tightened=true tighten_events=1 \
         ticks=L:4/M:6/H:0"
    );
    machine.control.pin("rule.adaptive=off").unwrap();
    assert_eq!(
        machine.control.report().last_words,
        "[KNOBS] regime=FIXED slice_ns=1000000 batch_ns=20000000 preempt_ns=1000000 \
         demotion_ns=2500000 sleeper_credit_scale=4"
    );
}
