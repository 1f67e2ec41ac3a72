// SPDX-License-Identifier: GPL-2.0-only

//! The round, with a policy that the test controls, and with the real policies when there is no
//! room.

use crate::checkers;
use crate::script::arrival;
use crate::world::{Event, World, sent};
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Pid, Placement, Reason, Tier};
use pandemonium_engine::time::{Span, Stamp, Vtime};
use pandemonium_engine::{Limits, MachineView, Policy};
use pandemonium_engine::{Setup, TASKS_MAX, Waiting};
use pandemonium_policies::{Fifo, Pandemonium, Vruntime};

/// Returns the same decision again and again, so that only the round's limits end a round.
struct Endless {
    decision: Dispatch,
    arrived: usize,
    refused: Vec<Dispatch>,
    room: usize,
}

impl Endless {
    fn new(placement: Placement, preempt: bool) -> Endless {
        let Arrival { pid, ticket, .. } = arrival(7, 3);
        let (slice, vtime) = (Span::from_millis(1), Vtime::START);
        let (tier, reason) = (Tier::default(), Reason::default());
        let order = None;
        let decision =
            Dispatch { pid, ticket, placement, slice, vtime, tier, preempt, reason, order };
        Endless { decision, arrived: 0, refused: Vec::new(), room: usize::MAX }
    }
}

impl Policy for Endless {
    fn arrive(&mut self, _now: Stamp, _arrival: Arrival, _view: &MachineView) {
        self.arrived += 1;
        self.room -= 1;
    }

    fn next(&mut self, _now: Stamp, _view: &MachineView) -> Option<Dispatch> {
        Some(self.decision)
    }

    fn refused(&mut self, dispatch: Dispatch) {
        self.refused.push(dispatch);
    }

    fn exit(&mut self, _pid: Pid) {}

    fn waiting(&self) -> &dyn Waiting {
        self
    }
}

impl Waiting for Endless {
    fn nr_waiting(&self) -> usize {
        5
    }

    fn has_room(&self) -> bool {
        self.room > 0
    }

    fn oldest_wait(&self, _now: Stamp) -> Span {
        Span::ZERO
    }
}

fn cpu(number: i32) -> CpuId {
    CpuId::new(number).expect("a CPU number")
}

fn any() -> Placement {
    Placement::Any { near: cpu(0) }
}

#[test]
fn a_round_ends_despite_endless_messages_or_decisions() {
    let mut policy = Endless::new(any(), false);
    let mut world = World::new(&mut policy);
    world.port.ring.extend((1..=1000).map(|pid| arrival(pid, 1)));
    let done = world.round(Limits { arrivals: 30, dispatches: 20, extra: 0 });
    assert_eq!((done.received, done.sent, done.pending), (30, 20, 5));
    let done = world.round(Limits { arrivals: 0, dispatches: 0, extra: 0 });
    assert_eq!((done.received, done.sent, done.refused), (0, 0, false));
    assert_eq!(world.policy.arrived, 30);
}

#[test]
fn a_refusal_ends_the_round_and_is_passed_to_the_policy() {
    let mut policy = Endless::new(Placement::Cpu(cpu(2)), true);
    let mut world = World::new(&mut policy);
    world.port.accepts = 2;
    let done = world.round(Limits { arrivals: 1, dispatches: 9, extra: 0 });
    assert_eq!((done.sent, done.refused), (2, true));
    assert_eq!(world.policy.refused, [world.policy.decision]);
}

#[test]
fn a_preempting_decision_kicks_its_cpu_only_after_it_was_accepted() {
    let mut policy = Endless::new(Placement::Cpu(cpu(2)), true);
    let decision = policy.decision;
    let mut world = World::new(&mut policy);
    world.port.accepts = 1;
    world.round(Limits { arrivals: 0, dispatches: 9, extra: 0 });
    let happened = &world.port.log[1..4];
    let expected = [Event::Sent(decision), Event::Kicked(cpu(2)), Event::Refused(decision)];
    assert_eq!(happened, expected);
    assert!(!world.port.log[4..].contains(&Event::Kicked(cpu(2))));
}

#[test]
fn no_cpu_is_kicked_without_preemption_or_without_a_named_cpu() {
    for (placement, preempt) in [(Placement::Cpu(cpu(2)), false), (any(), true)] {
        let mut policy = Endless::new(placement, preempt);
        let mut world = World::new(&mut policy);
        world.round(Limits { arrivals: 0, dispatches: 3, extra: 0 });
        assert_eq!(sent(&world.port.log).len(), 3);
        assert!(!world.port.log.iter().any(|event| matches!(event, Event::Kicked(_))));
    }
}

#[test]
fn a_policy_without_room_gets_no_arrival() {
    let mut policy = Endless { room: 4, ..Endless::new(any(), false) };
    let mut world = World::new(&mut policy);
    world.port.ring.extend((1..=9).map(|pid| arrival(pid, 1)));
    assert_eq!(world.round(Limits::KERNEL).received, 4);
    assert_eq!(world.port.ring.len(), 5);
}

/// With more tasks than a policy has room for, the rest stays in the ring until there is room. A
/// full port at the same time loses no task.
fn waits_for_room<Q: Policy>(mut policy: Q) {
    let (max, beyond) = (TASKS_MAX as usize, 500);
    let mut world = World::new(&mut policy);
    world.port.ring.extend((1..=(max + beyond) as i32).map(|pid| arrival(pid, 1)));
    let all = Limits { arrivals: usize::MAX, dispatches: 100, extra: 0 };
    let done = world.round(all);
    assert_eq!((done.received, done.sent, done.pending), (max, 100, max - 100));
    assert_eq!(world.port.ring.len(), beyond);
    assert_eq!(world.round(all).received, 100, "as many as there was room for");
    world.port.accepts = 0;
    let done = world.round(all);
    assert!(done.refused && done.pending == max, "a refused task keeps its room: {done:?}");
    world.pass(Span::from_millis(1));
    assert_eq!(world.round(all).received, 0);
    world.port.accepts = usize::MAX;
    let limits = Limits { arrivals: Limits::ARRIVALS, dispatches: 4096, extra: 0 };
    while world.round(limits).pending > 0 {}
    assert_eq!(sent(&world.port.log).len(), max + beyond);
    checkers::conserves(&world.port.log).expect("no task is lost");
    checkers::keeps_bounds(&world.port.log).expect("every round stays within its limits");
}

#[test]
fn without_room_messages_stay_in_the_ring_under_fifo() {
    waits_for_room(Fifo::new());
}

#[test]
fn without_room_messages_stay_in_the_ring_under_vruntime() {
    waits_for_room(Vruntime::new());
}

#[test]
fn without_room_messages_stay_in_the_ring_under_pandemonium() {
    waits_for_room(Pandemonium::new(&Setup::of_cpus(4)));
}
