// SPDX-License-Identifier: GPL-2.0-only

//! What depends on the CPUs follows those that are online: the adaptive loop, the CPUs that urgent
//! tasks prefer, and the topology. The worker may read no file, so the supervisor reads for it.

use super::cli::Options;
use super::machine::Machine;
use super::stats::Source;
use super::{output, settings, urgent_cpus};

/// Looks at the kernel's files after a change, one a second: while a CPU comes or goes, they may
/// contradict each other, or still show the CPU that goes.
const LOOKS_MAX: u32 = 5;

/// What is known of the CPUs.
#[derive(Default)]
pub struct CpuFollower {
    /// The changes that the worker has noted.
    noted: u64,
    /// How many CPUs are online; 0 before the first round.
    cpus: u64,
    /// Whether the adaptive loop does not know yet of the last change of their number.
    is_news: bool,
    /// Looks that are left; 0 if nothing has changed.
    looks: u32,
}

impl CpuFollower {
    /// Once a second: `cpus` are online, as the worker counts them.
    pub fn follow(&mut self, options: &Options, source: &Source, cpus: u64) {
        if !self.expects_news(source.shared.topology.changes(), cpus) {
            return;
        }
        let Ok(machine) = Machine::observe() else { return };
        if !self.accepts(machine.online().count().into()) {
            return;
        }
        if std::mem::take(&mut self.is_news) {
            source.adaptive.on_hotplug(settings::cpus(options, &machine));
        }
        urgent_cpus::follow(options, &machine, &source.shared);
        if source.shared.topology.publish(&machine.topology()) {
            output::print(&format!("the CPUs have changed: {}", machine.summary()));
        }
    }

    /// Whether to look at the kernel's files.
    fn expects_news(&mut self, noted: u64, cpus: u64) -> bool {
        let counts = self.cpus != 0 && self.cpus != cpus;
        self.is_news |= counts;
        if counts || self.noted != noted {
            self.looks = LOOKS_MAX;
        }
        (self.noted, self.cpus) = (noted, cpus);
        let looks = self.looks > 0;
        self.looks = self.looks.saturating_sub(1);
        looks
    }

    /// Whether the files show as many CPUs as the worker counts, or there is no further look.
    fn accepts(&mut self, shown: u64) -> bool {
        if shown != self.cpus && self.looks > 0 {
            return false;
        }
        self.looks = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_at_a_start_and_after_each_change_until_they_agree() {
        let mut cpus = CpuFollower::default();
        assert!(!cpus.expects_news(0, 0), "the worker loads");
        assert!(cpus.expects_news(1, 4) && !cpus.is_news && cpus.accepts(4));
        assert!(!cpus.expects_news(1, 4));
        assert!(cpus.expects_news(2, 3) && cpus.is_news && !cpus.accepts(4));
        assert!(cpus.expects_news(2, 3) && cpus.accepts(3));
        assert!(!cpus.expects_news(2, 3));
        // One CPU has gone and another one has come.
        assert!(cpus.expects_news(3, 3) && cpus.accepts(3) && !cpus.expects_news(3, 3));
    }

    #[test]
    fn files_that_never_agree_are_taken_as_they_are() {
        let mut cpus = CpuFollower::default();
        let looks = (0..100).filter(|_| cpus.expects_news(1, 4)).count();
        assert_eq!(looks, LOOKS_MAX as usize);
        let mut cpus = CpuFollower::default();
        let seen = (0..100).filter(|_| cpus.expects_news(1, 4) && cpus.accepts(5)).count();
        assert_eq!(seen, 1);
    }
}
