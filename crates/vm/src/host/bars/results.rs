// SPDX-License-Identifier: GPL-2.0-only

//! The figures of one boot and their verdicts: as a table on the screen, and as rows in JSON.

use super::measures::{Demand, MEASURES, Measure};
use crate::bars::{KERNEL, OURS, Phase};
use serde::Serialize;
use std::collections::BTreeMap;

/// Metrics in the order of arrival, round by round.
#[derive(Default)]
pub struct Figures(BTreeMap<String, Vec<f64>>);

/// One boot.
#[derive(Serialize)]
pub struct Results {
    pub kernel: String,
    pub cpus: u32,
    pub scheduler: String,
    pub scheduler_args: Vec<String>,
    /// The reason if the boot ended early.
    pub trouble: Option<String>,
    pub rows: Vec<Row>,
}

/// One measure with every round. The verdict is on the median, or on the worst round if the bar is
/// zero.
#[derive(Serialize)]
pub struct Row {
    pub phase: &'static str,
    pub measure: &'static str,
    pub label: &'static str,
    pub kernel_rounds: Vec<f64>,
    pub our_rounds: Vec<f64>,
    pub kernel: Option<f64>,
    pub ours: Option<f64>,
    pub ratio: Option<f64>,
    /// Empty if there is no bar.
    pub bar: String,
    pub verdict: Verdict,
    /// By which part of the bar; `None` also if the kernel's own figure to compare with is missing.
    pub missed_by: Option<f64>,
    /// The same in words.
    #[serde(skip)]
    judgement: String,
    #[serde(skip)]
    digits: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is no bar.
    Shown,
    Ok,
    Missed,
    /// There is no figure.
    NotMeasured,
}

impl Figures {
    pub fn add(&mut self, name: &str, value: f64) {
        self.0.entry(name.into()).or_default().push(value);
    }

    fn rounds(&self, side: &str, measure: &Measure) -> Vec<f64> {
        let name = format!("{side}.{}.{}", measure.phase.name(), measure.name);
        self.0.get(&name).cloned().unwrap_or_default()
    }

    /// One row for each measure of these phases.
    pub fn judge(&self, phases: &[Phase], cpus: u32) -> Vec<Row> {
        let wanted = MEASURES.iter().filter(|measure| phases.contains(&measure.phase));
        wanted.map(|measure| self.row(measure, cpus)).collect()
    }

    fn row(&self, measure: &Measure, cpus: u32) -> Row {
        let (kernel_rounds, our_rounds) =
            (self.rounds(KERNEL, measure), self.rounds(OURS, measure));
        let judged: fn(&[f64]) -> Option<f64> =
            if matches!(measure.demand, Demand::Zero) { most } else { median };
        let (kernel, ours) = (judged(&kernel_rounds), judged(&our_rounds));
        let ratio = kernel.zip(ours).filter(|(kernel, _)| *kernel > 0.0).map(|(k, o)| o / k);
        let miss = ours.and_then(|ours| measure.demand.missed_by(cpus, ours, ratio));
        let verdict = match (measure.demand, miss) {
            (Demand::Shown, _) => Verdict::Shown,
            (_, None) => Verdict::NotMeasured,
            (_, Some(0.0)) => Verdict::Ok,
            (_, Some(_)) => Verdict::Missed,
        };
        let judgement = match (verdict, miss) {
            (Verdict::NotMeasured, _) => "NOT MEASURED".into(),
            (_, Some(miss)) => measure.demand.describe_miss(miss),
            (_, None) => String::new(),
        };
        Row {
            phase: measure.phase.name(),
            measure: measure.name,
            label: measure.label,
            kernel_rounds,
            our_rounds,
            kernel,
            ours,
            ratio,
            bar: measure.demand.describe(cpus),
            verdict,
            missed_by: miss.filter(|miss| *miss > 0.0 && miss.is_finite()),
            judgement,
            digits: measure.digits,
        }
    }
}

impl Results {
    pub fn meets_all(&self) -> bool {
        let met = |row: &Row| matches!(row.verdict, Verdict::Shown | Verdict::Ok);
        self.trouble.is_none() && self.rows.iter().all(met)
    }

    pub fn print(&self) {
        let spread = self.rows.iter().any(|row| row.our_rounds.len() > 1);
        let label = self.rows.iter().map(|row| row.label.len()).max().unwrap_or(0);
        let args = self.scheduler_args.join(" ");
        println!("\nLinux {}, {} CPUs, {} {args}", self.kernel, self.cpus, self.scheduler);
        println!("x: ratio to the kernel's own scheduler\n");
        print!("{:label$}  {:>9}  {:>9}  {:>6}  ", "", "kernel's", "ours", "ratio");
        println!("{}{:12}  verdict", if spread { "ours, least..most  " } else { "" }, "bar");
        for row in &self.rows {
            let figure = |value: Option<f64>| match value {
                Some(value) => format!("{value:.*}", row.digits),
                None => "-".into(),
            };
            let ratio = row.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
            let (kernel, ours) = (figure(row.kernel), figure(row.ours));
            print!("{:label$}  {kernel:>9}  {ours:>9}  {ratio:>6}  ", row.label);
            if spread {
                print!("{:>17}  ", row.spread());
            }
            println!("{:12}  {}", row.bar, row.judgement);
        }
        let judged = self.rows.iter().filter(|row| row.verdict != Verdict::Shown);
        let missed = judged.clone().filter(|row| row.verdict != Verdict::Ok).count();
        println!("\n{} bars, {missed} missed", judged.count());
    }
}

impl Row {
    fn spread(&self) -> String {
        let least = self.our_rounds.iter().copied().reduce(f64::min);
        match least.zip(most(&self.our_rounds)) {
            Some((least, most)) => format!("{least:.0$}..{most:.0$}", self.digits),
            None => String::new(),
        }
    }
}

fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// For an even count, the mean of the two values in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}
