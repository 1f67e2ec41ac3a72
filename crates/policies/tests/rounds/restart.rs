// SPDX-License-Identifier: GPL-2.0-only

//! What a policy keeps over a restart of the scheduler, and what it must forget.

use crate::script::arrival;
use crate::world::World;
use pandemonium_engine::Setup;
use pandemonium_engine::task::{Arrival, Cause, Comm, Pid, Tier};
use pandemonium_engine::time::Span;
use pandemonium_engine::{Learning, Memo, Policy};
use pandemonium_policies::Pandemonium;

const HOG: i32 = 1;
const FRAMES: i32 = 2;
const AUDIO: i32 = 3;
const COMPOSITOR: i32 = 4;
const NEW_TASK: i32 = 5;

/// The tasks and the tier that each reaches.
const TASKS: [(i32, Tier); 5] = [
    (HOG, Tier::Batch),
    (FRAMES, Tier::Interactive),
    (AUDIO, Tier::LatCritical),
    (COMPOSITOR, Tier::LatCritical),
    (NEW_TASK, Tier::Interactive),
];

fn pid(raw: i32) -> Pid {
    Pid::new(raw).expect("a task's number")
}

fn task(raw: i32, ticket: u64) -> Arrival {
    let name = match raw {
        HOG => "hog",
        FRAMES => "frames",
        AUDIO => "audio",
        COMPOSITOR => "kwin_x11",
        _ => "new-task",
    };
    Arrival { comm: Comm::from_text(name), ..arrival(raw, ticket) }
}

/// A message after a run of `ms` milliseconds. Every task but the hog slept after it.
fn ran(raw: i32, ticket: u64, ms: u64) -> Arrival {
    let run_interval = Span::from_millis(ms);
    if raw == HOG {
        let awake = run_interval.scale(ticket, 1);
        return Arrival { cause: Cause::Requeue, run_interval, awake, ..task(raw, ticket) };
    }
    Arrival { run_interval, ..task(raw, ticket) }
}

/// A policy after all tasks have run for a while.
fn trained() -> Pandemonium {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    let mut world = World::new(&mut policy);
    for ticket in 1..30 {
        let frames = if ticket == 1 { task(FRAMES, 1) } else { ran(FRAMES, ticket, 5) };
        let hog = if ticket == 1 { task(HOG, 1) } else { ran(HOG, ticket, 4) };
        world.decide(&[hog, frames, task(AUDIO, ticket), task(COMPOSITOR, ticket)]);
        world.pass(Span::from_millis(16));
    }
    world.decide(&[task(NEW_TASK, 1)]);
    policy
}

fn memos(policy: &Pandemonium) -> Vec<Memo> {
    let mut memos = Vec::new();
    policy.export(&mut |memo| memos.push(memo));
    memos
}

/// A new policy that has imported what `policy` exported.
fn restarted(policy: &Pandemonium) -> Pandemonium {
    let mut restarted = Pandemonium::new(&Setup::of_cpus(4));
    memos(policy).into_iter().for_each(|memo| restarted.import(memo));
    restarted
}

/// The tier of the policy's decision for this arrival.
fn tier_of(policy: &mut Pandemonium, arrival: Arrival) -> Tier {
    let mut world = World::new(policy);
    // After all earlier messages, and one frame later with every message.
    world.pass(Span::from_millis(1_000 + 16 * arrival.ticket.0));
    let decisions = world.decide(&[arrival]);
    assert_eq!(decisions.len(), 1);
    decisions[0].tier
}

#[test]
fn every_tier_survives_a_restart() {
    let before = trained();
    let exported: Vec<(i32, Tier)> =
        memos(&before).iter().map(|memo| (memo.pid.as_raw(), memo.tier)).collect();
    assert_eq!(exported, TASKS);
    let mut policy = restarted(&before);
    for (raw, tier) in TASKS {
        // The backend restarted as well, so its tickets begin at one.
        assert_eq!(tier_of(&mut policy, task(raw, 1)), tier, "pid {raw}");
    }
}

#[test]
fn a_tier_survives_the_first_message_after_a_run() {
    let mut policy = restarted(&trained());
    for (raw, tier) in [(HOG, Tier::Batch), (FRAMES, Tier::Interactive)] {
        tier_of(&mut policy, task(raw, 1));
        assert_eq!(tier_of(&mut policy, ran(raw, 2, 4)), tier, "pid {raw}");
    }
}

#[test]
fn a_second_restart_keeps_what_the_first_kept() {
    let once = restarted(&trained());
    assert_eq!(memos(&once), memos(&trained()));
}

#[test]
fn a_pid_with_another_name_is_a_new_task() {
    let mut policy = restarted(&trained());
    let renamed = Arrival { comm: Comm::from_text("renamed"), ..task(HOG, 1) };
    assert_eq!(tier_of(&mut policy, renamed), Tier::Interactive);
}

#[test]
fn a_reused_pid_is_a_new_task() {
    let mut policy = trained();
    assert_eq!(tier_of(&mut policy, task(HOG, 1)), Tier::Interactive);
}

#[test]
fn an_exited_task_is_not_exported() {
    let mut policy = trained();
    policy.exit(pid(HOG));
    assert!(memos(&policy).iter().all(|memo| memo.pid != pid(HOG)));
}

#[test]
fn an_import_does_not_overwrite_a_known_task() {
    let mut policy = trained();
    let old = Memo {
        pid: pid(HOG),
        comm: Comm::from_text("hog"),
        tier: Tier::LatCritical,
        run: Span::from_nanos(1),
    };
    policy.import(old);
    assert_eq!(tier_of(&mut policy, ran(HOG, 30, 4)), Tier::Batch);
}
