// SPDX-License-Identifier: GPL-2.0-only

//! The Batch slice, and the effects of a long run on the knobs.

use crate::{CPUS, MS, Machine, US, idling, quiet, sleeping};
use pandemonium_engine::adapting::Adapting;
use pandemonium_policies::control::Sample;
use pandemonium_policies::control::regime::Regime;
use pandemonium_policies::control::tune::sleep_adjusted;
use pandemonium_policies::knobs::{Affinity, BATCH_SLICE, Knobs};

#[test]
fn the_share_of_io_changes_the_batch_slice_by_a_quarter() {
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
fn the_batch_slice_follows_the_sleeps_of_the_last_interval() {
    let mut machine = Machine::with_long_batch_slices();
    assert_eq!(machine.steps(1, sleeping(70)).batch_slice, MS(25));
    assert_eq!(machine.steps(1, sleeping(30)).batch_slice, MS(20));
    assert_eq!(machine.steps(1, sleeping(10)).batch_slice, MS(15));
    assert_eq!(machine.steps(1, quiet()).batch_slice, MS(20));
}

#[test]
fn no_regime_exceeds_the_batch_slice_of_the_start() {
    let mut machine = Machine::new(CPUS);
    for regime in Regime::ALL {
        machine.enter(Regime::Mixed);
        machine.enter(regime);
        assert_eq!(machine.control.knobs().batch_slice, BATCH_SLICE, "{regime:?}");
    }
    assert_eq!(machine.steps(1, sleeping(90)).batch_slice, MS(5));
}

#[test]
fn no_slice_exceeds_the_batch_slice_of_the_start_unless_the_user_sets_it() {
    let start = Knobs { batch_slice: US(700), burst_slice: US(700), ..Knobs::default() };
    let mut machine = Machine::with(CPUS, start, Knobs::none().with("batch_slice_us"));
    for regime in Regime::ALL {
        machine.enter(regime);
        let knobs = machine.control.knobs();
        assert_eq!((knobs.slice, knobs.batch_slice), (US(700), US(700)), "{regime:?}");
    }
    machine.control.pin("slice_us=3000").unwrap();
    assert_eq!(machine.control.knobs().slice, MS(3));
}

#[test]
fn during_a_long_run_sleeps_do_not_change_the_batch_slice() {
    for io in [70, 0] {
        let sample = Sample { longrun: true, ..sleeping(io) };
        assert_eq!(Machine::with_long_batch_slices().steps(3, sample).batch_slice, MS(20));
    }
}

#[test]
fn a_long_run_weakens_affinity_in_every_regime() {
    let mut machine = Machine::new(CPUS);
    for (regime, idle) in [(Regime::Light, 900), (Regime::Mixed, 290), (Regime::Heavy, 0)] {
        machine.enter(regime);
        let knobs = machine.steps(1, Sample { longrun: true, ..idling(idle) });
        assert_eq!(knobs.affinity, Affinity::Weak, "{regime:?}");
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
