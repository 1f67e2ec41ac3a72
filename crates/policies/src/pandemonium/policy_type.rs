// SPDX-License-Identifier: GPL-2.0-only

//! What a scheduler and a simulator know of the policy before they make one.

use super::{LOW_WEIGHT_WAIT, Pandemonium};
use crate::control::Controller;
use crate::knobs::{Knobs, TABLE};
use crate::profiles::PROFILES;
use crate::scaling::Scaling;
use alloc::boxed::Box;
use pandemonium_engine::adapting::Adapting;
use pandemonium_engine::knobs::{KeySet, KnobProfile, Table, Values};
use pandemonium_engine::registry::{Bounds, Counter};
use pandemonium_engine::{PolicyType, Setup};

impl PolicyType for Pandemonium {
    const NAME: &'static str = "pandemonium";
    const ABOUT: &'static str = "Tiers by behaviour, fair inside a tier, a bound on every wait";
    const KNOBS: &'static Table = &TABLE;
    const PROFILES: &'static [KnobProfile] = PROFILES;
    const COUNTERS: &'static [Counter] = &[Counter {
        name: "predictions",
        about: "New tasks with a name that the process database knew",
    }];

    fn new(setup: &Setup) -> Self {
        Pandemonium::new(setup)
    }

    fn adapting(cpus: u32, start: Values, chosen: KeySet) -> Box<dyn Adapting> {
        Box::new(Controller::new(cpus, Knobs::of(&start), chosen))
    }

    fn bounds(cpus: u32, values: &Values) -> Bounds {
        let knobs = Knobs::of(values);
        let slice = knobs.batch_slice.scale(5, 4).max(knobs.slice);
        let starvation = Scaling::new(cpus).starvation;
        Bounds { wait: Some(starvation.scale(2, 1) + LOW_WEIGHT_WAIT.scale(2, 1)), slice }
    }
}
