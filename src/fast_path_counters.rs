// SPDX-License-Identifier: GPL-2.0-only

//! What the fast path counts by length of time and by cache, as one row of numbers, so that it can
//! be shared, added up and compared with an earlier one.

use pandemonium_engine::fine::Fine;
use pandemonium_engine::histogram::{Latencies, Sleeps};
use pandemonium_engine::task::Tier;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

const TIERS: usize = Tier::ALL.len();
const BUCKETS: usize = Latencies::BUCKETS;
const SLEEP_BUCKETS: usize = Sleeps::BUCKETS;
/// Where each part of the row begins.
const SLEEPS: usize = TIERS * BUCKETS;
const L2_HITS: usize = SLEEPS + SLEEP_BUCKETS;
const L2_MISSES: usize = L2_HITS + TIERS;
const WAITS: usize = L2_MISSES + TIERS;
const STAGES: usize = WAITS + TIERS * Fine::BUCKETS;
const EVENTS: usize = STAGES + Stage::ALL.len() * Fine::BUCKETS;
const WORDS: usize = EVENTS + Event::ALL.len();

/// The way of a decision, each stage named by its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the kernel's message, or the wake-up behind it, until we have it.
    Received,
    /// Until the decision is sent.
    Decided,
    /// Until the task runs.
    Running,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 3] = [Stage::Received, Stage::Decided, Stage::Running];
}

/// What the fast path counts one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A wake-up that found no idle CPU.
    Wakeup,
    /// A CPU was interrupted for it.
    Kick,
    /// None was, because the waker is trusted to sleep.
    HandedOff,
    /// None was, because all run something better.
    NoVictim,
    /// A CPU was passed over because it was interrupted a moment ago, or too often.
    Limited,
    /// A CPU was interrupted once more because the first time it served somebody else.
    Missed,
    /// A CPU was interrupted because a task still waited a while after its wake-up.
    Again,
    /// A CPU was interrupted because a task outlived its slice while somebody waited.
    Outlived,
    /// A CPU was interrupted for a kernel thread that is bound to it.
    Bound,
    /// A CPU was interrupted for a LatCritical task that had lost its own.
    Requeued,
    /// A CPU was interrupted because the policy asked.
    Asked,
    /// A timer fired.
    Patrol,
    /// A record was in use by another writer, and the update was dropped.
    Contended,
    /// A task ended or began another program, and we were not told: we had not read so long.
    Untold,
}

impl Event {
    /// All events, in the order of `enum fp_event`.
    pub const ALL: [Event; 14] = [
        Event::Wakeup,
        Event::Kick,
        Event::HandedOff,
        Event::NoVictim,
        Event::Limited,
        Event::Missed,
        Event::Again,
        Event::Outlived,
        Event::Bound,
        Event::Requeued,
        Event::Asked,
        Event::Patrol,
        Event::Contended,
        Event::Untold,
    ];
}

/// What one CPU has counted.
pub struct Row<'a> {
    pub latency: &'a [[u64; BUCKETS]; TIERS],
    pub sleep: &'a [u64; SLEEP_BUCKETS],
    pub l2_hits: &'a [u64; TIERS],
    pub l2_misses: &'a [u64; TIERS],
    pub waits: &'a [[u64; Fine::BUCKETS]; TIERS],
    pub starts: &'a [u64; Fine::BUCKETS],
    pub events: &'a [u64; Event::ALL.len()],
}

/// The row. All counts, so a later row is nowhere below an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPathCounters([u64; WORDS]);

impl Default for FastPathCounters {
    fn default() -> Self {
        FastPathCounters([0; WORDS])
    }
}

impl FastPathCounters {
    /// Adds what one CPU has counted.
    pub fn add(&mut self, row: &Row) {
        let coarse = row.latency.iter().flatten().chain(row.sleep);
        let fine = row.waits.iter().flatten();
        self.sum(0, coarse.chain(row.l2_hits).chain(row.l2_misses).chain(fine));
        self.sum(EVENTS, row.events.iter());
        self.sum(FastPathCounters::stage_at(Stage::Running), row.starts.iter());
    }

    /// Adds what user space has counted.
    pub fn add_stage(&mut self, stage: Stage, times: &Fine) {
        self.sum(FastPathCounters::stage_at(stage), times.counts.iter());
    }

    fn sum<'a>(&mut self, from: usize, counts: impl Iterator<Item = &'a u64>) {
        self.0[from..].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    const fn stage_at(stage: Stage) -> usize {
        STAGES + stage as usize * Fine::BUCKETS
    }

    /// What was counted since an earlier row.
    pub fn since(&self, earlier: &FastPathCounters) -> FastPathCounters {
        FastPathCounters(array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }

    /// Both together.
    pub fn plus(&self, other: &FastPathCounters) -> FastPathCounters {
        FastPathCounters(array::from_fn(|i| self.0[i].saturating_add(other.0[i])))
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// From wake-up to running.
    pub fn latency(&self, tier: Tier) -> Latencies {
        let from = tier.index() * BUCKETS;
        Latencies { counts: array::from_fn(|i| self.0[from + i]) }
    }

    /// The same, of all tiers.
    pub fn latencies(&self) -> Latencies {
        Tier::ALL.iter().fold(Latencies::default(), |sum, tier| sum.plus(&self.latency(*tier)))
    }

    /// The same in fine buckets.
    pub fn waits(&self, tier: Tier) -> Fine {
        let from = WAITS + tier.index() * Fine::BUCKETS;
        Fine { counts: array::from_fn(|i| self.0[from + i]) }
    }

    /// How long a stage of a decision's way took.
    pub fn stage(&self, stage: Stage) -> Fine {
        let from = FastPathCounters::stage_at(stage);
        Fine { counts: array::from_fn(|i| self.0[from + i]) }
    }

    /// How often something happened.
    pub fn events(&self, event: Event) -> u64 {
        self.0[EVENTS + event as usize]
    }

    /// CPUs interrupted for a task that woke up, whatever it took to notice.
    pub fn kicks(&self) -> u64 {
        let kinds = [Event::Kick, Event::Missed, Event::Again, Event::Bound, Event::Requeued];
        kinds.into_iter().chain([Event::Asked]).map(|event| self.events(event)).sum()
    }

    /// How long tasks slept.
    pub fn sleeps(&self) -> Sleeps {
        Sleeps { counts: array::from_fn(|i| self.0[SLEEPS + i]) }
    }

    /// Per cent of runs that found the second-level cache of the run before; `None` when there
    /// was no run.
    pub fn l2_percent(&self, tier: Tier) -> Option<u64> {
        let (hits, misses) = (self.0[L2_HITS + tier.index()], self.0[L2_MISSES + tier.index()]);
        (hits * 100).checked_div(hits + misses)
    }
}

/// A row in shared memory. Two numbers of it may be a moment apart.
#[repr(C)]
pub struct TallyCells([AtomicU64; WORDS]);

impl TallyCells {
    /// Reads all cells.
    pub fn read(&self) -> FastPathCounters {
        FastPathCounters(array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }

    /// Writes all cells.
    pub fn write(&self, fast_path_counters: &FastPathCounters) {
        self.0
            .iter()
            .zip(fast_path_counters.0)
            .for_each(|(cell, count)| cell.store(count, Ordering::Relaxed));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use pandemonium_engine::time::Span;

    /// A row with so many waits of one length and so many sleeps.
    pub fn fast_path_counters(
        tier: Tier,
        waits: u64,
        wait: Span,
        sleeps: (u64, Span),
    ) -> FastPathCounters {
        let (mut latency, mut sleep) = ([[0; BUCKETS]; TIERS], Sleeps::default());
        let (mut one, mut fine) = (Latencies::default(), Fine::default());
        one.record(wait);
        fine.record(wait);
        latency[tier.index()] = one.counts.map(|count| count * waits);
        sleep.record(sleeps.1);
        let mut fast_path_counters = FastPathCounters::default();
        fast_path_counters.add(&Row {
            latency: &latency,
            sleep: &sleep.counts.map(|count| count * sleeps.0),
            l2_hits: &[3, 0, 0],
            l2_misses: &[1, 0, 0],
            waits: &[[0; Fine::BUCKETS], fine.counts, [0; Fine::BUCKETS]],
            starts: &fine.counts,
            events: &Event::ALL.map(|event| event as u64),
        });
        fast_path_counters
    }

    #[test]
    fn each_part_is_found_where_it_was_put() {
        let ms = Span::from_millis;
        let one = fast_path_counters(Tier::Interactive, 7, ms(1), (5, ms(50)));
        assert_eq!(one.latency(Tier::Batch), Latencies::default());
        assert_eq!(one.latency(Tier::Interactive).counts[6], 7);
        assert_eq!(one.latencies().p99(), ms(1));
        assert_eq!(one.sleeps().counts, [0, 0, 5, 0]);
        assert_eq!(one.l2_percent(Tier::Batch), Some(75));
        assert_eq!(one.l2_percent(Tier::LatCritical), None);
        assert_eq!(one.waits(Tier::Interactive).quantile(1, 1), Span::from_nanos(1 << 20));
        assert_eq!(one.waits(Tier::Batch), Fine::default());
        assert_eq!(one.stage(Stage::Running).counts, one.waits(Tier::Interactive).counts);
        let events = Event::ALL.map(|event| one.events(event));
        assert_eq!(events, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(one.kicks(), 1 + 5 + 6 + 8 + 9 + 10);
        let two = one.plus(&fast_path_counters(Tier::LatCritical, 1, ms(20), (1, ms(500))));
        assert_eq!(two.since(&one).latency(Tier::LatCritical).counts[10], 1);
        assert_eq!(two.since(&one).sleeps().counts, [0, 0, 0, 1]);
        assert!(one.since(&two).is_empty() && !one.is_empty());
        let mut three = one;
        three.add_stage(Stage::Decided, &one.waits(Tier::Interactive));
        assert_eq!(three.stage(Stage::Decided), one.waits(Tier::Interactive));
        assert_eq!((three.stage(Stage::Received), three.events(Event::Kick)), (Fine::default(), 1));
    }
}
