// SPDX-License-Identifier: GPL-2.0-only

//! The simulator: runs the shipped [`round`](pandemonium_engine::round) and policies against a
//! simulated machine.
//!
//! ```text
//! workload --> machine --Port--> round() --> policy
//!                 |
//!                 '--events--> observers: checkers, measurements, recordings
//! ```
//!
//! Time is simulated, one seed determines all randomness, and all numbers are integers: the same
//! setup gives the same run, bit for bit, on every machine. This crate does no I/O and starts no
//! thread; the lab (`crates/lab`) does. docs/simulator.md lists what the model leaves out.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

pub mod checkers;
pub mod event_queue;
pub mod machine;
pub mod measure;
pub mod observer;
pub mod random;
pub mod sampler;
pub mod swarm;
pub mod topology;
pub mod trial;
pub mod workload;
