// SPDX-License-Identifier: GPL-2.0-only

//! Random scripts of arrivals, exits, knob changes and rounds.
//!
//! The generator knows what the kernel may send, but not which decisions are right. The checkers
//! know which decisions are right, but not what the kernel may send.

use pandemonium_engine::Limits;
use pandemonium_engine::task::{Arrival, Cause, Comm, CpuId, Pid, Ticket, Weight};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::knobs::Knobs;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// A message is added to the ring.
    Arrive(Arrival),
    /// A task exits, and the policy is notified.
    Exit(Pid),
    /// The knobs change.
    Apply(Knobs),
    /// The scheduler process runs a round.
    Round {
        /// Time since the round before.
        after: Span,
        limits: Limits,
        /// The port accepts this many dispatches and refuses the next one.
        accepts: usize,
    },
}

/// Few pids, so that each occurs again: while it waits, while it rests, after its exit, reused.
const PIDS: i32 = 24;
const STEPS: usize = 160;
const NAMES: [&str; 4] = ["kwin_wayland", "kworker/0:1", "cc1", "bash"];

/// Any script. A task's tickets count up from one, as the backend counts them.
pub fn scripts() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(steps(), 1..STEPS).prop_map(number_tickets)
}

/// An ordinary message of `pid`.
pub fn arrival(pid: i32, ticket: u64) -> Arrival {
    Arrival {
        pid: Pid::new(pid).expect("a task's number"),
        ticket: Ticket(ticket),
        comm: Comm::from_text("task"),
        cause: if ticket == 1 { Cause::New } else { Cause::Wakeup },
        cpu: CpuId::default(),
        cpus_allowed: 8,
        weight: Weight::default(),
        run_interval: Span::ZERO,
        awake: Span::ZERO,
        // Each message is about another run interval.
        stopped: Stamp::from_nanos(ticket),
        facts: None,
    }
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => arrivals().prop_map(Step::Arrive),
        1 => (1..=PIDS).prop_map(|pid| Step::Exit(Pid::new(pid).expect("a task's number"))),
        1 => knobs().prop_map(Step::Apply),
        6 => rounds(),
    ]
}

/// The ticket only says whether the pid was reused (1) or not (2), until [`number_tickets`] sets
/// it.
fn arrivals() -> impl Strategy<Value = Arrival> {
    let task = (1..=PIDS, prop_oneof![1 => Just(1u64), 20 => Just(2)], 0..NAMES.len());
    let asks = (prop::bool::ANY, 0..1024i32, 1..4u32, prop_oneof![0..10_000u64, Just(u64::MAX)]);
    (task, asks, run_intervals(), run_intervals()).prop_map(
        |((pid, ticket, name), (woke, cpu, cpus_allowed, weight), run_interval, before)| Arrival {
            comm: Comm::from_text(NAMES[name]),
            cause: if woke { Cause::Wakeup } else { Cause::Requeue },
            cpu: CpuId::new(cpu).expect("a CPU number"),
            cpus_allowed,
            weight: Weight::new(weight),
            run_interval,
            awake: if woke { Span::ZERO } else { run_interval + before },
            ..arrival(pid, ticket)
        },
    )
}

/// From zero over a few slices to a length that only a broken clock reports.
fn run_intervals() -> impl Strategy<Value = Span> {
    prop_oneof![
        4 => (0..8_000u64).prop_map(Span::from_micros),
        2 => (0..300u64).prop_map(Span::from_millis),
        1 => Just(Span::from_nanos(u64::MAX)),
    ]
}

/// The range of `--slice-us` and `--slice-us-min`.
pub fn knobs() -> impl Strategy<Value = Knobs> {
    (100..=100_000u64, 100..=100_000u64, prop::bool::ANY).prop_map(|(one, other, percpu_local)| {
        Knobs {
            batch_slice: Span::from_micros(one.max(other)),
            slice: Span::from_micros(one.min(other)),
            slice_min: Span::from_micros(100),
            percpu_local,
            ..Knobs::default()
        }
    })
}

fn rounds() -> impl Strategy<Value = Step> {
    let after = prop_oneof![
        2 => Just(Span::ZERO),
        4 => (0..10_000u64).prop_map(Span::from_micros),
        1 => (0..400u64).prop_map(Span::from_millis),
    ];
    let accepts = prop_oneof![3 => Just(usize::MAX), 2 => 0..4usize];
    (after, 0..12usize, 0..6usize, accepts).prop_map(|(after, arrivals, dispatches, accepts)| {
        Step::Round { after, limits: Limits { arrivals, dispatches, extra: 0 }, accepts }
    })
}

/// Numbers every pid's tickets. After an exit, and for a reused pid, they start again at one, and
/// the first is of a new task.
fn number_tickets(mut script: Vec<Step>) -> Vec<Step> {
    let mut last: BTreeMap<Pid, u64> = BTreeMap::new();
    for step in &mut script {
        match step {
            Step::Exit(pid) => drop(last.remove(pid)),
            Step::Arrive(arrival) => {
                let before = last.entry(arrival.pid).or_default();
                *before = if arrival.ticket == Ticket::FIRST { 1 } else { *before + 1 };
                arrival.ticket = Ticket(*before);
                if arrival.ticket == Ticket::FIRST {
                    arrival.cause = Cause::New;
                }
            }
            Step::Apply(_) | Step::Round { .. } => {}
        }
    }
    script
}
