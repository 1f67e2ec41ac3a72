// SPDX-License-Identifier: GPL-2.0-only

//! Bursts of births: how long a new task waits for its first instruction when many are born at
//! once.

use super::clock::{now_ns, sleep_until};
use super::probe::{Probe, Slots};
use super::wakeups::Random;
use anyhow::Result;

const CHILDREN: usize = 12;
/// From burst to burst, pseudo-random against every tick, and long enough for all the children even
/// of a slow one: then the same number is born in the same time under every scheduler.
const GAP_NS_MIN: u64 = 90_000_000;
const GAP_NS_SPREAD: u64 = 20_000_000;
/// The first burst breaks the pages of the parent apart; it is not counted.
const WARM_UP: usize = 1;

/// What is measured of each child, in this order of parts: the time to its first instruction from
/// the first fork of its burst, and from its own.
pub const PARTS: usize = 2;

/// Starts a probe that makes so many bursts and then ends.
pub fn start(bursts: usize) -> Result<Probe> {
    start_seeded(bursts, 0)
}

/// The same at other times.
pub fn start_seeded(bursts: usize, seed: u64) -> Result<Probe> {
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
        let born = (0..CHILDREN)
            .filter(|child| bear(slots, begin, first.map(|first| first + child)))
            .count();
        for _ in 0..born {
            // SAFETY: waits for any child; the status is not wanted.
            unsafe { libc::wait(std::ptr::null_mut()) };
        }
    }
}

/// Whether a child came into being. Its time runs from the call of fork, which is a part of what a
/// new task waits for.
fn bear(slots: &Slots, begin: u64, number: Option<usize>) -> bool {
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
