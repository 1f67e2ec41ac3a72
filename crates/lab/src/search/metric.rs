// SPDX-License-Identifier: GPL-2.0-only

//! What a search makes better, and what it holds.

use crate::mean::Mean;
use crate::mix::{Mix, ratio};
use anyhow::{Result, anyhow};
use clap::ValueEnum;
use pandemonium_statistics::mix::Notice;
use pandemonium_statistics::mix::judge::{Line, Pair, judge};
use std::fmt;

/// The least fairness that a ratio divides by.
const FAIR_MIN: f64 = 0.001;

/// A figure of a run, as a ratio by the same run with the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// The p99 of the parts that are noticed, their geometric mean; 0.1 ms counts as the least
    P99,
    /// The p99.9 of them
    #[value(name = "p99.9")]
    P999,
    /// Missed deadlines and one, so that none has a ratio too
    Missed,
    /// Work of the loads; more is better
    Work,
    /// The least by the most work among equals; more is better
    Fair,
}

impl Metric {
    pub const ALL: [Metric; 5] =
        [Metric::P99, Metric::P999, Metric::Missed, Metric::Work, Metric::Fair];

    pub fn name(self) -> &'static str {
        ["p99", "p99.9", "missed", "work", "fair"][self as usize]
    }

    fn more_is_better(self) -> bool {
        matches!(self, Metric::Work | Metric::Fair)
    }

    /// The ratio whose loss this is, or the other way round.
    pub fn ratio(self, loss: f64) -> f64 {
        if self.more_is_better() { (-loss).exp() } else { loss.exp() }
    }

    fn loss(self, ratio: f64) -> f64 {
        if self.more_is_better() { -ratio.ln() } else { ratio.ln() }
    }
}

/// What a run lost against the defaults, for each of [`Metric::ALL`]: the logarithm of the ratio,
/// below zero for the better. `None` for a figure that the run does not have.
pub type Losses = [Option<f64>; Metric::ALL.len()];

/// The losses of a mix against the same one with the defaults.
pub fn losses(base: &Mix, mix: &Mix) -> Result<Losses> {
    let line = judge(base.measured(), mix.measured()).map_err(|error| anyhow!(error))?;
    Ok(Metric::ALL.map(|metric| match metric {
        Metric::P99 => mean(&line.p99),
        Metric::P999 => mean(&line.p999),
        Metric::Missed => missed(&line, base),
        Metric::Work => line.work.map(|ratio| metric.loss(ratio.max(f64::MIN_POSITIVE))),
        Metric::Fair => {
            line.fairness.map(|[base, fair]| metric.loss(fair.max(FAIR_MIN) / base.max(FAIR_MIN)))
        }
    }))
}

fn mean(pairs: &[Pair]) -> Option<f64> {
    let logs: Vec<f64> = pairs.iter().map(|pair| ratio(pair).ln()).collect();
    Mean::of(&logs, 0.0).map(|mean| mean.of)
}

fn missed(line: &Line, base: &Mix) -> Option<f64> {
    let has_deadlines = base.measured().parts.iter().any(|part| part.notice == Notice::Frame);
    let [before, after] = line.missed.map(|missed| (missed + 1) as f64);
    has_deadlines.then(|| (after / before).ln())
}

/// A metric that must not become worse than a multiple of the defaults': `work>=0.99`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    pub metric: Metric,
    /// The ratio that is still allowed.
    pub limit: f64,
}

impl Hold {
    /// The loss that is still allowed.
    pub fn allowed(&self) -> f64 {
        self.metric.loss(self.limit)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.metric.more_is_better() { ">=" } else { "<=" };
        write!(f, "{}{sign}{}", self.metric.name(), self.limit)
    }
}

/// Reads `METRIC<=x`, or `METRIC>=x` where more is better.
pub fn hold(text: &str) -> Result<Hold, String> {
    let (name, rest) = text.split_at(text.find(['<', '>']).unwrap_or(text.len()));
    let metric = Metric::from_str(name.trim(), false).map_err(|_| {
        let names = Metric::ALL.map(Metric::name).join(", ");
        format!("expected METRIC<=x, as in p99.9<=1.05; the metrics are {names}")
    })?;
    let sign = if metric.more_is_better() { ">=" } else { "<=" };
    let limit = rest.strip_prefix(sign).and_then(|limit| limit.trim().parse::<f64>().ok());
    match limit {
        Some(limit) if limit > 0.0 && limit.is_finite() => Ok(Hold { metric, limit }),
        _ => Err(format!("expected {name}{sign}x, with x times the defaults' above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_has_the_sign_of_its_metric() {
        assert_eq!(hold("p99.9<=1.05"), Ok(Hold { metric: Metric::P999, limit: 1.05 }));
        let work = hold("work>=0.99").unwrap();
        assert!(work.allowed() > 0.0 && work.to_string() == "work>=0.99");
        for wrong in ["work<=1", "p99>=1", "p99", "luck<=1", "p99<=x", "p99<=-1", "p99<=inf", ""] {
            assert!(hold(wrong).is_err_and(|why| why.starts_with("expected ")), "{wrong}");
        }
    }

    #[test]
    fn a_loss_is_above_zero_for_the_worse_of_either_direction() {
        assert!(Metric::P99.loss(1.1) > 0.0 && Metric::Work.loss(0.9) > 0.0);
        for metric in Metric::ALL {
            assert!((metric.ratio(metric.loss(0.7)) - 0.7).abs() < 1e-12);
            assert_eq!(Metric::from_str(metric.name(), false), Ok(metric));
        }
    }
}
