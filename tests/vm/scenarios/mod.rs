// SPDX-License-Identifier: GPL-2.0-only

//! The scenarios, one file a topic.

mod classes;
mod demo;
mod errors;
mod harness;
mod hotplug;
mod lifecycle;
mod mix;
mod stress;

use crate::scenario::Scenario;

/// What the suite runs, in this order.
pub const SUITE: &[&[Scenario]] =
    &[harness::ALL, lifecycle::ALL, errors::ALL, mix::ALL, classes::ALL, hotplug::ALL, stress::ALL];

/// Run by name only.
pub const APART: &[Scenario] = &[demo::DEMO, lifecycle::KERNEL_CHECK];
