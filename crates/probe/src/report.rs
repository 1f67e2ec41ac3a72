// SPDX-License-Identifier: GPL-2.0-only

//! What a phase has measured: the one JSON object that this program prints.
//!
//! `scx_pandemonium_user bench` copies names and units into its results file unchanged.

use crate::tasks::probe::Samples;
use pandemonium_engine::durations::Durations;
use pandemonium_engine::time::Span;
use pandemonium_statistics::figure::{Better, Curve, Figure, Unit};
use pandemonium_statistics::mix::Part;
use serde::Serialize;

/// The figures and curves of one phase, or of a workload file.
#[derive(Default, Serialize)]
pub struct Report {
    pub figures: Vec<Figure>,
    pub curves: Vec<Curve>,
    /// The parts of a workload file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

impl Report {
    /// Adds a figure of which less is better.
    pub fn lower(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.figures.push(Figure { name: name.into(), unit, better: Better::Lower, value });
    }

    /// Adds a figure of which more is better.
    pub fn higher(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.figures.push(Figure { name: name.into(), unit, better: Better::Higher, value });
    }

    /// Adds the quantiles of a latency and its curve. `of` is the prefix of their names, for phases
    /// with several latencies.
    pub fn latency(&mut self, of: &str, samples: &Samples) {
        let named = |name: &str| match of {
            "" => name.to_string(),
            _ => format!("{of}_{name}"),
        };
        for (name, permille) in [("p50", 500), ("p99", 990), ("p99.9", 999), ("worst", 1000)] {
            self.lower(named(name), Unit::Us, samples.quantile_us(permille));
        }
        self.curve(&named("latency"), samples);
    }

    /// Adds the distribution of a latency.
    pub fn curve(&mut self, name: &str, samples: &Samples) {
        let mut lengths = Durations::default();
        samples.sorted_ns().iter().for_each(|&ns| lengths.add(Span::from_nanos(ns)));
        let buckets = lengths.buckets().map(|(edge, count)| (edge.as_nanos(), count)).collect();
        self.curves.push(Curve { name: name.into(), unit: Unit::Ns, buckets });
    }
}
