// SPDX-License-Identifier: GPL-2.0-only

//! A port that writes down what passes through it.

use super::{Entry, Writer, told_at_start};
use pandemonium_engine::Setup;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::procdb::{Minute, Profile};
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Pid};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::{Full, MachineView, Memo, Policy, Port, Round};

/// A port around a port. Give it to the round in the other's place, and tell it of what else
/// reaches the policy.
pub struct Tap<'a, 'm, P> {
    port: &'a mut P,
    writer: &'a mut Writer<'m>,
}

impl<'a, 'm, P: Port> Tap<'a, 'm, P> {
    /// Writes down what passes through `port`, for a round that begins at `now`.
    pub fn round(port: &'a mut P, writer: &'a mut Writer<'m>, now: Stamp) -> Self {
        writer.push(&Entry::Began { now, view: *port.view() });
        Tap { port, writer }
    }

    /// The round is over.
    pub fn end<Q: Policy>(self, round: &Round, policy: &Q) {
        let pending = u32::try_from(round.pending).unwrap_or(u32::MAX);
        self.writer.push(&Entry::Ended { pending, rescues: policy.counters().rescues });
    }
}

impl Writer<'_> {
    /// A policy begins, and is told this.
    pub fn started(&mut self, setup: &Setup) {
        told_at_start(setup, |entry| self.push(&entry));
    }

    /// The policy is told what an earlier scheduler knew of a task.
    pub fn remembered(&mut self, memo: Memo) {
        self.push(&Entry::Remembered(memo));
    }

    /// The policy is told what was learned of programs.
    pub fn learned(&mut self, when: Minute, known: &[Profile]) {
        known.iter().for_each(|profile| self.push(&Entry::Known(*profile)));
        self.push(&Entry::Learned(when));
    }

    /// The policy is told what time it is.
    pub fn minute(&mut self, when: Minute) {
        self.push(&Entry::Minute(when));
    }

    /// The policy was given settings.
    pub fn applied(&mut self, knobs: &Knobs) {
        self.push(&Entry::Applied(knobs.to_raw()));
    }

    /// The policy was told that a task is gone.
    pub fn exited(&mut self, pid: Pid) {
        self.push(&Entry::Exited(pid));
    }
}

impl<P: Port> Port for Tap<'_, '_, P> {
    fn recv(&mut self) -> Option<Arrival> {
        let arrival = self.port.recv()?;
        self.writer.push(&Entry::Took(arrival));
        Some(arrival)
    }

    fn send(&mut self, dispatch: &Dispatch) -> Result<(), Full> {
        let answer = self.port.send(dispatch);
        self.writer.push(&match answer {
            Ok(()) => Entry::Sent(*dispatch),
            Err(Full) => Entry::Refused(*dispatch),
        });
        answer
    }

    fn kick(&mut self, cpu: CpuId) {
        self.port.kick(cpu);
    }

    fn view(&self) -> &MachineView {
        self.port.view()
    }
}
