// SPDX-License-Identifier: GPL-2.0-only

//! Properties that hold for any samples, knobs and messages.

use crate::CPUS;
use pandemonium_engine::adapting::Adapting;
use pandemonium_engine::histogram::{Latencies, Sleeps};
use pandemonium_engine::knobs::Table;
use pandemonium_engine::task::Cause;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::control::detect::{BURST_QUIET, Detectors};
use pandemonium_policies::control::tune::STABLE;
use pandemonium_policies::control::{Controller, INTERVAL, Sample};
use pandemonium_policies::knobs::{Knobs, Rules, TABLE};
use proptest::prelude::*;

/// A number that is likely to reveal an error: zero, small, any, or the largest.
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
    prop::collection::vec(any::<u64>(), TABLE.len()).prop_map(|draws| {
        let mut values = TABLE.defaults();
        for (key, draw) in TABLE.iter().zip(draws) {
            let (low, high) = key.limits();
            // Some values are at the ends of their range.
            let raw = match draw % 8 {
                0 => low,
                1 => high,
                _ => low + (draw >> 3) % (high - low + 1),
            };
            assert!(values.put(key.name, raw), "{}", key.name);
        }
        let mut knobs = Knobs::of(&values);
        knobs.slice_min =
            knobs.slice_min.min(knobs.slice).min(knobs.batch_slice).min(knobs.burst_slice);
        knobs.lat_cri_low = knobs.lat_cri_low.min(knobs.lat_cri_high);
        assert_eq!(knobs.check(), Ok(()));
        knobs
    })
}

fn config() -> ProptestConfig {
    // Proptest prints a failing case. It belongs into a named test, not into a regressions file.
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn knobs_stay_in_range_and_regimes_change_by_one_step(
        cpus in prop_oneof![1..=16u32, any::<u32>()],
        start in knobs(),
        pinned in any::<u64>(),
        seconds in prop::collection::vec((any::<u64>(), samples(), 1..5usize), 1..20),
    ) {
        let chosen = TABLE.iter().enumerate().filter(|(at, _)| pinned >> at & 1 == 1);
        let pinned = chosen.fold(Knobs::none(), |pinned, (_, key)| pinned.with(key.name));
        let mut control = Controller::new(cpus, start, pinned);
        let mut now = Stamp::default();
        // Each sample is repeated, so that it changes the knobs. Sometimes the clock jumps.
        let steps = seconds.into_iter().flat_map(|(jump, it, times)| vec![(jump, it); times]);
        for (jump, sample) in steps {
            now = if jump % 16 == 0 { Stamp::from_nanos(jump) } else { now + INTERVAL };
            let (regime, before) = (control.regime(), *control.knobs());
            let changed = control.step(now, &sample);
            prop_assert_eq!(control.knobs().check(), Ok(()));
            prop_assert_eq!(changed, *control.knobs() != before);
            prop_assert!(regime.index().abs_diff(control.regime().index()) <= 1);
            prop_assert!(control.report().stability <= STABLE);
            for key in pinned.iter() {
                let value = |knobs: &Knobs| knobs.values().get(key.name);
                prop_assert_eq!(value(control.knobs()), value(&start), "{}", key.name);
            }
        }
    }

    #[test]
    fn printed_knobs_parse_to_the_same_knobs(knobs in knobs()) {
        let text = Table::file_of(&knobs.values()).to_string();
        let (read, named) = Knobs::parse_file(&text).unwrap();
        prop_assert_eq!(read, knobs);
        prop_assert_eq!(named.len(), TABLE.len());
        prop_assert_eq!(TABLE.values_of(&knobs.values().raw()), Some(knobs.values()));
    }

    #[test]
    fn parsing_any_text_never_panics(
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
    fn detectors_recover_from_any_clock(
        messages in prop::collection::vec((any::<u64>(), 0..3u8, any::<bool>()), 0..400),
    ) {
        let rules = Rules::default();
        let mut detectors = Detectors::new(2 * CPUS);
        let mut last = 0;
        for (now, cause, waiting) in messages {
            let cause = [Cause::New, Cause::Wakeup, Cause::Requeue][cause as usize];
            // Mostly forward, in steps of any size.
            last = if now % 16 == 0 { now } else { u64::saturating_add(last, now >> (now % 64)) };
            let now = Stamp::from_nanos(last);
            detectors.burst.on_enqueue(now, cause, &rules);
            detectors.longrun.observe(now, waiting);
            detectors.mode(now, &rules);
        }
        let now = Stamp::from_nanos(last);
        detectors.longrun.observe(now, false);
        prop_assert!(!detectors.mode(now, &rules).longrun);
        if last < u64::MAX - BURST_QUIET.as_nanos() {
            prop_assert!(!detectors.mode(now + BURST_QUIET, &rules).burst);
        }
    }
}
