// SPDX-License-Identifier: GPL-2.0-only

//! The results as tables show them: one group for each phase and number of CPUs, one row for each
//! figure, one cell for each scheduler.

use super::results::{Results, Run};
use pandemonium_statistics::figure::{Better, Unit};
use pandemonium_statistics::sample::Sample;
use pandemonium_statistics::verdict::{self, Pair, Verdict};
use std::collections::BTreeMap;

/// All tables.
pub struct Digest {
    /// In the order of the tables. All others are compared with the first.
    pub schedulers: Vec<String>,
    pub groups: Vec<Group>,
}

/// One table.
pub struct Group {
    pub phase: String,
    pub cpus: u32,
    pub rows: Vec<Row>,
    pub curves: Vec<Curves>,
}

/// One figure under every scheduler.
pub struct Row {
    pub name: String,
    pub unit: Unit,
    pub better: Better,
    pub cells: Vec<Cell>,
}

/// One figure under one scheduler.
pub struct Cell {
    pub sample: Sample,
    /// Its median divided by the first scheduler's.
    pub ratio: Option<f64>,
    /// The comparison with the first scheduler; `None` for the first scheduler itself.
    pub verdict: Option<Verdict>,
    /// No other median is better, and at least one is worse.
    pub best: bool,
}

/// One distribution under every scheduler, merged over all iterations.
pub struct Curves {
    pub name: String,
    /// Upper edge in nanoseconds and count of each bucket; empty for a scheduler without the curve.
    pub lines: Vec<Vec<(u64, u64)>>,
}

impl Digest {
    pub fn new(results: &Results) -> Digest {
        let schedulers: Vec<String> =
            results.schedulers.iter().map(|scheduler| scheduler.name.clone()).collect();
        let mut groups: Vec<Group> = Vec::new();
        for (phase, cpus) in places(results) {
            let here = |run: &&Run| run.phase == phase && run.cpus == cpus;
            let runs: Vec<&Run> = results.runs.iter().filter(here).collect();
            let rows = rows(&runs, &schedulers);
            let curves = curves(&runs, &schedulers);
            groups.push(Group { phase: phase.to_owned(), cpus, rows, curves });
        }
        let mut digest = Digest { schedulers, groups };
        (1..digest.schedulers.len()).for_each(|at| digest.judge(at));
        digest
    }

    /// Judges all figures of one scheduler at once, as [`verdict::judge`] requires.
    fn judge(&mut self, at: usize) {
        let rows = self.groups.iter().flat_map(|group| &group.rows);
        let verdicts = verdict::judge(&rows.map(|row| row.pair(at)).collect::<Vec<Pair>>());
        let rows = self.groups.iter_mut().flat_map(|group| &mut group.rows);
        rows.zip(verdicts).for_each(|(row, verdict)| row.cells[at].verdict = Some(verdict));
    }

    /// The verdicts of one scheduler.
    pub fn verdicts(&self, at: usize) -> impl Iterator<Item = Verdict> + '_ {
        let rows = self.groups.iter().flat_map(|group| &group.rows);
        rows.filter_map(move |row| row.cells[at].verdict)
    }
}

/// Phases in the order of the run, each with its numbers of CPUs in ascending order.
fn places(results: &Results) -> Vec<(&str, u32)> {
    let mut phases: Vec<&str> = Vec::new();
    let mut places: Vec<(&str, u32)> = Vec::new();
    for run in &results.runs {
        let place = (run.phase.as_str(), run.cpus);
        if !phases.contains(&place.0) {
            phases.push(place.0);
        }
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.sort_by_key(|(phase, cpus)| (phases.iter().position(|other| other == phase), *cpus));
    places
}

fn rows(runs: &[&Run], schedulers: &[String]) -> Vec<Row> {
    let mut names: Vec<(&str, Unit, Better)> = Vec::new();
    for figure in runs.iter().flat_map(|run| &run.figures) {
        let name = (figure.name.as_str(), figure.unit, figure.better);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |(name, unit, better): (&str, Unit, Better)| {
        let sample = |scheduler: &String| {
            let mine = runs.iter().filter(|run| run.scheduler == *scheduler);
            let figures = mine.flat_map(|run| &run.figures).filter(|figure| figure.name == name);
            Sample::new(figures.map(|figure| figure.value).collect())
        };
        let samples: Vec<Sample> = schedulers.iter().map(sample).collect();
        Row { name: name.to_owned(), unit, better, cells: cells(samples, better) }
    };
    names.into_iter().map(row).collect()
}

fn cells(samples: Vec<Sample>, better: Better) -> Vec<Cell> {
    let medians = || samples.iter().filter(|sample| sample.count() > 0).map(Sample::median);
    let (low, high) = (medians().reduce(f64::min), medians().reduce(f64::max));
    let best = if better == Better::Lower { low } else { high };
    let base = samples.first().filter(|sample| sample.count() > 0).map(Sample::median);
    let cell = |sample: Sample| {
        let mine = Some(sample.median()).filter(|_| sample.count() > 0);
        let ratio = mine.zip(base).filter(|(_, base)| *base != 0.0).map(|(mine, base)| mine / base);
        Cell { ratio, verdict: None, best: low != high && mine == best, sample }
    };
    samples.iter().cloned().map(cell).collect()
}

fn curves(runs: &[&Run], schedulers: &[String]) -> Vec<Curves> {
    let mut names: Vec<&str> = Vec::new();
    for curve in runs.iter().flat_map(|run| &run.curves) {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
        }
    }
    let line = |name: &str, scheduler: &String| {
        let mut merged: BTreeMap<u64, u64> = BTreeMap::new();
        let mine = runs.iter().filter(|run| run.scheduler == *scheduler);
        for curve in mine.flat_map(|run| &run.curves).filter(|curve| curve.name == name) {
            let scale = curve.unit.nanoseconds().unwrap_or(1.0);
            for (edge, count) in &curve.buckets {
                let merged = merged.entry((*edge as f64 * scale) as u64).or_default();
                *merged = merged.saturating_add(*count);
            }
        }
        merged.into_iter().collect()
    };
    let of = |name: &str| Curves {
        name: name.to_owned(),
        lines: schedulers.iter().map(|scheduler| line(name, scheduler)).collect(),
    };
    names.into_iter().map(of).collect()
}

impl Group {
    /// The title of its table.
    pub fn title(&self) -> String {
        let plural = if self.cpus == 1 { "" } else { "s" };
        format!("{}, {} CPU{plural}", self.phase, self.cpus)
    }
}

impl Row {
    /// The first scheduler's values and those of scheduler `at`.
    fn pair(&self, at: usize) -> Pair<'_> {
        Pair { base: &self.cells[0].sample, sample: &self.cells[at].sample, better: self.better }
    }

    /// The name, the unit, and the direction unless lower is better.
    pub fn label(&self) -> String {
        let unit = match self.unit {
            Unit::Count | Unit::Ratio => String::new(),
            unit => format!(", {}", unit.name()),
        };
        let better = if self.better == Better::Higher { " (higher is better)" } else { "" };
        format!("{}{unit}{better}", self.name)
    }
}

impl Cell {
    /// Half the interquartile range: about half of the values are this near to the median.
    pub fn spread(&self) -> f64 {
        (self.sample.quantile(0.75) - self.sample.quantile(0.25)) / 2.0
    }
}

/// A number with three significant digits and all digits before the point. Integers have no
/// decimals.
pub fn show(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { show_like(value, value) }
}

/// A number with as many decimals as [`show`] gives `model`, beside which it is shown.
pub fn show_like(value: f64, model: f64) -> String {
    let decimals = match model.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::results;
    use pandemonium_statistics::verdict::Why;

    #[test]
    fn every_figure_is_compared_with_the_first_scheduler() {
        let digest = Digest::new(&results(8, 0.5, 3));
        let titles: Vec<String> = digest.groups.iter().map(Group::title).collect();
        assert_eq!(titles, ["wake, 2 CPUs", "burst, 2 CPUs"]);
        let wake = &digest.groups[0].rows;
        let labels: Vec<String> = wake.iter().map(Row::label).collect();
        assert_eq!(labels, ["p50, us", "p99, us", "work, 1/s (higher is better)", "missed"]);
        let [kernel, ours, peer] = &wake[1].cells[..] else { panic!("three schedulers") };
        assert!(ours.best && !kernel.best && !peer.best);
        assert_eq!(ours.verdict, Some(Verdict::Better));
        assert!((ours.ratio.unwrap() - 0.5).abs() < 0.02 && kernel.ratio == Some(1.0));
        assert_eq!((kernel.verdict, kernel.sample.count()), (None, 8));
        assert_eq!(wake[3].cells[1].verdict, Some(Verdict::None(Why::Same)));
        assert!(wake[3].cells.iter().all(|cell| !cell.best && cell.ratio.is_none()));
        let is_significant = |verdict| !matches!(verdict, Verdict::None(_));
        assert_eq!(digest.verdicts(1).filter(|verdict| is_significant(*verdict)).count(), 4);
        assert_eq!(digest.verdicts(2).filter(|verdict| is_significant(*verdict)).count(), 0);
    }

    #[test]
    fn curves_merge_all_iterations() {
        let digest = Digest::new(&results(8, 0.5, 3));
        let lines = &digest.groups[0].curves[0].lines;
        for line in lines {
            assert_eq!(line.iter().map(|(_, count)| count).sum::<u64>(), 8 * 1_000);
            assert!(line.is_sorted());
        }
    }

    #[test]
    fn a_scheduler_that_did_not_run_leaves_its_cell_empty() {
        let mut all = results(5, 0.5, 3);
        all.runs.retain(|run| run.scheduler != "peer" || run.phase != "burst");
        let digest = Digest::new(&all);
        let missing = &digest.groups[1].rows[1].cells[2];
        assert_eq!(missing.verdict, Some(Verdict::None(Why::Missing)));
        assert!(missing.sample.count() == 0 && missing.ratio.is_none() && !missing.best);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [0.0, 0.0312, 1.234, 56.78, 123.4, 46.0].map(show);
        assert_eq!(shown, ["0", "0.031", "1.23", "56.8", "123", "46"]);
        assert_eq!(show_like(1.26, 56.78), "1.3");
    }
}
