// SPDX-License-Identifier: GPL-2.0-only

//! Progress of a benchmark: phases done, and the estimated time left.

use crate::results::Clock;
use pandemonium_statistics::figure::{Figure, Unit};
use std::time::{Duration, Instant};

/// Number of figures of a phase that its progress line shows.
const FIGURES: usize = 3;

/// Counts the phases that are done.
pub struct Progress {
    start: Instant,
    done: usize,
    all: usize,
    /// Whether the time left is virtual or real.
    clock: Clock,
}

impl Progress {
    /// A benchmark of `all` phases that starts now.
    pub fn new(all: usize, clock: Clock) -> Progress {
        Progress { start: Instant::now(), done: 0, all, clock }
    }

    /// Counts phases that are not measured because of a failure.
    pub fn skip(&mut self, phases: usize) {
        self.done += phases;
    }

    /// Counts one measured phase and returns its progress line.
    pub fn line(&mut self, what: &str, result: &str) -> String {
        self.done += 1;
        let left = self.left(self.start.elapsed());
        let width = self.all.to_string().len();
        format!("[{:width$}/{}] {what}: {result}{left}", self.done, self.all)
    }

    /// The estimated time left: the remaining phases take as long as the average so far.
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

/// The first figures as text.
pub fn summary(figures: &[Figure]) -> String {
    let figures: Vec<String> = figures.iter().take(FIGURES).map(show).collect();
    figures.join(", ")
}

fn show(figure: &Figure) -> String {
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
    fn the_time_left_is_proportional_to_the_phases_left() {
        let mut progress = Progress::new(12, Clock::Real);
        progress.skip(2);
        assert_eq!(progress.left(Duration::from_secs(4)), " (about 20 s left)");
        assert_eq!(progress.left(Duration::from_secs(60)), " (about 5 min left)");
        progress.skip(9);
        assert!(progress.line("x", "y").ends_with("[12/12] x: y"));
    }
}
