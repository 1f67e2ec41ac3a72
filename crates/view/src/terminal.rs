// SPDX-License-Identifier: GPL-2.0-only

//! The loop around a view: keys, news and resizes come in through one channel, and the terminal is
//! as before when it ends, however it ends.

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::backend::TestBackend;
use ratatui::{Frame, Terminal};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A model that takes news and keys, and draws itself.
pub trait View {
    /// What happens outside.
    type News: Send + 'static;
    /// What the view asks for.
    type Request;

    /// Takes news.
    fn news(&mut self, news: Self::News);

    /// Takes a key. Ctrl-C never arrives here: it ends the loop.
    fn key(&mut self, key: KeyCode) -> Next<Self::Request>;

    /// Draws the model.
    fn draw(&self, frame: &mut Frame);
}

/// The text that the view draws into a terminal of this size.
pub fn drawn(view: &impl View, width: u16, height: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| view.draw(frame));
    terminal.backend().to_string()
}

/// What follows from a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<R> {
    /// The loop goes on.
    Stay,
    /// The loop goes on, and the program gets this request.
    Ask(R),
    /// The loop ends.
    Quit,
}

/// What the loop reacts to.
#[derive(Debug)]
pub enum Input<N> {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// Something happened outside.
    News(N),
    /// The program is to end.
    End,
}

/// The way into a loop.
#[derive(Debug)]
pub struct Inputs<N>(Sender<Input<N>>);

impl<N> Clone for Inputs<N> {
    fn clone(&self) -> Self {
        Inputs(self.0.clone())
    }
}

impl<N: Send + 'static> Inputs<N> {
    /// The way in, and the end of it that [`run`] takes.
    pub fn new() -> (Inputs<N>, Receiver<Input<N>>) {
        let (sender, receiver) = channel();
        (Inputs(sender), receiver)
    }

    /// Passes news on. Returns whether the loop still runs.
    pub fn news(&self, news: N) -> bool {
        self.0.send(Input::News(news)).is_ok()
    }

    /// Ends the loop.
    pub fn end(&self) {
        let _ = self.0.send(Input::End);
    }

    /// Starts a thread that passes news on. When it ends, even by a panic, the loop ends.
    pub fn spawn(&self, gather: impl FnOnce(&Inputs<N>) + Send + 'static) {
        let ends = EndsLoop(self.clone());
        thread::spawn(move || gather(&ends.0));
    }
}

struct EndsLoop<N: Send + 'static>(Inputs<N>);

impl<N: Send + 'static> Drop for EndsLoop<N> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Shows the view until `q`, Ctrl-C, or [`Inputs::end`]. `ask` gets what the view asks for.
///
/// # Errors
///
/// If the terminal cannot be read, written or set up.
pub fn run<V: View>(
    view: &mut V,
    inputs: &Inputs<V::News>,
    received: &Receiver<Input<V::News>>,
    mut ask: impl FnMut(V::Request),
) -> io::Result<()> {
    // Before: a setup that fails may have changed a part of the terminal.
    let _restored = Restored;
    // This puts the terminal back before a panic is reported.
    let mut terminal = ratatui::try_init()?;
    let sender = inputs.0.clone();
    thread::spawn(move || read_keys(&sender));
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        let Ok(first) = received.recv() else { return Ok(()) };
        // What has come meanwhile is drawn together.
        let mut next = Some(first);
        while let Some(input) = next {
            match react(view, input) {
                Next::Stay => {}
                Next::Ask(request) => ask(request),
                Next::Quit => return Ok(()),
            }
            next = received.try_recv().ok();
        }
    }
}

fn react<V: View>(view: &mut V, input: Input<V::News>) -> Next<V::Request> {
    match input {
        Input::News(news) => view.news(news),
        Input::Key(key) if is_interrupt(&key) => return Next::Quit,
        Input::Key(key) if key.kind != KeyEventKind::Release => return view.key(key.code),
        Input::Key(_) | Input::Resized => {}
        Input::End => return Next::Quit,
    }
    Next::Stay
}

fn is_interrupt(key: &KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

/// Reads until the loop or the terminal is gone.
fn read_keys<N>(sender: &Sender<Input<N>>) {
    loop {
        let input = match event::read() {
            Ok(Event::Key(key)) => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(_) => Input::End,
        };
        let is_last = matches!(input, Input::End);
        if sender.send(input).is_err() || is_last {
            return;
        }
    }
}

/// Puts the terminal back when it is dropped.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Keys(Vec<KeyCode>, u32);

    impl View for Keys {
        type News = u32;
        type Request = u32;
        fn news(&mut self, news: u32) {
            self.1 += news;
        }
        fn key(&mut self, key: KeyCode) -> Next<u32> {
            self.0.push(key);
            if key == KeyCode::Char('q') { Next::Quit } else { Next::Ask(self.1) }
        }
        fn draw(&self, _: &mut Frame) {}
    }

    #[test]
    fn ctrl_c_ends_every_view_and_a_released_key_is_none() {
        let mut view = Keys(Vec::new(), 0);
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        let interrupt = key(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(react(&mut view, Input::Key(interrupt)), Next::Quit);
        let released =
            KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(react(&mut view, Input::Key(released)), Next::Stay);
        assert!(view.0.is_empty());
        assert_eq!(react(&mut view, Input::News(3)), Next::Stay);
        let c = key(KeyCode::Char('c'), KeyModifiers::NONE);
        assert_eq!(react(&mut view, Input::Key(c)), Next::Ask(3));
        assert_eq!(react(&mut view, Input::End), Next::Quit);
    }

    #[test]
    fn a_gatherer_that_panics_ends_the_loop() {
        let (inputs, received) = Inputs::<u32>::new();
        inputs.spawn(|inputs| {
            inputs.news(1);
            panic!("this panic is part of the test");
        });
        assert!(matches!(received.recv(), Ok(Input::News(1))));
        assert!(matches!(received.recv(), Ok(Input::End)));
    }
}
