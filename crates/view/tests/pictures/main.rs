// SPDX-License-Identifier: GPL-2.0-only

//! The views of a fixed series of statistics, as text beside this file and as pictures for the
//! documents. `UPDATE=1` writes them anew; a stale one fails.

mod series;
mod svg;

use crossterm::event::KeyCode;
use pandemonium_view::monitor::{self, Monitor};
use pandemonium_view::style::Palette;
use pandemonium_view::tasks::Key;
use pandemonium_view::terminal::View;
use pandemonium_view::top::{self, Top};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const COLUMNS: u16 = 80;
const ROWS: u16 = 24;

fn drawn(view: &impl View) -> (String, Buffer) {
    let mut terminal =
        Terminal::new(TestBackend::new(COLUMNS, ROWS)).expect("memory has no errors");
    terminal.draw(|frame| view.draw(frame)).expect("memory has no errors");
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..COLUMNS).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let rows = (0..ROWS).map(|y| row(y).trim_end().to_owned() + "\n");
    (rows.collect(), buffer)
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Compares with the committed file, or replaces it.
fn check(path: &str, text: &str) {
    let file = in_repository(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(file, text).expect("the file can be written");
        return;
    }
    let committed = fs::read_to_string(file).unwrap_or_default();
    let hint = "if the change is wanted: UPDATE=1 cargo test -p pandemonium_view";
    assert!(committed == text, "{path} is stale; {hint}\n{text}");
}

fn check_both(name: &str, view: &impl View) {
    let (text, buffer) = drawn(view);
    check(&format!("crates/view/tests/pictures/{name}.txt"), &text);
    check(&format!("docs/pictures/{name}.svg"), &svg::picture(&buffer));
}

fn monitor(palette: Palette) -> Monitor {
    let mut view = Monitor::new(Duration::from_secs(1), palette);
    for (second, sample) in (0..).zip(series::samples()) {
        view.news(monitor::News::Sample(Duration::from_secs(second), Box::new(sample)));
    }
    view
}

#[test]
fn the_picture_of_the_monitor_is_current() {
    check_both("monitor", &monitor(Palette::of(None)));
}

#[test]
fn the_picture_of_top_is_current() {
    let mut view = Top::new(Key::Cpu, Palette::of(None));
    view.news(top::News::Tasks(series::tasks()));
    for _ in 0..3 {
        view.key(KeyCode::Down);
    }
    view.key(KeyCode::Char('e'));
    view.news(top::News::Explained(2310, series::explanation()));
    check_both("top", &view);
}

#[test]
fn without_colours_the_text_is_the_same() {
    let (coloured, plain) = (drawn(&monitor(Palette::of(None))), drawn(&monitor(Palette::plain())));
    assert_eq!(coloured.0, plain.0);
    let has_colour = |buffer: &Buffer| {
        buffer.content().iter().any(|cell| cell.fg != ratatui::style::Color::Reset)
    };
    assert!(has_colour(&coloured.1) && !has_colour(&plain.1));
}
