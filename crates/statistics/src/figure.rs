// SPDX-License-Identifier: GPL-2.0-only

//! What a phase has found: numbers with their units, and curves. The probe prints them, the
//! benchmark keeps them, so this file belongs to both programs.

use serde::{Deserialize, Serialize};

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Without blanks and without its unit: `p99`, `p99.9`, `work`, `own_cpu`, `missed`.
    pub name: String,
    pub unit: Unit,
    pub better: Better,
    pub value: f64,
}

/// All lengths behind some figures, in buckets that grow with the length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Without blanks: `latency`, `frame_time`.
    pub name: String,
    /// A unit of time.
    pub unit: Unit,
    /// Upper edge and how many are in the bucket, edges ascending, empty buckets left out: what
    /// [`pandemonium_engine::durations::Durations::buckets`] gives, in nanoseconds.
    pub buckets: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "ns")]
    Ns,
    #[serde(rename = "us")]
    Us,
    #[serde(rename = "ms")]
    Ms,
    #[serde(rename = "s")]
    S,
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// So many of something.
    #[serde(rename = "count")]
    Count,
    /// One thing by another.
    #[serde(rename = "ratio")]
    Ratio,
}

impl Unit {
    /// As it stands in the file.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Us => "us",
            Unit::Ms => "ms",
            Unit::S => "s",
            Unit::Percent => "%",
            Unit::PerSecond => "1/s",
            Unit::MegabytesPerSecond => "MB/s",
            Unit::Count => "count",
            Unit::Ratio => "ratio",
        }
    }

    /// How many nanoseconds it has, if it is one of time.
    pub fn nanoseconds(self) -> Option<f64> {
        match self {
            Unit::Ns => Some(1.0),
            Unit::Us => Some(1e3),
            Unit::Ms => Some(1e6),
            Unit::S => Some(1e9),
            _ => None,
        }
    }
}

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}
