// SPDX-License-Identifier: GPL-2.0-only

//! Shares of the time of one CPU.

use crate::script::arrival;
use crate::world::{World, sent};
use pandemonium_engine::Setup;
use pandemonium_engine::task::{Arrival, Cause, Weight};
use pandemonium_engine::time::Span;
use pandemonium_engine::{Limits, Policy};
use pandemonium_policies::{Fifo, Pandemonium, Vruntime};

/// Runs one hog of each weight on one CPU for `slices` slices. Returns the CPU time of each hog in
/// milliseconds.
pub fn ran<Q: Policy>(mut policy: Q, weights: &[u64], slices: u64) -> Vec<u64> {
    let mut world = World::new(&mut policy);
    let mut ran = vec![Span::ZERO; weights.len()];
    for (index, &weight) in weights.iter().enumerate() {
        let weight = Weight::new(weight);
        world.port.ring.push_back(Arrival { weight, ..arrival(index as i32 + 1, 1) });
    }
    for ticket in 2..slices + 2 {
        world.port.log.clear();
        world.round(Limits { arrivals: 4096, dispatches: 1, extra: 0 });
        let [dispatch] = sent(&world.port.log)[..] else { panic!("some task always waits") };
        let index = dispatch.pid.as_raw() as usize - 1;
        ran[index] += dispatch.slice;
        world.pass(dispatch.slice);
        world.port.ring.push_back(Arrival {
            cause: Cause::Requeue,
            weight: Weight::new(weights[index]),
            run_interval: dispatch.slice,
            awake: ran[index],
            ..arrival(dispatch.pid.as_raw(), ticket)
        });
    }
    ran.iter().map(|ran| ran.as_micros() / 1_000).collect()
}

/// Whether `part` is `percent` of `whole`, within three of a hundred.
pub fn is_about(part: u64, percent: u64, whole: u64) -> bool {
    (part * 100).abs_diff(percent * whole) <= 3 * whole
}

#[test]
fn vruntime_shares_the_cpu_by_weight() {
    for weights in [[100, 33], [33, 100], [100, 100], [300, 100], [1_000, 500]] {
        let ran = ran(Vruntime::new(), &weights, 4_000);
        let (whole, weight) = (ran[0] + ran[1], weights[0] + weights[1]);
        let percent = (weights[0] * 100).div_ceil(weight);
        assert!(is_about(ran[0], percent, whole), "{weights:?} ran {ran:?} ms");
    }
}

#[test]
fn vruntime_shares_among_many() {
    let weights = [100, 100, 100, 200, 500];
    let ran = ran(Vruntime::new(), &weights, 10_000);
    let whole = ran.iter().sum();
    for (ran, weight) in ran.iter().zip(weights) {
        assert!(is_about(*ran, weight / 10, whole), "weight {weight} ran {ran} of {whole} ms");
    }
}

/// The measurement can fail: a policy that ignores weights shares equally.
#[test]
fn fifo_shares_equally_whatever_the_weight() {
    let ran = ran(Fifo::new(), &[100, 33], 4_000);
    assert!(ran[0].abs_diff(ran[1]) <= 4, "{ran:?} ms");
}

/// Each hog waits only for the other, so there are no rescues and the weights decide.
#[test]
fn pandemonium_shares_the_cpu_by_weight() {
    for weights in [[100, 33], [100, 100], [100, 300], [100, 15], [1_000, 100]] {
        let ran = ran(Pandemonium::new(&Setup::of_cpus(1)), &weights, 8_000);
        let (whole, weight) = (ran[0] + ran[1], weights[0] + weights[1]);
        let percent = (weights[0] * 100).div_ceil(weight);
        assert!(is_about(ran[0], percent, whole), "{weights:?} ran {ran:?} ms");
    }
}
