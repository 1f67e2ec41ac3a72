// SPDX-License-Identifier: GPL-2.0-only

//! Everything about a policy that can be changed while it runs, and how a person says so.
//!
//! A policy declares its knobs once, with [`knobs!`](crate::knobs!): name, type, default, range and
//! one sentence each. From that follow the struct that the policy reads, and a [`Table`] from which
//! `tune`, files of knobs, `--set`, `sweep` and recordings work. [`Values`] are the values of all
//! knobs of one policy as plain words: what travels between processes and into recordings. Values
//! are always within their ranges and never contradict each other.

mod declare;
mod layers;
mod numbers;
mod table;
mod text;

pub use declare::Setting;
pub use layers::{KnobProfile, Layers};
pub use table::{KNOBS_MAX, KeySet, Kind, Knob, Lookup, Range, RawKnobs, Shown, Table, Values};
pub use text::{Amended, FileError, KnobError};
