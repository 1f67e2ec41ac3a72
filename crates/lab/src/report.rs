// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_lab report`: one self-contained HTML file with charts.

use crate::cli::ReportArgs;
use crate::compare;
use crate::history::History;
use crate::metric;
use crate::play::Case;
use crate::run;
use crate::table::{Cell, Table};
use crate::timeline::{Runner, Timeline};
use anyhow::{Context, Result};
use pandemonium_engine::durations::Durations;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::Span;
use pandemonium_print::print;
use pandemonium_sim::observer::Observer;
use pandemonium_statistics::page::{self, escape};
use pandemonium_statistics::picture::{self, Line};
use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

/// Length of the timeline, which starts after the warm-up.
const TIMELINE: Span = Span::from_millis(200);
/// Largest number of run intervals drawn: more make the file slow to open.
const DRAWN_MAX: usize = 20_000;
/// Largest number of CPUs drawn.
const ROWS_MAX: u32 = 32;
/// Number of intervals of the charts over time.
const INTERVALS: u64 = 100;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// Runs the command.
pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let asked = &args.comparison;
    let comparison = compare::compared(asked)?;
    let mut played = Vec::new();
    let mut timelines = String::new();
    let mut histories = String::new();
    for policy in asked.policies() {
        let case = Case::new(&asked.what, policy, asked.seed)?;
        let workload = &case.trial.workload;
        let mut timeline = Timeline::new(workload.warmup, TIMELINE);
        let mut history = History::new(workload.duration, INTERVALS);
        let mut both = (&mut timeline as &mut dyn Observer, &mut history as &mut dyn Observer);
        let result = case.play(&mut both);
        let name = policy.name;
        writeln!(timelines, "<h3>{name}</h3>{}", draw_timeline(&timeline, &case))?;
        writeln!(histories, "<h3>{name}</h3>{}", history.draw()?)?;
        if case.trial.values.get("rule.adaptive") == Some(1) {
            writeln!(histories, "{}{}", history.draw_knobs()?, html_table(&history.changes()))?;
        }
        played.push((case, result));
    }
    let curves = draw_curves(&played)?;
    let (first, _) = &played[0];
    let workload = &first.trial.workload;
    let mut tables = String::new();
    run::tables(&played).iter().for_each(|table| tables += &html_table(table));
    let title = escape(&workload.name);
    let html = format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head>\
         <meta charset=\"utf-8\"/><title>{title}</title><style>{STYLE}</style></head><body>\
         <h1>{title}</h1><p>{}. {} CPUs, {} of simulated time.</p>\
         <h2>Over {} seeds</h2>{}\
         <h2>Wakeup latency</h2><p>From wakeup to running: latency by percentile.</p>\
         {curves}\
         <h2>Timeline of the CPUs</h2><p>The first {TIMELINE} after the warm-up, seed {}. The \
         wheel zooms, dragging moves, a click on a run interval shows its task.</p>{timelines}\
         <h2>Over time</h2><p>Decisions by tier and queued tasks in each hundredth of the run; \
         below, the regime of each second and the knobs that the adaptive loop changed.</p>\
         {histories}<h2>One run</h2>{tables}<script>//<![CDATA[\n{SCRIPT}//]]></script>\
         </body></html>\n",
        escape(&workload.about),
        first.trial.setup.shape.cpus,
        workload.duration,
        asked.seeds,
        html_table(&comparison),
        asked.seed,
    );
    fs::write(&args.out, html).with_context(|| format!("cannot write {}", args.out))?;
    print(&args.out.to_string());
    Ok(ExitCode::SUCCESS)
}

fn html_table(table: &Table) -> String {
    page::table(&table.title, &table.columns, &table.cells(Cell::show))
}

/// One chart for the probes, and one for each tier that had wakeups.
fn draw_curves(played: &[(Case, crate::play::Played)]) -> Result<String> {
    let mut html = String::new();
    let mut chart = |title: &str, curves: Vec<(String, Durations)>| -> Result<()> {
        if curves.iter().any(|(_, lengths)| lengths.count() > 0) {
            html += &draw_curve(title, &curves)?;
        }
        Ok(())
    };
    let all = played.iter().map(|(case, result)| {
        let wakes = metric::wakes(&result.tried.outcome, &case.trial.workload);
        (case.policy().name.to_owned(), wakes)
    });
    chart("probes", all.collect())?;
    for tier in Tier::ALL.into_iter().rev() {
        let of_tier = played.iter().map(|(case, result)| {
            (case.policy().name.to_owned(), result.tried.outcome.wake[tier.index()].clone())
        });
        chart(&format!("tier {tier:?}"), of_tier.collect())?;
    }
    Ok(html)
}

fn draw_curve(title: &str, curves: &[(String, Durations)]) -> Result<String> {
    let line = |(_, lengths): &(String, Durations)| Line {
        buckets: lengths.buckets().map(|(edge, count)| (edge.as_nanos(), count)).collect(),
    };
    let lines: Vec<Line> = curves.iter().map(line).collect();
    let name = |(number, (name, _)): (usize, &(String, Durations))| {
        format!("{}{} ", picture::swatch(number), escape(name))
    };
    let names: String = curves.iter().enumerate().map(name).collect();
    Ok(format!("<h3>{}</h3><p>{names}</p>{}", escape(title), picture::curves(&lines)?))
}

/// Plain SVG with microseconds as its unit, so that zooming only changes the view box.
fn draw_timeline(timeline: &Timeline, case: &Case) -> String {
    let cpus = case.trial.setup.shape.cpus.min(ROWS_MAX);
    let width = timeline.until.since(timeline.from).as_micros().max(1);
    let height = cpus * 20;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" \
         viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" style=\"height:{}px\">",
        height.clamp(60, 640)
    );
    let groups = &case.trial.workload.groups;
    let shown = timeline.run_intervals.iter().filter(|run_interval| run_interval.cpu < cpus);
    for run_interval in shown.take(DRAWN_MAX) {
        let (class, label) = match run_interval.runner {
            Runner::Scheduler => ("scheduler".to_owned(), "the scheduler process".to_owned()),
            Runner::Task { pid, group, tier } => {
                let name = groups.get(group as usize).map(|group| group.comm.to_string());
                let name = escape(&name.unwrap_or_default());
                (format!("{tier:?}"), format!("{name} {pid}, {tier:?}"))
            }
        };
        let us = |ns: u64| format!("{}.{:03}", ns / 1_000, ns % 1_000);
        let from = run_interval.from.since(timeline.from).as_nanos();
        let length = run_interval.until.since(run_interval.from).as_nanos();
        svg += &format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"16\">\
             <title>{label}, {} us from {} us</title></rect>",
            us(from),
            run_interval.cpu * 20 + 2,
            us(length),
            us(length),
            us(from)
        );
    }
    let colours = ["LatCritical", "Interactive", "Batch", "scheduler"];
    let legend = colours.map(|class| format!("<span class=\"{class}\"></span>{class} "));
    svg + "</svg><p class=\"legend\">" + &legend.concat() + "</p>"
}
