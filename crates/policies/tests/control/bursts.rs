// SPDX-License-Identifier: GPL-2.0-only

//! Detection of bursts.

use crate::{CPUS, MS, US};
use pandemonium_engine::task::Cause;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::control::detect::{
    BURST_QUIET, Burst, Cusum, Detectors, WAKE_WINDOW, WakeRate,
};
use pandemonium_policies::knobs::Rules;

/// Adds one sample: 64 enqueues, the last one `length` later. Returns whether it is a burst.
fn enqueue_64(cusum: &mut Cusum, now: &mut Stamp, length: Span) -> bool {
    for _ in 0..63 {
        assert_eq!(cusum.observe(*now), None);
    }
    *now = *now + length;
    cusum.observe(*now).expect("64 enqueues are a sample")
}

/// The sample at which a burst begins when samples of length `usual` become `then`, and how many
/// samples the burst lasts.
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
fn the_cumulative_sum_detects_a_step_of_the_rate() {
    assert_eq!(response(US(1_000), US(500)), (None, 0));
    assert_eq!(response(US(1_000), US(300)), (Some(5), 11));
    assert_eq!(response(US(1_000), US(200)), (Some(4), 17));
    assert_eq!(response(US(1_000), US(100)), (Some(3), 26));
    assert_eq!(response(US(1_000), US(20)), (Some(3), 41));
}

/// All arrivals of one round have the same time, so a sample can be a few nanoseconds long.
#[test]
fn the_cumulative_sum_detects_the_same_steps_in_very_short_samples() {
    let ns = Span::from_nanos;
    assert_eq!(response(ns(10), ns(5)), (None, 0));
    assert_eq!(response(ns(10), ns(3)), (Some(5), 11));
    assert_eq!(response(ns(10), ns(2)), (Some(4), 17));
    assert_eq!(response(ns(10), ns(1)), (Some(3), 26));
}

#[test]
fn normal_load_after_a_pause_is_not_a_burst() {
    // The machine is idle for an hour, then has its usual 100 enqueues a second.
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
        // 16 wakeups in one window are the limit for 8 CPUs.
        assert!((0..16).all(|_| !wakes.observe(now)));
        now = now + WAKE_WINDOW;
    }
    // The pause lowers the average, so that 17 wakeups are more than twice as many.
    now = now + MS(1_000);
    assert!((0..16).all(|_| !wakes.observe(now)));
    assert!(wakes.observe(now + Span::from_nanos(3_999_999)));
    assert!(!wakes.observe(now + WAKE_WINDOW));
}

/// Whether any of the next `windows` windows, with `wakeups` wakeups each, was a burst.
fn any_burst(wakes: &mut WakeRate, now: &mut Stamp, windows: u32, wakeups: u32) -> bool {
    let mut any = false;
    for _ in 0..windows {
        (0..wakeups).for_each(|_| any |= wakes.observe(*now));
        *now = *now + WAKE_WINDOW;
    }
    any
}

#[test]
fn a_constant_rate_of_wake_ups_is_not_a_burst_but_a_doubled_rate_is() {
    let (mut wakes, mut now) = (WakeRate::new(4), Stamp::from_nanos(1_000_000_000));
    assert!(any_burst(&mut wakes, &mut now, 75, 20), "the load begins");
    assert!(!any_burst(&mut wakes, &mut now, 1_000, 20), "the average has followed");
    assert!(any_burst(&mut wakes, &mut now, 1, 45));
    assert!(!any_burst(&mut wakes, &mut now, 75, 20), "the load continues");
    // After a second without wakeups the same load is a burst again.
    now = now + MS(1_000);
    assert!(any_burst(&mut wakes, &mut now, 1, 20));
}

#[test]
fn a_window_ends_if_the_clock_steps_back() {
    let mut wakes = WakeRate::new(2);
    let late = Stamp::from_nanos(1 << 50);
    assert!(!wakes.observe(late) && !wakes.observe(late));
    assert!(!wakes.observe(Stamp::from_nanos(5)));
}

#[test]
fn many_forks_are_a_burst_until_it_is_quiet() {
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
    // A single message does not prolong the burst, and no message is needed to end it.
    burst.on_enqueue(last, Cause::Wakeup, &rules);
    assert!(!burst.active(now + BURST_QUIET));
}

#[test]
fn requeues_do_not_count_as_wake_ups() {
    let rules = Rules::default();
    let mut burst = Burst::new(2);
    let now = Stamp::from_nanos(1_000_000_000);
    (0..60).for_each(|_| burst.on_enqueue(now, Cause::Requeue, &rules));
    assert!(!burst.active(now));
    (0..3).for_each(|_| burst.on_enqueue(now, Cause::Wakeup, &rules));
    assert!(burst.active(now));
}

/// Raises the rate of requeues to 50 times for `samples` samples. Returns the time of the last one.
fn requeue_burst(burst: &mut Burst, rules: &Rules, samples: usize) -> Stamp {
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
fn requeues_count_as_enqueues() {
    let after = |samples, rules: Rules| {
        let mut burst = Burst::new(u32::MAX);
        let now = requeue_burst(&mut burst, &rules, samples);
        burst.active(now)
    };
    assert!(!after(2, Rules::default()));
    assert!(after(4, Rules::default()));
    assert!(!after(4, Rules { burst_cusum: false, ..Rules::default() }));
}

#[test]
fn few_messages_after_a_burst_do_not_prolong_it() {
    let rules = Rules::default();
    let mut burst = Burst::new(u32::MAX);
    let now = requeue_burst(&mut burst, &rules, 4);
    // Completes the last sample of the burst, which fires for the last time.
    burst.on_enqueue(now, Cause::Requeue, &rules);
    burst.on_enqueue(now + MS(50), Cause::Wakeup, &rules);
    assert!(burst.active(now + MS(50)));
    burst.on_enqueue(now + MS(99), Cause::Wakeup, &rules);
    assert!(!burst.active(now + BURST_QUIET));
}

#[test]
fn each_burst_detector_can_be_switched_off() {
    let now = Stamp::from_nanos(1_000_000_000);
    let burst = |rules: Rules| {
        let mut detectors = Detectors::new(2);
        (0..3).for_each(|_| detectors.burst.on_enqueue(now, Cause::Wakeup, &rules));
        detectors.mode(now, &rules).burst
    };
    assert!(burst(Rules::default()));
    assert!(burst(Rules { burst_cusum: false, ..Rules::default() }));
    assert!(!burst(Rules { burst_wakeups: false, ..Rules::default() }));
    let neither = Rules { burst_wakeups: false, burst_cusum: false, ..Rules::default() };
    let mut detectors = Detectors::new(2);
    (0..3).for_each(|_| detectors.burst.on_enqueue(now, Cause::Wakeup, &Rules::default()));
    assert!(!detectors.mode(now, &neither).burst, "switched off during a burst");
}
