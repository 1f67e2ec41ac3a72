// SPDX-License-Identifier: GPL-2.0-only

//! The processes that the user demands a treatment for, from the supervisor to the worker.

use super::seqlock::Seqlock;
use pandemonium_engine::treatment::{
    ASSIGNED_MAX, Assignment, TREATMENT_WORDS, TREATMENTS_MAX, Treatment,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// The newest list. The worker takes up one that is being written a round later.
#[repr(C)]
pub struct AssignmentsCell {
    lock: Seqlock,
    nr_treatments: AtomicU64,
    nr_processes: AtomicU64,
    treatments: [[AtomicU64; TREATMENT_WORDS]; TREATMENTS_MAX],
    processes: [AtomicU64; ASSIGNED_MAX],
}

/// A list with room for the longest one, so that to take up another one allocates nothing.
pub struct AssignmentList {
    seen: u64,
    pub treatments: Vec<Treatment>,
    pub processes: Vec<Assignment>,
}

impl Default for AssignmentList {
    fn default() -> Self {
        AssignmentList {
            seen: 0,
            treatments: Vec::with_capacity(TREATMENTS_MAX),
            processes: Vec::with_capacity(ASSIGNED_MAX),
        }
    }
}

impl AssignmentsCell {
    /// Publishes a list, as much of it as fits. There is one writer. The processes are in the order
    /// of their pids.
    pub fn publish(&self, treatments: &[Treatment], processes: &[Assignment]) {
        let count = |len: usize, max: usize| len.min(max) as u64;
        self.lock.write(|| {
            self.nr_treatments.store(count(treatments.len(), TREATMENTS_MAX), Ordering::Relaxed);
            self.nr_processes.store(count(processes.len(), ASSIGNED_MAX), Ordering::Relaxed);
            for (cells, treatment) in self.treatments.iter().zip(treatments) {
                for (cell, word) in cells.iter().zip(treatment.to_words()) {
                    cell.store(word, Ordering::Relaxed);
                }
            }
            for (cell, process) in self.processes.iter().zip(processes) {
                cell.store(process.to_word(), Ordering::Relaxed);
            }
        });
    }

    /// Takes up the newest list, if it is another one than the last. Returns whether it is. One
    /// load if it is not; allocates nothing.
    pub fn take_newer(&self, list: &mut AssignmentList) -> bool {
        let AssignmentList { seen, treatments, processes } = list;
        self.lock.read_newer(seen, || self.read(treatments, processes)).is_some()
    }

    fn read(&self, treatments: &mut Vec<Treatment>, processes: &mut Vec<Assignment>) {
        let word = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let nr_treatments = (word(&self.nr_treatments) as usize).min(TREATMENTS_MAX);
        let nr_processes = (word(&self.nr_processes) as usize).min(ASSIGNED_MAX);
        treatments.clear();
        processes.clear();
        for cells in &self.treatments[..nr_treatments] {
            let treatment = Treatment::from_words(std::array::from_fn(|at| word(&cells[at])));
            treatments.push(treatment.unwrap_or_default());
        }
        let cells = self.processes[..nr_processes].iter();
        processes.extend(cells.filter_map(|cell| Assignment::from_word(word(cell))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;
    use pandemonium_engine::task::{Pid, Tier};
    use pandemonium_engine::topology::{CpuMask, Domain};
    use pandemonium_engine::treatment::TierDemand;

    #[test]
    fn the_worker_takes_up_each_list_once_and_complete() {
        let shared = Shared::create().unwrap();
        let cell = &shared.assignments;
        let mut list = AssignmentList::default();
        assert!(!cell.take_newer(&mut list), "nothing was published yet");
        let domain = Some(Domain { cpus: CpuMask::first(65), strict: true });
        let tier = TierDemand::AtMost(Tier::Batch);
        let batch = Treatment { tier, domain, ..Treatment::default() };
        let process = |pid| Assignment { pid: Pid::new(pid).unwrap(), treatment: 0 };
        let all: Vec<_> = (1..=ASSIGNED_MAX as i32 + 5).map(process).collect();
        cell.publish(&[batch], &all);
        assert!(cell.take_newer(&mut list));
        assert_eq!(
            (list.treatments.as_slice(), list.processes.len()),
            (&[batch][..], ASSIGNED_MAX)
        );
        assert_eq!(list.processes, all[..ASSIGNED_MAX]);
        assert!(!cell.take_newer(&mut list));
        cell.publish(&[], &[]);
        cell.lock.write(|| assert!(!cell.take_newer(&mut list), "in the middle"));
        assert!(cell.take_newer(&mut list) && list.processes.is_empty());
    }
}
