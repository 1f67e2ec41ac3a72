// SPDX-License-Identifier: GPL-2.0-only

//! The brain of `scx_pandemonium_user`: which task runs next, where, and for how long.
//!
//! ```text
//! kernel --ring--> decode --> on_arrival --> queue --> next --> dispatch --user ring--> kernel
//!                    task      policy       runqueue   policy    engine
//! ```
//!
//! The library decides and does nothing else. It is `no_std` and forbids unsafe code, so a clock,
//! a file, a thread, a lock or a hash map does not even resolve here: time is an argument, one
//! [`Stamp`](time::Stamp) a round, and equal inputs give equal decisions on every machine. What
//! touches the kernel is an implementation of [`Port`](engine::Port) somewhere else.
//!
//! Reading order: [`time`] and [`task`] are the vocabulary, [`engine`] is the seam between policy
//! and mechanism, [`runqueue`] and [`table`] are what policies are built from, [`policy`] holds
//! the policies.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

pub mod control;
pub mod engine;
pub mod facts;
mod index;
pub mod knobs;
mod list;
pub mod policy;
pub mod procdb;
pub mod record;
pub mod runqueue;
pub mod sim;
pub mod table;
pub mod task;
pub mod time;
pub mod topology;
