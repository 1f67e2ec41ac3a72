// SPDX-License-Identifier: GPL-2.0-only

//! Policies by name: what the scheduler and the lab need to know of one before they build it.

use crate::adapting::{Adapting, Fixed};
use crate::knobs::{KeySet, KnobProfile, Table, Values};
use crate::policy::Policy;
use crate::setup::Setup;
use crate::time::Span;
use alloc::boxed::Box;

/// Most counters of a policy's own.
pub const COUNTERS_MAX: usize = 8;

/// A kind of policy. [`policies!`](crate::policies!) makes a list of them.
pub trait PolicyType: Policy + Sized + 'static {
    /// What it is called on a command line.
    const NAME: &'static str;
    /// What it does, in one sentence.
    const ABOUT: &'static str;
    /// Its knobs.
    const KNOBS: &'static Table = &Table::EMPTY;
    /// Its profiles: named sets of knobs. The first is that of the defaults.
    const PROFILES: &'static [KnobProfile] = &[];
    /// Its own counters, at most [`COUNTERS_MAX`].
    const COUNTERS: &'static [Counter] = &[];
    /// Whether lists of policies leave it out: it exists for tests.
    const HIDDEN: bool = false;

    /// A policy for a machine and a user's wishes.
    fn new(setup: &Setup) -> Self;

    /// Its adaptive loop on a machine of so many CPUs, and what a person has chosen at the start.
    fn adapting(_cpus: u32, start: Values, chosen: KeySet) -> Box<dyn Adapting> {
        Box::new(Fixed::new(start, chosen))
    }

    /// What it promises on a machine of so many CPUs; the lab holds it to that.
    fn bounds(_cpus: u32, _values: &Values) -> Bounds {
        Bounds::default()
    }
}

/// What a policy promises. The checkers of the simulator add what the machine does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How long a task may wait beside others, if the policy bounds that; else the kernel's
    /// watchdog does, after 5 s.
    pub wait: Option<Span>,
    /// Its longest slice.
    pub slice: Span,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { wait: None, slice: Span::from_millis(20) }
    }
}

/// A counter as a person knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// What it is called in statistics.
    pub name: &'static str,
    /// What it counts, in one sentence.
    pub about: &'static str,
}

/// A kind of policy as a value.
#[derive(Clone, Copy)]
pub struct PolicyInfo {
    /// See [`PolicyType::NAME`].
    pub name: &'static str,
    /// See [`PolicyType::ABOUT`].
    pub about: &'static str,
    /// See [`PolicyType::KNOBS`].
    pub knobs: &'static Table,
    /// See [`PolicyType::PROFILES`].
    pub profiles: &'static [KnobProfile],
    /// See [`PolicyType::COUNTERS`].
    pub counters: &'static [Counter],
    /// See [`PolicyType::HIDDEN`].
    pub hidden: bool,
    /// See [`PolicyType::new`].
    pub build: fn(&Setup) -> Box<dyn Policy>,
    /// See [`PolicyType::adapting`].
    pub adapting: fn(u32, Values, KeySet) -> Box<dyn Adapting>,
    /// See [`PolicyType::bounds`].
    pub bounds: fn(u32, &Values) -> Bounds,
}

impl PolicyInfo {
    /// What there is to know of this kind of policy.
    pub const fn of<P: PolicyType>() -> PolicyInfo {
        assert!(P::COUNTERS.len() <= COUNTERS_MAX, "a policy has at most 8 counters of its own");
        PolicyInfo {
            name: P::NAME,
            about: P::ABOUT,
            knobs: P::KNOBS,
            profiles: P::PROFILES,
            counters: P::COUNTERS,
            hidden: P::HIDDEN,
            build: |setup| Box::new(P::new(setup)),
            adapting: P::adapting,
            bounds: P::bounds,
        }
    }
}

impl core::fmt::Debug for PolicyInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for PolicyInfo {
    fn eq(&self, other: &PolicyInfo) -> bool {
        self.name == other.name
    }
}

/// The policies of a program: a list of types as a list of [`PolicyInfo`].
#[macro_export]
macro_rules! policies {
    ($($policy:ty),* $(,)?) => {{
        const POLICIES: &[$crate::registry::PolicyInfo] =
            &[$($crate::registry::PolicyInfo::of::<$policy>()),*];
        POLICIES
    }};
}
