// SPDX-License-Identifier: GPL-2.0-only

//! A mix under one policy: what was measured of its parts.

use crate::play::{Case, Played};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::time::Span;
use pandemonium_sim::measure::Outcome;
use pandemonium_sim::workload::Workload;
use pandemonium_statistics::mix::judge::{Measured, Pair};
use pandemonium_statistics::mix::{Notice, Part};
use serde::Serialize;

/// The shortest time that a ratio divides by, in microseconds: no person notices less.
const NOTICED_US: f64 = 100.0;

/// A mix under one policy.
#[derive(Serialize)]
pub struct Mix {
    mix: String,
    cpus: u32,
    policy: &'static str,
    parts: Vec<Part>,
}

impl Mix {
    pub fn measured(&self) -> Measured<'_> {
        Measured { mix: &self.mix, cpus: self.cpus, parts: &self.parts }
    }
}

/// What a run measured of the parts of a mix.
pub fn mix(case: &Case, played: &Played) -> Mix {
    let workload = &case.trial.workload;
    Mix {
        mix: workload.name.clone(),
        cpus: case.trial.setup.shape.cpus,
        policy: case.policy().name,
        parts: measured(workload, &played.tried.outcome),
    }
}

/// The parts of a workload with what a run measured of them.
fn measured(workload: &Workload, outcome: &Outcome) -> Vec<Part> {
    let window = outcome.window.as_nanos().max(1) as f64;
    let filled = pandemonium_workload::parts(workload).into_iter().map(|(number, mut part)| {
        let got = &outcome.groups[number];
        match part.notice {
            Notice::Work => {}
            Notice::Wakeup => times(&mut part, &got.wake),
            Notice::Frame | Notice::Request | Notice::Fork => times(&mut part, &got.measured),
        }
        part.missed = got.missed.min(part.count);
        part.work = got.work as f64 / window;
        if part.equals && got.lived > 1 {
            part.least_to_most = Some(got.least as f64 / got.most.max(1) as f64);
        }
        part
    });
    filled.collect()
}

fn times(part: &mut Part, lengths: &Durations) {
    let us = |span: Span| span.as_nanos() as f64 / 1_000.0;
    part.count = lengths.count();
    part.p50_us = us(lengths.quantile(500));
    part.p99_us = us(lengths.quantile(990));
    part.p999_us = us(lengths.quantile(999));
    part.worst_us = us(lengths.longest());
}

/// The judged scheduler's time by the other's, where shorter ones are all the same to a person.
pub fn ratio(pair: &Pair) -> f64 {
    pair.us.max(NOTICED_US) / pair.base_us.max(NOTICED_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offered::catalog;
    use crate::what::What;
    use pandemonium_statistics::mix::judge::judge;

    #[test]
    fn every_part_that_is_noticed_is_measured_often_enough_for_a_p99() {
        for seed in (2..=40).step_by(2) {
            let what = What::named(&format!("mix-{seed}"), 2);
            let case = Case::new(&what, catalog().default_policy(), 1).unwrap();
            let played = case.play(&mut ());
            let mix = mix(&case, &played);
            let (noticed, loads): (Vec<&Part>, Vec<&Part>) =
                mix.parts.iter().partition(|part| part.notice != Notice::Work);
            assert!(mix.parts.iter().all(Part::is_sound), "{seed}: {:?}", mix.parts);
            assert!(noticed.iter().all(|part| part.count >= 100), "{seed}: {noticed:?}");
            assert!(loads.iter().all(|part| part.work > 0.0), "{seed}: {loads:?}");
            let line = judge(mix.measured(), mix.measured()).unwrap();
            assert!(line.p99.iter().all(|pair| pair.ratio() == 1.0) && !line.p99.is_empty());
        }
    }
}
