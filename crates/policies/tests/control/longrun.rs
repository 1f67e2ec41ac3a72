// SPDX-License-Identifier: GPL-2.0-only

//! Detection of long runs, and the effects of a mode.

use crate::MS;
use pandemonium_engine::Mode;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::control::detect::{Detectors, LONGRUN, Longrun};
use pandemonium_policies::knobs::Rules;

#[test]
fn a_batch_queue_that_is_never_empty_is_a_long_run() {
    let mut longrun = Longrun::default();
    let start = Stamp::from_nanos(5);
    assert!(!longrun.active(start));
    // The queue is never empty, although tasks of it may be dispatched.
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
fn a_long_run_restarts_if_the_clock_steps_back() {
    let mut longrun = Longrun::default();
    longrun.observe(Stamp::from_nanos(1 << 50), true);
    longrun.observe(Stamp::from_nanos(1), true);
    assert!(!longrun.active(Stamp::from_nanos(1)));
    assert!(longrun.active(Stamp::from_nanos(1) + MS(2_001)));
}

#[test]
fn bursts_and_long_runs_have_the_readme_s_effects() {
    let effects = |mode: Mode| {
        [mode.short_slices(), mode.shallow_queues(), mode.tight_deficit(), mode.weak_affinity()]
    };
    let (burst, longrun) = (true, true);
    assert_eq!(effects(Mode::default()), [false; 4]);
    let only_burst = Mode { burst, longrun: false };
    assert_eq!(effects(only_burst), [true, true, false, false]);
    let only_longrun = Mode { burst: false, longrun };
    assert_eq!(effects(only_longrun), [true, false, true, true]);
    assert_eq!(effects(Mode { burst, longrun }), [true; 4]);
}

#[test]
fn a_long_run_can_be_switched_off() {
    let mut detectors = Detectors::new(2);
    detectors.longrun.observe(Stamp::default(), true);
    let late = Stamp::default() + MS(2_001);
    assert!(detectors.mode(late, &Rules::default()).longrun);
    let off = Rules { longrun: false, ..Rules::default() };
    assert!(!detectors.mode(late, &off).longrun);
    detectors.longrun.observe(late, false);
    assert!(!detectors.mode(late, &Rules::default()).longrun);
}
