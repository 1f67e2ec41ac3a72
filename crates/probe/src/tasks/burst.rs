// SPDX-License-Identifier: GPL-2.0-only

//! Bursts of forks: how long a new task waits for its first instruction when many start at once.

use super::clock::{now_ns, sleep_until};
use super::probe::{Probe, Slots};
use super::wakeups::Random;
use anyhow::Result;

const CHILDREN: usize = 12;
/// Time between two bursts, pseudo-random so that no tick stays in step with it. It is long enough
/// for all children even of a slow burst, so every scheduler gets the same number of new tasks in
/// the same time.
const GAP_NS_MIN: u64 = 90_000_000;
const GAP_NS_SPREAD: u64 = 20_000_000;
/// The first burst copies the parent's pages on write; it is not counted.
const WARM_UP: usize = 1;

/// Two times to the first instruction of each child, in this order: from the first fork of its
/// burst, and from its own fork.
pub const PARTS: usize = 2;

/// Starts a probe that makes so many bursts and then exits.
pub fn start(bursts: usize) -> Result<Probe> {
    start_seeded(bursts, 0)
}

/// The same with a seed for the times of the bursts.
pub(crate) fn start_seeded(bursts: usize, seed: u64) -> Result<Probe> {
    Probe::start(bursts * CHILDREN * PARTS, |slots| measure(slots, bursts, seed))
}

fn measure(slots: &Slots, bursts: usize, seed: u64) {
    let mut random = Random::seeded(seed);
    let mut due = now_ns();
    for burst in 0..WARM_UP + bursts {
        due += GAP_NS_MIN + random.below(GAP_NS_SPREAD);
        sleep_until(due);
        let first = burst.checked_sub(WARM_UP).map(|burst| burst * CHILDREN);
        let begin = now_ns();
        let forked = (0..CHILDREN)
            .filter(|child| fork(slots, begin, first.map(|first| first + child)))
            .count();
        for _ in 0..forked {
            // SAFETY: waits for any child; the status is not wanted.
            unsafe { libc::wait(std::ptr::null_mut()) };
        }
    }
}

/// Forks a child, and returns whether that succeeded. Its time counts from the call of fork,
/// because a new task waits for that too.
fn fork(slots: &Slots, begin: u64, number: Option<usize>) -> bool {
    let called = now_ns();
    // SAFETY: the child reads a clock, stores two numbers and exits.
    match unsafe { libc::fork() } {
        0 => {
            let runs = now_ns();
            if let Some(number) = number {
                slots.store(number, runs - begin);
                slots.store(slots.len() / PARTS + number, runs - called);
            }
            // SAFETY: plain exit.
            unsafe { libc::_exit(0) }
        }
        child => child > 0,
    }
}
