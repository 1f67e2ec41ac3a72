// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_follow`: gives the running scheduler the profile that the desktop asks for.
//!
//! Three threads wait and send what they learn to the main one: one for each bus, and one that
//! notices when a scheduler begins to serve and ends. The main thread chooses the profile, and asks
//! the scheduler for it when the choice is another one or the scheduler is. While a scheduler
//! serves, the process only waits, so it spends no power; without one it looks every five seconds.
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
mod scheduler;

use anyhow::{Result, ensure};
use bus::Value;
use choice::{Choice, Desktop, Power};
use clap::Parser;
use cli::Options;
use pandemonium_print::{print, print_error};
use scheduler::{Reach, Scheduler};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// What the threads tell the main one.
enum News {
    Power(Option<Power>),
    Games(Option<u32>),
    Scheduler(Reach),
    /// A bus cannot be watched any more, or never could.
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

/// Follows the desktop as long as there is a bus to follow.
fn run(options: &Options) -> Result<()> {
    let (sender, news) = channel();
    let scheduler = Scheduler::at(options.socket.clone());
    watch(&sender, "the system bus", |tell| {
        bus::watch(bus::system, bus::POWER, &mut |value| tell(News::Power(value.and_then(power))))
    });
    watch(&sender, "the session bus", |tell| {
        bus::watch(bus::session, bus::GAMES, &mut |value| tell(News::Games(value.and_then(games))))
    });
    let awaited = scheduler.clone();
    watch(&sender, "the scheduler", move |tell| {
        awaited.watch(&mut |reach| tell(News::Scheduler(reach)))
    });
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

/// Starts a thread that ends with the process, or says why it ended before.
fn watch(
    sender: &Sender<News>,
    what: &'static str,
    watches: impl FnOnce(&dyn Fn(News)) -> Result<()> + Send + 'static,
) {
    let sender = sender.clone();
    thread::spawn(move || {
        // Sending fails only while the process ends.
        let tell = |news| drop(sender.send(news));
        if let Err(error) = watches(&tell) {
            tell(News::Lost(what, error));
        }
    });
}

/// Chooses the profile at each piece of news. Returns when both buses are lost.
fn follow(mut desktop: Desktop, scheduler: &Scheduler, news: &Receiver<News>) -> Result<()> {
    // What the scheduler that serves was asked for; nothing while none does.
    let (mut serves, mut asked): (bool, Option<Choice>) = (false, None);
    let mut lost = 0;
    while let Ok(news) = news.recv() {
        match news {
            News::Power(power) => desktop.power = power,
            News::Games(games) => desktop.note_games(games),
            News::Scheduler(Reach::Serves) => (serves, asked) = (true, None),
            News::Scheduler(Reach::Ended) => serves = false,
            News::Scheduler(Reach::Denied(why)) => warn(&format!("no profile is chosen: {why}")),
            News::Lost(what, error) => {
                warn(&format!("{what} is not followed: {error:#}"));
                lost += 1;
                ensure!(lost < bus::COUNT, "neither bus can be followed");
            }
        }
        let choice = desktop.choice().filter(|_| serves);
        if let Some(Choice { profile, by }) = choice
            && choice != asked
        {
            asked = choice;
            match scheduler.choose(profile, by) {
                Ok(()) => print(&format!("profile {profile}, by {by}")),
                Err(error) => warn(&format!("no profile {profile}: {error:#}")),
            }
        }
    }
    Ok(())
}

fn warn(text: &str) {
    print_error(&format!("warning: {text}"));
}
