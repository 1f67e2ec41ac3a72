// SPDX-License-Identifier: GPL-2.0-only

//! The result of a suite as a table.

use super::runner::Outcome;
use crate::scenario::{Expect, Scenario};
use std::time::Duration;

/// One boot and its outcome.
pub struct Row {
    pub kernel: String,
    pub scenario: &'static Scenario,
    pub outcome: Outcome,
    /// The reason why an earlier try failed.
    pub first: Option<String>,
    pub took: Duration,
}

impl Row {
    pub fn passed(&self) -> bool {
        match self.scenario.expect {
            Expect::PassAgain => self.first.is_some() && self.outcome == Outcome::Passed,
            expect => self.outcome.is_expected(expect),
        }
    }

    /// Whether it passed only at the second try, unlike what the scenario expects.
    pub fn was_disturbed(&self) -> bool {
        self.first.is_some() && self.scenario.expect != Expect::PassAgain && self.passed()
    }

    /// The row in one line.
    pub fn line(&self) -> String {
        let (kernel, name, took) = (&self.kernel, self.scenario.name, self.took.as_secs());
        let line = format!("{kernel} {name}: {} in {took} s", self.verdict());
        match self.passed() {
            true => line,
            false => format!("{line}: {}", self.outcome.reason()),
        }
    }

    /// The verdict in words. An expected failure is a pass.
    pub fn verdict(&self) -> String {
        match (self.passed(), &self.outcome) {
            (true, Outcome::Passed) if self.was_disturbed() => "passed (second try)".into(),
            (true, Outcome::Passed) => "passed".into(),
            (true, outcome) => format!("passed ({}, as expected)", outcome.name()),
            (false, Outcome::Passed) => "FAILED (passed unexpectedly)".into(),
            (false, outcome) => format!("FAILED ({})", outcome.name()),
        }
    }
}

/// Prints the table, the reasons of failures, and the counts that continuous integration reads.
pub fn print(rows: &[Row]) {
    let width = |of: fn(&Row) -> usize, title: &str| {
        rows.iter().map(of).max().unwrap_or(0).max(title.len())
    };
    let kernels = width(|row| row.kernel.len(), "kernel");
    let scenarios = width(|row| row.scenario.name.len(), "scenario");
    let verdicts = width(|row| row.verdict().len(), "outcome");
    println!(
        "\n{:kernels$}  {:scenarios$}  {:verdicts$}  seconds",
        "kernel", "scenario", "outcome"
    );
    for row in rows {
        let Row { kernel, scenario, took, .. } = row;
        println!(
            "{kernel:kernels$}  {:scenarios$}  {:verdicts$}  {:7}",
            scenario.name,
            row.verdict(),
            took.as_secs()
        );
    }
    for row in rows.iter().filter(|row| !row.passed()) {
        println!(
            "\n{} on {}: {}: {}",
            row.scenario.name,
            row.kernel,
            row.outcome.name(),
            row.outcome.reason()
        );
    }
    for row in rows.iter().filter(|row| row.was_disturbed()) {
        let first = row.first.as_deref().unwrap_or_default();
        println!(
            "\n{} on {} passed at the second try; first {first}",
            row.scenario.name, row.kernel
        );
    }
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.passed()).collect();
    let names: Vec<String> =
        failed.iter().map(|row| format!("{} on {}", row.scenario.name, row.kernel)).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    println!("\n{} passed, {} failed{names}", rows.len() - failed.len(), failed.len());
}
