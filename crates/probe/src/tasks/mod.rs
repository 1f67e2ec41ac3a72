// SPDX-License-Identifier: GPL-2.0-only

//! What a load and a measurement are made of: processes that work, sleep, wake each other up, are
//! born and die, and some of them with a clock in the hand.
//!
//! They belong to two programs: to this one, and to the agent of the lab in `tests/vm`, which
//! includes this folder. So the benchmark measures the very tasks that the suite runs.

pub mod burst;
pub mod clock;
pub mod family;
pub mod frames;
pub mod jobs;
pub mod launch;
pub mod lives;
pub mod load;
pub mod memory;
pub mod messages;
pub mod probe;
pub mod round_trips;
pub mod wakeups;
pub mod work;
