// SPDX-License-Identifier: GPL-2.0-only

//! Processes that the user demands a treatment for.

use crate::script::arrival;
use crate::shares::{is_about, ran};
use crate::world::{World, sent};
use pandemonium_engine::task::{
    Arrival, Cause, Comm, CpuId, Dispatch, Pid, Placement, Tier, Weight,
};
use pandemonium_engine::time::Span;
use pandemonium_engine::topology::Domain;
use pandemonium_engine::treatment::{Assignment, TierDemand, Treatment};
use pandemonium_engine::{Limits, Policy, Setup};
use pandemonium_policies::Pandemonium;

/// A policy for which process 1 has this treatment.
fn treating(treatment: Treatment) -> Pandemonium {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let process = Assignment { pid: Pid::new(1).expect("a number"), treatment: 0 };
    policy.assign(&[treatment], &[process]);
    policy
}

fn demanding(tier: TierDemand) -> Pandemonium {
    treating(Treatment { tier, ..Treatment::default() })
}

/// The decision for the first message of a task, among tasks 1 and 2.
fn decided(mut policy: Pandemonium, arrival: Arrival) -> Dispatch {
    let mut world = World::new(&mut policy);
    world.port.ring.push_back(arrival);
    world.round(Limits { arrivals: 4096, dispatches: 1, extra: 0 });
    let [dispatch] = sent(&world.port.log)[..] else { panic!("one task waits") };
    dispatch
}

#[test]
fn a_process_has_the_tier_that_is_demanded_whatever_its_name() {
    let compositor = || Arrival { comm: Comm::from_text("kwin_wayland"), ..arrival(1, 1) };
    let of = |policy| decided(policy, compositor()).tier;
    assert_eq!(of(Pandemonium::new(&Setup::of_cpus(1))), Tier::LatCritical);
    assert_eq!(of(demanding(TierDemand::AtMost(Tier::Interactive))), Tier::Interactive);
    assert_eq!(of(demanding(TierDemand::Fixed(Tier::Batch))), Tier::Batch);
    assert_eq!(of(demanding(TierDemand::AtLeast(Tier::Interactive))), Tier::LatCritical);
    let other = decided(demanding(TierDemand::Fixed(Tier::LatCritical)), arrival(2, 1));
    assert_eq!(other.tier, Tier::Interactive, "no treatment is demanded for task 2");
}

#[test]
fn a_list_without_a_process_ends_its_treatment() {
    let mut policy = demanding(TierDemand::Fixed(Tier::Batch));
    policy.assign(&[], &[]);
    assert_eq!(decided(policy, arrival(1, 1)).tier, Tier::Interactive);
}

#[test]
fn a_demanded_slice_replaces_the_knob_s() {
    let slice = Span::from_millis(9);
    let tier = TierDemand::Fixed(Tier::Batch);
    let policy =
        treating(Treatment { tier, slice, weight: Some(Weight::new(128)), ..Treatment::default() });
    assert_eq!(decided(policy, arrival(1, 1)).slice, slice);
}

/// Task 1 is behind, and loses its CPU after 5 ms: its place among those decided then.
#[test]
fn a_task_is_preempted_before_the_end_of_the_slice_that_was_demanded() {
    let place_after = |slice| {
        let tier = TierDemand::Fixed(Tier::Batch);
        let mut policy = treating(Treatment { tier, slice, ..Treatment::default() });
        let mut world = World::new(&mut policy);
        let mut decided = |pid, ticket, ms| {
            let ran = Span::from_millis(ms);
            let cause = if ticket == 1 { Cause::New } else { Cause::Requeue };
            let message = Arrival { cause, run_interval: ran, awake: ran, ..arrival(pid, ticket) };
            world.port.log.clear();
            world.port.ring.push_back(message);
            world.round(Limits { arrivals: 4096, dispatches: 1, extra: 0 });
            let [dispatch] = sent(&world.port.log)[..] else { panic!("one task waits") };
            dispatch.vtime
        };
        decided(1, 1, 0);
        decided(2, 1, 0);
        decided(2, 2, 200);
        decided(1, 2, 5)
    };
    let [short, long] = [2, 9].map(|ms| place_after(Span::from_millis(ms)));
    assert!(long < short, "it comes first if its slice is not used up");
}

#[test]
fn a_demanded_weight_decides_the_share() {
    let heavy = Treatment { weight: Some(Weight::new(300)), ..Treatment::default() };
    let ran = ran(treating(heavy), &[100, 100], 8_000);
    assert!(is_about(ran[0], 75, ran[0] + ran[1]), "{ran:?} ms");
}

#[test]
fn a_task_of_a_strict_domain_is_placed_inside_and_gets_no_order() {
    let cpu = CpuId::new(3).expect("a CPU");
    let cpus = [cpu].into_iter().collect();
    let domain = Some(Domain { cpus, strict: true });
    let demanding = |domain| {
        let tier = TierDemand::Fixed(Tier::Batch);
        let policy = treating(Treatment { tier, domain, ..Treatment::default() });
        let decided = decided(policy, arrival(1, 1));
        (decided.placement, decided.order.is_some())
    };
    let anywhere = Placement::Any { near: CpuId::default() };
    assert_eq!(demanding(None), (anywhere, true));
    assert_eq!(demanding(domain), (Placement::Cpu(cpu), false));
}
