// SPDX-License-Identifier: GPL-2.0-only

//! The result of one benchmark phase: numbers with units, and distributions. The probe prints them
//! as JSON and the benchmark stores them, so both programs use these types.

use serde::{Deserialize, Serialize};

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The name, without spaces and without the unit: `p99`, `p99.9`, `work`, `own_cpu`, `missed`.
    pub name: String,
    /// The unit of `value`.
    pub unit: Unit,
    /// Whether a lower or a higher value is better.
    pub better: Better,
    /// The number itself.
    pub value: f64,
}

/// A distribution of durations, in buckets that grow wider with the duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The name, without spaces: `latency`, `frame_time`.
    pub name: String,
    /// The unit of the bucket edges; it is a unit of time.
    pub unit: Unit,
    /// Upper edge and count of each bucket. Edges ascend; empty buckets are left out, as in
    /// `pandemonium_engine::durations::Durations::buckets`.
    pub buckets: Vec<(u64, u64)>,
}

/// The unit of a [`Figure`] or of a [`Curve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Microseconds.
    #[serde(rename = "us")]
    Us,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Ms,
    /// Seconds.
    #[serde(rename = "s")]
    S,
    /// Percent.
    #[serde(rename = "%")]
    Percent,
    /// Events or units of work per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Megabytes (10^6 bytes) per second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// A number of events.
    #[serde(rename = "count")]
    Count,
    /// One quantity divided by another.
    #[serde(rename = "ratio")]
    Ratio,
}

impl Unit {
    /// The unit's name in results files and tables.
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

    /// Its length in nanoseconds, or `None` if it is not a unit of time.
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

/// Which direction is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A lower value is better, as for latency.
    Lower,
    /// A higher value is better, as for throughput.
    Higher,
}
