// SPDX-License-Identifier: GPL-2.0-only

//! The knobs by name: defaults, values, files and refusals.

use crate::{MS, US};
use pandemonium_engine::knobs::{FileError, KnobError, Table};
use pandemonium_engine::time::Span;
use pandemonium_policies::knobs::{Affinity, Knobs, Rules, TABLE};

#[test]
fn the_defaults_are_the_readme_s_but_for_the_batch_slice() {
    let knobs = Knobs::default();
    assert_eq!(knobs.slice, MS(1));
    assert_eq!(knobs.slice_min, US(100));
    assert_eq!(knobs.preempt_thresh, MS(1));
    assert_eq!(knobs.sleeper_credit_scale, 4);
    assert_eq!(knobs.batch_slice, MS(4));
    assert_eq!(knobs.burst_slice, MS(1));
    assert_eq!(knobs.cpu_bound_thresh, US(2_500));
    assert_eq!((knobs.lat_cri_high, knobs.lat_cri_low), (32, 8));
    assert_eq!(knobs.affinity, Affinity::Weak);
    assert_eq!(knobs.sojourn_thresh, MS(5));
    assert!(!knobs.percpu_local);
    assert_eq!(knobs.check(), Ok(()));
}

/// Two experimental mechanisms are off by default.
#[test]
fn every_mechanism_has_a_switch() {
    let on = "classifier compositors kworker_floor frame_floor rested cpu_bound_demotion \
              sleeper_credit awake_cap vtime_ceiling overflow_rescue deficit \
              starvation_rescue codel_rescue batch_starvation crowd fork_loops longrun burst_cusum \
              burst_wakeups numa depth_gate sync_wakeups preempt orders adaptive \
              procdb";
    let off = "fifo_mode low_power";
    let rules = on.split(' ').map(|name| (name, 1)).chain(off.split(' ').map(|name| (name, 0)));
    let mut known = 0;
    for (name, default) in rules.filter(|(name, _)| !name.is_empty()) {
        let key = TABLE.named(&format!("rule.{name}")).expect(name);
        assert_eq!(Knobs::default().values().get(key.name), Some(default), "{name}");
        let mut knobs = Knobs::default();
        let assignment = format!("{}={}", key.name, if default == 1 { "off" } else { "on" });
        knobs.set(&assignment).unwrap();
        assert_eq!(knobs.values().get(key.name), Some(1 - default), "{name}");
        assert_ne!(knobs.rules, Rules::default(), "{name}");
        known += 1;
    }
    assert_eq!(known, TABLE.iter().filter(|key| key.name.starts_with("rule.")).count());
}

#[test]
fn every_key_is_named_once_and_explained_in_one_sentence() {
    assert_eq!(TABLE.iter().count(), TABLE.len());
    for (at, key) in TABLE.iter().enumerate() {
        assert_eq!(TABLE.iter().position(|other| other.name == key.name), Some(at), "{}", key.name);
        assert!(key.about().ends_with('.') && !key.about().contains(['#', '\n']), "{}", key.name);
        assert_eq!(key.about(), key.about().trim(), "{}", key.name);
        assert!(!key.range().to_string().is_empty());
        assert_eq!(Knobs::none().with(key.name).len(), 1);
    }
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
fn a_refusal_names_the_range() {
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
    assert_eq!(refused("lag_scale=0"), "sleeper_credit_scale takes 1 to 64, not \"0\"");
    assert_eq!(refused("affinity=3"), "affinity takes off, weak or strong, not \"3\"");
    assert_eq!(refused("rule.lag=maybe"), "rule.sleeper_credit takes on or off, not \"maybe\"");
    assert_eq!(refused("slice_us 5"), "\"slice_us 5\" is not of the form KEY=VALUE");
    assert_eq!(refused("slice=5"), "there is no knob \"slice\"");
    assert_eq!(refused("rule.affinity=off"), "there is no knob \"rule.affinity\"", "a former one");
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
fn a_file_has_assignments_and_comments() {
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
    let printed = Table::file_of(&TABLE.defaults()).to_string();
    assert!(printed.starts_with(
        "# Longest slice of Interactive and LatCritical tasks. Takes 100 to 100000 microseconds.\n\
         slice_us=1000\n"
    ));
    assert!(printed.contains("\naffinity=weak\n"));
    assert!(printed.contains("Takes on or off.\nrule.deficit=on\n"));
    assert_eq!(printed.lines().count(), 2 * TABLE.len());
}

#[test]
fn raw_values_out_of_range_are_refused() {
    let good = Knobs::default().values().raw();
    assert_eq!(TABLE.values_of(&good), Some(TABLE.defaults()));
    for at in 0..TABLE.len() {
        let mut raw = good;
        raw.words[at] = u64::MAX;
        assert_eq!(TABLE.values_of(&raw), None);
    }
    let mut short = good;
    short.len -= 1;
    assert_eq!(TABLE.values_of(&short), None, "another policy's");
    let contradiction = Knobs { slice_min: MS(5), ..Knobs::default() };
    assert_eq!(TABLE.values_of(&contradiction.values().raw()), None);
}

#[test]
fn older_names_are_accepted_and_reported() {
    let amended = TABLE.defaults().amended("lag_scale=9\nrule.famine=off").unwrap();
    let knobs = Knobs::of(&amended.values);
    assert_eq!((knobs.sleeper_credit_scale, knobs.rules.batch_starvation), (9, false));
    let renamed = [("lag_scale", "sleeper_credit_scale"), ("rule.famine", "rule.batch_starvation")];
    assert_eq!(amended.renamed, renamed);
    let twice = TABLE.defaults().amended("lag_scale=9\nsleeper_credit_scale=8").unwrap_err();
    assert_eq!(twice.to_string(), "line 2: sleeper_credit_scale is given twice");
}
