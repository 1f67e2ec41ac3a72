// SPDX-License-Identifier: GPL-2.0-only

//! Sets of CPUs, and the domains of processes, in the memory that is shared with the backend:
//! `backend_patches/cpu_sets.h` and `process_domain.h`.

use super::KernelPort;
use super::bpf_intf as abi;
use super::connector::BpfScheduler;
use crate::syscall_program;
use pandemonium_engine::task::Pid;
use pandemonium_engine::topology::CpuMask;
use pandemonium_engine::treatment::{ASSIGNED_MAX, Assignment, TREATMENTS_MAX, Treatment};

const _: () = assert!(TREATMENTS_MAX == abi::patch_set_numbers_PATCH_SET_RULES as usize);
const _: () = assert!(ASSIGNED_MAX == abi::patch_set_numbers_PATCH_PROCESSES as usize);

impl KernelPort<'_> {
    /// From now on urgent tasks prefer these CPUs while they are idle. One system call.
    pub fn prefer_for_urgent(&mut self, cpus: &CpuMask) {
        self.sets.replace(&mut self.bpf, abi::patch_set_numbers_PATCH_SET_URGENT, cpus);
        self.sets.take(&self.bpf);
    }

    /// From now on the tasks of these processes have the domains of their treatments. A system call
    /// for each domain with other CPUs than before, and for each process with another domain.
    pub fn keep_to_domains(&mut self, treatments: &[Treatment], processes: &[Assignment]) {
        // Without a fast path the policy does not see idle CPUs, and could not use a domain.
        if self.fast.is_some() {
            for (set, treatment) in (1..).zip(treatments.iter().take(TREATMENTS_MAX)) {
                let cpus = treatment.domain.map_or(CpuMask::EMPTY, |domain| domain.cpus);
                self.sets.replace(&mut self.bpf, set, &cpus);
            }
            self.sets.take(&self.bpf);
            self.domains.replace(&self.bpf, treatments, processes);
        }
    }
}

/// The sets of CPUs that were written, and that the backend has not taken.
pub(super) struct CpuSets {
    untaken: Vec<u32>,
}

impl Default for CpuSets {
    fn default() -> Self {
        CpuSets { untaken: Vec::with_capacity(abi::patch_set_numbers_PATCH_SETS as usize) }
    }
}

impl CpuSets {
    /// Writes the CPUs of a set, if they are others than before. Allocates nothing.
    fn replace(&mut self, bpf: &mut BpfScheduler, set: u32, cpus: &CpuMask) {
        let Some(bss) = &mut bpf.skel.maps.bss_data else { return };
        let words = &mut bss.patch_set_words[set as usize];
        if words != cpus.words() {
            *words = *cpus.words();
            if !self.untaken.contains(&set) {
                self.untaken.push(set);
            }
        }
    }

    /// Lets the backend take the sets that were written: a system call for each. One for which the
    /// kernel has no memory is left for the next call.
    pub(super) fn take(&mut self, bpf: &BpfScheduler) {
        let program = &bpf.skel.progs.patch_take_set;
        let take = |set| syscall_program::run(program, &mut abi::patch_set_arg { set });
        self.untaken.retain(|&set| take(set) != Some(0));
    }
}

/// A process and its domain.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kept {
    process: Pid,
    set: u32,
    strict: bool,
}

/// The processes that have a domain.
pub(super) struct Domains {
    /// In the order of their pids.
    kept: Vec<Kept>,
}

impl Default for Domains {
    fn default() -> Self {
        Domains { kept: Vec::with_capacity(ASSIGNED_MAX) }
    }
}

impl Domains {
    /// Whether no process has one.
    pub(super) fn are_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Replaces them by those that the treatments demand. Allocates nothing.
    pub(super) fn replace(
        &mut self,
        bpf: &BpfScheduler,
        treatments: &[Treatment],
        processes: &[Assignment],
    ) {
        let kept = |assigned: &Assignment| {
            let domain = treatments.get(usize::from(assigned.treatment))?.domain?;
            let set = u32::from(assigned.treatment) + 1;
            Some(Kept { process: assigned.pid, set, strict: domain.strict })
        };
        for before in &self.kept {
            let now = find(processes, before.process).and_then(kept);
            if now.is_none() {
                tell(bpf, Kept { set: 0, ..*before });
            }
        }
        for now in processes.iter().filter_map(kept) {
            let at = self.kept.binary_search_by_key(&now.process, |kept| kept.process);
            let before = at.ok().and_then(|at| self.kept.get(at));
            if before != Some(&now) {
                tell(bpf, now);
            }
        }
        self.kept.clear();
        self.kept.extend(processes.iter().take(ASSIGNED_MAX).filter_map(kept));
    }
}

fn find(processes: &[Assignment], pid: Pid) -> Option<&Assignment> {
    let at = processes.binary_search_by_key(&pid, |assigned| assigned.pid).ok()?;
    processes.get(at)
}

/// Tells the backend the domain of a process.
fn tell(bpf: &BpfScheduler, Kept { process, set, strict }: Kept) {
    let domain = abi::patch_domain { set, strict: strict.into() };
    let mut argument = abi::patch_domain_arg { process: process.as_raw() as u32, domain };
    // After a failure the kernel gives its tasks any idle CPU.
    syscall_program::run(&bpf.skel.progs.patch_set_domain, &mut argument);
}
