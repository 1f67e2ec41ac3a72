// SPDX-License-Identifier: GPL-2.0-only

//! Who goes first.

use crate::script::{arrival, knobs};
use crate::world::{World, sent};
use pandemonium_engine::Setup;
use pandemonium_engine::facts::Facts;
use pandemonium_engine::task::{Arrival, Cause, Comm, Dispatch, Pid, Reason, Tier, Weight};
use pandemonium_engine::time::Span;
use pandemonium_engine::{Limits, Policy};
use pandemonium_policies::knobs::{Knobs, Rules};
use pandemonium_policies::{Pandemonium, Scaling, Vruntime};
use proptest::prelude::*;

const BATCH: i32 = 1;
const INTERACTIVE: i32 = 2;
const LAT_CRITICAL: i32 = 3;

fn pids(dispatches: &[Dispatch]) -> Vec<i32> {
    dispatches.iter().map(|dispatch| dispatch.pid.as_raw()).collect()
}

fn hog(ticket: u64, run_interval: Span) -> Arrival {
    let cause = if ticket == 1 { Cause::New } else { Cause::Requeue };
    Arrival { cause, run_interval, awake: Span::from_millis(500), ..arrival(BATCH, ticket) }
}

fn compositor(ticket: u64) -> Arrival {
    Arrival { comm: Comm::from_text("kwin_wayland"), ..arrival(LAT_CRITICAL, ticket) }
}

/// A task that is Interactive whatever else it does, with a run interval to its name.
fn worker(ticket: u64, run_interval: Span) -> Arrival {
    let cause = if ticket == 1 { Cause::New } else { Cause::Requeue };
    let comm = Comm::from_text("kworker/u8:1");
    Arrival {
        cause,
        comm,
        run_interval,
        awake: Span::from_millis(20),
        ..arrival(INTERACTIVE, ticket)
    }
}

/// One task of each tier, known to the policy and at rest.
fn acquaint(policy: &mut Pandemonium) -> World<'_, Pandemonium> {
    let mut world = World::new(policy);
    for ticket in 1..=2 {
        // Longer than any slice, so that the hog is known as one.
        let long = Span::from_millis(100);
        world.decide(&[hog(ticket, long), worker(ticket, Span::ZERO), compositor(ticket)]);
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
        let mut policy = Pandemonium::new(&Setup::of_cpus(cpus));
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
            run_interval: Span::from_micros(ran),
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

/// The crowd of hogs that are known as such and wait together.
fn crowd(world: &mut World<Pandemonium>, hogs: i32) {
    let named = |ticket| {
        let run_interval = if ticket == 1 { Span::ZERO } else { Span::from_millis(4) };
        (100..100 + hogs)
            .map(move |pid| Arrival { pid: arrival(pid, 1).pid, ..hog(ticket, run_interval) })
    };
    world.decide(&named(1).collect::<Vec<_>>());
    world.port.ring.extend(named(2));
    world.round(Limits { arrivals: 4096, dispatches: 0, extra: 0 });
}

/// A hog waits while a compositor wants the CPU for every decision and always comes first, until
/// the hog has waited for the threshold; then the budget is long spent, and it is its turn.
#[test]
fn a_batch_task_gets_its_turn_however_many_are_more_urgent() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    let mut world = acquaint(&mut policy);
    crowd(&mut world, 1);
    let mut waited = Span::ZERO;
    for ticket in 3..1_000 {
        world.port.ring.push_back(compositor(ticket));
        world.port.log.clear();
        world.round(Limits { arrivals: 4096, dispatches: 1, extra: 0 });
        let [decided] = sent(&world.port.log)[..] else { panic!("somebody always waits") };
        if decided.pid.as_raw() == 100 {
            assert_eq!(decided.reason, Reason::Deficit);
            break;
        }
        world.pass(Span::from_micros(100));
        waited += Span::from_micros(100);
    }
    // Five hogs' weight on four CPUs, if others like it run, and the compositor's own turn.
    let Knobs { sojourn_thresh, batch_slice, slice, .. } = Knobs::default();
    let limit = sojourn_thresh + batch_slice.scale(5, 4) + slice.scale(1, 4);
    assert!((limit..limit + slice).contains(&waited), "{waited}, not {limit}");
}

/// Newcomers of the highest tier, more than could be served in time, and a hog that has waited
/// beyond the threshold: it waits for no more of them than the deficit allows.
#[test]
fn in_a_crowd_nobody_is_passed_more_often_than_the_deficit_allows() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    let mut world = acquaint(&mut policy);
    crowd(&mut world, 1);
    let new_tasks = (200..230).map(|pid| Arrival { pid: arrival(pid, 1).pid, ..compositor(1) });
    world.port.ring.extend(new_tasks);
    world.round(Limits { arrivals: 4096, dispatches: 0, extra: 0 });
    // Beyond the threshold of 5 ms, not beyond the overflow limit of 8; its turn is 30 slices of
    // 1 ms and five of 4 ms on four CPUs.
    world.pass(Span::from_micros(5_500 + 7_500 + 5_000));
    world.round(Limits { arrivals: 0, dispatches: 64, extra: 0 });
    let order = pids(&sent(&world.port.log));
    let order: Vec<i32> = order.into_iter().skip_while(|pid| *pid <= 100).collect();
    let position = order.iter().position(|&pid| pid == 100);
    assert_eq!(position, Some(Scaling::new(4).deficit_budget as usize), "{order:?}");
}

/// Nine hogs on one CPU wait for 36 ms in their ordinary turn. That is no reason to let them all
/// pass a compositor that has just woken up.
#[test]
fn a_crowd_of_hogs_does_not_pass_an_urgent_newcomer() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let mut world = acquaint(&mut policy);
    crowd(&mut world, 9);
    world.pass(Span::from_millis(4 * 9));
    let order = pids(&world.decide(&[compositor(3)]));
    assert_eq!(order.first(), Some(&LAT_CRITICAL));
}

/// Whoever is urgent sleeps soon, and its CPU goes on with the hog that was decided along with it.
/// Hogs alone are decided one at a time, as late as can be.
#[test]
fn one_hog_goes_along_with_the_last_urgent_task() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    let mut world = acquaint(&mut policy);
    crowd(&mut world, 3);
    world.port.ring.push_back(compositor(3));
    world.port.ring.push_back(worker(3, Span::ZERO));
    world.port.log.clear();
    world.round(Limits::KERNEL);
    assert_eq!(pids(&sent(&world.port.log)), [LAT_CRITICAL, INTERACTIVE, 100]);
    world.port.log.clear();
    world.round(Limits::KERNEL);
    assert_eq!(pids(&sent(&world.port.log)), [101]);
}

/// A policy that knows tasks with the name of `hog` to be hogs.
fn among_hogs(policy: &mut Pandemonium) -> World<'_, Pandemonium> {
    let mut world = World::new(policy);
    let facts = Facts { cpu_time: Span::from_millis(108), ..Facts::default() };
    for ticket in 1..=40 {
        let all = (100..120).map(|pid| Arrival {
            pid: arrival(pid, 1).pid,
            facts: Some(facts),
            ..hog(ticket, Span::from_millis(8))
        });
        world.decide(&all.collect::<Vec<_>>());
        world.pass(Span::from_millis(10));
    }
    world
}

/// A child by the name of `hog` that has used so much in its life.
fn child(ticket: u64, used_us: u64) -> Arrival {
    let used = Span::from_micros(used_us);
    let facts = Facts { cpu_time: used, ..Facts::default() };
    Arrival { facts: Some(facts), awake: used, ..hog(ticket, Span::ZERO) }
}

/// What is known of its name says nothing about it before it has slept or used a slice.
#[test]
fn a_forked_child_is_not_taken_for_its_namesakes_when_it_is_queued_again() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let mut world = among_hogs(&mut policy);
    world.decide(&[child(1, 50)]);
    assert_eq!(world.decide(&[child(2, 300)])[0].tier, Tier::Interactive);
    assert_eq!(world.decide(&[child(3, 1_500)])[0].tier, Tier::Batch, "it has used a slice");
}

#[test]
fn a_forked_child_that_soon_sleeps_is_no_hog_like_its_namesakes() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let mut world = among_hogs(&mut policy);
    world.decide(&[child(1, 50)]);
    let woken = Arrival { cause: Cause::Wakeup, ..child(2, 300) };
    assert_eq!(world.decide(&[woken])[0].tier, Tier::Interactive);
}

#[test]
fn a_forked_child_that_begins_a_known_program_is_taken_for_that_at_once() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let mut world = among_hogs(&mut policy);
    world.decide(&[Arrival { comm: Comm::from_text("make"), ..child(1, 50) }]);
    assert_eq!(world.decide(&[child(2, 300)])[0].tier, Tier::Batch);
}

/// In the kernel's queues, where a task waits when it has been decided for.
#[test]
fn of_two_of_a_tier_who_asks_for_less_goes_first() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(2));
    let mut world = World::new(&mut policy);
    let draws = |pid, ticket, us| Arrival {
        comm: Comm::from_text("kwin_wayland"),
        run_interval: Span::from_micros(us),
        ..arrival(pid, ticket)
    };
    let mut decided = Vec::new();
    for ticket in 1..=20 {
        decided = world.decide(&[draws(1, ticket, 600), draws(2, ticket, 100)]);
        world.pass(Span::from_millis(10));
    }
    let deadline = |pid| decided.iter().find(|one| one.pid.as_raw() == pid).map(|one| one.vtime);
    assert!(deadline(2) < deadline(1), "{decided:?}");
    let slices: Vec<u64> = decided.iter().map(|one| one.slice.as_micros()).collect();
    assert!(slices.contains(&150) && slices.contains(&900), "{slices:?}");
}

/// A loop that forks and waits without pause shares the machine with hogs, and so do its children.
#[test]
fn a_loop_of_forks_and_its_children_are_no_more_urgent_than_hogs() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    // These hogs never run, which alone would make a Batch task of the loop.
    policy.apply(&Knobs {
        rules: Rules { batch_starvation: false, ..Rules::default() },
        ..Knobs::default()
    });
    let mut world = among_hogs(&mut policy);
    let name = Comm::from_text("loop");
    let of = |pid, ticket, cause, facts| Arrival {
        comm: name,
        cause,
        facts: Some(facts),
        ..arrival(pid, ticket)
    };
    let mut tiers = Vec::new();
    for n in 1..=400 {
        let used = Facts { cpu_time: Span::from_micros(700 * n), wakeups: n, ..Facts::default() };
        let parent = world.decide(&[of(7, n, Cause::Wakeup, used)])[0].tier;
        let born = Facts { waker: Pid::new(7), ..Facts::default() };
        let child = world.decide(&[of(1_000 + n as i32, 1, Cause::New, born)])[0].tier;
        world.pass(Span::from_micros(1_100));
        tiers.push((parent, child));
    }
    assert!(tiers[10..50].iter().all(|both| both.0 > Tier::Batch && both.1 > Tier::Batch));
    assert!(
        tiers[300..].iter().all(|both| *both == (Tier::Batch, Tier::Batch)),
        "{:?}",
        &tiers[380..]
    );
}

/// The tiers are told apart by the slice as well: what others wait behind gets what it usually
/// needs, and Batch the long one.
#[test]
fn only_batch_tasks_get_the_long_slice() {
    let knobs = Knobs { batch_slice: Span::from_millis(8), ..Knobs::default() };
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    policy.apply(&knobs);
    let mut world = acquaint(&mut policy);
    let ran = Span::from_millis(8);
    let decided = world.decide(&[hog(3, ran), worker(3, ran), compositor(3)]);
    let slices: Vec<Span> = decided.iter().map(|dispatch| dispatch.slice).collect();
    // Nothing is known of the first two runs; nice 0 is worth 100 of 128.
    assert_eq!(slices[2], knobs.batch_slice.scale(100, 128));
    assert!(slices[..2].iter().all(|slice| *slice <= knobs.slice), "{slices:?}");
}
