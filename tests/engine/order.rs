// SPDX-License-Identifier: GPL-2.0-only

//! Who goes first.

use crate::script::{arrival, knobs};
use crate::world::{World, sent};
use proptest::prelude::*;
use scx_pandemonium_user::engine::{Knobs, Limits, Policy};
use scx_pandemonium_user::policy::{Pandemonium, Scaling, Vruntime};
use scx_pandemonium_user::task::{Arrival, Cause, Comm, Dispatch, Weight};
use scx_pandemonium_user::time::Span;

const BATCH: i32 = 1;
const INTERACTIVE: i32 = 2;
const LAT_CRITICAL: i32 = 3;

fn pids(dispatches: &[Dispatch]) -> Vec<i32> {
    dispatches.iter().map(|dispatch| dispatch.pid.as_raw()).collect()
}

fn hog(ticket: u64, stint: Span) -> Arrival {
    let cause = if ticket == 1 { Cause::New } else { Cause::Requeue };
    Arrival { cause, stint, awake: Span::from_millis(500), ..arrival(BATCH, ticket) }
}

fn compositor(ticket: u64) -> Arrival {
    Arrival { comm: Comm::from_text("kwin_wayland"), ..arrival(LAT_CRITICAL, ticket) }
}

/// A task that is Interactive whatever else it does, with a stint to its name.
fn worker(ticket: u64, stint: Span) -> Arrival {
    let cause = if ticket == 1 { Cause::New } else { Cause::Requeue };
    let comm = Comm::from_text("kworker/u8:1");
    Arrival { cause, comm, stint, awake: Span::from_millis(20), ..arrival(INTERACTIVE, ticket) }
}

/// One task of each tier, known to the policy and at rest.
fn acquaint(policy: &mut Pandemonium) -> World<'_, Pandemonium> {
    let mut world = World::new(policy);
    for ticket in 1..=2 {
        let none = Span::ZERO;
        world.decide(&[hog(ticket, none), worker(ticket, none), compositor(ticket)]);
        world.pass(Span::from_millis(1));
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// On any machine, with any slices, and whatever the tasks have run: fairness orders tasks of
    /// one tier and never lifts one above the next.
    #[test]
    fn tiers_come_in_order_when_they_arrive_together(
        cpus in 1..1024u32,
        knobs in knobs(),
        hog_ran in 0..400u64,
        worker_ran in 0..400u64,
    ) {
        let mut policy = Pandemonium::new(cpus, &[]);
        policy.apply(&knobs);
        let mut world = acquaint(&mut policy);
        let worker = worker(3, Span::from_millis(worker_ran));
        let together = [hog(3, Span::from_millis(hog_ran)), worker, compositor(3)];
        let order = pids(&world.decide(&together));
        prop_assert_eq!(order, [LAT_CRITICAL, INTERACTIVE, BATCH]);
    }

    /// Among tasks that never ran before, whoever then ran the least for its weight goes first.
    #[test]
    fn vruntime_prefers_the_least_served_for_its_weight(
        tasks in prop::collection::vec((0..30_000u64, 50..10_000u64), 2..20),
    ) {
        let mut policy = Vruntime::new();
        let mut world = World::new(&mut policy);
        let pid = |index: usize| index as i32 + 1;
        let first: Vec<Arrival> = (0..tasks.len()).map(|index| arrival(pid(index), 1)).collect();
        world.decide(&first);
        let again = tasks.iter().enumerate().map(|(index, &(ran, weight))| Arrival {
            stint: Span::from_micros(ran),
            weight: Weight::new(weight),
            ..arrival(pid(index), 2)
        });
        let order = world.decide(&again.collect::<Vec<_>>());
        let served = |dispatch: &Dispatch| {
            let (ran, weight) = tasks[dispatch.pid.as_raw() as usize - 1];
            // Whole nanoseconds, as the policy counts.
            ran as u128 * 1_000 * 100 / weight as u128
        };
        prop_assert!(order.is_sorted_by_key(served), "{:?}", order);
    }
}

/// A hog waits while a compositor wants the CPU for every decision and always comes first, until
/// it has been first as often as the deficit allows.
#[test]
fn a_batch_task_gets_its_turn_however_many_are_more_urgent() {
    let mut policy = Pandemonium::new(4, &[]);
    let mut world = acquaint(&mut policy);
    world.port.ring.push_back(hog(3, Span::ZERO));
    let mut before = 0;
    for ticket in 3..1_000 {
        world.port.ring.push_back(compositor(ticket));
        world.port.log.clear();
        world.round(Limits::KERNEL);
        if pids(&sent(&world.port.log)) == [BATCH] {
            break;
        }
        before += 1;
    }
    assert_eq!(before, Scaling::new(4).deficit_budget);
}

/// Two hundred newcomers of the highest tier, and more waiting than could be served in time: a
/// batch task still waits for no more of them than the deficit allows.
#[test]
fn in_a_crowd_nobody_is_passed_more_often_than_the_deficit_allows() {
    let mut policy = Pandemonium::new(4, &[]);
    let mut world = acquaint(&mut policy);
    world.port.ring.push_back(hog(3, Span::ZERO));
    world.round(Limits { arrivals: 4096, dispatches: 0 });
    let newcomers = (200..400).map(|pid| Arrival { pid: arrival(pid, 1).pid, ..compositor(1) });
    let order = pids(&world.decide(&newcomers.collect::<Vec<_>>()));
    let position = order.iter().position(|&pid| pid == BATCH);
    assert_eq!(position, Some(Scaling::new(4).deficit_budget as usize));
}

/// Nine hogs on one CPU wait longer than the starvation limit in their ordinary turn. That is no
/// reason to let them all pass a compositor that has just woken up.
#[test]
fn a_crowd_of_hogs_does_not_pass_an_urgent_newcomer() {
    let mut policy = Pandemonium::new(1, &[]);
    let mut world = acquaint(&mut policy);
    let hogs = (100..109).map(|pid| Arrival { pid: arrival(pid, 1).pid, ..hog(1, Span::ZERO) });
    world.port.ring.extend(hogs);
    world.round(Limits { arrivals: 4096, dispatches: 0 });
    world.pass(Span::from_millis(4 * 9));
    let order = pids(&world.decide(&[compositor(3)]));
    assert_eq!(order.first(), Some(&LAT_CRITICAL));
}

/// The tiers are told apart by the slice as well: what others wait behind gets the short one.
#[test]
fn only_batch_tasks_get_the_long_slice() {
    let knobs = Knobs {
        slice: Span::from_millis(7),
        slice_min: Span::from_micros(300),
        percpu_local: false,
    };
    let mut policy = Pandemonium::new(4, &[]);
    policy.apply(&knobs);
    let mut world = acquaint(&mut policy);
    let decided = world.decide(&[hog(3, Span::ZERO), worker(3, Span::ZERO), compositor(3)]);
    let slices: Vec<Span> = decided.iter().map(|dispatch| dispatch.slice).collect();
    assert_eq!(slices, [knobs.slice_min, knobs.slice_min, knobs.slice]);
}
