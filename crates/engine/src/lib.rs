// SPDX-License-Identifier: GPL-2.0-only

//! The engine of a CPU scheduler in user space: the types that travel between kernel and policy, the
//! round that joins the two, and what policies are made of.
//!
//! ```text
//! kernel --ring--> decode --> on_arrival --> queue --> next --> dispatch --user ring--> kernel
//!                    task      policy       runqueue   policy    round
//! ```
//!
//! A [`Policy`] decides and does nothing else. The crate is `no_std`, has no dependency and forbids
//! unsafe code, so a clock, a file, a thread, a lock or a hash map does not even resolve here: time
//! is an argument, one [`Stamp`](time::Stamp) a round, and equal inputs give equal decisions on
//! every machine. What touches the kernel is an implementation of [`Port`] somewhere else.
//!
//! Reading order: [`time`] and [`task`] are the vocabulary; [`policy`], [`port`] and [`round`](mod@round)
//! are the seam between policy and mechanism; [`runqueue`], [`table`] and [`procdb`] are what
//! policies are built from.

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]
#![warn(missing_docs)]

extern crate alloc;

pub mod adapting;
pub mod durations;
pub mod explaining;
pub mod facts;
pub mod fine;
pub mod histogram;
mod index;
pub mod knobs;
pub mod learning;
mod list;
pub mod placement;
pub mod policy;
pub mod port;
pub mod prelude;
pub mod procdb;
pub mod registry;
pub mod round;
pub mod runqueue;
pub mod setup;
pub mod table;
pub mod task;
pub mod time;
pub mod topology;
mod usual;

pub use explaining::Explaining;
pub use learning::{Learning, Memo};
pub use policy::{KernelRules, Mode, Policy, Waiting};
pub use port::{Full, MachineView, Port};
pub use registry::{PolicyInfo, PolicyType};
pub use round::{Limits, Round, round};
pub use setup::{NAMES_MAX, Setup, TASKS_MAX};
