// SPDX-License-Identifier: GPL-2.0-only

//! What a scenario is, and the list of all of them.

use crate::guest::Guest;
use crate::scenarios;
use anyhow::Result;

/// One boot of one kernel with one question.
pub struct Scenario {
    pub name: &'static str,
    /// What is done and what would be wrong if it failed; `suite --list` prints it.
    pub about: &'static str,
    /// A fixed number of virtual CPUs; `None` takes the suite's.
    pub cpus: Option<u32>,
    /// The boot is killed after so many seconds of the host in fast mode (about 8 go to the boot
    /// itself).
    pub limit_s: u64,
    pub expect: Expect,
    /// Needs stress-ng beside busybox and the scheduler, which every boot carries.
    pub stress_ng: bool,
    /// Runs in exact mode whatever the suite's is: what it asks would depend on the host's load.
    pub exact: bool,
    /// Says nothing about a kernel, so one kernel is enough.
    pub once: bool,
    pub run: fn(&Guest) -> Result<()>,
}

/// The outcome that counts as passed: most scenarios must pass, the others prove that the suite can
/// fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Pass,
    /// Fail with a reason that contains one of these.
    Fail(&'static [&'static str]),
    Die,
    TimeOut,
    /// Fail at first, pass when tried again.
    PassAgain,
}

/// What most scenarios have in common; `const` definitions name only what differs.
pub const USUAL: Scenario = Scenario {
    name: "",
    about: "",
    cpus: None,
    limit_s: 60,
    expect: Expect::Pass,
    stress_ng: false,
    exact: false,
    once: false,
    run: |_| Ok(()),
};

/// Every scenario of the suite, cheapest proof first.
pub fn suite() -> impl Iterator<Item = &'static Scenario> {
    scenarios::SUITE.iter().copied().flatten()
}

/// Any scenario by name, also those that the suite does not run by itself.
pub fn find(name: &str) -> Option<&'static Scenario> {
    suite().chain(scenarios::APART).find(|scenario| scenario.name == name)
}
