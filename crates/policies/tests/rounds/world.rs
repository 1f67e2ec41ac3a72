// SPDX-License-Identifier: GPL-2.0-only

//! A port without a kernel, and the loop that runs a script against a policy. Both append every
//! event to the log, which is all that the checkers see.

use crate::script::Step;
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Pid};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{Full, Limits, MachineView, Policy, Port, Round, round};
use pandemonium_policies::knobs::Knobs;
use std::collections::VecDeque;

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Began { now: Stamp, limits: Limits },
    Took(Arrival),
    Sent(Dispatch),
    Refused(Dispatch),
    Kicked(CpuId),
    Exited(Pid),
    Applied(Knobs),
    Ended(Ended),
}

/// The policy's state after a round, as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub done: Round,
    /// Messages that are still in the ring.
    pub ring: usize,
    pub has_room: bool,
    pub oldest_wait: Span,
}

/// A ring of messages to receive, a count of dispatches to accept, and the log.
#[derive(Default)]
pub struct FakePort {
    pub ring: VecDeque<Arrival>,
    /// The number of dispatches accepted before one is refused.
    pub accepts: usize,
    pub log: Vec<Event>,
    pub view: MachineView,
}

impl Port for FakePort {
    fn recv(&mut self) -> Option<Arrival> {
        let arrival = self.ring.pop_front()?;
        self.log.push(Event::Took(arrival));
        Some(arrival)
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        if self.accepts == 0 {
            self.log.push(Event::Refused(*dispatch));
            return Err(Full);
        }
        self.accepts -= 1;
        self.log.push(Event::Sent(*dispatch));
        Ok(())
    }

    fn kick(&mut self, cpu: CpuId) {
        self.log.push(Event::Kicked(cpu));
    }

    fn view(&self) -> &MachineView {
        &self.view
    }
}

/// The direction of time between two rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Time {
    Forward,
    /// No clock that the driver reads may do this. If one does, no task may be lost.
    Backward,
}

/// The conditions under which a script runs.
#[derive(Clone, Copy)]
pub struct Conditions {
    pub time: Time,
    /// Every decision is refused this often before it is accepted, besides the refusals of the
    /// script.
    pub stubborn: usize,
}

impl Conditions {
    pub const FAIR: Conditions = Conditions { time: Time::Forward, stubborn: 0 };
}

/// A policy with a fake port and a clock controlled by the test.
pub struct World<'a, Q> {
    pub port: FakePort,
    pub policy: &'a mut Q,
    pub now: Stamp,
}

impl<'a, Q: Policy> World<'a, Q> {
    pub fn new(policy: &'a mut Q) -> Self {
        let port = FakePort { accepts: usize::MAX, ..FakePort::default() };
        // Far from zero, so that time can go backward.
        World { port, policy, now: Stamp::from_nanos(1 << 50) }
    }

    /// One round, as the driver runs it.
    pub fn round(&mut self, limits: Limits) -> Round {
        self.port.log.push(Event::Began { now: self.now, limits });
        let done = round(self.now, &mut self.port, self.policy, limits);
        self.port.log.push(Event::Ended(Ended {
            done,
            ring: self.port.ring.len(),
            has_room: self.policy.waiting().has_room(),
            oldest_wait: self.policy.waiting().oldest_wait(self.now),
        }));
        done
    }

    /// The policy's decisions when these tasks arrive together.
    pub fn decide(&mut self, together: &[Arrival]) -> Vec<Dispatch> {
        self.port.ring.extend(together);
        let before = self.port.log.len();
        self.round(Limits { arrivals: usize::MAX, dispatches: usize::MAX, extra: 0 });
        sent(&self.port.log[before..])
    }

    /// Advances the clock.
    pub fn pass(&mut self, span: Span) {
        self.now = self.now + span;
    }

    fn step(&mut self, step: &Step, conditions: Conditions) {
        match *step {
            Step::Arrive(arrival) => self.port.ring.push_back(arrival),
            Step::Exit(pid) => {
                self.policy.exit(pid);
                self.port.log.push(Event::Exited(pid));
            }
            Step::Apply(knobs) => {
                self.policy.tune(&knobs.values());
                self.port.log.push(Event::Applied(knobs));
            }
            Step::Round { after, limits, accepts } => {
                self.now = match conditions.time {
                    Time::Forward => self.now + after,
                    Time::Backward => Stamp::from_nanos(self.now.as_nanos() - after.as_nanos()),
                };
                self.stubborn_round(limits, accepts, conditions.stubborn);
            }
        }
    }

    /// A round in which each decision needs `1 + stubborn` attempts. It ends as a plain round does:
    /// after `limits.dispatches`, or with the refusal after `accepts`.
    fn stubborn_round(&mut self, limits: Limits, accepts: usize, stubborn: usize) {
        if stubborn == 0 {
            self.port.accepts = accepts;
            self.round(limits);
            return;
        }
        self.round(Limits { dispatches: 0, ..limits });
        for _ in 0..limits.dispatches.min(accepts) {
            for accepts in (0..=stubborn).map(|attempt| (attempt == stubborn) as usize) {
                self.port.accepts = accepts;
                self.round(Limits { arrivals: 0, dispatches: 1, extra: 0 });
            }
        }
    }

    /// Rounds without refusals until no task waits, at most as many as any policy can need.
    fn drain(&mut self) {
        self.port.accepts = usize::MAX;
        let limits = Limits { arrivals: 16, dispatches: 16, extra: 0 };
        let enough = self.policy.waiting().nr_waiting() + self.port.ring.len() + 1;
        for _ in 0..enough {
            self.pass(Span::from_millis(1));
            if self.round(limits).pending == 0 && self.port.ring.is_empty() {
                break;
            }
        }
    }
}

/// Runs the script, then dispatches all waiting tasks, and returns the log.
pub fn play<Q: Policy>(policy: &mut Q, script: &[Step], conditions: Conditions) -> Vec<Event> {
    let mut world = World::new(policy);
    for step in script {
        world.step(step, conditions);
    }
    world.drain();
    world.port.log
}

/// The accepted decisions, in order.
pub fn sent(log: &[Event]) -> Vec<Dispatch> {
    let accepted = |event: &Event| match event {
        Event::Sent(dispatch) => Some(*dispatch),
        _ => None,
    };
    log.iter().filter_map(accepted).collect()
}
