// SPDX-License-Identifier: GPL-2.0-only

//! What a phase has found, as the one JSON object that this program prints.
//!
//! Names and units are those of a results file of `scx_pandemonium_user bench`, which takes them as
//! they are.

use crate::tasks::probe::Samples;
use pandemonium_engine::durations::Durations;
use pandemonium_engine::time::Span;
use pandemonium_statistics::figure::{Better, Curve, Figure, Unit};
use serde::Serialize;

/// The figures and curves of one phase.
#[derive(Default, Serialize)]
pub struct Report {
    pub figures: Vec<Figure>,
    pub curves: Vec<Curve>,
}

impl Report {
    /// One more number of which less is better.
    pub fn lower(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.figures.push(Figure { name: name.into(), unit, better: Better::Lower, value });
    }

    /// One more number of which more is better.
    pub fn higher(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.figures.push(Figure { name: name.into(), unit, better: Better::Higher, value });
    }

    /// The quantiles of a latency and its curve. `of` tells several of one phase apart.
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

    pub fn curve(&mut self, name: &str, samples: &Samples) {
        let mut lengths = Durations::default();
        samples.sorted_ns().iter().for_each(|&ns| lengths.add(Span::from_nanos(ns)));
        let buckets = lengths.buckets().map(|(edge, count)| (edge.as_nanos(), count)).collect();
        self.curves.push(Curve { name: name.into(), unit: Unit::Ns, buckets });
    }
}
