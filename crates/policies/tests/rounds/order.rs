// SPDX-License-Identifier: GPL-2.0-only

//! The order in which tasks are dispatched.

use crate::script::{arrival, knobs};
use crate::world::{World, sent};
use pandemonium_engine::Setup;
use pandemonium_engine::facts::Facts;
use pandemonium_engine::task::{Arrival, Cause, Comm, Dispatch, Pid, Reason, Tier, User, Weight};
use pandemonium_engine::time::Span;
use pandemonium_engine::{Limits, MachineView, Policy};
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

/// A task that is Interactive by its name, with this run interval.
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

/// A world with one task of each tier, which the policy knows and which do not wait.
fn with_known_tasks(policy: &mut Pandemonium) -> World<'_, Pandemonium> {
    let mut world = World::new(policy);
    for ticket in 1..=2 {
        // Longer than any slice, so that the policy classifies the hog as Batch.
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

    /// With any number of CPUs, any slices and any runs before: virtual time orders the tasks of
    /// one tier and never lifts a task above a higher tier.
    #[test]
    fn tiers_come_in_order_when_they_arrive_together(
        cpus in 1..1024u32,
        knobs in knobs(),
        hog_ran in 0..400u64,
        worker_ran in 0..400u64,
    ) {
        let mut policy = Pandemonium::new(&Setup::of_cpus(cpus));
        policy.tune(&knobs.values());
        let mut world = with_known_tasks(&mut policy);
        let worker = worker(3, Span::from_millis(worker_ran));
        let together = [hog(3, Span::from_millis(hog_ran)), worker, compositor(3)];
        let order = pids(&world.decide(&together));
        prop_assert_eq!(order, [LAT_CRITICAL, INTERACTIVE, BATCH]);
    }

    /// Every task runs once, then all wait.
    #[test]
    fn vruntime_dispatches_by_cpu_time_divided_by_weight(
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
            // In whole nanoseconds, as in the policy.
            ran as u128 * 1_000 * 100 / weight as u128
        };
        prop_assert!(order.is_sorted_by_key(served), "{:?}", order);
    }
}

/// Makes so many hogs wait together. The policy knows them as Batch.
fn queue_hogs(world: &mut World<Pandemonium>, hogs: i32) {
    let named = |ticket| {
        let run_interval = if ticket == 1 { Span::ZERO } else { Span::from_millis(4) };
        (100..100 + hogs)
            .map(move |pid| Arrival { pid: arrival(pid, 1).pid, ..hog(ticket, run_interval) })
    };
    world.decide(&named(1).collect::<Vec<_>>());
    world.port.ring.extend(named(2));
    world.round(Limits { arrivals: 4096, dispatches: 0, extra: 0 });
}

/// A hog waits while a compositor arrives before every decision. By the time the hog has waited for
/// the threshold the deficit budget is used up, so the hog is next.
#[test]
fn a_batch_task_runs_despite_endless_urgent_tasks() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    let mut world = with_known_tasks(&mut policy);
    queue_hogs(&mut world, 1);
    let mut waited = Span::ZERO;
    for ticket in 3..1_000 {
        world.port.ring.push_back(compositor(ticket));
        world.port.log.clear();
        world.round(Limits { arrivals: 4096, dispatches: 1, extra: 0 });
        let [decided] = sent(&world.port.log)[..] else { panic!("some task always waits") };
        if decided.pid.as_raw() == 100 {
            assert_eq!(decided.reason, Reason::Deficit);
            break;
        }
        world.pass(Span::from_micros(100));
        waited += Span::from_micros(100);
    }
    // The turn of one hog beside four running ones on four CPUs, plus the turn of the compositor.
    let Knobs { sojourn_thresh, batch_slice, slice, .. } = Knobs::default();
    let limit = sojourn_thresh + batch_slice.scale(5, 4) + slice.scale(1, 4);
    assert!((limit..limit + slice).contains(&waited), "{waited}, not {limit}");
}

/// A hog that was in deficit is killed while it waits, and its pid is that of a new compositor.
/// That one has not waited, and no other task does.
#[test]
fn a_task_with_the_pid_of_a_waiting_hog_is_decided_as_what_it_is() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    policy.tune(&without(|rules| rules.overflow_rescue = false).values());
    let mut world = with_known_tasks(&mut policy);
    queue_hogs(&mut world, 1);
    let one = Limits { arrivals: 4096, dispatches: 1, extra: 0 };
    for ticket in 3..3 + u64::from(Scaling::new(4).deficit_budget) {
        world.port.ring.push_back(compositor(ticket));
        world.round(one);
    }
    world.pass(Span::from_millis(100));
    world.port.ring.push_back(Arrival {
        pid: arrival(100, 1).pid,
        cause: Cause::New,
        ..compositor(1)
    });
    world.port.log.clear();
    world.round(one);
    let [decided] = sent(&world.port.log)[..] else { panic!("the new task waits for ever") };
    assert_eq!((decided.pid.as_raw(), decided.tier), (100, Tier::LatCritical));
}

/// A hog has waited beyond the threshold beside more new LatCritical tasks than can run in time.
#[test]
fn no_more_urgent_tasks_overtake_batch_than_the_deficit_budget_allows() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    let mut world = with_known_tasks(&mut policy);
    queue_hogs(&mut world, 1);
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

/// As the driver holds the policy: in a box.
#[test]
fn the_longest_wait_above_batch_is_told_and_a_hog_s_is_not() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let mut world = with_known_tasks(&mut policy);
    queue_hogs(&mut world, 1);
    let now = world.now;
    let mut policy: Box<dyn Policy> = Box::new(policy);
    let later = |ms| now + Span::from_millis(ms);
    assert_eq!(policy.waiting().oldest_wait(later(60)), Span::from_millis(60));
    assert_eq!(policy.urgent_wait(later(60)), Span::ZERO);
    let view = MachineView::default();
    policy.arrive(later(60), worker(3, Span::ZERO), &view);
    policy.arrive(later(70), compositor(3), &view);
    assert_eq!(policy.urgent_wait(later(111)), Span::from_millis(51));
    let urgent = [policy.next(later(111), &view), policy.next(later(111), &view)];
    assert!(urgent.iter().flatten().all(|sent| sent.tier > Tier::Batch), "{urgent:?}");
    assert_eq!(policy.urgent_wait(later(111)), Span::ZERO);
}

/// Nine hogs on one CPU wait for 36 ms in their ordinary turn. That is no reason to let them all
/// pass a compositor that has just woken up.
#[test]
fn many_waiting_hogs_do_not_overtake_an_urgent_task() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let mut world = with_known_tasks(&mut policy);
    queue_hogs(&mut world, 9);
    world.pass(Span::from_millis(4 * 9));
    let order = pids(&world.decide(&[compositor(3)]));
    assert_eq!(order.first(), Some(&LAT_CRITICAL));
}

/// An urgent task sleeps soon, and its CPU then runs the hog that was dispatched along with it. Few
/// hogs with orders go together. Without orders hogs are dispatched one at a time, as late as
/// possible.
#[test]
fn hogs_go_along_with_the_last_urgent_task_all_or_one_at_a_time() {
    let sent_in_two_rounds = |orders: bool| {
        let mut policy = Pandemonium::new(&Setup::of_cpus(4));
        if !orders {
            let mut knobs = Knobs::default();
            knobs.rules.orders = false;
            policy.tune(&knobs.values());
        }
        let mut world = with_known_tasks(&mut policy);
        queue_hogs(&mut world, 3);
        world.port.ring.push_back(compositor(3));
        world.port.ring.push_back(worker(3, Span::ZERO));
        [(), ()].map(|()| {
            world.port.log.clear();
            world.round(Limits::KERNEL);
            pids(&sent(&world.port.log))
        })
    };
    let [first, second] = sent_in_two_rounds(false);
    assert_eq!((first, second), (vec![LAT_CRITICAL, INTERACTIVE, 100], vec![101]));
    let [first, second] = sent_in_two_rounds(true);
    assert_eq!((first, second), (vec![LAT_CRITICAL, INTERACTIVE, 100, 101, 102], vec![]));
}

/// A world with waiting hogs. The process database knows their name as Batch.
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

/// The hogs never run: with this rule other tasks would be Batch because of that alone.
fn without_batch_starvation() -> Knobs {
    without(|rules| rules.batch_starvation = false)
}

fn without(switch_off: impl Fn(&mut Rules)) -> Knobs {
    let mut knobs = Knobs::default();
    switch_off(&mut knobs.rules);
    knobs
}

/// A child with the name of the hogs that has used so much CPU time in total.
fn child(ticket: u64, used_us: u64) -> Arrival {
    let used = Span::from_micros(used_us);
    let facts = Facts { cpu_time: used, ..Facts::default() };
    Arrival { facts: Some(facts), awake: used, ..hog(ticket, Span::ZERO) }
}

/// The prediction for an inherited name is used only after the child has slept or used a slice.
#[test]
fn the_prediction_for_an_inherited_name_waits_for_a_slice() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    policy.tune(&without_batch_starvation().values());
    let mut world = among_hogs(&mut policy);
    world.decide(&[child(1, 50)]);
    assert_eq!(world.decide(&[child(2, 300)])[0].tier, Tier::Interactive);
    assert_eq!(world.decide(&[child(3, 1_500)])[0].tier, Tier::Batch, "it has used a slice");
}

#[test]
fn the_prediction_for_a_new_name_is_used_at_once() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    let mut world = among_hogs(&mut policy);
    world.decide(&[Arrival { comm: Comm::from_text("make"), ..child(1, 50) }]);
    assert_eq!(world.decide(&[child(2, 300)])[0].tier, Tier::Batch);
}

/// What a user's hogs, named like an editor, teach does not change how urgent an editor of another
/// user is when it begins.
#[test]
fn a_hog_named_like_another_user_s_editor_does_not_slow_that_editor() {
    let of = |user, pid, ticket, used| {
        let facts = Facts { user, cpu_time: used, wakeups: 1, ..Facts::default() };
        let awake = if ticket == 1 { Span::ZERO } else { used };
        Arrival { facts: Some(facts), awake, pid: arrival(pid, 1).pid, ..hog(ticket, Span::ZERO) }
    };
    let first_tier = |user| {
        let mut policy = Pandemonium::new(&Setup::of_cpus(1));
        let mut world = World::new(&mut policy);
        for ticket in 1..=40 {
            let used = Span::from_millis(8 * ticket);
            let hogs = (100..120).map(|pid| of(User::new(1_001), pid, ticket, used));
            world.decide(&hogs.collect::<Vec<_>>());
            world.pass(Span::from_millis(10));
        }
        // Its name is new: it was another program when it was forked.
        let used = Span::from_micros(300);
        let forked = Arrival { comm: Comm::from_text("sh"), ..of(user, 7, 1, Span::ZERO) };
        world.decide(&[forked]);
        world.decide(&[of(user, 7, 2, used)])[0].tier
    };
    assert_eq!(first_tier(User::new(1_001)), Tier::Batch, "the hogs have taught nothing");
    assert_eq!(first_tier(User::new(1_000)), Tier::Interactive);
    assert_eq!(first_tier(User::ROOT), Tier::Interactive);
    assert_eq!(first_tier(User::UNKNOWN), Tier::Interactive);
}

/// This is the order in the kernel's queues, where a task waits after its dispatch.
#[test]
fn of_two_tasks_of_a_tier_the_one_with_the_shorter_slice_is_first() {
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

/// A fork loop forks and waits without a pause.
#[test]
fn a_fork_loop_and_its_children_are_batch() {
    let mut policy = Pandemonium::new(&Setup::of_cpus(1));
    policy.tune(&without_batch_starvation().values());
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
        let new = Facts { waker: Pid::new(7), ..Facts::default() };
        let child = world.decide(&[of(1_000 + n as i32, 1, Cause::New, new)])[0].tier;
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

/// LatCritical and Interactive tasks get what they usually need, and Batch the long slice.
#[test]
fn only_batch_tasks_get_the_long_slice() {
    let knobs = Knobs { batch_slice: Span::from_millis(8), ..Knobs::default() };
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    policy.tune(&knobs.values());
    let mut world = with_known_tasks(&mut policy);
    let ran = Span::from_millis(8);
    let decided = world.decide(&[hog(3, ran), worker(3, ran), compositor(3)]);
    let slices: Vec<Span> = decided.iter().map(|dispatch| dispatch.slice).collect();
    // The weight of nice 0 is 100 of 128.
    assert_eq!(slices[2], knobs.batch_slice.scale(100, 128));
    assert!(slices[..2].iter().all(|slice| *slice <= knobs.slice), "{slices:?}");
}
