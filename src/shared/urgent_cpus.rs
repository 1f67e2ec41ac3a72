// SPDX-License-Identifier: GPL-2.0-only

//! The CPUs that urgent tasks prefer, from the supervisor to the worker.

use super::seqlock::Seqlock;
use pandemonium_engine::task::CPUS_MAX;
use pandemonium_engine::topology::CpuMask;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = (CPUS_MAX as usize).div_ceil(64);

#[repr(C)]
pub struct UrgentCpusCell {
    lock: Seqlock,
    words: [AtomicU64; WORDS],
}

impl UrgentCpusCell {
    /// Publishes the CPUs. Returns false if they are the same as before.
    pub fn publish(&self, cpus: &CpuMask) -> bool {
        if self.read() == *cpus {
            return false;
        }
        self.lock.write(|| {
            let cells = self.words.iter().zip(cpus.words());
            cells.for_each(|(cell, word)| cell.store(*word, Ordering::Relaxed));
        });
        true
    }

    /// The CPUs, if they have changed since the reading of `seen`.
    pub fn newer(&self, seen: &mut u64) -> Option<CpuMask> {
        self.lock.read_newer(seen, || self.read())
    }

    fn read(&self) -> CpuMask {
        CpuMask::from_words(std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shared;
    use super::*;

    fn cpus(text: &str) -> CpuMask {
        CpuMask::parse(text).unwrap()
    }

    #[test]
    fn a_change_is_seen_once() {
        let shared = Shared::create().unwrap();
        let (cell, mut seen) = (&shared.urgent_cpus, 0);
        assert_eq!(cell.newer(&mut seen), None, "nothing was published");
        assert!(!cell.publish(&CpuMask::EMPTY), "there were none");
        assert!(cell.publish(&cpus("0-3,1023")) && !cell.publish(&cpus("0-3,1023")));
        assert_eq!(cell.newer(&mut seen), Some(cpus("0-3,1023")));
        assert_eq!(cell.newer(&mut seen), None);
        assert!(cell.publish(&CpuMask::EMPTY));
        assert_eq!(cell.newer(&mut seen), Some(CpuMask::EMPTY));
        assert_eq!(cell.newer(&mut 0), Some(CpuMask::EMPTY), "for the next worker");
    }
}
