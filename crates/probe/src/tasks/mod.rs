// SPDX-License-Identifier: GPL-2.0-only

//! The tasks of a load and of a measurement: processes that work, sleep, wake each other, fork and
//! exit, and processes that measure latencies.
//!
//! Two programs use them: this one, and the guest agent of `pandemonium_vm`. So the benchmark
//! measures the same tasks that the scenarios run.

pub mod burst;
pub mod changes;
pub mod clock;
pub mod family;
pub mod frames;
pub mod futex;
pub(crate) mod jobs;
pub(crate) mod launch;
pub mod lives;
pub mod load;
pub(crate) mod memory;
pub(crate) mod messages;
pub mod probe;
pub(crate) mod process;
pub mod round_trips;
pub(crate) mod slot;
pub mod wakeups;
pub mod work;
