// SPDX-License-Identifier: GPL-2.0-only

//! Charts as SVG inside a page, drawn by plotters. The page's style sheet replaces black, so that a
//! dark page has white lines; the other colours are visible on both.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

/// Width and height in pixels: small enough that the text is legible on a phone.
pub const SIZE: (u32, u32) = (560, 340);
/// Font size, in the same pixels.
pub const LETTERS: i32 = 14;
/// Number of nines at which curves end: percentiles beyond 99.999 % are not drawn.
const NINES_MAX: f64 = 5.0;

/// Smaller steps are invisible, so they are left out: a 400th of the width, and 1 % of the height.
const STEPS: f64 = 400.0;
const STEP_TIMES: f64 = 1.01;

/// What charts are drawn on.
pub type Area<'svg> = DrawingArea<SVGBackend<'svg>, Shift>;

/// A distribution to draw as one curve.
pub struct Line {
    /// Upper edge in nanoseconds and count of each bucket, edges ascending.
    pub buckets: Vec<(u64, u64)>,
}

/// Turns an error of plotters, which borrows from the drawing, into one that does not.
pub fn drawn<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> Result<T> {
    result.map_err(|error| anyhow!("cannot draw: {error}"))
}

/// Draws on an empty picture of this width and height.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Area) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root)?;
        drawn(root.present())?;
    }
    Ok(svg)
}

/// A chart of the usual size, before it has scales. `below` is the height of what is written below
/// it, in pixels.
fn chart<'root, 'svg>(
    root: &'root Area<'svg>,
    below: u32,
) -> ChartBuilder<'root, 'svg, SVGBackend<'svg>> {
    let mut chart = ChartBuilder::on(root);
    chart.margin(10).margin_right(24).x_label_area_size(below).y_label_area_size(66);
    chart
}

/// The colour of the scheduler of this number, the same in every chart.
pub fn colour(number: usize) -> RGBColor {
    const COLOURS: [u32; 9] =
        [0x7f8c9a, 0x3b82e0, 0xe8833a, 0x3fa34d, 0xd64550, 0x9068cf, 0x1fa3a3, 0xd06aa8, 0xa0785a];
    let [_, red, green, blue] = COLOURS[number % COLOURS.len()].to_be_bytes();
    RGBColor(red, green, blue)
}

/// A square in the colour of this scheduler, for legends.
pub fn swatch(number: usize) -> String {
    let RGBColor(red, green, blue) = colour(number);
    format!("<i style=\"background:#{red:02x}{green:02x}{blue:02x}\"></i>")
}

/// Draws percentile curves: duration over percentile. Both scales are logarithmic, so that 99 % and
/// 99.9 % are as far apart as 90 % and 99 %.
pub fn curves(lines: &[Line]) -> Result<String> {
    let edges = || lines.iter().flat_map(|line| &line.buckets).map(|(edge, _)| *edge as f64);
    let low = edges().fold(f64::MAX, f64::min).clamp(1.0, 1e15) / 1.5;
    let high = edges().fold(0.0, f64::max).max(low * 10.0) * 1.5;
    let nines = lines.iter().map(|line| line.nines()).fold(1.0, f64::max);
    svg(SIZE, |root| {
        let scales = (0.0..nines.ceil(), (low..high).log_scale());
        let mut chart = drawn(chart(root, 30).build_cartesian_2d(scales.0, scales.1))?;
        drawn(
            chart
                .configure_mesh()
                .label_style(("sans-serif", LETTERS))
                .x_labels(nines.ceil() as usize + 1)
                .x_label_formatter(&percentile)
                .y_label_formatter(&duration)
                .y_labels(8)
                .max_light_lines(0)
                .draw(),
        )?;
        for (number, line) in lines.iter().enumerate().filter(|(_, it)| !it.buckets.is_empty()) {
            let style = colour(number).stroke_width(2);
            drawn(chart.draw_series(LineSeries::new(line.points(), style)))?;
        }
        Ok(())
    })
}

/// One dot of [`dots`].
pub struct Dot {
    /// To the right and upwards. Infinite ones are drawn at the edge.
    pub at: (f64, f64),
    /// What is written beside it.
    pub name: Option<String>,
}

/// A scale of [`dots`].
pub struct Scale {
    /// What it is of.
    pub title: &'static str,
    /// It covers at least these values, and all of the dots within `limits`.
    pub covers: (f64, f64),
    /// Dots beyond are drawn at the edge.
    pub limits: (f64, f64),
}

impl Scale {
    fn range(&self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let values = values.filter(|value| value.is_finite());
        let low = values.clone().fold(self.covers.0, f64::min);
        let high = values.fold(self.covers.1, f64::max);
        (low.max(self.limits.0), high.min(self.limits.1))
    }
}

/// Draws ratios as dots. The scale to the right is logarithmic, and a line marks its 1.
pub fn dots(dots: &[Dot], right: &Scale, up: &Scale) -> Result<String> {
    let (low, high) = right.range(dots.iter().map(|dot| dot.at.0));
    let (low, high) = (low / 1.3, high * 1.3);
    let (bottom, top) = up.range(dots.iter().map(|dot| dot.at.1));
    let place = |dot: &Dot| (dot.at.0.clamp(low, high), dot.at.1.clamp(bottom, top));
    svg(SIZE, |root| {
        let scales = ((low..high).log_scale(), bottom..top);
        let mut chart = drawn(chart(root, 44).build_cartesian_2d(scales.0, scales.1))?;
        drawn(
            chart
                .configure_mesh()
                .label_style(("sans-serif", LETTERS))
                .x_desc(right.title)
                .y_desc(up.title)
                .x_label_formatter(&|ratio| format!("{ratio:.2}"))
                .y_label_formatter(&|ratio| format!("{ratio:.2}"))
                .max_light_lines(0)
                .draw(),
        )?;
        let one = LineSeries::new([(1.0, bottom), (1.0, top)], colour(0).stroke_width(1));
        drawn(chart.draw_series(one))?;
        let circles =
            dots.iter().map(|dot| Circle::new(place(dot), 4, colour(1).mix(0.7).filled()));
        drawn(chart.draw_series(circles))?;
        let names = dots.iter().filter_map(|dot| {
            let style = ("sans-serif", LETTERS).into_text_style(root);
            let name = Text::new(dot.name.clone()?, (-50, -18), style);
            Some(EmptyElement::at(place(dot)) + name)
        });
        drawn(chart.draw_series(names))?;
        Ok(())
    })
}

impl Line {
    fn total(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The number of nines of the highest percentile that this many durations can resolve.
    fn nines(&self) -> f64 {
        (self.total().max(1) as f64).log10().min(NINES_MAX)
    }

    /// The points of a step curve: each bucket's edge holds over the percentiles that its durations
    /// cover. Steps too small to be visible are left out.
    fn points(&self) -> Vec<(f64, f64)> {
        let (total, nines) = (self.total() as f64, self.nines());
        let mut seen: u64 = 0;
        let mut points = Vec::new();
        for (edge, count) in &self.buckets {
            for more in [0, *count] {
                seen = seen.saturating_add(more);
                let rest = (1.0 - seen as f64 / total).max(0.0);
                let point = ((-rest.log10()).min(nines), (*edge as f64).max(1.0));
                let seen = |last: &(f64, f64)| {
                    point.0 - last.0 > nines / STEPS || point.1 / last.1 > STEP_TIMES
                };
                if points.last().is_none_or(seen) {
                    points.push(point);
                }
            }
        }
        let last = self.buckets.last().map(|(edge, _)| (nines, (*edge as f64).max(1.0)));
        points.extend(last);
        points
    }
}

/// A number of nines as a percentage.
fn percentile(nines: &f64) -> String {
    match nines.round() {
        0.0 => "0 %".into(),
        1.0 => "90 %".into(),
        nines => format!("{:.*} %", nines as usize - 2, 100.0 - 100.0 * 0.1f64.powf(nines)),
    }
}

/// A duration in the largest unit that keeps it above 1.
fn duration(ns: &f64) -> String {
    let (value, unit) = match *ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", (value * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_passes_through_the_percentiles() {
        let line = Line { buckets: vec![(1_000, 90), (5_000, 9), (70_000, 1)] };
        let near =
            |one: (f64, f64), other: (f64, f64)| (one.0 - other.0).abs() < 1e-9 && one.1 == other.1;
        let expected = [(0.0, 1e3), (1.0, 1e3), (1.0, 5e3), (2.0, 5e3), (2.0, 7e4), (2.0, 7e4)];
        let points = line.points();
        assert!(points.iter().zip(expected).all(|(one, other)| near(*one, other)), "{points:?}");
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0].map(|nines| percentile(&nines)),
            ["0 %", "90 %", "99 %", "99.9 %"]
        );
        assert_eq!(
            [7.0, 50e3, 1.5e6, 2e9].map(|ns| duration(&ns)),
            ["7 ns", "50 us", "1.5 ms", "2 s"]
        );
    }

    #[test]
    fn any_distribution_can_be_drawn() {
        let odd = [vec![], vec![(0, 1)], vec![(u64::MAX, u64::MAX); 2], vec![(5, 0)]];
        for buckets in odd {
            let line = || Line { buckets: buckets.clone() };
            let svg = curves(&[line(), line()]).unwrap();
            let picture = roxmltree::Document::parse(&svg).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{buckets:?}: {svg}");
            assert!(picture.root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg")));
        }
    }
}
