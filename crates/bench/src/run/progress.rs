// SPDX-License-Identifier: GPL-2.0-only

//! How far it is, and how long it still takes.

use crate::results::Clock;
use pandemonium_statistics::figure::{Figure, Unit};
use std::io::Write;
use std::time::{Duration, Instant};

/// Of each phase, so many figures are shown while it goes on.
const FIGURES: usize = 3;

/// Prints a line. A reader that has gone away is no reason to stop measuring.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Counts phases.
pub struct Progress {
    start: Instant,
    done: usize,
    all: usize,
    /// Virtual time is not the time of whoever waits.
    clock: Clock,
}

impl Progress {
    pub fn new(all: usize, clock: Clock) -> Progress {
        Progress { start: Instant::now(), done: 0, all, clock }
    }

    /// So many phases are through, measured or not.
    pub fn pass(&mut self, phases: usize) {
        self.done += phases;
    }

    /// One more is through: a line for a person.
    pub fn line(&mut self, what: &str, found: &str) -> String {
        self.done += 1;
        let left = self.left(self.start.elapsed());
        let width = self.all.to_string().len();
        format!("[{:width$}/{}] {what}: {found}{left}", self.done, self.all)
    }

    /// As if each phase that is left took as long as each has taken until now.
    fn left(&self, elapsed: Duration) -> String {
        let left = self.all.saturating_sub(self.done);
        if left == 0 {
            return String::new();
        }
        let seconds = elapsed.as_secs_f64() * left as f64 / self.done.max(1) as f64;
        let time = match seconds {
            ..90.0 => format!("{seconds:.0} s"),
            _ => format!("{:.0} min", seconds / 60.0),
        };
        match self.clock {
            Clock::Real => format!(" (about {time} left)"),
            Clock::Exact => format!(" (about {time} of virtual time left)"),
        }
    }
}

/// The first figures in words.
pub fn some(figures: &[Figure]) -> String {
    let words: Vec<String> = figures.iter().take(FIGURES).map(words).collect();
    words.join(", ")
}

fn words(figure: &Figure) -> String {
    let value = match figure.value.abs() {
        100.0.. => format!("{:.0}", figure.value),
        _ => format!("{:.2}", figure.value),
    };
    let unit = match figure.unit {
        Unit::Count | Unit::Ratio => "",
        Unit::Ns => " ns",
        Unit::Us => " us",
        Unit::Ms => " ms",
        Unit::S => " s",
        Unit::Percent => " %",
        Unit::PerSecond => "/s",
        Unit::MegabytesPerSecond => " MB/s",
    };
    format!("{} {value}{unit}", figure.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_in_proportion() {
        let mut progress = Progress::new(12, Clock::Real);
        progress.pass(2);
        assert_eq!(progress.left(Duration::from_secs(4)), " (about 20 s left)");
        assert_eq!(progress.left(Duration::from_secs(60)), " (about 5 min left)");
        progress.pass(9);
        assert!(progress.line("x", "y").ends_with("[12/12] x: y"));
    }
}
