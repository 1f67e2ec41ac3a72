// SPDX-License-Identifier: GPL-2.0-only

//! The results as CSV, JSON and Prometheus text, for other programs.

use super::contents::Contents;
use super::digest::{Digest, Group, Row};
use super::results::{Results, Run};
use anyhow::Result;
use pandemonium_statistics::figure::{Better, Figure, Unit};
use pandemonium_statistics::table;
use pandemonium_statistics::verdict::Verdict;
use serde_json::{Value, json};
use std::fmt::Write;

/// Every figure of every iteration, as CSV.
pub fn csv(results: &Results) -> String {
    let columns = ["cpus", "phase", "scheduler", "iteration", "figure", "unit", "better", "value"];
    // One row at a time: a row of strings takes many times the memory of its text.
    let rows = results.runs.iter();
    let rows = rows.flat_map(|run| run.figures.iter().map(move |figure| row(run, figure)));
    table::csv(&columns, rows)
}

fn row(run: &Run, figure: &Figure) -> Vec<String> {
    vec![
        run.cpus.to_string(),
        run.phase.clone(),
        run.scheduler.clone(),
        run.iteration.to_string(),
        figure.name.clone(),
        figure.unit.name().to_owned(),
        word(figure.better).to_owned(),
        figure.value.to_string(),
    ]
}

fn word(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower",
        Better::Higher => "higher",
    }
}

/// Everything that the tables show, as JSON.
pub fn json(contents: &Contents) -> Result<String> {
    let Contents { results, digest, bars } = contents;
    let mut rows = Vec::new();
    each(digest, |group, row, at| {
        let cell = &row.cells[at];
        let values = (cell.sample.count() > 0).then_some(&cell.sample);
        rows.push(json!({
            "phase": group.phase,
            "cpus": group.cpus,
            "figure": row.name,
            "unit": row.unit,
            "better": row.better,
            "scheduler": digest.schedulers[at],
            "iterations": cell.sample.count(),
            "median": values.map(|values| values.median()),
            "least": values.map(|values| values.least()),
            "quartile_1": values.map(|values| values.quantile(0.25)),
            "quartile_3": values.map(|values| values.quantile(0.75)),
            "most": values.map(|values| values.most()),
            "ratio": cell.ratio,
            "verdict": cell.verdict.map(Verdict::word),
        }));
    });
    let all: Value = json!({
        "command": results.command,
        "seed": results.seed,
        "started": results.started,
        "complete": results.complete,
        "machine": results.machine,
        "schedulers": results.schedulers,
        "rows": rows,
        "bars": bars.as_ref().map(|bars| bars.json()),
        "failures": results.failures,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// Calls `see` for each cell, with its group, its row and the index of its scheduler.
fn each(digest: &Digest, mut see: impl FnMut(&Group, &Row, usize)) {
    for group in &digest.groups {
        for row in &group.rows {
            (0..row.cells.len()).for_each(|at| see(group, row, at));
        }
    }
}

/// The Prometheus base unit of a unit, and the factor to it.
fn base(unit: Unit) -> (&'static str, f64) {
    match unit {
        Unit::Ns => ("seconds", 1e-9),
        Unit::Us => ("seconds", 1e-6),
        Unit::Ms => ("seconds", 1e-3),
        Unit::S => ("seconds", 1.0),
        Unit::Percent => ("ratio", 0.01),
        Unit::Ratio => ("ratio", 1.0),
        Unit::PerSecond => ("per_second", 1.0),
        Unit::MegabytesPerSecond => ("bytes_per_second", 1e6),
        Unit::Count => ("count", 1.0),
    }
}

/// The Prometheus text format, version 0.0.4, with one metric family for each base unit.
pub fn prometheus(contents: &Contents) -> String {
    let Contents { results, digest, .. } = contents;
    let mut text = String::new();
    let machine = &results.machine;
    let info = [
        ("command", results.command.as_str()),
        ("cpu_model", &machine.cpu_model),
        ("kernel", &machine.kernel),
    ];
    family(&mut text, "info", "The command and the machine.");
    sample(&mut text, "info", &info, 1.0);
    family(&mut text, "started_timestamp_seconds", "When the run started.");
    sample(&mut text, "started_timestamp_seconds", &[], results.started as f64);
    family(&mut text, "scheduler_info", "The schedulers that were measured.");
    for scheduler in &results.schedulers {
        let labels = [("scheduler", scheduler.name.as_str()), ("version", &scheduler.version)];
        sample(&mut text, "scheduler_info", &labels, 1.0);
    }
    for wanted in ["seconds", "ratio", "per_second", "bytes_per_second", "count"] {
        family(
            &mut text,
            wanted,
            "Quantiles over the iterations: minimum, quartiles, median, maximum.",
        );
        each(digest, |group, row, at| {
            let (unit, scale) = base(row.unit);
            let values = &row.cells[at].sample;
            if unit == wanted && values.count() > 0 {
                for (share, name) in
                    [(0.0, "0"), (0.25, "0.25"), (0.5, "0.5"), (0.75, "0.75"), (1.0, "1")]
                {
                    let value = values.quantile(share) * scale;
                    labelled(&mut text, wanted, digest, (group, row, at), Some(name), value);
                }
            }
        });
    }
    family(&mut text, "iterations", "How many iterations were measured.");
    each(digest, |group, row, at| {
        let count = row.cells[at].sample.count() as f64;
        labelled(&mut text, "iterations", digest, (group, row, at), None, count);
    });
    family(&mut text, "verdict", "1 better, -1 worse, 0 no verdict.");
    each(digest, |group, row, at| {
        let number = row.cells[at].verdict.map(|verdict| match verdict {
            Verdict::Better => 1.0,
            Verdict::Worse => -1.0,
            Verdict::None(_) => 0.0,
        });
        if let Some(number) = number {
            labelled(&mut text, "verdict", digest, (group, row, at), None, number);
        }
    });
    family(&mut text, "failures", "How often a scheduler or a phase failed.");
    sample(&mut text, "failures", &[], results.failures.len() as f64);
    text
}

const PREFIX: &str = "scx_bench_";

fn family(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} gauge");
}

fn labelled(
    text: &mut String,
    name: &str,
    digest: &Digest,
    (group, row, at): (&Group, &Row, usize),
    quantile: Option<&str>,
    value: f64,
) {
    let cpus = group.cpus.to_string();
    let mut labels = vec![
        ("scheduler", digest.schedulers[at].as_str()),
        ("phase", &group.phase),
        ("cpus", &cpus),
        ("figure", &row.name),
    ];
    labels.extend(quantile.map(|share| ("over_iterations", share)));
    sample(text, name, &labels, value);
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let quoted = |(name, value): &(&str, &str)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    let labels: Vec<String> = labels.iter().map(quoted).collect();
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    };
    let _ = writeln!(text, "{PREFIX}{name}{labels} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::results;
    use prometheus_parse::{Scrape, Value as Parsed};
    use std::collections::BTreeSet;

    fn report() -> Contents {
        let mut results = results(8, 0.5, 3);
        results.command = "bench \"run\" \\ and\nmore".into();
        Contents { digest: Digest::new(&results), results, bars: None }
    }

    #[test]
    fn a_prometheus_parser_reads_every_line() {
        let report = report();
        let text = prometheus(&report);
        let lines = || text.lines().map(|line| Ok(line.to_owned()));
        let scrape = Scrape::parse(lines()).unwrap();
        let comments = text.lines().filter(|line| line.starts_with('#')).count();
        assert_eq!(scrape.samples.len(), text.lines().count() - comments, "every line is read");
        let find = |name: &str, quantile: Option<&str>| {
            let found = scrape.samples.iter().find(|sample| {
                sample.metric == format!("scx_bench_{name}")
                    && sample.labels.get("scheduler") == Some("ours")
                    && sample.labels.get("phase") == Some("wake")
                    && sample.labels.get("figure") == Some("p99")
                    && sample.labels.get("over_iterations") == quantile
            });
            match found.map(|sample| &sample.value) {
                Some(Parsed::Gauge(value)) => *value,
                other => panic!("{name}: {other:?}"),
            }
        };
        let median = report.digest.groups[0].rows[1].cells[1].sample.median();
        assert!((find("seconds", Some("0.5")) - median * 1e-6).abs() < 1e-12);
        assert_eq!((find("verdict", None), find("iterations", None)), (1.0, 8.0));
        assert!(text.contains(r#"command="bench \"run\" \\ and\nmore""#));
    }

    /// The format requires this, and the parser above does not check it: each family appears once,
    /// its lines are adjacent, and no sample appears twice.
    #[test]
    fn prometheus_families_are_contiguous_and_unique() {
        let text = prometheus(&report());
        let (mut families, mut samples, mut family) = (BTreeSet::new(), BTreeSet::new(), "");
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().unwrap();
                assert!(families.insert(family), "{family} comes twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                assert_eq!(kind, format!("{family} gauge"));
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(name.split('{').next(), Some(family));
                assert!(samples.insert(name), "{name} comes twice");
                assert!(value.parse::<f64>().is_ok(), "{value}");
            }
        }
    }

    #[test]
    fn csv_has_every_figure_of_every_iteration() {
        let report = report();
        let text = csv(&report.results);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.len(), 8 * 2 * 3 * 4);
        let run = &report.results.runs[0];
        let expected =
            ["2", "wake", "kernel", "0", "p50", "us", "lower", &run.figures[0].value.to_string()];
        assert_eq!(rows[0].iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn json_has_what_the_tables_show() {
        let report = report();
        let all: Value = serde_json::from_str(&json(&report).unwrap()).unwrap();
        let rows = all["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 4 * 3);
        let wanted = |row: &&Value| {
            row["phase"] == "wake" && row["figure"] == "p99" && row["scheduler"] == "ours"
        };
        let row = rows.iter().find(wanted).unwrap();
        assert_eq!(
            (row["verdict"].as_str(), row["iterations"].as_u64()),
            (Some("better"), Some(8))
        );
        assert!(row["least"].as_f64() <= row["median"].as_f64());
        assert_eq!((&all["machine"]["hz"], &all["seed"]), (&json!(250), &json!(3)));
    }
}
