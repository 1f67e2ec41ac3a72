// SPDX-License-Identifier: GPL-2.0-only

//! The simulator: runs the shipped [`round()`](pandemonium_engine::round()) and policies against a
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
//!
//! ```
//! use pandemonium_engine::PolicyInfo;
//! use pandemonium_engine::knobs::KeySet;
//! use pandemonium_engine::time::Span;
//! use pandemonium_policies::Fifo;
//! use pandemonium_sim::checkers::Demands;
//! use pandemonium_sim::machine::Setup;
//! use pandemonium_sim::topology::Shape;
//! use pandemonium_sim::trial::Trial;
//! use pandemonium_sim::workload::{Draw, Group, Workload};
//!
//! // Two CPU hogs and a task that sleeps 5 ms and works 1 ms, on two CPUs, for a second.
//! let ms = |ms| Draw::fixed(Span::from_millis(ms));
//! let workload = Workload {
//!     name: "example".into(),
//!     about: String::new(),
//!     duration: Span::from_millis(1_000),
//!     warmup: Span::from_millis(100),
//!     groups: vec![Group::hogs("hog", 2), Group::sleepers("sleeper", 1, ms(5), ms(1))],
//! };
//! let setup = Setup::new(Shape::flat(2), 42);
//! let policy = PolicyInfo::of::<Fifo>();
//! let values = policy.knobs.defaults();
//! let demands = Demands::stated(&setup, &policy, &values);
//! let pinned = KeySet::none(policy.knobs);
//! let trial = Trial { workload, setup, policy, values, pinned, storm: None, demands };
//! let tried = trial.run(&mut ());
//! assert!(tried.verdict.is_ok());
//! println!("p99 wakeup latency: {}", tried.outcome.groups[1].wake.quantile(990));
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]
// An event is `Copy`: observing a run allocates nothing.
#![allow(clippy::large_enum_variant)]
#![warn(missing_docs)]

extern crate alloc;

pub mod checkers;
pub mod event_queue;
pub mod machine;
pub mod measure;
pub mod observer;
mod order_checker;
pub mod random;
pub mod sampler;
mod stall_checker;
pub mod swarm;
pub mod topology;
pub mod trial;
pub mod workload;
