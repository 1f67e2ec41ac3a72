// SPDX-License-Identifier: GPL-2.0-only

//! The tasks of the scheduler, busiest first: which tier each has, by which rule it gets its CPU,
//! and how long it waits.

use crate::canvas::Canvas;
use crate::changes::Weight;
use crate::plain::{COLUMNS, cells, line};
use crate::style::Palette;
use crate::tasks::{Key, Task, TaskList, tier_place};
use crate::terminal::{Next, View};
use crossterm::event::KeyCode;
use pandemonium_host::print::one_line;
use ratatui::Frame;

/// Rows of an explanation, its title included.
const EXPLAINED_ROWS: u16 = 9;
/// Rows above the tasks: a header and the titles.
const ABOVE: u16 = 2;
/// Letters that a filter has at most.
const FILTER_MAX: usize = 15;
/// A page of the keys PageUp and PageDown.
const PAGE: usize = 10;

/// What happens outside.
#[derive(Clone, Debug)]
pub enum News {
    /// The tasks of an interval.
    Tasks(TaskList),
    /// What the scheduler says of the task of this pid, in lines.
    Explained(i32, Vec<String>),
    /// No scheduler answers; the view waits for one.
    Waiting,
}

/// Which task is to be explained from now on; `None` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explain(pub Option<i32>);

/// The view.
#[derive(Debug)]
pub struct Top {
    palette: Palette,
    list: Option<TaskList>,
    waiting: bool,
    key: Key,
    reversed: bool,
    filter: String,
    /// Whether keys go into the filter.
    is_typing: bool,
    /// The selected task.
    selected: Option<i32>,
    /// The task that is explained, and what is said of it.
    explained: Option<(i32, Vec<String>)>,
}

impl Top {
    /// A view without tasks yet.
    pub fn new(key: Key, palette: Palette) -> Top {
        Top {
            palette,
            list: None,
            waiting: false,
            key,
            reversed: false,
            filter: String::new(),
            is_typing: false,
            selected: None,
            explained: None,
        }
    }

    fn shown(&self) -> Vec<&Task> {
        let list = self.list.as_ref();
        list.map(|list| list.sorted(self.key, self.reversed, &self.filter)).unwrap_or_default()
    }

    /// The place of the selected task in the shown ones. A task that has gone passes the selection
    /// on to the first.
    fn place(&self, shown: &[&Task]) -> usize {
        let selected = |task: &&Task| Some(task.pid) == self.selected;
        shown.iter().position(selected).unwrap_or(0)
    }

    fn move_by(&mut self, step: isize) {
        let shown = self.shown();
        let place = self.place(&shown).saturating_add_signed(step).min(shown.len().max(1) - 1);
        self.selected = shown.get(place).map(|task| task.pid);
    }

    /// The same key again reverses the order.
    fn sort_by(&mut self, key: Key) {
        self.reversed = self.key == key && !self.reversed;
        self.key = key;
    }

    fn type_into_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(letter);
            }
            _ => {}
        }
    }

    fn explain(&mut self) -> Next<Explain> {
        let shown = self.shown();
        let Some(pid) = shown.get(self.place(&shown)).map(|task| task.pid) else {
            return Next::Stay;
        };
        if self.explained.as_ref().is_some_and(|(known, _)| *known == pid) {
            return self.close();
        }
        self.selected = Some(pid);
        self.explained = Some((pid, vec!["asking ...".into()]));
        Next::Ask(Explain(Some(pid)))
    }

    fn close(&mut self) -> Next<Explain> {
        self.explained = None;
        Next::Ask(Explain(None))
    }

    fn header(&self, canvas: &mut Canvas, shown: usize) {
        let (policy, all) = match &self.list {
            Some(list) => (list.policy.as_str(), list.tasks.len()),
            None => ("", 0),
        };
        let x = canvas.text(1, 0, policy, self.palette.strong()) + 2;
        let count = match self.filter.is_empty() {
            true => format!("{all} tasks ran or waited"),
            false => format!("{shown} of {all} tasks"),
        };
        let x = canvas.text(x, 0, &count, self.palette.faint()) + 2;
        let arrow = if self.reversed { " (reversed)" } else { "" };
        let sort = format!("sort: {}{arrow}", self.key.name());
        let x = canvas.text(x, 0, &sort, self.palette.faint()) + 2;
        if self.is_typing || !self.filter.is_empty() {
            let cursor = if self.is_typing { "_" } else { "" };
            let filter = format!("filter: {}{cursor}", one_line(&self.filter));
            canvas.text(x, 0, &filter, self.palette.path(1));
        }
        if self.waiting {
            canvas.text_right(0, "the scheduler is gone ", self.palette.weight(Weight::Bad));
        } else if self.list.as_ref().is_some_and(|list| !list.complete) {
            canvas.text_right(0, "queued ones only ", self.palette.weight(Weight::Bad));
        }
    }

    fn rows(&self, canvas: &mut Canvas, shown: &[&Task]) {
        let place = self.place(shown);
        let room = usize::from(canvas.height());
        // The selected row is kept in sight.
        let first = (place + 1).saturating_sub(room);
        for (y, (at, task)) in (0..).zip(shown.iter().enumerate().skip(first).take(room)) {
            let text = line(&cells(task));
            canvas.text(0, y, &text, self.palette.tier(tier_place(&task.tier)));
            if at == place {
                canvas.highlight(y, self.palette.selected());
            }
        }
    }

    fn explanation(&self, canvas: &mut Canvas) {
        let Some((pid, lines)) = &self.explained else { return };
        canvas.rule(0, &format!("explain {pid}"), self.palette);
        let columns = usize::from(canvas.width().saturating_sub(2));
        let wrapped = lines.iter().flat_map(|line| wrap(&one_line(line), columns));
        for (y, line) in (1..canvas.height()).zip(wrapped.collect::<Vec<_>>()) {
            canvas.text(1, y, &line, self.palette.weight(Weight::Neutral));
        }
    }

    fn nothing(&self, canvas: &mut Canvas) {
        let (title, rest) = match self.waiting {
            true => ("Waiting for the scheduler", "Start it with `sudo scx_pandemonium_user`."),
            false => ("Asking the scheduler", "The first tasks come in a moment."),
        };
        canvas.text(2, 3, title, self.palette.strong());
        canvas.text(2, 5, rest, self.palette.weight(Weight::Neutral));
    }
}

impl View for Top {
    type News = News;
    type Request = Explain;

    fn news(&mut self, news: News) {
        match news {
            News::Tasks(list) => (self.list, self.waiting) = (Some(list.cleaned()), false),
            News::Waiting => self.waiting = true,
            News::Explained(pid, lines) => {
                // The answer to an earlier question comes too late.
                if self.explained.as_ref().is_some_and(|(asked, _)| *asked == pid) {
                    self.explained = Some((pid, lines));
                }
            }
        }
    }

    fn key(&mut self, key: KeyCode) -> Next<Explain> {
        if self.is_typing {
            self.type_into_filter(key);
            return Next::Stay;
        }
        match key {
            KeyCode::Char('q' | 'Q') => return Next::Quit,
            KeyCode::Esc if self.explained.is_some() => return self.close(),
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return Next::Quit,
            KeyCode::Enter | KeyCode::Char('e') => return self.explain(),
            KeyCode::Char('/' | 'f') => self.is_typing = true,
            KeyCode::Char('c') => self.sort_by(Key::Cpu),
            KeyCode::Char('w') => self.sort_by(Key::Wait),
            KeyCode::Char('u') => self.sort_by(Key::Wakeups),
            KeyCode::Char('t') => self.sort_by(Key::Tier),
            KeyCode::Char('n') => self.sort_by(Key::Name),
            KeyCode::Char('p') => self.sort_by(Key::Pid),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-(PAGE as isize)),
            KeyCode::PageDown => self.move_by(PAGE as isize),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            _ => {}
        }
        Next::Stay
    }

    fn draw(&self, frame: &mut Frame) {
        let area = frame.area();
        let mut canvas = Canvas::new(frame.buffer_mut(), area);
        let (width, height) = (canvas.width(), canvas.height());
        if self.list.is_none() {
            self.nothing(&mut canvas);
        } else {
            let shown = self.shown();
            self.header(&mut canvas, shown.len());
            let titles = line(&COLUMNS.map(|(title, _)| title));
            canvas.text(0, 1, &titles, self.palette.strong());
            let explained = if self.explained.is_some() { EXPLAINED_ROWS } else { 0 };
            let below = (explained + 1).min(height.saturating_sub(ABOVE));
            let rows = height.saturating_sub(ABOVE + below);
            self.rows(&mut canvas.part(0, ABOVE, width, rows), &shown);
            self.explanation(&mut canvas.part(0, ABOVE + rows, width, below.saturating_sub(1)));
        }
        let keys = match self.is_typing {
            true => "type a part of a name, a tier, a rule, or a pid; Enter keeps it, Esc drops it",
            false => "c cpu  w wait  u wakeups  t tier  n name  p pid  / filter  e explain",
        };
        let end = height.saturating_sub(1);
        let faint = self.palette.faint();
        let x = canvas.text(1, end, if self.is_typing { "" } else { "q quit  " }, faint);
        canvas.text(x, end, keys, faint);
    }
}

/// The words of a text in lines of at most so many columns. A longer word is cut off.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.chars().take(columns).collect()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::drawn;

    fn list() -> TaskList {
        let task = |pid, name: &str, cpu_pct| Task {
            pid,
            name: name.into(),
            cpu_pct,
            tier: "batch".into(),
            ..Task::default()
        };
        let tasks = vec![task(7, "cc1", 90.0), task(8, "ld", 50.0), task(9, "make", 1.0)];
        TaskList { policy: "pandemonium".into(), complete: true, tasks }
    }

    fn view() -> Top {
        let mut view = Top::new(Key::Cpu, Palette::plain());
        view.news(News::Tasks(list()));
        view
    }

    fn press(view: &mut Top, keys: &str) -> Next<Explain> {
        keys.chars().map(|key| view.key(KeyCode::Char(key))).last().unwrap_or(Next::Stay)
    }

    #[test]
    fn the_selection_stays_with_its_task() {
        let mut view = view();
        press(&mut view, "jj");
        assert_eq!(view.selected, Some(9));
        press(&mut view, "jjjn");
        assert_eq!(view.selected, Some(9), "neither the end nor another order moves it");
        press(&mut view, "k");
        assert_eq!(view.selected, Some(8));
        view.news(News::Tasks(TaskList::default()));
        press(&mut view, "jk");
        assert!(drawn(&view, 80, 24).contains("0 tasks"));
    }

    #[test]
    fn the_same_key_again_reverses_the_order() {
        let mut view = view();
        press(&mut view, "c");
        assert_eq!(view.shown()[0].pid, 9);
        press(&mut view, "c");
        assert_eq!(view.shown()[0].pid, 7);
        press(&mut view, "nr");
        assert_eq!(view.shown()[0].name, "make");
    }

    #[test]
    fn a_filter_is_typed_kept_and_dropped() {
        let mut view = view();
        press(&mut view, "/ma");
        assert!(drawn(&view, 80, 24).contains("1 of 3 tasks  sort: cpu  filter: ma_"));
        assert_eq!(press(&mut view, "q"), Next::Stay, "a letter of the filter");
        view.key(KeyCode::Backspace);
        view.key(KeyCode::Enter);
        assert_eq!(view.shown().len(), 1);
        assert_eq!(view.key(KeyCode::Esc), Next::Stay);
        assert_eq!(view.shown().len(), 3);
        assert_eq!(view.key(KeyCode::Esc), Next::Quit);
    }

    #[test]
    fn an_explanation_is_asked_for_shown_and_closed() {
        let mut view = view();
        assert_eq!(press(&mut view, "je"), Next::Ask(Explain(Some(8))));
        view.news(News::Explained(7, vec!["too late".into()]));
        view.news(News::Explained(8, vec!["ld (pid 8) is Batch: \x1b[2J it computes".into()]));
        let text = drawn(&view, 80, 24);
        assert!(text.contains("explain 8") && text.contains("ld (pid 8) is Batch: ?[2J"), "{text}");
        assert!(!text.contains("too late"));
        assert_eq!(press(&mut view, "e"), Next::Ask(Explain(None)));
        assert!(!drawn(&view, 80, 24).contains("explain 8"));
    }

    #[test]
    fn every_size_of_terminal_is_drawn_with_the_selected_row() {
        let mut view = view();
        press(&mut view, "jje");
        for (width, height) in [(1, 1), (10, 2), (40, 3), (80, 11), (80, 12), (300, 90)] {
            let _ = drawn(&view, width, height);
        }
        assert!(drawn(&view, 80, 13).contains("make"), "one row is left for the selected task");
        let waiting = Top::new(Key::Cpu, Palette::plain());
        assert!(drawn(&waiting, 80, 24).contains("Asking the scheduler"));
    }

    #[test]
    fn words_are_wrapped_and_long_ones_cut_off() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("abcdef", 3), ["abc"]);
    }
}
