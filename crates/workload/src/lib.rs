// SPDX-License-Identifier: GPL-2.0-only

//! Workload files (TOML), and workloads drawn from a seed. docs/simulator.md explains the format.
//!
//! | module | content |
//! |---|---|
//! | [`read`] | reads a file; [`FileError`] names line, column and what was expected |
//! | [`parts`] | what is measured of each group of tasks |
//! | [`mix`] | draws a workload from a seed and writes it as a file |
//!
//! The types of a workload are those of the simulator, `pandemonium_sim::workload`. The probe plays
//! them with real tasks. Nothing here knows a scheduler.
//!
//! ```
//! let (workload, machine) = pandemonium_workload::read(
//!     "name = \"hogs\"\nduration_ms = 100\n[[task]]\nname = \"hog\"\n\
//!      kind = \"burn\"\ncount = \"2n\"",
//!     Some(4),
//! )
//! .unwrap();
//! assert_eq!((workload.tasks(), machine.cpus), (8, 4));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod error;
mod file;
mod formula;
pub mod mix;
mod parts;
mod programs;
mod table;

pub use error::FileError;
pub use file::read;
pub use parts::parts;
