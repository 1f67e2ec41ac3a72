// SPDX-License-Identifier: GPL-2.0-only

//! The last samples, and what happened meanwhile.

use crate::changes::{self, Change, Weight};
use crate::sample::Sample;
use std::collections::VecDeque;
use std::time::Duration;

/// Samples that are kept: more than the widest terminal has columns.
const SAMPLES_MAX: usize = 1024;
/// Events that are kept.
const EVENTS_MAX: usize = 256;

/// What happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time since the view began.
    pub at: Duration,
    /// What happened.
    pub change: Change,
}

/// The last samples, and the last events.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
    events: VecDeque<Event>,
    now: Duration,
}

impl History {
    /// Adds a sample that was taken at `at`.
    pub fn push(&mut self, at: Duration, sample: Sample) {
        let sample = sample.cleaned();
        self.now = at;
        let changes = match self.samples.back() {
            Some(before) => changes::between(before, &sample),
            None if sample.health == "ok" => Vec::new(),
            None => vec![(Weight::Bad, format!("health: {}", sample.health))],
        };
        // The newest is shown first, and of one second the worst.
        changes.into_iter().rev().for_each(|change| self.note(at, change));
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Adds an event.
    pub fn note(&mut self, at: Duration, change: Change) {
        self.now = at;
        if self.events.len() == EVENTS_MAX {
            self.events.pop_back();
        }
        self.events.push_front(Event { at, change });
    }

    /// Time passes without news.
    pub fn tick(&mut self, at: Duration) {
        self.now = at;
    }

    /// The newest sample, and the one before it.
    pub fn last_two(&self) -> Option<(&Sample, Option<&Sample>)> {
        let mut newest = self.samples.iter().rev();
        Some((newest.next()?, newest.next()))
    }

    /// The last `count` samples, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &Sample> {
        self.samples.iter().skip(self.samples.len().saturating_sub(count))
    }

    /// The events, newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// The time of the last news.
    pub fn now(&self) -> Duration {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(regime: &str) -> Sample {
        Sample { health: "ok".into(), regime: regime.into(), ..Sample::default() }
    }

    #[test]
    fn the_oldest_is_dropped_and_the_newest_comes_last() {
        let mut history = History::default();
        assert!(history.last_two().is_none());
        for second in 0..SAMPLES_MAX as u64 + 5 {
            let sample = Sample { kicks: second, ..sample("MIXED") };
            history.push(Duration::from_secs(second), sample);
        }
        let kicks: Vec<u64> = history.last(3).map(|sample| sample.kicks).collect();
        assert_eq!(kicks, [1026, 1027, 1028]);
        assert_eq!(history.last(usize::MAX).count(), SAMPLES_MAX);
        assert_eq!(history.now(), Duration::from_secs(1028));
    }

    #[test]
    fn changes_become_events_newest_first() {
        let mut history = History::default();
        for (second, regime) in ["MIXED", "MIXED", "HEAVY", "LIGHT"].into_iter().enumerate() {
            history.push(Duration::from_secs(second as u64), sample(regime));
        }
        let events: Vec<_> =
            history.events().map(|event| (event.at.as_secs(), event.change.1.as_str())).collect();
        assert_eq!(events, [(3, "load HEAVY -> LIGHT"), (2, "load MIXED -> HEAVY")]);
    }
}
