// SPDX-License-Identifier: GPL-2.0-only

//! A log with an entry for each second, for `--dump-log`.

use super::metrics::Metrics;
use super::telemetry;
use pandemonium_engine::time::{Span, Stamp};
use std::collections::VecDeque;
use std::fmt;

/// Entries that the log keeps: two hours and a quarter (PANDEMONIUM 5.4.13).
pub const CAPACITY: usize = 8_192;

/// One second.
#[derive(Clone, Debug)]
struct Entry {
    at: Stamp,
    dispatches: u64,
    idle_pct: u64,
    decisions: u64,
    kicks: u64,
    wakeups: u64,
    requeues: u64,
    p99: Span,
    oldest: Span,
    rescues: u64,
    tag: String,
}

/// The last [`CAPACITY`] seconds.
#[derive(Debug, Default)]
pub struct EventLog {
    entries: VecDeque<Entry>,
}

impl EventLog {
    /// Adds a second. A full log drops its oldest one.
    pub fn push(&mut self, at: Stamp, second: &Metrics) {
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry {
            at,
            dispatches: second.dispatches_per_sec,
            idle_pct: second.idle_pct.round() as u64,
            decisions: second.decisions_per_sec,
            kicks: second.kicks,
            wakeups: second.wakeups_per_sec,
            requeues: second.requeues_per_sec,
            p99: Span::from_micros(second.wake_p99_us),
            oldest: Span::from_micros(second.oldest_wait_us),
            rescues: second.rescues,
            tag: telemetry::tag(second),
        });
    }

    /// The last `count` seconds.
    pub fn tail(&self, count: usize) -> EventLog {
        let skipped = self.entries.len().saturating_sub(count);
        EventLog { entries: self.entries.iter().skip(skipped).cloned().collect() }
    }

    /// The sums and means, of at least two seconds.
    fn summary(&self) -> Option<String> {
        let (first, last) = (self.entries.front()?, self.entries.back()?);
        let count = self.entries.len() as u64;
        if count < 2 {
            return None;
        }
        let sum = |of: fn(&Entry) -> u64| self.entries.iter().map(of).sum::<u64>();
        let dispatches = sum(|entry| entry.dispatches);
        let idle = sum(|entry| entry.dispatches * entry.idle_pct).checked_div(dispatches);
        Some(format!(
            "{count} seconds in {}: {dispatches} dispatches, {} of them by the policy; peak {} a \
             second, mean {}; {}% placed by the backend; {} kicks, {} rescues",
            last.at.since(first.at),
            sum(|entry| entry.decisions),
            self.entries.iter().map(|entry| entry.dispatches).max().unwrap_or(0),
            dispatches / count,
            idle.unwrap_or(0),
            sum(|entry| entry.kicks),
            sum(|entry| entry.rescues),
        ))
    }
}

impl fmt::Display for EventLog {
    /// A table with seconds since its first line, and the summary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.entries.front() else { return f.write_str("the log is empty") };
        writeln!(
            f,
            "{:>8} {:>8} {:>5} {:>8} {:>6} {:>7} {:>7} {:>6} {:>7} {:>6}  STATE",
            "TIME", "D/S", "IDLE%", "SHARED", "KICK", "ENQ-W", "ENQ-R", "P99", "OLDEST", "RESCUE"
        )?;
        for entry in &self.entries {
            let tenths = entry.at.since(first.at).as_nanos() / 100_000_000;
            writeln!(
                f,
                "{:>8} {:>8} {:>5} {:>8} {:>6} {:>7} {:>7} {:>6} {:>7} {:>6}  {}",
                format!("{}.{}", tenths / 10, tenths % 10),
                entry.dispatches,
                entry.idle_pct,
                entry.decisions,
                entry.kicks,
                entry.wakeups,
                entry.requeues,
                entry.p99.to_string(),
                entry.oldest.to_string(),
                entry.rescues,
                entry.tag,
            )?;
        }
        f.write_str(&self.summary().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(dispatches: u64, idle_pct: f64) -> Metrics {
        Metrics {
            policy: "pandemonium".into(),
            regime: "HEAVY".into(),
            longrun: 1,
            dispatches_per_sec: dispatches,
            decisions_per_sec: dispatches / 2,
            idle_pct,
            kicks: 5,
            wake_p99_us: 250,
            oldest_wait_us: 1_500,
            rescues: 1,
            ..Metrics::default()
        }
    }

    fn at(seconds: u64) -> Stamp {
        Stamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_table_counts_time_from_its_first_entry() {
        let mut log = EventLog::default();
        assert_eq!(log.to_string(), "the log is empty");
        log.push(at(70), &second(100, 10.0));
        assert_eq!(log.to_string().lines().count(), 2, "one second has no summary");
        log.push(at(72), &second(300, 50.0));
        assert_eq!(
            log.to_string(),
            [
                "    TIME      D/S IDLE%   SHARED   KICK   ENQ-W   ENQ-R    P99  OLDEST RESCUE  \
                 STATE",
                "     0.0      100    10       50      5       0       0  250us     1ms      1  \
                 HEAVY LONGRUN",
                "     2.0      300    50      150      5       0       0  250us     1ms      1  \
                 HEAVY LONGRUN",
                "2 seconds in 2000ms: 400 dispatches, 200 of them by the policy; peak 300 a \
                 second, mean 200; 40% placed by the backend; 10 kicks, 2 rescues",
            ]
            .join("\n")
        );
    }

    #[test]
    fn a_full_log_drops_its_oldest_second() {
        let mut log = EventLog::default();
        for number in 0..CAPACITY as u64 + 3 {
            log.push(at(number), &second(number, 0.0));
        }
        assert_eq!(log.entries.len(), CAPACITY);
        assert_eq!(log.entries.front().unwrap().dispatches, 3);
        assert_eq!(log.entries.back().unwrap().dispatches, CAPACITY as u64 + 2);
        assert_eq!(log.tail(5).entries.front().unwrap().dispatches, CAPACITY as u64 - 2);
        assert_eq!(log.tail(CAPACITY + 1).entries.len(), CAPACITY);
    }
}
