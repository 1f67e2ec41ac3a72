// SPDX-License-Identifier: GPL-2.0-only

//! Jobs: tasks with a fixed amount of work each, all forked at once. Measured is when each one
//! ends.

use super::clock::now_ns;
use super::probe::{Probe, Slots};
use super::work;
use anyhow::Result;

/// A number of equal jobs.
#[derive(Clone, Copy, Debug)]
pub struct Jobs {
    /// Jobs in a wave.
    pub count: usize,
    /// Work of one job, in rounds of `work::burn`.
    pub rounds: u32,
    /// The number of waves. A wave starts when all jobs of the one before have ended.
    pub waves: usize,
    /// The CPU where the jobs are forked; they may leave it.
    pub forked_on: Option<usize>,
}

impl Jobs {
    /// Starts a probe that measures from the first fork of a wave to the end of each of its jobs.
    pub fn start(self) -> Result<Probe> {
        Probe::start(self.count * self.waves, |slots| {
            (0..self.waves).for_each(|wave| self.run(slots, wave * self.count));
        })
    }

    fn run(&self, slots: &Slots, first: usize) {
        let begin = now_ns();
        if let Some(cpu) = self.forked_on {
            work::stay_on(cpu);
        }
        for number in first..first + self.count {
            // SAFETY: the child works, stores a number and exits.
            if unsafe { libc::fork() } == 0 {
                if self.forked_on.is_some() {
                    work::stay_anywhere();
                }
                work::burn(self.rounds);
                slots.store(number, now_ns() - begin);
                // SAFETY: plain exit.
                unsafe { libc::_exit(0) }
            }
        }
        if self.forked_on.is_some() {
            work::stay_anywhere();
        }
        // SAFETY: waits for any child until there is none; the status is not wanted.
        while unsafe { libc::wait(std::ptr::null_mut()) } > 0 {}
    }
}
