// SPDX-License-Identifier: GPL-2.0-only

//! `pandemonium_follow`: changes the profile of the running scheduler along with the desktop.
//!
//! ```text
//! power-profiles-daemon, tuned (system bus) --.
//! GameMode (session bus) ---------------------+--> Desktop --> wish --> scheduler's socket
//! ```
//!
//! It is a program of its own, so that no process with privileges speaks D-Bus. Whether it may
//! change the profile is decided by the mode of the scheduler's socket.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bus;
mod desktop;
mod scheduler;

use bus::{Bus, GAMES, POWER, Watch};
use clap::Parser;
use desktop::{Desktop, Mapping, Wish};
use scheduler::{Refusal, Scheduler};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use zbus::zvariant::OwnedValue;

/// How often to look whether the scheduler was started anew.
const AGAIN: Duration = Duration::from_secs(5);
/// The exit code of other programs of this project for a missing privilege.
const DENIED: u8 = 3;

/// Changes the profile of the running scheduler along with the desktop: the power profile of
/// power-profiles-daemon or tuned, and GameMode.
///
/// Saving power wins over a game. A profile that the user chooses by `tune` stays until the desktop
/// changes. The statistics say by what a profile was chosen.
#[derive(Parser)]
#[command(name = "pandemonium_follow", version, max_term_width = 100)]
struct Arguments {
    /// The profile while GameMode knows a game
    #[arg(long, value_name = "NAME", default_value = "gaming")]
    game: String,
    /// The profile with the power profile power-saver
    #[arg(long, value_name = "NAME", default_value = "powersave")]
    power_saver: String,
    /// The profile with the power profile balanced
    #[arg(long, value_name = "NAME", default_value = "auto")]
    balanced: String,
    /// The profile with the power profile performance
    #[arg(long, value_name = "NAME", default_value = "auto")]
    performance: String,
    /// Print the profile for the desktop as it is now, and end; the scheduler is not asked
    #[arg(long)]
    once: bool,
    /// The scheduler's socket
    #[arg(long, value_name = "PATH", default_value = "/var/run/scx/root/stats")]
    socket: PathBuf,
}

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mapping = Mapping {
        game: arguments.game,
        power_saver: arguments.power_saver,
        balanced: arguments.balanced,
        performance: arguments.performance,
    };
    let power = watch(Bus::System, &POWER, "power profiles are not followed");
    let games = watch(Bus::Session, &GAMES, "games are not followed");
    let desktop = Desktop {
        power: power.as_ref().and_then(Watch::value).and_then(text),
        games: games.as_ref().and_then(Watch::value).and_then(number),
    };
    let watches: Vec<Watch> = power.into_iter().chain(games).collect();
    if watches.is_empty() {
        say("error: neither bus can be reached, so there is nothing to follow");
        return ExitCode::FAILURE;
    }
    if arguments.once {
        let Wish { profile, by } = desktop.wish(&mapping);
        let _ = writeln!(std::io::stdout(), "{profile} (by {})", printable(&by));
        return ExitCode::SUCCESS;
    }
    Follower {
        mapping,
        desktop,
        scheduler: Scheduler::at(arguments.socket),
        told: None,
        said: None,
    }
    .run(watches)
}

/// Connects to a bus, or says why that is not possible.
fn watch(bus: Bus, properties: &'static [bus::Property], loss: &str) -> Option<Watch> {
    Watch::start(bus, properties)
        .inspect_err(|error| {
            let bus = match bus {
                Bus::System => "system",
                Bus::Session => "session",
            };
            say(&format!("warning: the {bus} bus cannot be reached, so {loss}: {error}"));
        })
        .ok()
}

/// What it follows, and what it has told the scheduler.
struct Follower {
    mapping: Mapping,
    desktop: Desktop,
    scheduler: Scheduler,
    /// The wish that was granted last.
    told: Option<Wish>,
    /// The last refusal that was printed.
    said: Option<String>,
}

impl Follower {
    fn run(mut self, watches: Vec<Watch>) -> ExitCode {
        let (send, receive) = channel();
        let mut open = watches.len();
        watches.into_iter().for_each(|watch| watch.run(send.clone()));
        drop(send);
        loop {
            if let Some(denied) = self.tell() {
                return denied;
            }
            match receive.recv_timeout(AGAIN) {
                Ok((Bus::System, Some(value))) => self.desktop.power = value.and_then(text),
                Ok((Bus::Session, Some(value))) => self.desktop.games = value.and_then(number),
                Ok((bus, None)) => {
                    open -= 1;
                    match bus {
                        Bus::System => self.desktop.power = None,
                        Bus::Session => self.desktop.games = None,
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.scheduler.still_runs() => {}
                Err(RecvTimeoutError::Timeout) => self.told = None,
                Err(RecvTimeoutError::Disconnected) => open = 0,
            }
            if open == 0 {
                say("error: the buses have ended");
                return ExitCode::FAILURE;
            }
        }
    }

    /// Asks for the profile, if it is another one than the last. Returns the exit code if this user
    /// may not ask.
    fn tell(&mut self) -> Option<ExitCode> {
        let wish = self.desktop.wish(&self.mapping);
        let is_first = self.told.is_none() && self.desktop.is_unknown();
        // Without anything to follow, the profile of the start stays.
        if is_first || self.told.as_ref() == Some(&wish) {
            return None;
        }
        let sentence = match self.scheduler.ask(&wish) {
            Ok(()) => {
                self.told = Some(wish.clone());
                format!("profile {} (by {})", wish.profile, wish.by)
            }
            Err(Refusal::Denied) => {
                say("error: this user may not write to the scheduler's socket: start `follow` as \
                     the user that runs the scheduler");
                return Some(ExitCode::from(DENIED));
            }
            Err(Refusal::Absent) => "no scheduler runs here: waiting for one".into(),
            Err(Refusal::Said(sentence)) => {
                // The same wish would be refused again.
                self.told = Some(wish);
                format!("warning: {sentence}")
            }
        };
        if self.said.as_ref() != Some(&sentence) {
            say(&sentence);
            self.said = Some(sentence);
        }
        None
    }
}

fn text(value: OwnedValue) -> Option<String> {
    String::try_from(value).ok()
}

fn number(value: OwnedValue) -> Option<i32> {
    i32::try_from(value).ok()
}

/// Prints a line to the standard error. A closed pipe is not an error.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// The text with `?` for each control character: it may come from another program.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}
