// SPDX-License-Identifier: GPL-2.0-only

//! A task that changes its behaviour: it wakes up often, computes, sleeps for a second, and wakes
//! up often again. The first wakeups after each change are measured.

use super::clock::{SECOND_NS, now_ns, sleep_until};
use super::lives::work_for;
use super::probe::{Probe, Slots};
use super::wakeups::Random;
use super::work;
use anyhow::Result;

/// Wakeups that are measured after each change.
pub const MEASURED: usize = 20;
/// Wakeups before the task computes again: enough that its averages are those of its wakeups.
const WAKEUPS: usize = 40;
/// Some 50 us at one virtual GIPS.
const WORK_ROUNDS: u32 = 12_000;

/// Starts a task that computes for each of these times, in microseconds of CPU time, one after the
/// other, and then exits.
pub fn start(computes_us: &[u64]) -> Result<Probe> {
    Probe::start(MEASURED * computes_us.len(), |slots| measure(slots, computes_us))
}

fn measure(slots: &Slots, computes_us: &[u64]) {
    let mut random = Random::seeded(0);
    wake_up(WAKEUPS, now_ns(), &mut random, |_, _| ());
    for (number, &compute_us) in computes_us.iter().enumerate() {
        work_for(compute_us);
        let first = now_ns() + SECOND_NS;
        wake_up(WAKEUPS, first, &mut random, |wakeup, late| {
            if wakeup < MEASURED {
                slots.store(MEASURED * number + wakeup, late);
            }
        });
    }
}

/// Wakes up so many times, at `first` and then every 3 to 7 ms, and tells how late each time.
fn wake_up(times: usize, first: u64, random: &mut Random, late: impl Fn(usize, u64)) {
    let mut deadline = first;
    for wakeup in 0..times {
        sleep_until(deadline);
        late(wakeup, now_ns().saturating_sub(deadline));
        work::burn(WORK_ROUNDS);
        deadline = deadline.max(now_ns()) + 3_000_000 + random.below(4_000_000);
    }
}
