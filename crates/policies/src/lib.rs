// SPDX-License-Identifier: GPL-2.0-only

//! The policies: [`Pandemonium`] with its adaptive loop, and the policies it is compared with.
//!
//! ```
//! use pandemonium_engine::Setup;
//! use pandemonium_policies::Catalog;
//!
//! let info = Catalog::new(&[]).find("pandemonium").unwrap();
//! let policy = (info.build)(&Setup::of_cpus(4));
//! assert_eq!(policy.waiting().nr_waiting(), 0);
//! assert!(info.knobs.named("slice_us").is_some());
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]
#![warn(missing_docs)]

extern crate alloc;

mod catalog;
pub mod control;
pub mod knobs;
mod pandemonium;
pub mod profiles;
mod reference;
mod scaling;

pub use catalog::{BUILT_IN, Catalog};
pub use pandemonium::classify::{COMPOSITORS, Classifier};
pub use pandemonium::{LOW_WEIGHT_WAIT, Pandemonium, SLEEP_LONG};
pub use reference::{Dropping, Fifo, Ordering, Reference, Vruntime};
pub use scaling::Scaling;
