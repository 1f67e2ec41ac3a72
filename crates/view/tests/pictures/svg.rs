// SPDX-License-Identifier: GPL-2.0-only

//! A screen as SVG. Blocks and rules are drawn as shapes, because fonts leave gaps between them.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

/// The size of a cell, in pixels.
const WIDTH: u32 = 9;
const HEIGHT: u32 = 18;
const MARGIN: u32 = 8;
const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d8dbe2";

/// The screen as a picture.
pub fn picture(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (columns, rows) = (u32::from(area.width), u32::from(area.height));
    let (width, height) = (columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, \
         monospace\" font-size=\"14\">\n<rect width=\"{width}\" height=\"{height}\" rx=\"6\" \
         fill=\"{BACKGROUND}\"/>\n"
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let first = &buffer[(x, y)];
            let same = |at: &u16| looks_like(&buffer[(*at, y)], first);
            let end = (x..area.width).take_while(same).last().unwrap_or(x) + 1;
            let symbols: Vec<&str> = (x..end).map(|at| buffer[(at, y)].symbol()).collect();
            run(&mut svg, x.into(), y.into(), &symbols, first);
            x = end;
        }
    }
    svg + "</svg>\n"
}

/// Whether both cells can be drawn in one run: alike in style, and both text or the same shape.
fn looks_like(cell: &Cell, first: &Cell) -> bool {
    let style = |cell: &Cell| (cell.fg, cell.modifier);
    let shapes = [cell, first].map(|cell| shape(cell.symbol()));
    style(cell) == style(first) && shapes[0] == shapes[1]
}

fn run(svg: &mut String, x: u32, y: u32, symbols: &[&str], style: &Cell) {
    let count = symbols.len() as u32;
    let (left, top, width) = (MARGIN + x * WIDTH, MARGIN + y * HEIGHT, count * WIDTH);
    let reversed = style.modifier.contains(Modifier::REVERSED);
    let colour = colour(style.fg);
    let colour = if reversed {
        rect(svg, (left, top), (width, HEIGHT), colour, 100);
        BACKGROUND
    } else {
        colour
    };
    match shape(symbols[0]) {
        Some(Shape::Block(eighths)) => {
            let tall = (HEIGHT * eighths).div_ceil(8);
            rect(svg, (left, top + HEIGHT - tall), (width, tall), colour, 100);
        }
        Some(Shape::Shade(percent)) => {
            rect(svg, (left, top), (width, HEIGHT), colour, percent);
        }
        Some(Shape::Rule) => rect(svg, (left, top + HEIGHT / 2), (width, 1), colour, 100),
        None => {
            let text = symbols.concat();
            let trimmed = text.trim_end();
            if trimmed.is_empty() {
                return;
            }
            let bold =
                if style.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
            let length = trimmed.chars().count() as u32 * WIDTH;
            let escaped = trimmed.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let base = top + HEIGHT - 5;
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{base}\" fill=\"{colour}\"{bold} textLength=\"{length}\" \
                 lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">{escaped}</text>"
            );
        }
    }
}

fn rect(svg: &mut String, at: (u32, u32), size: (u32, u32), colour: &str, percent: u32) {
    let opacity = match percent {
        100 => String::new(),
        _ => format!(" opacity=\"0.{percent:02}\""),
    };
    let _ = writeln!(
        svg,
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{colour}\"{opacity}/>",
        at.0, at.1, size.0, size.1
    );
}

#[derive(PartialEq)]
enum Shape {
    /// So many eighths of a cell, from below.
    Block(u32),
    /// A whole cell, so opaque in percent.
    Shade(u32),
    /// A line in the middle.
    Rule,
}

fn shape(symbol: &str) -> Option<Shape> {
    match symbol.chars().next()? {
        block @ '▁'..='█' => Some(Shape::Block(block as u32 - '▁' as u32 + 1)),
        '▓' => Some(Shape::Shade(70)),
        '░' => Some(Shape::Shade(45)),
        '─' => Some(Shape::Rule),
        _ => None,
    }
}

fn colour(colour: Color) -> &'static str {
    match colour {
        Color::Green => "#7fc97f",
        Color::Yellow => "#e5c07b",
        Color::LightRed => "#ff6b6b",
        Color::LightMagenta => "#d6a2ff",
        Color::LightCyan => "#6fd8e0",
        Color::LightBlue => "#7aa8ff",
        Color::DarkGray => "#868b96",
        _ => FOREGROUND,
    }
}
