// SPDX-License-Identifier: GPL-2.0-only

//! What a scenario is.

use crate::guest::Guest;
use anyhow::Result;

/// One test: a boot of a kernel, and what is done and checked in it.
pub struct Scenario {
    pub name: &'static str,
    /// What is done and what must hold; `suite --list` prints it.
    pub about: &'static str,
    /// Number of virtual CPUs; `None` for the number that the suite was given.
    pub cpus: Option<u32>,
    /// Virtual CPUs that share a core and its caches.
    pub threads: u32,
    /// Memory of the machine, and of a disk to swap to; 0 for no such disk.
    pub memory_mib: u32,
    pub swap_mib: u32,
    /// The host kills the boot after so many seconds in fast mode (about 8 go to the boot itself).
    pub limit_s: u64,
    pub expect: Expect,
    /// Needs stress-ng, which is not in every initramfs.
    pub stress_ng: bool,
    /// Runs in exact mode in every suite, because in fast mode the result would depend on the
    /// host's load.
    pub exact: bool,
    /// Virtual nanoseconds that an instruction takes in exact mode, a power of two. Twice as many
    /// make a CPU of half the speed, and the host needs half the time for a second of the guest.
    pub instruction_ns: u32,
    /// Does not depend on the kernel, so one kernel is enough.
    pub once: bool,
    /// Runs as a service of a whole Debian instead of beside a busybox, and is not in the suite.
    pub distribution: bool,
    pub run: fn(&Guest) -> Result<()>,
}

/// The outcome that counts as passed. Most scenarios must pass; the others prove that the suite can
/// fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Pass,
    /// Fails with a reason that contains one of these.
    Fail(&'static [&'static str]),
    Die,
    TimeOut,
    /// Fails at first, and passes at the second try.
    PassAgain,
}

/// Defaults: a definition names only what differs.
pub const USUAL: Scenario = Scenario {
    name: "",
    about: "",
    cpus: None,
    threads: 1,
    memory_mib: 2_048,
    swap_mib: 0,
    limit_s: 60,
    expect: Expect::Pass,
    stress_ng: false,
    exact: false,
    instruction_ns: 2,
    once: false,
    distribution: false,
    run: |_| Ok(()),
};

/// Defaults for a scenario in which each instruction must take 1 ns: its figures are published, or
/// its bounds depend on it.
pub const FULL_SPEED: Scenario = Scenario { instruction_ns: 1, ..USUAL };
