// SPDX-License-Identifier: GPL-2.0-only

//! A bar chart: by which factor each figure is better or worse than the first scheduler's.

use super::digest::{Cell, Group, Row};
use anyhow::Result;
use pandemonium_statistics::figure::Better;
use pandemonium_statistics::picture::{LETTERS, SIZE, colour, drawn, svg};
use pandemonium_statistics::verdict::Verdict;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Thickness of a bar, in pixels.
const BAR: u32 = 15;
/// The gap between two figures, in pixels.
const GAP: u32 = 12;
/// Larger factors are drawn up to the edge.
const TIMES_MAX: f64 = 1_000.0;

/// One bar from 1 to the median, with a whisker from the worst to the best iteration.
struct Stroke {
    scheduler: usize,
    median: f64,
    ends: [f64; 2],
    /// Whether there is a verdict. A bar without one is pale.
    significant: bool,
}

/// Draws the chart of one group. `None` if there is nothing to compare.
pub fn draw(group: &Group) -> Result<Option<String>> {
    let rows: Vec<(&Row, Vec<Stroke>)> = group
        .rows
        .iter()
        .map(|row| (row, strokes(row)))
        .filter(|(_, strokes)| !strokes.is_empty())
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let ends = rows.iter().flat_map(|(_, strokes)| strokes).flat_map(|stroke| stroke.ends);
    let (low, high) =
        ends.fold((0.67, 1.5), |(low, high): (f64, f64), times| (low.min(times), high.max(times)));
    let bars: u32 = rows.iter().map(|(_, strokes)| strokes.len() as u32 * BAR + GAP).sum();
    let picture = svg((SIZE.0, bars + 60), |root| {
        let left = low / 1.15;
        let mut chart = drawn(
            ChartBuilder::on(root)
                .margin(10)
                .margin_right(34)
                .x_label_area_size(30)
                .y_label_area_size(118)
                .build_cartesian_2d((left..high * 1.15).log_scale(), f64::from(bars)..0.0),
        )?;
        drawn(
            chart
                .configure_mesh()
                .label_style(("sans-serif", LETTERS))
                .disable_y_mesh()
                .y_labels(0)
                .x_labels(4)
                .x_label_formatter(&times)
                .max_light_lines(0)
                .draw(),
        )?;
        let mut top = f64::from(GAP) / 2.0;
        for (row, strokes) in &rows {
            let middle = top + f64::from(strokes.len() as u32 * BAR) / 2.0;
            let right = TextStyle::from(("sans-serif", LETTERS).into_font())
                .pos(Pos::new(HPos::Right, VPos::Center));
            let label = Text::new(row.name.clone(), (-8, 0), right);
            drawn(chart.draw_series([EmptyElement::at((left, middle)) + label]))?;
            for stroke in strokes {
                drawn(chart.draw_series([stroke.bar(top)]))?;
                drawn(chart.draw_series([stroke.whisker(top)]))?;
                top += f64::from(BAR);
            }
            top += f64::from(GAP);
        }
        let one = PathElement::new([(1.0, 0.0), (1.0, f64::from(bars))], BLACK.mix(0.6));
        drawn(chart.draw_series([one]))?;
        Ok(())
    })?;
    Ok(Some(picture))
}

impl Stroke {
    fn bar(&self, top: f64) -> Rectangle<(f64, f64)> {
        let strength = if self.significant { 0.9 } else { 0.3 };
        let style = colour(self.scheduler).mix(strength).filled();
        Rectangle::new([(1.0, top + 2.0), (self.median, top + f64::from(BAR) - 2.0)], style)
    }

    fn whisker(&self, top: f64) -> PathElement<(f64, f64)> {
        let height = top + f64::from(BAR) / 2.0;
        PathElement::new(self.ends.map(|end| (end, height)), BLACK.mix(0.7))
    }
}

/// A bar for each scheduler but the first, if both are measured and the first's median is not 0.
fn strokes(row: &Row) -> Vec<Stroke> {
    let base = row.cells.first().map_or(0.0, |cell| cell.sample.median());
    let others = row.cells.iter().enumerate().skip(1);
    let measured = others.filter(|(_, cell)| cell.sample.count() > 0 && base > 0.0);
    measured.map(|(scheduler, cell)| stroke(scheduler, cell, base, row.better)).collect()
}

fn stroke(scheduler: usize, cell: &Cell, base: f64, better: Better) -> Stroke {
    let times = |value: f64| {
        let ratio = value / base;
        let times = if better == Better::Lower { 1.0 / ratio } else { ratio };
        if times.is_nan() { 1.0 } else { times.clamp(1.0 / TIMES_MAX, TIMES_MAX) }
    };
    let (least, most) = (times(cell.sample.least()), times(cell.sample.most()));
    Stroke {
        scheduler,
        median: times(cell.sample.median()),
        ends: [least.min(most), least.max(most)],
        significant: matches!(cell.verdict, Some(Verdict::Better | Verdict::Worse)),
    }
}

fn times(times: &f64) -> String {
    let round = |value: f64| (value * 10.0).round() / 10.0;
    match *times {
        times if (times - 1.0).abs() < 0.01 => "equal".into(),
        times if times > 1.0 => format!("{}x better", round(times)),
        times => format!("{}x worse", round(1.0 / times)),
    }
}
