// SPDX-License-Identifier: GPL-2.0-only

//! Wake-up latency: a task that sleeps to deadlines, notes how late it runs, and works a little.

use super::clock::{SECOND_NS, now_ns, sleep_until};
use super::probe::{Probe, Slots};
use super::work;
use anyhow::Result;

/// Deadlines are this far apart, pseudo-randomly, so that they drift against every tick.
const GAP_NS_MIN: u64 = 3_000_000;
const GAP_NS_SPREAD: u64 = 4_000_000;
/// Some 50 us of one virtual GIPS.
const WORK_ROUNDS: u32 = 12_000;
/// The first wake-ups touch their pages; they are not counted.
const WARM_UP: usize = 5;

/// A task that wakes up over and over.
#[derive(Clone, Copy, Debug)]
pub struct Waking {
    /// For how long it measures.
    pub run_ns: u64,
    /// What it does when awake, in rounds of `work::burn`.
    pub work_rounds: u32,
    /// Deadlines are at least so far apart, and at most so much further.
    pub gap_ns_min: u64,
    pub gap_ns_spread: u64,
    /// Of the pseudo-random part.
    pub seed: u64,
}

/// The one whose latency is quoted everywhere.
pub const USUAL: Waking = Waking {
    run_ns: 0,
    work_rounds: WORK_ROUNDS,
    gap_ns_min: GAP_NS_MIN,
    gap_ns_spread: GAP_NS_SPREAD,
    seed: 0,
};

/// Starts a probe that measures for `seconds` and then ends by itself.
pub fn start(seconds: u64) -> Result<Probe> {
    Waking { run_ns: seconds * SECOND_NS, ..USUAL }.start()
}

impl Waking {
    /// The same for a task of one's own.
    pub fn start(self) -> Result<Probe> {
        let samples_max = (self.run_ns / self.gap_ns_min.max(1)) as usize + 1;
        Probe::start(samples_max, |slots| measure(slots, &self))
    }
}

fn measure(slots: &Slots, task: &Waking) {
    let end = now_ns() + task.run_ns;
    let mut deadline = now_ns();
    let mut random = Random::seeded(task.seed);
    for number in 0..WARM_UP + slots.len() {
        deadline = deadline.max(now_ns()) + task.gap_ns_min + random.below(task.gap_ns_spread);
        // At least one is counted, however slow.
        if deadline > end && number > WARM_UP {
            return;
        }
        sleep_until(deadline);
        let late = now_ns().saturating_sub(deadline);
        if let Some(number) = number.checked_sub(WARM_UP) {
            slots.store(number, late);
        }
        work::burn(task.work_rounds);
    }
}

/// The same numbers in every run.
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        Random::seeded(0)
    }

    /// Another seed gives other numbers, the same one the same.
    pub fn seeded(seed: u64) -> Random {
        Random(0x9e37_79b9_7f4a_7c15 ^ seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}
