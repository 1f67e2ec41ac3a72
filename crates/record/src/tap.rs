// SPDX-License-Identifier: GPL-2.0-only

//! A port that records what passes through it.

use super::{Entry, Writer, told_at_start};
use pandemonium_engine::Setup;
use pandemonium_engine::knobs::Values;
use pandemonium_engine::orders::Bounds;
use pandemonium_engine::procdb::{Minute, Profile};
use pandemonium_engine::task::{Arrival, CpuId, Dispatch, Pid};
use pandemonium_engine::time::Stamp;
use pandemonium_engine::topology::Topology;
use pandemonium_engine::treatment::{Assignment, Treatment};
use pandemonium_engine::{Full, MachineView, Memo, Port, Round};

/// Wraps a port and records what passes through it. Give it to the round in place of the port. For
/// other inputs of the policy, call the methods of [`Writer`].
pub struct Tap<'a, 'm, P> {
    port: &'a mut P,
    writer: &'a mut Writer<'m>,
}

impl<'a, 'm, P: Port> Tap<'a, 'm, P> {
    /// Records a round that begins at `now` on `port`.
    pub fn round(port: &'a mut P, writer: &'a mut Writer<'m>, now: Stamp) -> Self {
        writer.push(&Entry::Began { now, view: *port.view() });
        Tap { port, writer }
    }

    /// Records the end of the round.
    pub fn end(self, round: &Round) {
        let pending = u32::try_from(round.pending).unwrap_or(u32::MAX);
        self.writer.push(&Entry::Ended { pending, rescues: u64::from(round.rescues) });
    }
}

impl Writer<'_> {
    /// Records the start of a policy, and its setup.
    pub fn started(&mut self, setup: &Setup) {
        told_at_start(setup, |entry| self.push(&entry));
    }

    /// Records that the policy gets what an earlier instance knew of a task.
    pub fn remembered(&mut self, memo: Memo) {
        self.push(&Entry::Remembered(memo));
    }

    /// Records that the policy gets the learned profiles of programs.
    pub fn learned(&mut self, when: Minute, known: &[Profile]) {
        known.iter().for_each(|profile| self.push(&Entry::Known(*profile)));
        self.push(&Entry::Learned(when));
    }

    /// Records that the policy gets the processes that the user demands a treatment for.
    pub fn assigned(&mut self, treatments: &[Treatment], processes: &[Assignment]) {
        treatments.iter().for_each(|treatment| self.push(&Entry::Treated(*treatment)));
        processes.iter().for_each(|process| self.push(&Entry::Assigned(*process)));
        self.push(&Entry::AssignedAll(processes.len() as u32));
    }

    /// Records that the policy gets another topology.
    pub fn placed(&mut self, topology: &Topology) {
        topology.places().iter().for_each(|place| self.push(&Entry::Place(*place)));
        self.push(&Entry::PlacedAll(topology.cpus()));
    }

    /// Records that the policy is told the current minute.
    pub fn minute(&mut self, when: Minute) {
        self.push(&Entry::Minute(when));
    }

    /// Records that the policy got settings.
    pub fn applied(&mut self, values: &Values) {
        self.push(&Entry::Applied(values.raw()));
    }

    /// Records that the policy was told of a task's exit.
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

    fn publish(&mut self, bounds: Option<&Bounds>) {
        self.port.publish(bounds);
    }

    fn view(&self) -> &MachineView {
        self.port.view()
    }
}
