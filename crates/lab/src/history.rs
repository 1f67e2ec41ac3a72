// SPDX-License-Identifier: GPL-2.0-only

//! What went on over time: how many waited, how many decisions of which tier were made, and what
//! the adaptive loop made of it.

use crate::table::{Cell, Table};
use anyhow::Result;
use pandemonium_engine::knobs::{Key, Knobs, keys};
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};
use pandemonium_policies::control::regime::Regime;
use pandemonium_sim::machine::START;
use pandemonium_sim::observer::{Event, Observer};
use pandemonium_statistics::picture::drawn;
use plotters::prelude::*;

/// Changes of knobs that are listed; of a longer run the first ones.
const CHANGES_MAX: usize = 60;
const SIZE: (u32, u32) = (900, 220);

/// One stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretch {
    /// Decisions by tier.
    pub decisions: [u32; 3],
    /// Most that waited for a decision after a round.
    pub waiting: usize,
}

/// What the loop saw in a second.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Stamp,
    regime: Regime,
    /// In per mille.
    idle: Option<u32>,
}

/// Collects stretches of equal length.
pub struct History {
    length: Span,
    end: Stamp,
    stretches: Vec<Stretch>,
    /// Each second.
    looks: Vec<Look>,
    /// The knobs from then on.
    knobs: Vec<(Stamp, Knobs)>,
}

impl History {
    /// A run of `duration` in so many stretches.
    pub fn new(duration: Span, stretches: u64) -> History {
        let length = duration.scale(1, stretches.max(1)).max(Span::from_micros(1));
        let stretches = vec![Stretch::default(); stretches as usize + 1];
        let (looks, knobs) = (Vec::new(), Vec::new());
        History { length, end: START + duration, stretches, looks, knobs }
    }

    fn at(&mut self, now: Stamp) -> &mut Stretch {
        let number = now.since(START).as_nanos() / self.length.as_nanos();
        let last = self.stretches.len() - 1;
        &mut self.stretches[(number as usize).min(last)]
    }

    /// Decisions and waiting tasks.
    pub fn draw(&self) -> Result<String> {
        let most =
            |value: fn(&Stretch) -> f64| self.stretches.iter().map(value).fold(1.0, f64::max);
        let top = most(|stretch| f64::from(stretch.decisions.iter().sum::<u32>()))
            .max(most(|stretch| stretch.waiting as f64));
        let stretch = seconds(START + self.length);
        let mut lines = Vec::new();
        for tier in Tier::ALL.map(Some).into_iter().chain([None]) {
            let name = tier.map_or("waiting".to_owned(), |tier| format!("{tier:?}"));
            let value = |stretch: &Stretch| match tier {
                Some(tier) => f64::from(stretch.decisions[tier.index()]),
                None => stretch.waiting as f64,
            };
            let points = self.stretches.iter().enumerate();
            let points = points.map(|(number, at)| (number as f64 * stretch, value(at)));
            // What begins at the very end is no stretch of time.
            let points = points.filter(|(at, _)| *at < seconds(self.end));
            lines.push((name, tier, points.collect()));
        }
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let end = self.stretches.len() as f64 * stretch;
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

    /// The knobs that are lengths and that the loop has moved, in microseconds, before the regimes
    /// of each second.
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
            for regime in Regime::ALL {
                let colour = colour_of(regime).mix(0.18).filled();
                let seen = self.looks.iter().filter(|look| look.regime == regime);
                let band = |look: &Look| {
                    let until = seconds(look.at);
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
    fn moved(&self) -> impl Iterator<Item = &'static Key> + '_ {
        let differs = |key: &'static Key, pair: &[(Stamp, Knobs)]| {
            key.show(&pair[0].1).to_string() != key.show(&pair[1].1).to_string()
        };
        keys().filter(move |key| self.knobs.windows(2).any(|pair| differs(key, pair)))
    }

    /// A knob's value over time, as stairs.
    fn steps(&self, key: &'static Key) -> Vec<(f64, f64)> {
        let value = |knobs: &Knobs| key.show(knobs).to_string().parse().unwrap_or(0.0);
        let mut line = Vec::new();
        let ends = self.knobs.iter().skip(1).map(|(at, _)| *at).chain([self.end]);
        for ((from, knobs), until) in self.knobs.iter().zip(ends) {
            let value: f64 = value(knobs);
            line.extend([(seconds(*from), value.max(1.0)), (seconds(until), value.max(1.0))]);
        }
        line
    }

    /// When the regime or a knob changed, and to what.
    pub fn changes(&self) -> Table {
        let mut table =
            Table::new("what the adaptive loop changed", &["after", "regime", "idle %", "knobs"]);
        let mut regime = Regime::default();
        for look in &self.looks {
            let at = |(stamp, _): &(Stamp, Knobs)| *stamp == look.at;
            let changed = self.knobs.iter().position(at).filter(|number| *number > 0);
            let knobs = changed.map(|number| self.difference(number)).unwrap_or_default();
            if (look.regime != regime || !knobs.is_empty()) && table.rows.len() < CHANGES_MAX {
                table.row(vec![
                    look.at.since(START).to_string().into(),
                    look.regime.to_string().into(),
                    look.idle.map_or(Cell::None, |idle| Cell::Milli(u64::from(idle) * 100)),
                    knobs.into(),
                ]);
            }
            regime = look.regime;
        }
        table
    }

    fn difference(&self, number: usize) -> String {
        let (before, after) = (&self.knobs[number - 1].1, &self.knobs[number].1);
        let shown = keys().map(|key| (key.name, key.show(before), key.show(after)));
        let changed: Vec<String> = shown
            .map(|(name, before, after)| (name, before.to_string(), after.to_string()))
            .filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| format!("{name} {before} to {after}"))
            .collect();
        changed.join(", ")
    }
}

fn seconds(at: Stamp) -> f64 {
    at.since(START).as_nanos() as f64 / 1_000_000_000.0
}

fn stroke(x: i32, y: i32, colour: RGBAColor) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3))
}

/// As in the timelines: report.css.
fn colour_of_tier(tier: Option<Tier>) -> RGBColor {
    match tier {
        Some(Tier::LatCritical) => RGBColor(0xD1, 0x49, 0x5B),
        Some(Tier::Interactive) => RGBColor(0xED, 0xAE, 0x49),
        Some(Tier::Batch) => RGBColor(0x66, 0xA1, 0x82),
        None => BLUE,
    }
}

fn colour_of(regime: Regime) -> RGBColor {
    match regime {
        Regime::Light => GREEN,
        Regime::Mixed => YELLOW,
        Regime::Heavy => RED,
    }
}

impl Observer for History {
    fn saw(&mut self, now: Stamp, event: &Event) {
        match *event {
            Event::Sent { dispatch, .. } => self.at(now).decisions[dispatch.tier.index()] += 1,
            Event::Ended { round, .. } => {
                let stretch = self.at(now);
                stretch.waiting = stretch.waiting.max(round.pending);
            }
            Event::Applied(knobs) => self.knobs.push((now, knobs)),
            Event::Looked { regime, idle } => self.looks.push(Look { at: now, regime, idle }),
            _ => {}
        }
    }
}
