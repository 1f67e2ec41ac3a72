// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_follow`: gives the running scheduler the profile that the desktop asks for.
//!
//! Three threads wait and send what they learn to the main one: one for each bus, and one that
//! notices when a scheduler begins to serve and ends. The main thread chooses the profile, and asks
//! the scheduler for it when the choice is another one or the scheduler is. While a scheduler
//! serves, the process only waits, so it spends no power; without one it looks every five seconds.
//! A bus that is lost says nothing any more, and is connected to again, after longer and longer
//! pauses; so is a scheduler asked again that did not answer.
//!
//! ```
//! use pandemonium_follow::choice::{Choice, Desktop, Power};
//!
//! let desktop = Desktop { power: Some(Power::Saver), games: Some(1), ..Desktop::default() };
//! assert_eq!(desktop.choice(), Some(Choice { profile: "gaming", by: "GameMode" }));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod bus;
pub mod choice;
mod cli;
mod pauses;
mod scheduler;

use anyhow::{Result, bail};
use bus::{Find, Property, Value};
use choice::{Choice, Desktop, Power};
use clap::Parser;
use cli::Options;
use pandemonium_print::{print, print_error};
use pauses::Pauses;
use scheduler::{Reach, Scheduler};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A connection to a bus that lasted for so long is a good one: when it is lost, the next attempt
/// comes soon.
const LASTING: Duration = Duration::from_secs(60);
/// As good as for ever.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// What the threads tell the main one.
enum News {
    Power(Option<Power>),
    Games(Option<u32>),
    Scheduler(Reach),
    /// A bus cannot be watched now, and could before or was not tried yet.
    Lost(&'static str, anyhow::Error),
}

/// Executes the command line.
pub fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Follows the desktop for ever.
fn run(options: &Options) -> Result<()> {
    let (sender, news) = channel();
    let scheduler = Scheduler::at(options.socket.clone());
    let awaited = scheduler.clone();
    // Sending fails only while the process ends.
    let of_scheduler = sender.clone();
    thread::spawn(move || {
        awaited.watch(&mut |reach| drop(of_scheduler.send(News::Scheduler(reach))))
    });
    follow_bus(&sender, "the system bus", bus::system, bus::POWER, |value| {
        News::Power(value.and_then(power))
    });
    follow_bus(&sender, "the session bus", bus::session, bus::GAMES, |value| {
        News::Games(value.and_then(games))
    });
    drop(sender);
    follow(Desktop::of(options.performance), &scheduler, &news)
}

fn power(value: Value) -> Option<Power> {
    match value {
        Value::Text(name) => Power::named(&name),
        Value::Count(_) => None,
    }
}

fn games(value: Value) -> Option<u32> {
    match value {
        Value::Count(count) => Some(count),
        Value::Text(_) => None,
    }
}

/// Starts a thread that ends with the process. It connects to the bus again whenever that is lost,
/// and tells once why. What a lost bus said last is not true any more.
fn follow_bus(
    sender: &Sender<News>,
    what: &'static str,
    find: Find,
    properties: &'static [Property],
    news: fn(Option<Value>) -> News,
) {
    let sender = sender.clone();
    thread::spawn(move || {
        // Sending fails only while the process ends.
        let tell = |news| drop(sender.send(news));
        let (mut pauses, mut is_news) = (Pauses::default(), true);
        loop {
            let begun = Instant::now();
            let Err(error) = bus::watch(find, properties, &mut |value| {
                is_news = true;
                tell(news(value));
            });
            tell(news(None));
            if std::mem::take(&mut is_news) {
                tell(News::Lost(what, error));
            }
            if begun.elapsed() >= LASTING {
                pauses = Pauses::default();
            }
            thread::sleep(pauses.take());
        }
    });
}

/// Chooses the profile at each piece of news.
fn follow(mut desktop: Desktop, scheduler: &Scheduler, news: &Receiver<News>) -> Result<()> {
    // What the scheduler that serves was asked for; nothing while none does.
    let (mut serves, mut asked): (bool, Option<Choice>) = (false, None);
    // Since when it does not answer: the pauses until it is asked again.
    let mut silent: Option<Pauses> = None;
    loop {
        let patience = silent.as_mut().map_or(LONG, Pauses::take);
        match news.recv_timeout(patience) {
            Ok(News::Power(power)) => desktop.power = power,
            Ok(News::Games(games)) => desktop.note_games(games),
            Ok(News::Scheduler(Reach::Serves)) => (serves, asked, silent) = (true, None, None),
            Ok(News::Scheduler(Reach::Ended)) => (serves, silent) = (false, None),
            Ok(News::Scheduler(Reach::Denied(why))) => {
                warn(&format!("no profile is chosen: {why}"));
            }
            Ok(News::Lost(what, error)) => {
                warn(&format!("{what} cannot be followed, and is tried again: {error:#}"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("nothing is followed any more"),
        }
        let Some(choice) = desktop.choice().filter(|_| serves) else { continue };
        if silent.is_none() && asked == Some(choice) {
            continue;
        }
        let Choice { profile, by } = choice;
        asked = Some(choice);
        match scheduler.choose(profile, by) {
            Ok(None) => {
                print(&format!("profile {profile}, by {by}"));
                silent = None;
            }
            Ok(Some(refusal)) => {
                warn(&format!("no profile {profile}: {refusal}"));
                silent = None;
            }
            Err(error) if silent.is_none() => {
                warn(&format!("no profile {profile} yet, it is tried again: {error:#}"));
                silent = Some(Pauses::default());
            }
            Err(_) => {}
        }
    }
}

fn warn(text: &str) {
    print_error(&format!("warning: {text}"));
}
