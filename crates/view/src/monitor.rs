// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler over time: latencies by tier, the way of decisions, load, events, and health.

use crate::canvas::{Canvas, micros, time};
use crate::changes::Weight;
use crate::history::History;
use crate::sample::{Paths, Sample, TIERS, Tail};
use crate::style::Palette;
use crate::terminal::{Next, View};
use crossterm::event::KeyCode;
use ratatui::Frame;
use std::convert::Infallible;
use std::time::Duration;

/// The smallest terminal that shows something.
const COLUMNS_MIN: u16 = 40;
const ROWS_MIN: u16 = 12;
/// The width of the labels left of a curve, and of the numbers right of it.
const LABEL: u16 = 13;
const NUMBERS: u16 = 31;
/// Rows of one curve: in a terminal of 24 rows, and at most.
const CURVE_MIN: u16 = 2;
const CURVE_MAX: u16 = 6;
/// Rows without the curves by tier and the events.
const FIXED: u16 = 14;
/// Events that have room in a terminal of 24 rows.
const EVENTS_MIN: u16 = 4;
/// The stages of a decision, and what each ends with.
const STAGES: [&str; 3] = ["received", "decided", "running"];

/// What happens outside. The time is that since the view began.
#[derive(Clone, Debug)]
pub enum News {
    /// The statistics of an interval.
    Sample(Duration, Box<Sample>),
    /// No scheduler serves statistics; the view waits for one.
    Waiting(Duration),
}

/// The view.
#[derive(Debug)]
pub struct Monitor {
    history: History,
    interval: Duration,
    palette: Palette,
    /// Since when no scheduler serves statistics; `None` while one does.
    waiting: Option<Duration>,
    /// Whether one ever did.
    connected: bool,
}

impl Monitor {
    /// A view without a sample yet. A sample comes every `interval`.
    pub fn new(interval: Duration, palette: Palette) -> Monitor {
        let history = History::default();
        Monitor { history, interval, palette, waiting: None, connected: false }
    }

    fn header(&self, canvas: &mut Canvas, sample: &Sample) {
        let load = match sample.policy.as_str() {
            "pandemonium" => &sample.regime,
            _ => "",
        };
        let mut x = canvas.text(1, 0, &sample.policy, self.palette.strong());
        for word in [load, flag(sample.burst, "BURST"), flag(sample.longrun, "LONGRUN")] {
            if !word.is_empty() {
                x = canvas.text(x + 2, 0, word, self.palette.path(1));
            }
        }
        // The defaults need no words, and another policy has no profiles.
        let profile = match sample.profile.as_str() {
            "" | "auto" => String::new(),
            name => format!(", profile {name}"),
        };
        let about = format!("{} CPUs{profile}", sample.nr_cpus);
        canvas.text(x + 2, 0, &about, self.palette.faint());
        let seconds = self.interval.as_secs_f64();
        canvas.text_right(0, &format!("every {seconds} s "), self.palette.faint());
        let (weight, text) = match (self.waiting, sample.health.as_str()) {
            (Some(since), _) => {
                let ago = self.history.now().saturating_sub(since).as_secs();
                let text = "the scheduler is gone; waiting for one";
                (Weight::Bad, format!("{text} ({ago} s); the figures are the last ones"))
            }
            (None, "ok") => (Weight::Good, "health: ok".into()),
            (None, reason) => (Weight::Bad, format!("health: {reason}")),
        };
        canvas.text(1, 1, &text, self.palette.weight(weight));
    }

    /// From wakeup to running: a curve of the p99 for each tier, and the load below them.
    fn tiers(&self, canvas: &mut Canvas, rows: u16, sample: &Sample, before: Option<&Sample>) {
        canvas.rule(0, "From wakeup to running: p99 by tier, 4 us to 250 ms", self.palette);
        let columns = canvas.width().saturating_sub(LABEL + NUMBERS + 1);
        let decided = before.map(|before| sample.decisions_since(before)).unwrap_or_default();
        let all = decided.iter().sum::<u64>().max(1);
        for (place, (title, name)) in TIERS.into_iter().enumerate() {
            let (y, style) = (1 + place as u16 * rows, self.palette.tier(place));
            canvas.text(1, y, title, style);
            let share = format!("{}% decided", decided[place] * 100 / all);
            canvas.text(1, y + 1, &share, self.palette.faint());
            let p99 = self.history.last(columns.into()).map(|sample| p99_us(sample.waits(name)));
            canvas.part(LABEL, y, columns, rows).curve(p99, style);
            let x = LABEL + columns + 1;
            match sample.waits(name) {
                Some(tail) => {
                    canvas.text(x, y, &tail_text(tail), style);
                    let count = format!("{} wakeups", tail.count);
                    canvas.text(x, y + 1, &count, self.palette.faint());
                }
                None => drop(canvas.text(x, y, "no wakeup", self.palette.faint())),
            }
        }
        self.load(&mut canvas.part(0, 1 + 3 * rows, LABEL + columns, 2), columns);
    }

    /// The load of each interval: its first letter; and whether there was a burst or a long run.
    fn load(&self, canvas: &mut Canvas, columns: u16) {
        canvas.text(1, 0, "load", self.palette.faint());
        canvas.text(1, 1, "burst/long", self.palette.faint());
        let shown: Vec<&Sample> = self.history.last(columns.into()).collect();
        let left = LABEL + columns - shown.len() as u16;
        for (x, sample) in (left..).zip(shown) {
            let first = sample.regime.get(..1).unwrap_or("-");
            canvas.text(x, 0, first, self.palette.path(load_place(&sample.regime)));
            let mark = match (sample.burst, sample.longrun) {
                (0, 0) => "·",
                (0, _) => "L",
                (_, 0) => "B",
                _ => "X",
            };
            canvas.text(x, 1, mark, self.palette.faint());
        }
    }

    /// The longest wait for a decision, over time.
    fn waiting(&self, canvas: &mut Canvas, sample: &Sample) {
        canvas.rule(0, "Longest wait for a decision", self.palette);
        let columns = canvas.width().saturating_sub(2);
        let longest = |sample: &Sample| Some(sample.oldest_wait_us).filter(|us| *us > 0);
        let curve = self.history.last(columns.into()).map(longest);
        canvas.part(1, 1, columns, 2).curve(curve, self.palette.path(1));
        let text = format!(
            "{}, {} wait now, {} rescues",
            time(sample.oldest_wait_us),
            sample.nr_waiting,
            sample.rescues
        );
        canvas.text(1, 3, &text, self.palette.weight(Weight::Neutral));
    }

    fn round_trip(&self, canvas: &mut Canvas, sample: &Sample) {
        canvas.rule(0, "Round trip", self.palette);
        for (y, stage) in (1..).zip(STAGES) {
            canvas.text(1, y, stage, self.palette.faint());
            let text = sample.stage(stage).map_or("none".into(), tail_text);
            canvas.text(10, y, &text, self.palette.weight(Weight::Neutral));
        }
    }

    /// Which way decisions took, and what the scheduler does a second.
    fn ways(&self, canvas: &mut Canvas, sample: &Sample, before: Option<&Sample>) {
        canvas.rule(0, "How tasks got their CPU", self.palette);
        let changed = |of: fn(&Sample) -> u64| difference(of(sample), before.map(of));
        match before.and_then(|before| sample.paths_since(before)) {
            Some(paths) => self.bar(&mut canvas.part(1, 1, u16::MAX, 1), paths),
            None => drop(canvas.text(1, 1, "none did", self.palette.faint())),
        }
        let figures = [
            (
                "dispatches/s",
                sample.dispatches_per_sec.to_string(),
                changed(|it| it.dispatches_per_sec),
            ),
            (
                "decisions/s",
                sample.decisions_per_sec.to_string(),
                changed(|it| it.decisions_per_sec),
            ),
            ("kicks", sample.kicks.to_string(), changed(|it| it.kicks)),
            ("own CPU", format!("{:.1}%", sample.own_cpu_pct), String::new()),
        ];
        let mut x = 1;
        for (name, value, change) in figures {
            x = canvas.text(x, 2, name, self.palette.faint()) + 1;
            let text = format!("{value}{change}");
            x = canvas.text(x, 2, &text, self.palette.weight(Weight::Neutral)) + 2;
        }
    }

    fn bar(&self, canvas: &mut Canvas, paths: Paths) {
        let parts = [
            ("idle path", paths.idle, "█"),
            ("orders", paths.orders, "▓"),
            ("user space", paths.user, "░"),
        ];
        let mut x = 0;
        for (place, (name, percent, _)) in parts.into_iter().enumerate() {
            let text = format!("{name} {percent}%");
            x = canvas.text(x, 0, &text, self.palette.path(place)) + 2;
        }
        let columns = u64::from(canvas.width().saturating_sub(x + 1));
        let mut sum = 0;
        let mut drawn = 0;
        for (place, (_, percent, cell)) in parts.into_iter().enumerate() {
            sum += percent;
            let end = sum * columns / 100;
            let cells = cell.repeat((end - drawn) as usize);
            x = canvas.text(x, 0, &cells, self.palette.path(place));
            drawn = end;
        }
    }

    fn events(&self, canvas: &mut Canvas) {
        canvas.rule(0, "What changed", self.palette);
        let mut y = 1;
        for event in self.history.events() {
            let ago = self.history.now().saturating_sub(event.at).as_secs();
            canvas.text(1, y, &format!("{ago:>5} s ago"), self.palette.faint());
            canvas.text(14, y, &event.change.1, self.palette.weight(event.change.0));
            y += 1;
        }
        if y == 1 {
            canvas.text(1, 1, "nothing yet", self.palette.faint());
        }
    }

    /// There is no sample to show.
    fn nothing(&self, canvas: &mut Canvas) {
        let (title, rest): (&str, &[&str]) = match self.waiting {
            Some(_) => (
                "Waiting for the scheduler",
                &[
                    "None serves statistics here yet. This view begins as soon as one does.",
                    "Start it with `sudo scx_pandemonium_user`.",
                ],
            ),
            None => ("Asking the scheduler", &["The first figures come in a moment."]),
        };
        let seconds = match self.waiting {
            Some(since) => {
                format!(" ({} s)", self.history.now().saturating_sub(since).as_secs())
            }
            None => String::new(),
        };
        let top = canvas.height() / 2 - 2;
        canvas.text(2, top, &format!("{title}{seconds}"), self.palette.strong());
        for (y, line) in (top + 2..).zip(rest) {
            canvas.text(2, y, line, self.palette.weight(Weight::Neutral));
        }
    }
}

impl View for Monitor {
    type News = News;
    type Request = Infallible;

    fn news(&mut self, news: News) {
        match news {
            News::Sample(at, sample) => {
                if self.waiting.take().is_some() && self.connected {
                    self.history.note(at, (Weight::Good, "a scheduler is there again".into()));
                }
                self.connected = true;
                self.history.push(at, *sample);
            }
            News::Waiting(at) => {
                if self.waiting.is_none() && self.connected {
                    self.history.note(at, (Weight::Bad, "the scheduler is gone".into()));
                }
                self.waiting.get_or_insert(at);
                self.history.tick(at);
            }
        }
    }

    fn key(&mut self, key: KeyCode) -> Next<Infallible> {
        match key {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Next::Quit,
            _ => Next::Stay,
        }
    }

    fn draw(&self, frame: &mut Frame) {
        let area = frame.area();
        let mut canvas = Canvas::new(frame.buffer_mut(), area);
        let (width, height) = (canvas.width(), canvas.height());
        if width < COLUMNS_MIN || height < ROWS_MIN {
            let text = format!("this view needs {COLUMNS_MIN} columns and {ROWS_MIN} rows");
            canvas.text(0, 0, &text, self.palette.strong());
            return;
        }
        let end = height - 1;
        canvas.text(1, end, "q quit", self.palette.faint());
        let Some((sample, before)) = self.history.last_two() else {
            return self.nothing(&mut canvas);
        };
        self.header(&mut canvas, sample);
        let rows = curve_rows(height);
        let tiers = 3 * rows + 3;
        self.tiers(&mut canvas.part(0, 2, width, tiers.min(end - 2)), rows, sample, before);
        let y = 2 + tiers;
        let middle = width / 2;
        let room = |y: u16, rows: u16| rows.min(end.saturating_sub(y));
        self.waiting(&mut canvas.part(0, y, middle, room(y, 4)), sample);
        self.round_trip(&mut canvas.part(middle, y, width - middle, room(y, 4)), sample);
        let y = y + 4;
        self.ways(&mut canvas.part(0, y, width, room(y, 3)), sample, before);
        let y = y + 3;
        self.events(&mut canvas.part(0, y, width, room(y, u16::MAX)));
    }
}

/// The rows of a curve in a terminal of this height. Half of what exceeds 24 rows is for events.
fn curve_rows(height: u16) -> u16 {
    let spare = height.saturating_sub(FIXED + 1 + EVENTS_MIN) / 3;
    spare.clamp(CURVE_MIN, CURVE_MAX)
}

fn flag(value: u64, word: &str) -> &str {
    if value == 0 { "" } else { word }
}

/// The place of a load in the palette of ways: light, mixed, heavy.
fn load_place(regime: &str) -> usize {
    match regime {
        "LIGHT" => 0,
        "MIXED" => 1,
        "HEAVY" => 2,
        _ => usize::MAX,
    }
}

fn p99_us(tail: Option<Tail>) -> Option<u64> {
    tail.map(|tail| micros(tail.p99_ns))
}

/// `p50 12us  p99 121us  p99.9 1.0ms`.
fn tail_text(tail: Tail) -> String {
    let [p50, p99, p999] = [tail.p50_ns, tail.p99_ns, tail.p999_ns].map(|ns| time(micros(ns)));
    format!("p50 {p50:<5} p99 {p99:<5} p99.9 {p999}")
}

/// ` (+12)`; empty without a difference.
fn difference(now: u64, before: Option<u64>) -> String {
    match before.map(|before| now as i64 - before as i64) {
        None | Some(0) => String::new(),
        Some(difference) => format!(" ({difference:+})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::drawn;

    fn view() -> Monitor {
        Monitor::new(Duration::from_secs(1), Palette::plain())
    }

    fn sample(health: &str) -> News {
        let sample = Sample { health: health.into(), policy: "fifo".into(), ..Sample::default() };
        News::Sample(Duration::from_secs(9), Box::new(sample))
    }

    #[test]
    fn it_says_that_it_waits_and_what_to_do() {
        let mut view = view();
        assert!(drawn(&view, 80, 24).contains("Asking the scheduler"));
        view.news(News::Waiting(Duration::from_secs(1)));
        view.news(News::Waiting(Duration::from_secs(4)));
        let text = drawn(&view, 80, 24);
        assert!(text.contains("Waiting for the scheduler (3 s)"), "{text}");
        assert!(text.contains("sudo scx_pandemonium_user"), "{text}");
    }

    #[test]
    fn a_scheduler_that_ends_is_told_beside_its_last_figures() {
        let mut view = view();
        view.news(sample("ok"));
        view.news(News::Waiting(Duration::from_secs(10)));
        let text = drawn(&view, 80, 24);
        assert!(text.contains("the scheduler is gone; waiting") && text.contains("fifo"), "{text}");
        view.news(sample("ok"));
        let text = drawn(&view, 80, 24);
        assert!(text.contains("health: ok") && text.contains("there again"), "{text}");
    }

    #[test]
    fn a_chosen_profile_is_named() {
        let header = |profile: &str| {
            let mut view = view();
            let sample = Sample { nr_cpus: 4, profile: profile.into(), ..Sample::default() };
            view.news(News::Sample(Duration::from_secs(9), Box::new(sample)));
            drawn(&view, 80, 24)
        };
        assert!(header("gaming").contains("4 CPUs, profile gaming"));
        assert!(!header("auto").contains("profile"));
    }

    #[test]
    fn every_size_of_terminal_is_drawn() {
        let mut view = view();
        view.news(sample("bad \x1b[2J news"));
        view.news(sample("ok"));
        for width in [1, 2, 39, 40, 41, 79, 80, 300] {
            for height in [1, 2, 11, 12, 13, 20, 23, 24, 25, 90] {
                let text = drawn(&view, width, height);
                assert!(!text.contains('\x1b'));
            }
        }
        assert!(drawn(&view, 39, 24).contains("this view needs 40 columns"));
    }

    #[test]
    fn a_tall_terminal_has_higher_curves_and_more_events() {
        let rows: Vec<u16> = [12, 24, 30, 50, 200].map(curve_rows).to_vec();
        assert_eq!(rows, [2, 2, 3, 6, 6]);
    }

    #[test]
    fn only_q_and_escape_end_it() {
        assert_eq!(view().key(KeyCode::Char('q')), Next::Quit);
        assert_eq!(view().key(KeyCode::Esc), Next::Quit);
        assert_eq!(view().key(KeyCode::Enter), Next::Stay);
    }
}
