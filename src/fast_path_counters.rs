// SPDX-License-Identifier: GPL-2.0-only

//! The fast path's counters: times by length, cache hits and events. They are one row of numbers,
//! so that rows can be shared, added, and subtracted.

use super::shared::number::number_in;
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

/// A stage of a decision, named by its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the wakeup or the requeue until user space has received the message.
    Received,
    /// From then until user space sends the decision.
    Decided,
    /// From then until the task runs.
    Running,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 3] = [Stage::Received, Stage::Decided, Stage::Running];
}

/// An event that the fast path counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A wakeup that was queued to user space.
    Wakeup,
    /// A CPU was kicked for such a wakeup.
    Kick,
    /// No CPU was kicked, because the waker is trusted to hand over its CPU.
    HandedOff,
    /// No CPU was kicked, because none gave way.
    NoVictim,
    /// A CPU was passed over because it was kicked too recently or too often.
    Limited,
    /// An idle CPU was woken because tasks waited when the scheduler process left its CPU.
    WokenIdle,
    /// A timer kicked a CPU for a task that still waited.
    Rechecked,
    /// A timer kicked a CPU whose task had used up its slice while another task waited.
    SliceKick,
    /// A CPU was kicked for a kernel thread that is bound to it.
    Bound,
    /// A CPU was kicked for a task above Batch that had lost its CPU.
    Requeued,
    /// A CPU was kicked because the policy asked.
    Asked,
    /// The tasks of a CPU that a higher scheduling class kept were enqueued again.
    Reenqueued,
    /// A timer called its callback.
    Timer,
    /// An update was dropped because another CPU was writing the record.
    Contended,
    /// A record was taken from a task that still lives.
    Stolen,
    /// News of an exit or an exec were dropped because the ring was full.
    NewsDropped,
}

impl Event {
    /// All events, in the order of `enum fp_event`.
    pub const ALL: [Event; 16] = [
        Event::Wakeup,
        Event::Kick,
        Event::HandedOff,
        Event::NoVictim,
        Event::Limited,
        Event::WokenIdle,
        Event::Rechecked,
        Event::SliceKick,
        Event::Bound,
        Event::Requeued,
        Event::Asked,
        Event::Reenqueued,
        Event::Timer,
        Event::Contended,
        Event::Stolen,
        Event::NewsDropped,
    ];
}

/// The counters of one CPU.
pub struct Row<'a> {
    pub latency: &'a [[u64; BUCKETS]; TIERS],
    pub sleep: &'a [u64; SLEEP_BUCKETS],
    pub l2_hits: &'a [u64; TIERS],
    pub l2_misses: &'a [u64; TIERS],
    pub waits: &'a [[u64; Fine::BUCKETS]; TIERS],
    pub starts: &'a [u64; Fine::BUCKETS],
    pub events: &'a [u64; Event::ALL.len()],
}

/// All counters, summed over CPUs. None of them ever decreases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastPathCounters([u64; WORDS]);

impl Default for FastPathCounters {
    fn default() -> Self {
        FastPathCounters([0; WORDS])
    }
}

impl FastPathCounters {
    /// Adds the counters of one CPU.
    pub fn add(&mut self, row: &Row) {
        let coarse = row.latency.iter().flatten().chain(row.sleep);
        let fine = row.waits.iter().flatten();
        self.sum(0, coarse.chain(row.l2_hits).chain(row.l2_misses).chain(fine));
        self.sum(EVENTS, row.events.iter());
        self.sum(FastPathCounters::stage_at(Stage::Running), row.starts.iter());
    }

    /// Adds times that user space has measured.
    pub fn add_stage(&mut self, stage: Stage, times: &Fine) {
        self.sum(FastPathCounters::stage_at(stage), times.counts.iter());
    }

    /// Adds events that user space has counted.
    pub fn add_event(&mut self, event: Event, times: u64) {
        self.0[EVENTS + event as usize] += times;
    }

    fn sum<'a>(&mut self, from: usize, counts: impl Iterator<Item = &'a u64>) {
        self.0[from..].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    const fn stage_at(stage: Stage) -> usize {
        STAGES + stage as usize * Fine::BUCKETS
    }

    /// The difference to an earlier row.
    pub fn since(&self, earlier: &FastPathCounters) -> FastPathCounters {
        FastPathCounters(array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }

    /// The sum of both.
    pub fn plus(&self, other: &FastPathCounters) -> FastPathCounters {
        FastPathCounters(array::from_fn(|i| self.0[i].saturating_add(other.0[i])))
    }

    /// Whether all counters are zero.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Times from wakeup to running, of one tier.
    pub fn latency(&self, tier: Tier) -> Latencies {
        let from = tier.index() * BUCKETS;
        Latencies { counts: array::from_fn(|i| self.0[from + i]) }
    }

    /// The same of all tiers.
    pub fn latencies(&self) -> Latencies {
        Tier::ALL.iter().fold(Latencies::default(), |sum, tier| sum.plus(&self.latency(*tier)))
    }

    /// The same of one tier, in fine buckets.
    pub fn waits(&self, tier: Tier) -> Fine {
        let from = WAITS + tier.index() * Fine::BUCKETS;
        Fine { counts: array::from_fn(|i| self.0[from + i]) }
    }

    /// Times of one stage.
    pub fn stage(&self, stage: Stage) -> Fine {
        let from = FastPathCounters::stage_at(stage);
        Fine { counts: array::from_fn(|i| self.0[from + i]) }
    }

    /// The number of events.
    pub fn events(&self, event: Event) -> u64 {
        self.0[EVENTS + event as usize]
    }

    /// CPUs kicked for a waiting task, for whatever reason.
    pub fn kicks(&self) -> u64 {
        let kinds =
            [Event::Kick, Event::WokenIdle, Event::Rechecked, Event::Bound, Event::Requeued];
        kinds.into_iter().chain([Event::Asked]).map(|event| self.events(event)).sum()
    }

    /// Lengths of sleeps.
    pub fn sleeps(&self) -> Sleeps {
        Sleeps { counts: array::from_fn(|i| self.0[SLEEPS + i]) }
    }

    /// Percent of run intervals on the L2 cache of the previous one; `None` if there was none.
    pub fn l2_percent(&self, tier: Tier) -> Option<u64> {
        let (hits, misses) = (self.0[L2_HITS + tier.index()], self.0[L2_MISSES + tier.index()]);
        (hits * 100).checked_div(hits + misses)
    }
}

/// The counters in shared memory. Two of them may be a moment apart.
#[repr(C)]
pub struct FastPathCells([AtomicU64; WORDS]);

impl FastPathCells {
    /// Reads all cells.
    pub fn read(&self) -> FastPathCounters {
        FastPathCounters(array::from_fn(|i| number_in(&self.0[i])))
    }

    /// Writes all cells.
    pub fn write(&self, counters: &FastPathCounters) {
        let cells = self.0.iter().zip(counters.0);
        cells.for_each(|(cell, count)| cell.store(count, Ordering::Relaxed));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use pandemonium_engine::time::Span;

    /// A row with `waits` waits of one length, and so many sleeps of one length.
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
        let mut counters = FastPathCounters::default();
        counters.add(&Row {
            latency: &latency,
            sleep: &sleep.counts.map(|count| count * sleeps.0),
            l2_hits: &[3, 0, 0],
            l2_misses: &[1, 0, 0],
            waits: &[[0; Fine::BUCKETS], fine.counts, [0; Fine::BUCKETS]],
            starts: &fine.counts,
            events: &Event::ALL.map(|event| event as u64),
        });
        counters
    }

    /// A row with these events and nothing else.
    pub fn with_events(events: &[(Event, u64)]) -> FastPathCounters {
        let mut counters = FastPathCounters::default();
        events.iter().for_each(|&(event, count)| counters.0[EVENTS + event as usize] = count);
        counters
    }

    #[test]
    fn every_counter_is_read_from_its_own_place() {
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
        assert_eq!(events, std::array::from_fn(|i| i as u64));
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
