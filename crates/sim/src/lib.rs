// SPDX-License-Identifier: GPL-2.0-only

//! The wind tunnel: the shipped [`round`](pandemonium_engine::round) and policies against a simulated
//! machine.
//!
//! ```text
//! workload --> machine --Port--> round() --> policy
//!                 |
//!                 '--events--> observers: judges, measurements, recordings
//! ```
//!
//! Time is simulated, chance follows from one seed, all numbers are integers: the same setup gives
//! the same run, bit for bit, on every machine. Files, threads and terminals are the lab's affair
//! (`src/bin/pandemonium_lab`). What the model leaves out is listed in docs/simulator.md.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

pub mod event_queue;
pub mod judge;
pub mod machine;
pub mod measure;
pub mod observer;
pub mod pulse;
pub mod random;
pub mod swarm;
pub mod topology;
pub mod trial;
pub mod workload;
