// SPDX-License-Identifier: GPL-2.0-only

//! What the programs around a sched_ext scheduler share: why they end, what can be known before a
//! scheduler is loaded, and files that are there whole or not at all.

#![warn(missing_docs)]

pub mod durable;
pub mod failure;
pub mod preflight;
pub mod print;
pub mod program;
pub mod usage;

/// The version of a program of this workspace, with what it was built from.
pub fn version() -> String {
    scx_utils::build_id::full_version(env!("CARGO_PKG_VERSION"))
}
