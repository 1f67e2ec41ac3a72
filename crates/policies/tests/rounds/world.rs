// SPDX-License-Identifier: GPL-2.0-only

//! A port without a kernel behind it, and the loop that plays a script to a policy. Both write
//! down what happens, in order: the log is all that a judge gets to see.

use crate::script::Step;
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Pid};
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::{Counters, Full, Limits, MachineView, Policy, Port, Round, round};
use pandemonium_policies::knobs::Knobs;
use std::collections::VecDeque;

/// What happened.
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

/// What is to be seen from outside after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub done: Round,
    /// Messages that still lie in the ring.
    pub ring: usize,
    pub has_room: bool,
    pub oldest_wait: Span,
    pub counters: Counters,
}

/// A ring up, a door down, and a diary.
#[derive(Default)]
pub struct FakePort {
    pub ring: VecDeque<Arrival>,
    /// How many dispatches are accepted before one is refused.
    pub accepts: usize,
    pub log: Vec<Event>,
    view: MachineView,
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

/// Which way time goes between two rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Time {
    Forward,
    /// No clock that we ask may do this. It must not cost a task if one does.
    Backward,
}

/// What to run a script with.
#[derive(Clone, Copy)]
pub struct Conditions {
    pub time: Time,
    /// Every decision is refused this often before it is accepted, on top of what the script
    /// refuses.
    pub stubborn: usize,
}

impl Conditions {
    pub const FAIR: Conditions = Conditions { time: Time::Forward, stubborn: 0 };
}

/// A policy between a fake port and a clock that the test turns.
pub struct World<'a, Q> {
    pub port: FakePort,
    pub policy: &'a mut Q,
    pub now: Stamp,
}

impl<'a, Q: Policy> World<'a, Q> {
    pub fn new(policy: &'a mut Q) -> Self {
        let port = FakePort { accepts: usize::MAX, ..FakePort::default() };
        // Far from zero, so that time can go both ways.
        World { port, policy, now: Stamp::from_nanos(1 << 50) }
    }

    /// One round, as the driver runs it.
    pub fn round(&mut self, limits: Limits) -> Round {
        self.port.log.push(Event::Began { now: self.now, limits });
        let done = round(self.now, &mut self.port, self.policy, limits);
        self.port.log.push(Event::Ended(Ended {
            done,
            ring: self.port.ring.len(),
            has_room: self.policy.has_room(),
            oldest_wait: self.policy.oldest_wait(self.now),
            counters: self.policy.counters(),
        }));
        done
    }

    /// Whom the policy decides for when these arrive together and nobody else comes.
    pub fn decide(&mut self, together: &[Arrival]) -> Vec<Dispatch> {
        self.port.ring.extend(together);
        let before = self.port.log.len();
        self.round(Limits { arrivals: usize::MAX, dispatches: usize::MAX, extra: 0 });
        sent(&self.port.log[before..])
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Span) {
        self.now = self.now + span;
    }

    fn step(&mut self, step: &Step, conditions: Conditions) {
        match *step {
            Step::Arrive(arrival) => self.port.ring.push_back(arrival),
            Step::Exit(pid) => {
                self.policy.on_exit(pid);
                self.port.log.push(Event::Exited(pid));
            }
            Step::Apply(knobs) => {
                self.policy.apply(&knobs);
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

    /// A round in which each decision needs `1 + stubborn` attempts. Ends as a plain round would:
    /// after `limits.dispatches`, or with the refusal that comes after `accepts`.
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

    /// Rounds without refusal until nobody waits, or until no policy could still be at work.
    fn drain(&mut self) {
        self.port.accepts = usize::MAX;
        let limits = Limits { arrivals: 16, dispatches: 16, extra: 0 };
        let enough = self.policy.queued() + self.port.ring.len() + 1;
        for _ in 0..enough {
            self.pass(Span::from_millis(1));
            if self.round(limits).pending == 0 && self.port.ring.is_empty() {
                break;
            }
        }
    }
}

/// Plays the script, drains what is left, and returns the log.
pub fn play<Q: Policy>(policy: &mut Q, script: &[Step], conditions: Conditions) -> Vec<Event> {
    let mut world = World::new(policy);
    for step in script {
        world.step(step, conditions);
    }
    world.drain();
    world.port.log
}

/// The decisions that the port accepted, in order.
pub fn sent(log: &[Event]) -> Vec<Dispatch> {
    let accepted = |event: &Event| match event {
        Event::Sent(dispatch) => Some(*dispatch),
        _ => None,
    };
    log.iter().filter_map(accepted).collect()
}
