// SPDX-License-Identifier: GPL-2.0-only

//! What a policy keeps when the scheduler is loaded again, and what it must forget.

use crate::script::arrival;
use crate::world::World;
use pandemonium_engine::Setup;
use pandemonium_engine::task::{Arrival, Cause, Comm, Pid, Tier};
use pandemonium_engine::time::Span;
use pandemonium_engine::{Memo, Policy};
use pandemonium_policies::Pandemonium;

const HOG: i32 = 1;
const FRAMES: i32 = 2;
const AUDIO: i32 = 3;
const COMPOSITOR: i32 = 4;
const NEWCOMER: i32 = 5;

/// The kinds of life a task can lead, and where each ends up.
const LIVES: [(i32, Tier); 5] = [
    (HOG, Tier::Batch),
    (FRAMES, Tier::Interactive),
    (AUDIO, Tier::LatCritical),
    (COMPOSITOR, Tier::LatCritical),
    (NEWCOMER, Tier::Interactive),
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
        _ => "newcomer",
    };
    Arrival { comm: Comm::from_text(name), ..arrival(raw, ticket) }
}

/// A message after a run of `ms` milliseconds, which ended in sleep unless the task is the hog.
fn ran(raw: i32, ticket: u64, ms: u64) -> Arrival {
    let run_interval = Span::from_millis(ms);
    if raw == HOG {
        let awake = run_interval.scale(ticket, 1);
        return Arrival { cause: Cause::Requeue, run_interval, awake, ..task(raw, ticket) };
    }
    Arrival { run_interval, ..task(raw, ticket) }
}

/// A policy that has seen everybody live for a while.
fn lived() -> Pandemonium {
    let mut policy = Pandemonium::new(&Setup::of_cpus(4));
    let mut world = World::new(&mut policy);
    for ticket in 1..30 {
        let frames = if ticket == 1 { task(FRAMES, 1) } else { ran(FRAMES, ticket, 5) };
        let hog = if ticket == 1 { task(HOG, 1) } else { ran(HOG, ticket, 4) };
        world.decide(&[hog, frames, task(AUDIO, ticket), task(COMPOSITOR, ticket)]);
        world.pass(Span::from_millis(16));
    }
    world.decide(&[task(NEWCOMER, 1)]);
    policy
}

fn memos(policy: &Pandemonium) -> Vec<Memo> {
    let mut memos = Vec::new();
    policy.export(&mut |memo| memos.push(memo));
    memos
}

/// A policy that was started anew and took back what `policy` handed out.
fn restarted(policy: &Pandemonium) -> Pandemonium {
    let mut anew = Pandemonium::new(&Setup::of_cpus(4));
    memos(policy).into_iter().for_each(|memo| anew.import(memo));
    anew
}

/// The tier in which the policy decides about this arrival.
fn tier_of(policy: &mut Pandemonium, arrival: Arrival) -> Tier {
    let before = policy.counters().by_tier;
    let mut world = World::new(policy);
    // Later than everything before, and a frame later with every message.
    world.pass(Span::from_millis(1_000 + 16 * arrival.ticket.0));
    assert_eq!(world.decide(&[arrival]).len(), 1);
    let after = policy.counters().by_tier;
    let counted = |tier: &&Tier| after[tier.index()] > before[tier.index()];
    *Tier::ALL.iter().find(counted).expect("every decision is counted")
}

#[test]
fn every_tier_survives() {
    let before = lived();
    let handed_out: Vec<(i32, Tier)> =
        memos(&before).iter().map(|memo| (memo.pid.as_raw(), memo.tier)).collect();
    assert_eq!(handed_out, LIVES);
    let mut anew = restarted(&before);
    for (raw, tier) in LIVES {
        // The backend was loaded anew as well, so its tickets begin at one.
        assert_eq!(tier_of(&mut anew, task(raw, 1)), tier, "pid {raw}");
    }
}

#[test]
fn a_tier_survives_the_first_message_that_tells_something() {
    let mut anew = restarted(&lived());
    for (raw, tier) in [(HOG, Tier::Batch), (FRAMES, Tier::Interactive)] {
        tier_of(&mut anew, task(raw, 1));
        assert_eq!(tier_of(&mut anew, ran(raw, 2, 4)), tier, "pid {raw}");
    }
}

#[test]
fn a_second_restart_loses_nothing_that_the_first_kept() {
    let once = restarted(&lived());
    assert_eq!(memos(&once), memos(&lived()));
}

#[test]
fn a_pid_under_another_name_is_somebody_else() {
    let mut anew = restarted(&lived());
    let stranger = Arrival { comm: Comm::from_text("stranger"), ..task(HOG, 1) };
    assert_eq!(tier_of(&mut anew, stranger), Tier::Interactive);
}

#[test]
fn a_pid_used_again_starts_afresh() {
    let mut policy = lived();
    assert_eq!(tier_of(&mut policy, task(HOG, 1)), Tier::Interactive);
}

#[test]
fn who_has_exited_is_not_handed_out() {
    let mut policy = lived();
    policy.on_exit(pid(HOG));
    assert!(memos(&policy).iter().all(|memo| memo.pid != pid(HOG)));
}

#[test]
fn what_a_policy_knows_is_not_overwritten_by_what_it_knew() {
    let mut policy = lived();
    let old = Memo {
        pid: pid(HOG),
        comm: Comm::from_text("hog"),
        tier: Tier::LatCritical,
        run: Span::from_nanos(1),
    };
    policy.import(old);
    assert_eq!(tier_of(&mut policy, ran(HOG, 30, 4)), Tier::Batch);
}
