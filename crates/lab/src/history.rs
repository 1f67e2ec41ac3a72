// SPDX-License-Identifier: GPL-2.0-only

//! The course of a run: queued tasks and decisions by tier, and the regimes and knob changes of the
//! adaptive loop.

use crate::table::{Cell, Table};
use anyhow::Result;
use pandemonium_engine::knobs::{Knob, Values};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::control::regime::Regime;
use pandemonium_sim::machine::START;
use pandemonium_sim::observer::{Event, Observer};
use pandemonium_statistics::picture::drawn;
use plotters::prelude::*;

/// Number of changes that are listed; a longer run shows the first ones.
const CHANGES_MAX: usize = 60;
/// Width and height of a chart in pixels.
const SIZE: (u32, u32) = (900, 220);

/// Counts of one interval of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Decisions by tier.
    pub decisions: [u32; 3],
    /// Largest number of tasks still queued after a round.
    pub waiting: usize,
}

/// What the adaptive loop measured in one second.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    at: Stamp,
    regime: &'static str,
    /// In per mille.
    idle: Option<u32>,
}

/// Collects the counts of intervals of equal length.
pub struct History {
    length: Span,
    end: Stamp,
    intervals: Vec<Interval>,
    /// One for each second.
    measurements: Vec<Measurement>,
    /// The knobs, each from its time on.
    knobs: Vec<(Stamp, Values)>,
}

impl History {
    /// A run of `duration`, divided into this many intervals.
    pub fn new(duration: Span, intervals: u64) -> History {
        let length = duration.scale(1, intervals.max(1)).max(Span::from_micros(1));
        let intervals = vec![Interval::default(); intervals as usize + 1];
        let (measurements, knobs) = (Vec::new(), Vec::new());
        History { length, end: START + duration, intervals, measurements, knobs }
    }

    /// The interval that contains `now`.
    fn at(&mut self, now: Stamp) -> &mut Interval {
        let number = now.since(START).as_nanos() / self.length.as_nanos();
        let last = self.intervals.len() - 1;
        &mut self.intervals[(number as usize).min(last)]
    }

    /// Draws decisions by tier, and queued tasks, over time.
    pub fn draw(&self) -> Result<String> {
        let most =
            |value: fn(&Interval) -> f64| self.intervals.iter().map(value).fold(1.0, f64::max);
        let top = most(|interval| f64::from(interval.decisions.iter().sum::<u32>()))
            .max(most(|interval| interval.waiting as f64));
        let interval = seconds(START + self.length);
        let mut lines = Vec::new();
        for tier in Tier::ALL.map(Some).into_iter().chain([None]) {
            let name = tier.map_or("queued".to_owned(), |tier| format!("{tier:?}"));
            let value = |interval: &Interval| match tier {
                Some(tier) => f64::from(interval.decisions[tier.index()]),
                None => interval.waiting as f64,
            };
            let points = self.intervals.iter().enumerate();
            let points = points.map(|(number, at)| (number as f64 * interval, value(at)));
            // The last interval begins at the end of the run and has no length.
            let points = points.filter(|(at, _)| *at < seconds(self.end));
            lines.push((name, tier, points.collect()));
        }
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let end = self.intervals.len() as f64 * interval;
            let mut chart = drawn(
                ChartBuilder::on(&root)
                    .margin(10)
                    .x_label_area_size(30)
                    .y_label_area_size(60)
                    .build_cartesian_2d(0f64..end, 0f64..top * 1.05),
            )?;
            drawn(chart.configure_mesh().x_desc("s").y_desc("decisions, tasks").draw())?;
            for (name, tier, points) in lines {
                let line: Vec<(f64, f64)> = points;
                let colour = colour_of_tier(tier).to_rgba();
                let series = drawn(chart.draw_series(LineSeries::new(line, colour)))?;
                series.label(name).legend(move |(x, y)| stroke(x, y, colour));
            }
            drawn(chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw())?;
            drawn(root.present())?;
        }
        Ok(svg)
    }

    /// Draws the knobs in microseconds that the adaptive loop changed, over the regime of each
    /// second.
    pub fn draw_knobs(&self) -> Result<String> {
        let end = seconds(self.end);
        let lines: Vec<(&str, Vec<(f64, f64)>)> = self
            .moved()
            .filter(|key| key.name.ends_with("_us"))
            .map(|key| (key.name, self.steps(key)))
            .collect();
        let values = || lines.iter().flat_map(|(_, line)| line.iter().map(|point| point.1));
        let low = values().fold(100f64, f64::min).max(1.0) * 0.8;
        let high = values().fold(10_000f64, f64::max) * 1.25;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = drawn(
                ChartBuilder::on(&root)
                    .margin(10)
                    .x_label_area_size(30)
                    .y_label_area_size(60)
                    .build_cartesian_2d(0f64..end, (low..high).log_scale()),
            )?;
            drawn(chart.configure_mesh().x_desc("s").y_desc("us").draw())?;
            for regime in Regime::ALL.map(Regime::name) {
                let colour = colour_of(regime).mix(0.18).filled();
                let seen =
                    self.measurements.iter().filter(|measurement| measurement.regime == regime);
                let band = |measurement: &Measurement| {
                    let until = seconds(measurement.at);
                    Rectangle::new([((until - 1.0).max(0.0), low), (until, high)], colour)
                };
                let series = drawn(chart.draw_series(seen.map(band)))?;
                series.label(regime.to_string()).legend(move |(x, y)| {
                    Rectangle::new(
                        [(x, y - 5), (x + 18, y + 5)],
                        colour_of(regime).mix(0.4).filled(),
                    )
                });
            }
            for (number, (name, line)) in lines.into_iter().enumerate() {
                let colour = Palette99::pick(number).to_rgba();
                let line = LineSeries::new(line, colour.stroke_width(2));
                let series = drawn(chart.draw_series(line))?;
                series.label(name).legend(move |(x, y)| stroke(x, y, colour));
            }
            drawn(chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw())?;
            drawn(root.present())?;
        }
        Ok(svg)
    }

    /// The knobs that had more than one value.
    fn moved(&self) -> impl Iterator<Item = &'static Knob> + '_ {
        let table = self.knobs.first().map(|(_, values)| values.table());
        let differs = |knob: &'static Knob, pair: &[(Stamp, Values)]| {
            pair[0].1.get(knob.name) != pair[1].1.get(knob.name)
        };
        let all = table.into_iter().flat_map(|table| table.iter());
        all.filter(move |knob| self.knobs.windows(2).any(|pair| differs(knob, pair)))
    }

    /// A knob's value over time, as a step curve.
    fn steps(&self, knob: &'static Knob) -> Vec<(f64, f64)> {
        let shown = |values: &Values| knob.show(values.get(knob.name).unwrap_or(0)).to_string();
        let value = |values: &Values| shown(values).parse().unwrap_or(0.0);
        let mut line = Vec::new();
        let ends = self.knobs.iter().skip(1).map(|(at, _)| *at).chain([self.end]);
        for ((from, values), until) in self.knobs.iter().zip(ends) {
            let value: f64 = value(values);
            line.extend([(seconds(*from), value.max(1.0)), (seconds(until), value.max(1.0))]);
        }
        line
    }

    /// A table of the changes of the regime and of knobs.
    pub fn changes(&self) -> Table {
        let mut table =
            Table::new("what the adaptive loop changed", &["after", "regime", "idle %", "knobs"]);
        let mut regime = Regime::default().name();
        for measurement in &self.measurements {
            let at = |(stamp, _): &(Stamp, Values)| *stamp == measurement.at;
            let changed = self.knobs.iter().position(at).filter(|number| *number > 0);
            let knobs = changed.map(|number| self.difference(number)).unwrap_or_default();
            if (measurement.regime != regime || !knobs.is_empty()) && table.rows.len() < CHANGES_MAX
            {
                table.row(vec![
                    measurement.at.since(START).to_string().into(),
                    measurement.regime.to_string().into(),
                    measurement.idle.map_or(Cell::None, |idle| Cell::Milli(u64::from(idle) * 100)),
                    knobs.into(),
                ]);
            }
            regime = measurement.regime;
        }
        table
    }

    /// The knobs that change number `number` set, with old and new values.
    fn difference(&self, number: usize) -> String {
        let (before, after) = (&self.knobs[number - 1].1, &self.knobs[number].1);
        let changed: Vec<String> = before
            .iter()
            .zip(after.iter())
            .filter(|((_, before), (_, after))| before != after)
            .map(|((knob, before), (_, after))| {
                format!("{} {} to {}", knob.name, knob.show(before), knob.show(after))
            })
            .collect();
        changed.join(", ")
    }
}

/// Seconds since the start of the run.
fn seconds(at: Stamp) -> f64 {
    at.since(START).as_nanos() as f64 / 1_000_000_000.0
}

/// A line for the legend.
fn stroke(x: i32, y: i32, colour: RGBAColor) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3))
}

/// The same colours as in the timelines (report.css).
fn colour_of_tier(tier: Option<Tier>) -> RGBColor {
    match tier {
        Some(Tier::LatCritical) => RGBColor(0xD1, 0x49, 0x5B),
        Some(Tier::Interactive) => RGBColor(0xED, 0xAE, 0x49),
        Some(Tier::Batch) => RGBColor(0x66, 0xA1, 0x82),
        None => BLUE,
    }
}

fn colour_of(regime: &str) -> RGBColor {
    match regime {
        "LIGHT" => GREEN,
        "HEAVY" => RED,
        _ => YELLOW,
    }
}

impl Observer for History {
    fn saw(&mut self, now: Stamp, event: &Event) {
        match *event {
            Event::Sent { dispatch, .. } => self.at(now).decisions[dispatch.tier.index()] += 1,
            Event::Ended { round, .. } => {
                let interval = self.at(now);
                interval.waiting = interval.waiting.max(round.pending);
            }
            Event::Applied(knobs) => self.knobs.push((now, knobs)),
            Event::Looked { regime, idle } => {
                self.measurements.push(Measurement { at: now, regime, idle })
            }
            _ => {}
        }
    }
}
