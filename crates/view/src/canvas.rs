// SPDX-License-Identifier: GPL-2.0-only

//! Drawing text, curves and bars into a part of the screen. What does not fit is cut off.

use crate::style::Palette;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The eighths of a cell.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Times of a curve are drawn on a logarithmic scale, the same for each curve: the least height up
/// to 4 us (2^2), the whole height from a quarter of a second (2^18 us) on.
const FIRST: u64 = 2;
const DOUBLINGS: u64 = 16;

/// A part of the screen.
pub struct Canvas<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
}

impl<'b> Canvas<'b> {
    /// The whole of `area`.
    pub fn new(buffer: &'b mut Buffer, area: Rect) -> Canvas<'b> {
        let area = area.intersection(buffer.area);
        Canvas { buffer, area }
    }

    /// A part of this part, from `x` and `y` on.
    pub fn part(&mut self, x: u16, y: u16, width: u16, height: u16) -> Canvas<'_> {
        let wanted = Rect {
            x: self.area.x.saturating_add(x),
            y: self.area.y.saturating_add(y),
            width,
            height,
        };
        Canvas { area: wanted.intersection(self.area), buffer: self.buffer }
    }

    /// Columns.
    pub fn width(&self) -> u16 {
        self.area.width
    }

    /// Rows.
    pub fn height(&self) -> u16 {
        self.area.height
    }

    /// Writes from `x` on into row `y`. Returns the column behind the text.
    pub fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if y >= self.area.height || x >= self.area.width {
            return x;
        }
        let (left, row) = (self.area.x + x, self.area.y + y);
        let room = usize::from(self.area.width - x);
        let (end, _) = self.buffer.set_stringn(left, row, text, room, style);
        end - self.area.x
    }

    /// Writes into row `y`, so that the text ends at the right edge.
    pub fn text_right(&mut self, y: u16, text: &str, style: Style) {
        let columns = text.chars().count().min(usize::from(u16::MAX)) as u16;
        self.text(self.area.width.saturating_sub(columns), y, text, style);
    }

    /// A rule in row `y` with a title.
    pub fn rule(&mut self, y: u16, title: &str, palette: Palette) {
        self.text(0, y, &"─".repeat(self.area.width.into()), palette.faint());
        self.text(1, y, &format!(" {title} "), palette.strong());
    }

    /// Gives all of row `y` a style.
    pub fn highlight(&mut self, y: u16, style: Style) {
        if y < self.area.height {
            let row = Rect { y: self.area.y + y, height: 1, ..self.area };
            self.buffer.set_style(row, style);
        }
    }

    /// A curve of times in microseconds, the newest at the right edge. `None` leaves a gap.
    pub fn curve(&mut self, values: impl Iterator<Item = Option<u64>>, style: Style) {
        let values: Vec<_> = values.collect();
        let columns = usize::from(self.area.width);
        let shown = &values[values.len().saturating_sub(columns)..];
        let left = columns - shown.len();
        for (column, value) in (left..).zip(shown) {
            let Some(us) = value else { continue };
            let full = u64::from(self.area.height) * 8;
            let mut eighths = height_of(*us, full);
            for row in (0..self.area.height).rev() {
                let here = eighths.min(8);
                self.text(column as u16, row, EIGHTHS[here as usize], style);
                eighths -= here;
            }
        }
    }
}

/// The height of a time, out of `full` steps. What is there at all has one.
fn height_of(us: u64, full: u64) -> u64 {
    let us = us.clamp(1 << FIRST, 1 << 40);
    let octave = u64::from(us.ilog2());
    // Sixteenths of a doubling: the position between two powers of two is taken as linear.
    let sixteenths = (octave - FIRST) * 16 + ((us * 16) >> octave) - 16;
    (sixteenths * full / (DOUBLINGS * 16)).clamp(1, full.max(1))
}

/// A time with three digits at most, and its unit.
pub fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..10_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        10_000..1_000_000 => format!("{}ms", us / 1_000),
        1_000_000..10_000_000 => format!("{}.{}s", us / 1_000_000, us % 1_000_000 / 100_000),
        _ => format!("{}s", us / 1_000_000),
    }
}

/// Nanoseconds as microseconds, rounded up: a wait that was there is never zero.
pub fn micros(ns: u64) -> u64 {
    ns.div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_few_digits() {
        let times = [0, 999, 1_000, 9_999, 10_000, 999_999, 1_500_000, 12_000_000].map(time);
        assert_eq!(times, ["0us", "999us", "1.0ms", "9.9ms", "10ms", "999ms", "1.5s", "12s"]);
    }

    #[test]
    fn longer_times_are_higher_up_to_a_quarter_of_a_second() {
        let heights: Vec<u64> = (0..24).map(|power| height_of(1 << power, 40)).collect();
        assert!(heights.is_sorted(), "{heights:?}");
        assert_eq!(
            (height_of(0, 40), height_of(1 << 18, 40), height_of(u64::MAX / 16, 40)),
            (1, 40, 40)
        );
        assert!(height_of(96, 40) > height_of(64, 40), "a half more is seen");
    }

    #[test]
    fn what_does_not_fit_is_cut_off() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 5, 2));
        let mut canvas = Canvas::new(&mut buffer, Rect::new(0, 0, 90, 90));
        canvas.text(3, 1, "long", Style::new());
        canvas.text(0, 7, "below", Style::new());
        canvas
            .part(4, 0, 9, 9)
            .curve([Some(1), None, Some(u64::MAX / 16)].into_iter(), Style::new());
        canvas.part(9, 9, 9, 9).text(0, 0, "outside", Style::new());
        assert_eq!(buffer, Buffer::with_lines(["    █", "   l█"]));
    }
}
