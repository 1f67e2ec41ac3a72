// SPDX-License-Identifier: GPL-2.0-only

//! The wind tunnel: that the model keeps the backend's contract, that a seed repeats a run, and
//! that every checker finds what it is for.

mod change;
mod common;
mod experiment;
mod fates;
mod lab;
mod low_power;
mod model;
mod planted;
mod pressure;
/// The policy that `new` writes.
#[path = "../../template/src/lib.rs"]
mod shortest;
mod swarm;
