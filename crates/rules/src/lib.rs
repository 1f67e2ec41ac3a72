// SPDX-License-Identifier: GPL-2.0-only

//! Rules for a scheduler: which processes get which treatment.
//!
//! ```text
//! rules file (TOML) -> Rules::parse --.
//! /proc --> Processes::refresh -------+--> Rules::apply -> process, rule -> Treatment
//! ```
//!
//! The first rule of which all conditions hold applies. Names, command lines and cgroups are what a
//! user makes of them. So a rule that raises a process, which is to say gives it more than its
//! behaviour earns, applies only to processes of the users that the file lists, or that the rule
//! names.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod domain;
mod file;
mod pattern;
mod proc;
mod process;
mod rule;
mod users;

pub use domain::{CpuKinds, DomainWish};
pub use pattern::Pattern;
pub use process::{Process, Processes, SchedClass};
pub use rule::{Found, Rule, Rules, demand_text};
pub use users::Users;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
