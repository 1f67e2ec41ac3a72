// SPDX-License-Identifier: GPL-2.0-only

//! A process that measures: it stores times into memory that it shares with its parent, and exits.

use super::memory::Shared;
use super::process::die_with_parent;
use anyhow::{Result, bail, ensure};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Measured times, sorted. There is at least one.
pub struct Samples {
    sorted_ns: Vec<u64>,
}

impl Samples {
    fn of(slots: &[AtomicU64]) -> Samples {
        let stored = slots.iter().map(|sample| sample.load(Relaxed));
        Samples::of_times(stored.filter(|&sample| sample > 0).collect())
    }

    /// Times in nanoseconds, at least one, that something else has measured.
    pub fn of_times(mut times_ns: Vec<u64>) -> Samples {
        times_ns.sort_unstable();
        Samples { sorted_ns: times_ns }
    }

    /// The value below which `permille` of 1000 samples lie.
    pub fn quantile_us(&self, permille: usize) -> f64 {
        let index = (self.sorted_ns.len() * permille / 1000).min(self.sorted_ns.len() - 1);
        self.sorted_ns[index] as f64 / 1000.0
    }

    /// The longest time.
    pub fn worst_us(&self) -> f64 {
        self.quantile_us(1000)
    }

    /// All times, the shortest first.
    pub(crate) fn sorted_ns(&self) -> &[u64] {
        &self.sorted_ns
    }

    /// The samples of two probes together.
    pub(crate) fn merged(mut self, other: Samples) -> Samples {
        self.sorted_ns.extend(other.sorted_ns);
        self.sorted_ns.sort_unstable();
        self
    }

    /// The number of samples.
    pub fn count(&self) -> usize {
        self.sorted_ns.len()
    }

    /// The number of samples longer than this.
    pub fn count_above(&self, limit_ns: u64) -> usize {
        self.sorted_ns.len() - self.sorted_ns.partition_point(|&sample| sample <= limit_ns)
    }
}

/// The memory where a measuring process stores its samples.
pub(crate) struct Slots<'a>(&'a [AtomicU64]);

impl Slots<'_> {
    /// The number of samples that fit.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Stores a sample. 0 marks an unused slot, so no sample is 0.
    pub fn store(&self, number: usize, sample_ns: u64) {
        self.0[number].store(sample_ns.max(1), Relaxed);
    }
}

/// A running measurement.
pub struct Probe {
    pid: libc::pid_t,
    samples_ns: Shared<AtomicU64>,
}

impl Probe {
    /// Starts a process that runs `body` as an ordinary task. `body` follows the rules of work.rs:
    /// no allocation, no printing, plain system calls.
    pub(crate) fn start(samples_max: usize, body: impl FnOnce(&Slots)) -> Result<Probe> {
        let samples_ns = Shared::<AtomicU64>::new(samples_max)?;
        // SAFETY: the child runs only `body` and exits; the kernel kills it with its parent.
        match unsafe { libc::fork() } {
            -1 => bail!("starting a probe: {}", std::io::Error::last_os_error()),
            0 => unsafe {
                die_with_parent();
                body(&Slots(&samples_ns));
                libc::_exit(0)
            },
            pid => Ok(Probe { pid, samples_ns }),
        }
    }

    /// Waits until the process has exited. A measurement without any sample is an error.
    pub fn finish(self) -> Result<Samples> {
        let [samples] = self.finish_parts()?;
        Ok(samples)
    }

    /// The same for a body that measures several things, each in its own equal part of the slots.
    pub fn finish_parts<const PARTS: usize>(self) -> Result<[Samples; PARTS]> {
        let mut status = 0;
        // SAFETY: a child of this process, room for one status.
        let waited = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        ensure!(waited == self.pid, "waiting for the probe: {}", std::io::Error::last_os_error());
        ensure!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "the probe process failed, with status {status:#x}"
        );
        let each = self.samples_ns.len() / PARTS;
        let parts = std::array::from_fn(|part| {
            Samples::of(&self.samples_ns[part * each..(part + 1) * each])
        });
        ensure!(
            parts.iter().all(|part: &Samples| !part.sorted_ns.is_empty()),
            "the probe measured nothing"
        );
        Ok(parts)
    }
}
