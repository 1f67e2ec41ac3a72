// SPDX-License-Identifier: GPL-2.0-only

//! What the worker does besides scheduling. Allocates nothing.

use crate::cli::Options;
use crate::clock;
use crate::observers::Observers;
use crate::planted::Planted;
use crate::shared::Shared;
use crate::shared::assignments::AssignmentList;
use crate::shared::topology::KnownTopology;
use pandemonium_engine::Policy;
use pandemonium_engine::knobs::{Table, Values};
use pandemonium_engine::procdb::Minute;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_engine::topology::{CpuMask, Topology};
use std::time::Duration;

/// The time between two publications of learned profiles: a killed worker loses this much. One
/// takes some 20 us with a full database.
const PROGRAMS_INTERVAL: Span = Span::from_millis(10_000);

/// What the worker takes up from shared memory, and publishes there.
pub struct Housekeeping<'s> {
    pub shared: &'s Shared,
    pub planted: Planted,
    table: &'static Table,
    /// The sequence numbers of the last knobs, and of the last CPUs for urgent tasks.
    knobs: u64,
    urgent_cpus: u64,
    topology: KnownTopology,
    /// The last list of assigned processes.
    assignments: AssignmentList,
    minute: Minute,
    /// When profiles were last published.
    published: Stamp,
}

impl<'s> Housekeeping<'s> {
    /// Knows nothing of shared memory yet but this topology, that of the worker's start.
    pub fn begin(
        options: &Options,
        shared: &'s Shared,
        table: &'static Table,
        topology: &Topology,
    ) -> Self {
        let (minute, published) = (clock::minute(), clock::now());
        let (topology, assignments) = (KnownTopology::of(topology), AssignmentList::default());
        let delay = options.plant_delay_us.map(Duration::from_micros);
        let lasts = options.plant_for_ms.map(Span::from_millis);
        Housekeeping {
            shared,
            planted: Planted::new(delay, options.plant, lasts),
            table,
            knobs: 0,
            urgent_cpus: 0,
            topology,
            assignments,
            minute,
            published,
        }
    }

    /// The knobs, if others than the worker knows were published; so are the next three.
    pub fn new_knobs(&mut self) -> Option<Values> {
        self.shared.knobs.newer(self.table, &mut self.knobs)
    }

    /// The CPUs that urgent tasks prefer.
    pub fn new_urgent_cpus(&mut self) -> Option<CpuMask> {
        self.shared.urgent_cpus.newer(&mut self.urgent_cpus)
    }

    /// The topology.
    pub fn new_topology(&mut self) -> Option<&Topology> {
        self.shared.topology.newer(&mut self.topology)
    }

    /// The processes that the user demands a treatment for.
    pub fn new_assignments(&mut self) -> Option<&AssignmentList> {
        let is_newer = self.shared.assignments.take_newer(&mut self.assignments);
        is_newer.then_some(&self.assignments)
    }

    /// Stores what the next program is to know, if the supervisor asks for it.
    pub fn hand_on(&self, policy: &mut dyn Policy) {
        if self.shared.wants_memos() {
            self.keep(policy);
            self.shared.has_memos();
        }
    }

    /// Stores what the next worker is to know.
    pub fn keep(&self, policy: &mut dyn Policy) {
        self.publish_programs(policy);
        if let Some(learning) = policy.learning() {
            self.shared.store_memos(|store| learning.export(store));
        }
    }

    /// Tells the policy the minute of the calendar, and publishes the learned profiles at times.
    pub fn once_a_second(
        &mut self,
        now: Stamp,
        policy: &mut dyn Policy,
        observers: &mut Observers,
    ) {
        let minute = clock::minute();
        if minute != self.minute {
            self.minute = minute;
            if let Some(learning) = policy.learning() {
                learning.minute(minute);
                observers.minute(minute);
            }
        }
        if now.since(self.published) >= PROGRAMS_INTERVAL {
            self.published = now;
            self.publish_programs(policy);
        }
    }

    /// Publishes the learned profiles. A policy that learns nothing leaves the old ones.
    fn publish_programs(&self, policy: &mut dyn Policy) {
        let Some(learning) = policy.learning() else { return };
        if !learning.programs().is_empty() {
            self.shared.programs.publish(learning.programs());
        }
    }
}
