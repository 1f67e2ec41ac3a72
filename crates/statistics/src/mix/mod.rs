// SPDX-License-Identifier: GPL-2.0-only

//! The results of a mix: a workload of several parts that one seed has drawn. The simulator and the
//! probe give the same figures of each part, and [`judge`](judge::judge()) compares two schedulers.

pub mod judge;
#[cfg(feature = "draw")]
pub mod report;
mod seeds;

pub use seeds::Seeds;
use serde::{Deserialize, Serialize};

/// What of a part a person notices, or a program that depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notice {
    /// How late its tasks run after a wakeup.
    Wakeup,
    /// The time of a frame or of an audio buffer, from the begin of its period. It has a deadline.
    Frame,
    /// The time from a request to its answer.
    Request,
    /// The time from a fork to the child's first instruction.
    Fork,
    /// Only the work that it does.
    Work,
}

impl Notice {
    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Notice::Wakeup => "wakeup",
            Notice::Frame => "frame",
            Notice::Request => "request",
            Notice::Fork => "fork",
            Notice::Work => "work",
        }
    }
}

/// What was measured of one part of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The name of its tasks. Several parts may have the same.
    pub name: String,
    /// What is measured of it.
    pub notice: Notice,
    /// Number of its tasks at any time.
    pub tasks: u32,
    /// The kernel's weight of each task, 1024 for nice 0.
    pub weight: u32,
    /// Whether its tasks never sleep and may run on every CPU, so that the weights alone say what
    /// each of them gets.
    pub equals: bool,
    /// Number of measured times.
    pub count: u64,
    /// The time that half of them do not exceed, in microseconds; zero if there are none.
    pub p50_us: f64,
    /// The same for 99 of 100.
    pub p99_us: f64,
    /// The same for 999 of 1000.
    pub p999_us: f64,
    /// The longest of them.
    pub worst_us: f64,
    /// Number of times beyond the deadline.
    pub missed: u64,
    /// Work done, in CPUs that work all the time.
    pub work: f64,
    /// The least work of one of its tasks by the most; only of [`Part::equals`] with two tasks or
    /// more.
    pub least_to_most: Option<f64>,
}

impl Part {
    /// Whether all its numbers can be reckoned with.
    pub fn is_sound(&self) -> bool {
        let times = [self.p50_us, self.p99_us, self.p999_us, self.worst_us, self.work];
        let all = times.into_iter().chain(self.least_to_most);
        self.missed <= self.count && all.into_iter().all(|value| value.is_finite() && value >= 0.0)
    }
}
