// SPDX-License-Identifier: GPL-2.0-only

//! Treatments that the user demands for processes: a tier, a slice, a weight, a domain.
//!
//! The list is replaced as a whole. Whether a process is in it is looked up at each message, so a
//! new thread of a process is treated from its first message on.

use crate::knobs::Knobs;
use alloc::vec::Vec;
use pandemonium_engine::task::Arrival;
use pandemonium_engine::time::Span;
use pandemonium_engine::topology::Domain;
use pandemonium_engine::treatment::{
    ASSIGNED_MAX, Assignment, TREATMENTS_MAX, TierDemand, Treatment,
};

/// The treatments, and the processes that get them.
pub struct Assigned {
    treatments: Vec<Treatment>,
    /// In the order of their pids.
    processes: Vec<Assignment>,
}

impl Default for Assigned {
    fn default() -> Self {
        Assigned {
            treatments: Vec::with_capacity(TREATMENTS_MAX),
            processes: Vec::with_capacity(ASSIGNED_MAX),
        }
    }
}

impl Assigned {
    /// Replaces the list; what does not fit is dropped. Allocates nothing. The processes are in the
    /// order of their pids.
    pub fn replace(&mut self, treatments: &[Treatment], processes: &[Assignment]) {
        debug_assert!(processes.is_sorted());
        self.treatments.clear();
        self.treatments.extend(treatments.iter().take(TREATMENTS_MAX));
        self.processes.clear();
        self.processes.extend(processes.iter().take(ASSIGNED_MAX));
    }

    /// The message with the demanded weight, and the number of the task's treatment: 0 for none. A
    /// task of the lowest weight keeps that, because it is to let every other task pass.
    pub fn treat(&self, arrival: Arrival) -> (Arrival, u8) {
        let Some((number, treatment)) = self.find(&arrival) else { return (arrival, 0) };
        let keeps = arrival.weight.get() == 1;
        let weight = treatment.weight.filter(|_| !keeps).unwrap_or(arrival.weight);
        (Arrival { weight, ..arrival }, number)
    }

    fn find(&self, arrival: &Arrival) -> Option<(u8, &Treatment)> {
        if self.processes.is_empty() {
            return None;
        }
        // Without facts only the first thread of a process is found.
        let process = arrival.facts.and_then(|facts| facts.process).unwrap_or(arrival.pid);
        let at = self.processes.binary_search_by_key(&process, |assigned| assigned.pid).ok()?;
        let place = self.processes[at].treatment;
        Some((place + 1, self.treatments.get(usize::from(place))?))
    }

    /// The tier that the treatment of this number demands.
    pub fn demand(&self, number: u8) -> TierDemand {
        self.numbered(number).map_or(TierDemand::None, |treatment| treatment.tier)
    }

    /// The domain that the treatment of this number demands.
    pub fn domain(&self, number: u8) -> Option<&Domain> {
        self.numbered(number)?.domain.as_ref()
    }

    /// The knobs by which the slice of a task with this treatment is computed: the demanded slice
    /// is the longest of each tier.
    pub fn knobs(&self, number: u8, knobs: &Knobs) -> Knobs {
        let slice = self.numbered(number).map_or(Span::ZERO, |treatment| treatment.slice);
        if slice == Span::ZERO {
            return *knobs;
        }
        let slice = slice.max(knobs.slice_min);
        let burst_slice = knobs.burst_slice.min(slice);
        Knobs { slice, batch_slice: slice, burst_slice, ..*knobs }
    }

    /// The treatment with this number. After a change of the list the number of a waiting task may
    /// be that of another treatment until its next message.
    fn numbered(&self, number: u8) -> Option<&Treatment> {
        self.treatments.get(usize::from(number.checked_sub(1)?))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use pandemonium_engine::facts::Facts;
    use pandemonium_engine::task::{Pid, RawArrival, Tier, Weight};

    fn arrival(pid: i32, process: i32, weight: u64) -> Arrival {
        let raw = RawArrival { pid, weight, ..RawArrival::default() };
        let facts = Facts { process: Pid::new(process), ..Facts::default() };
        Arrival { facts: Some(facts), ..raw.decode().unwrap() }
    }

    fn assigned() -> Assigned {
        let heavy = Treatment { weight: Some(Weight::new(300)), ..Treatment::default() };
        let game = Treatment {
            tier: TierDemand::AtLeast(Tier::Interactive),
            slice: Span::from_micros(2_500),
            ..Treatment::default()
        };
        let of = |pid, treatment| Assignment { pid: Pid::new(pid).unwrap(), treatment };
        let mut assigned = Assigned::default();
        assigned.replace(&[heavy, game], &[of(7, 0), of(40, 1)]);
        assigned
    }

    #[test]
    fn every_thread_of_a_process_is_found_and_no_other_task() {
        let assigned = assigned();
        let number = |pid, process| assigned.treat(arrival(pid, process, 100)).1;
        assert_eq!([number(7, 7), number(8, 7), number(41, 40)], [1, 1, 2]);
        assert_eq!([number(40, 39), number(9, 9)], [0, 0], "a pid alone is not the process");
        assert_eq!(Assigned::default().treat(arrival(7, 7, 100)).1, 0);
        let bare = Arrival { facts: None, ..arrival(40, 1, 100) };
        assert_eq!(assigned.treat(bare).1, 2, "without facts a first thread is known by its pid");
    }

    #[test]
    fn a_weight_replaces_that_of_the_nice_value_but_not_the_lowest() {
        let assigned = assigned();
        let weight = |process, nice| assigned.treat(arrival(7, process, nice)).0.weight.get();
        assert_eq!([weight(7, 100), weight(7, 1), weight(40, 88)], [300, 1, 88]);
    }

    #[test]
    fn a_treatment_demands_its_tier_and_no_treatment_none() {
        let assigned = assigned();
        let demands = [2, 1, 0, 99].map(|number| assigned.demand(number));
        let none = TierDemand::None;
        assert_eq!(demands, [TierDemand::AtLeast(Tier::Interactive), none, none, none]);
    }

    #[test]
    fn a_demanded_slice_is_the_longest_of_every_tier() {
        let (assigned, knobs) = (assigned(), Knobs::default());
        let long = assigned.knobs(2, &knobs);
        let demanded = Span::from_micros(2_500);
        assert_eq!((long.slice, long.batch_slice), (demanded, demanded));
        assert_eq!(long.burst_slice, knobs.burst_slice);
        assert_eq!(assigned.knobs(1, &knobs), knobs, "this one demands no slice");
        assert_eq!(assigned.knobs(0, &knobs), knobs);
    }
}
