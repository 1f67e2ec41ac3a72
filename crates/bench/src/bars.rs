// SPDX-License-Identifier: GPL-2.0-only

//! Bars: required values for the figures of a scheduler, read from a TOML file, and by how much
//! each is missed.

use super::digest::{Digest, Row, show};
use super::results::{self, KERNEL};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    bar: Vec<Bar>,
}

/// One required value. crates/bench/bars.toml explains the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bar {
    phase: String,
    figure: String,
    /// Numbers of CPUs for which it holds; empty means all.
    #[serde(default)]
    cpus: Vec<u32>,
    demand: Demand,
    /// Judge the worst iteration, not the median.
    #[serde(default)]
    every: bool,
}

/// What a figure must be, such as `ratio <= 0.10`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Demand {
    /// Judge the ratio to the first scheduler's figure, not the figure itself.
    ratio: bool,
    bound: Bound,
}

/// The bound of a demand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Within this share of a value.
    Near(f64, f64),
}

impl TryFrom<String> for Demand {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Demand> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (ratio, words) = match words[..] {
            ["ratio", ref rest @ ..] => (true, rest),
            ref all => (false, all),
        };
        let number = |word: &str| match word.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
            _ => Err(anyhow!("{word:?} in {text:?} is not a number of at least 0")),
        };
        let bound = match words {
            ["<=", most] => Bound::AtMost(number(most)?),
            [">=", least] => Bound::AtLeast(number(least)?),
            ["near", wanted, "within", percent, "%"] => {
                Bound::Near(number(wanted)?, number(percent)? / 100.0)
            }
            _ => bail!(
                "{text:?} is no demand: it is one of \"<= 4\", \">= 0.95\" and \"near 3.06 within \
                 10 %\", perhaps with \"ratio\" before it"
            ),
        };
        Ok(Demand { ratio, bound })
    }
}

impl Demand {
    /// The demand as a cell of the table.
    fn show(self) -> String {
        let ratio = if self.ratio { "x " } else { "" };
        match self.bound {
            Bound::AtMost(most) => format!("{ratio}<= {most}"),
            Bound::AtLeast(least) => format!("{ratio}>= {least}"),
            Bound::Near(wanted, share) => format!("{ratio}{wanted} +- {} %", show(share * 100.0)),
        }
    }

    /// By which share of the bound the value misses it, or by how much if the bound is zero. At
    /// most 0 if the bar is met.
    fn missed_by(self, value: f64) -> f64 {
        let above = |bar: f64| if bar == 0.0 { value } else { (value - bar) / bar };
        match self.bound {
            Bound::AtMost(most) => above(most),
            Bound::AtLeast(least) => -above(least),
            Bound::Near(wanted, share) => above(wanted).abs() - share,
        }
    }
}

/// Which bars a scheduler meets.
pub struct BarResults {
    pub scheduler: String,
    base: String,
    lines: Vec<Line>,
}

/// One bar for one number of CPUs.
struct Line {
    title: String,
    demand: Demand,
    base: Option<f64>,
    value: Option<f64>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Met,
    Missed(f64),
    /// The figure is missing, so the bar counts as missed.
    NotMeasured,
}

/// Judges `scheduler`, or the first that is not the kernel's, by the bars of a file.
pub fn judge(path: &Path, digest: &Digest, scheduler: Option<&str>) -> Result<BarResults> {
    let read = || -> Result<Vec<Bar>> {
        let text = results::text(path)?;
        let file: File = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            anyhow!("line {}: {}", before.matches('\n').count() + 1, error.message())
        })?;
        ensure!(!file.bar.is_empty(), "it has no [[bar]]");
        Ok(file.bar)
    };
    let bars = read().with_context(|| format!("the bars {} cannot be read", path.display()))?;
    let known = &digest.schedulers;
    let at = match scheduler {
        Some(name) => known
            .iter()
            .position(|other| other == name)
            .with_context(|| format!("no scheduler is named {name:?}: {}", known.join(", ")))?,
        None => known.iter().position(|other| other != KERNEL).context(
            "the results have no scheduler but the kernel's, for which there are no bars",
        )?,
    };
    let lines = bars.iter().flat_map(|bar| bar.judge(digest, at)).collect();
    Ok(BarResults { scheduler: known[at].clone(), base: known[0].clone(), lines })
}

impl Bar {
    /// One line for each number of CPUs that was measured, or one line if the phase was not.
    fn judge(&self, digest: &Digest, at: usize) -> Vec<Line> {
        let wanted = |cpus: u32| self.cpus.is_empty() || self.cpus.contains(&cpus);
        let groups = digest.groups.iter();
        let groups = groups.filter(|group| {
            group.phase == results::current_phase(&self.phase) && wanted(group.cpus)
        });
        let mut lines: Vec<Line> = groups
            .map(|group| {
                let row = group.rows.iter().find(|row| row.name == self.figure);
                self.line(Some(group.cpus), row, at)
            })
            .collect();
        let measured: Vec<u32> = digest.groups.iter().map(|group| group.cpus).collect();
        let applies = self.cpus.is_empty() || self.cpus.iter().any(|cpus| measured.contains(cpus));
        if lines.is_empty() && applies {
            lines.push(self.line(None, None, at));
        }
        lines
    }

    fn line(&self, cpus: Option<u32>, row: Option<&Row>, at: usize) -> Line {
        let value = |at: usize| {
            let sample = &row?.cells.get(at)?.sample;
            let lower = matches!(self.demand.bound, Bound::AtMost(_));
            let worst = if lower { sample.most() } else { sample.least() };
            (sample.count() > 0).then(|| if self.every { worst } else { sample.median() })
        };
        let (base, value) = (value(0), value(at));
        let ratio = ratio(base, value);
        let judged = if self.demand.ratio { ratio } else { value };
        let outcome = match judged.map(|value| self.demand.missed_by(value)) {
            None => Outcome::NotMeasured,
            Some(miss) if miss > 0.0 => Outcome::Missed(miss),
            Some(_) => Outcome::Met,
        };
        let cpus = cpus.map_or(String::new(), |cpus| format!(", {cpus} CPUs"));
        let label = row.map_or(self.figure.clone(), Row::label);
        let label = label.split(" (").next().unwrap_or_default();
        let every = if self.every { ", worst" } else { "" };
        let title = format!("{} {label}{every}{cpus}", self.phase);
        Line { title, demand: self.demand, base, value, outcome }
    }
}

impl Line {
    fn ratio(&self) -> Option<f64> {
        ratio(self.base, self.value)
    }

    /// The outcome as a cell of the table.
    fn word(&self) -> String {
        match self.outcome {
            Outcome::Met => "met".into(),
            Outcome::NotMeasured => "NOT MEASURED".into(),
            Outcome::Missed(by) if self.demand.missed_by(0.0) == 0.0 => {
                format!("MISSED by {}", show(by))
            }
            Outcome::Missed(by) => format!("MISSED by {:.0} %", (by * 100.0).ceil()),
        }
    }
}

/// `None` if a side is missing or the base is zero.
fn ratio(base: Option<f64>, value: Option<f64>) -> Option<f64> {
    let (base, value) = base.zip(value)?;
    (base != 0.0).then(|| value / base)
}

impl BarResults {
    /// How many bars are not met. A bar that was not measured is not met.
    pub fn missed(&self) -> usize {
        self.lines.iter().filter(|line| line.outcome != Outcome::Met).count()
    }

    /// How many bars there are, and how many are missed.
    pub fn summary(&self) -> String {
        format!("{} bars, {} missed", self.lines.len(), self.missed())
    }

    /// Title, columns and rows of the table.
    pub fn table(&self) -> (String, [&str; 6], Vec<Vec<String>>) {
        let columns = ["", &self.base, &self.scheduler, "x", "bar", "verdict"];
        let cell = |value: Option<f64>| value.map_or("-".into(), show);
        let row = |line: &Line| {
            let ratio = line.ratio().map_or("-".into(), |ratio| format!("{ratio:.3}"));
            let (base, value) = (cell(line.base), cell(line.value));
            vec![line.title.clone(), base, value, ratio, line.demand.show(), line.word()]
        };
        let title = format!("the bars for {}", self.scheduler);
        (title, columns, self.lines.iter().map(row).collect())
    }

    /// The table for programs.
    pub fn json(&self) -> Value {
        let line = |line: &Line| {
            json!({
                "title": line.title,
                "base": line.base,
                "value": line.value,
                "ratio": line.ratio(),
                "demand": line.demand.show(),
                "met": line.outcome == Outcome::Met,
                "verdict": line.word(),
            })
        };
        let lines: Vec<Value> = self.lines.iter().map(line).collect();
        json!({ "scheduler": self.scheduler, "lines": lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Scratch, results};
    use std::fs;

    fn judged(toml: &str) -> Result<BarResults> {
        let scratch = Scratch::new();
        let path = scratch.at("bars.toml");
        fs::write(&path, toml).unwrap();
        judge(&path, &Digest::new(&results(5, 0.5, 3)), None)
    }

    fn words(rest: &str) -> Vec<String> {
        let toml = format!("[[bar]]\nphase = \"wake\"\n{rest}");
        judged(&toml).unwrap().lines.iter().map(Line::word).collect()
    }

    #[test]
    fn a_missed_bar_says_by_how_much() {
        for (rest, word) in [
            ("figure = \"p99\"\ndemand = \"ratio <= 0.6\"", "met"),
            ("figure = \"p99\"\ndemand = \"ratio <= 0.25\"", "MISSED by 10"),
            ("figure = \"p99\"\ndemand = \"<= 100\"", "MISSED by 4"),
            ("figure = \"p99\"\ndemand = \">= 400\"", "met"),
            ("figure = \"work\"\ndemand = \"ratio >= 0.9\"", "met"),
            ("figure = \"work\"\ndemand = \"ratio >= 2\"", "MISSED by 5"),
            ("figure = \"missed\"\ndemand = \"<= 0\"\nevery = true", "met"),
            ("figure = \"p99\"\ndemand = \"<= 0\"", "MISSED by 5"),
            ("figure = \"p99\"\ndemand = \"near 500 within 10 %\"", "met"),
            ("figure = \"p99\"\ndemand = \"near 1000 within 10 %\"", "MISSED by 4"),
            ("figure = \"missed\"\ndemand = \"ratio <= 1\"", "NOT MEASURED"),
            ("figure = \"p98\"\ndemand = \"<= 1\"", "NOT MEASURED"),
            ("figure = \"p99\"\ncpus = [1, 2]\ndemand = \"<= 1e6\"", "met"),
        ] {
            let outcomes = words(rest);
            assert!(outcomes.len() == 1 && outcomes[0].starts_with(word), "{rest}: {outcomes:?}");
        }
        assert!(words("figure = \"p99\"\ncpus = [8]\ndemand = \"<= 1\"").is_empty());
    }

    #[test]
    fn every_judges_the_worst_iteration() {
        let bar = |demand: f64, every| {
            words(&format!("figure = \"p99\"\nevery = {every}\ndemand = \"<= {demand}\""))
        };
        let digest = Digest::new(&results(5, 0.5, 3));
        let sample = &digest.groups[0].rows[1].cells[1].sample;
        let between = (sample.median() + sample.most()) / 2.0;
        assert_eq!(bar(between, false), ["met"]);
        assert!(bar(between, true)[0].starts_with("MISSED"));
    }

    #[test]
    fn a_malformed_bar_is_refused() {
        for wrong in [
            "figure = \"p99\"\ndemand = \"< 4\"",
            "figure = \"p99\"\ndemand = \"ratio <= many\"",
            "figure = \"p99\"\ndemand = \"<= nan\"",
            "figure = \"p99\"\ndemand = \"<= -1\"",
            "figure = \"p99\"",
            "figure = \"p99\"\ndemand = \"<= 4\"\nratoi = 4",
        ] {
            let error = judged(&format!("[[bar]]\nphase = \"wake\"\n{wrong}")).err().unwrap();
            assert!(format!("{error:#}").contains("bars.toml"), "{wrong}: {error:#}");
        }
        assert!(judged("").is_err() && judged("bar = []").is_err());
    }

    #[test]
    fn the_shipped_bars_are_valid() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("bars.toml");
        let digest = Digest::new(&results(5, 0.5, 3));
        let judged = judge(&path, &digest, Some("peer")).unwrap();
        assert!(judged.scheduler == "peer" && judged.lines.len() > 10, "{}", judged.summary());
        assert!(judge(&path, &digest, Some("unknown")).is_err());
        let mut alone = results(5, 0.5, 3);
        alone.schedulers.truncate(1);
        alone.runs.retain(|run| run.scheduler == KERNEL);
        assert!(
            judge(&path, &Digest::new(&alone), None).is_err(),
            "there is no scheduler to judge"
        );
    }
}
