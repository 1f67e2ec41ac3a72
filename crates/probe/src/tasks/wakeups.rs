// SPDX-License-Identifier: GPL-2.0-only

//! Wakeup latency: a task that sleeps until deadlines, records how late it runs, and works a
//! little.

use super::clock::{SECOND_NS, now_ns, sleep_until};
use super::probe::{Probe, Slots};
use super::work;
use anyhow::Result;

/// Time between two deadlines, pseudo-random so that no tick stays in step with them.
const GAP_NS_MIN: u64 = 3_000_000;
const GAP_NS_SPREAD: u64 = 4_000_000;
/// Some 50 us at one virtual GIPS.
const WORK_ROUNDS: u32 = 12_000;
/// The first wakeups fault pages in; they are not counted.
const WARM_UP: usize = 5;

/// A task that wakes up again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waking {
    /// How long it measures.
    pub run_ns: u64,
    /// Work after each wakeup, in rounds of `work::burn`.
    pub work_rounds: u32,
    /// The shortest time between two deadlines.
    pub gap_ns_min: u64,
    /// How much longer the time may be.
    pub gap_ns_spread: u64,
    /// Seed of the pseudo-random part.
    pub seed: u64,
}

/// The task behind most wakeup figures.
pub(crate) const USUAL: Waking = Waking {
    run_ns: 0,
    work_rounds: WORK_ROUNDS,
    gap_ns_min: GAP_NS_MIN,
    gap_ns_spread: GAP_NS_SPREAD,
    seed: 0,
};

/// Starts a probe that measures for `seconds` and then exits.
pub fn start(seconds: u64) -> Result<Probe> {
    Waking { run_ns: seconds * SECOND_NS, ..USUAL }.start()
}

impl Waking {
    /// Starts a probe that measures this task.
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
        // At least one wakeup is counted, even on a slow machine.
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

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Random(u64);

impl Random {
    /// Each seed gives a sequence of its own.
    pub fn seeded(seed: u64) -> Random {
        Random(0x9e37_79b9_7f4a_7c15 ^ seed)
    }

    /// The next number, from 0 to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}
