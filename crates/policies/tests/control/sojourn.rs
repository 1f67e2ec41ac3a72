// SPDX-License-Identifier: GPL-2.0-only

//! The threshold of the CoDel rescue.

use crate::{MS, Machine, US};
use pandemonium_engine::time::Span;
use pandemonium_policies::Scaling;
use pandemonium_policies::control::INTERVAL;
use pandemonium_policies::control::tune::Sojourn;

/// The threshold after `seconds` seconds with `dispatches` dispatches each.
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
fn the_threshold_moves_an_eighth_of_the_way() {
    let up = [6_750_000, 7_406_250, 7_980_469, 8_482_911, 8_922_548];
    let down = [11_250_000, 10_593_750, 10_019_532, 9_517_091, 9_077_455];
    for (index, (up, down)) in up.into_iter().zip(down).enumerate() {
        assert_eq!(sojourn(8, Some(MS(6)), 10, index + 1), Span::from_nanos(up));
        assert_eq!(sojourn(8, Some(MS(12)), 500_000, index + 1), Span::from_nanos(down));
    }
}

#[test]
fn the_threshold_converges_to_both_limits_and_between_them() {
    assert!(within_a_hundredth(sojourn(8, Some(MS(6)), 10, 100), MS(12)));
    assert!(within_a_hundredth(sojourn(8, Some(MS(12)), 500_000, 100), MS(6)));
    // 4 s / 571 are 7.005 ms.
    assert!(within_a_hundredth(sojourn(8, None, 571, 200), MS(7)));
}

#[test]
fn the_rate_depends_on_the_length_of_the_interval() {
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
