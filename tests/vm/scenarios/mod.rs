//! The scenarios, one file a topic.

mod demo;
mod harness;
mod lifecycle;
mod mix;

use crate::scenario::Scenario;

/// What the suite runs, in this order.
pub const SUITE: &[&[Scenario]] = &[harness::ALL, lifecycle::ALL, mix::ALL];

/// Run by name only.
pub const APART: &[Scenario] = &[demo::DEMO, lifecycle::KERNEL_CHECK];
