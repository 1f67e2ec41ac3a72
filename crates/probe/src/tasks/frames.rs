// SPDX-License-Identifier: GPL-2.0-only

//! Frames: a task with a fixed amount of work in each period, and a deadline at the end of it.

use super::clock::{now_ns, sleep_until};
use super::probe::{Probe, Slots};
use super::work;
use anyhow::Result;

/// 60 frames a second.
pub const PERIOD_NS: u64 = 16_670_000;
/// A frame takes one part in so many of what one CPU does in a period.
const SHARE: u64 = 4;
/// Long against reading the clock, short against a tick.
const CALIBRATION_ROUNDS: u32 = 100_000;
const CALIBRATIONS: u32 = 10;
/// The first frames fault pages in; they are not counted.
const WARM_UP: usize = 3;

/// The work of one frame, in rounds of `work::burn`, measured on an idle machine. In exact mode
/// busy virtual CPUs share one stream of instructions, so each of n CPUs does one n-th of it.
pub fn calibrate(cpus: usize) -> u32 {
    let fastest_ns = (0..CALIBRATIONS)
        .map(|_| {
            let start = now_ns();
            work::burn(CALIBRATION_ROUNDS);
            now_ns() - start
        })
        .min();
    let rounds_ns = fastest_ns.unwrap_or(0).max(1);
    let work_ns = PERIOD_NS / SHARE / cpus as u64;
    (u64::from(CALIBRATION_ROUNDS) * work_ns / rounds_ns) as u32
}

/// Starts a probe that draws so many frames of so many rounds and then exits.
pub fn start(frames: usize, rounds: u32) -> Result<Probe> {
    start_every(PERIOD_NS, frames, rounds)
}

/// The same with another period: a sound card has a shorter one than a display.
pub(crate) fn start_every(period_ns: u64, frames: usize, rounds: u32) -> Result<Probe> {
    Probe::start(frames, |slots| measure(slots, period_ns, rounds))
}

/// The time of a frame counts from the start of its period. After a late frame the next one starts
/// with the next whole period, as on a display, so one miss counts once.
fn measure(slots: &Slots, period_ns: u64, rounds: u32) {
    let mut period = now_ns();
    for frame in 0..WARM_UP + slots.len() {
        period += now_ns().saturating_sub(period).next_multiple_of(period_ns).max(period_ns);
        sleep_until(period);
        work::burn(rounds);
        let took = now_ns() - period;
        if let Some(number) = frame.checked_sub(WARM_UP) {
            slots.store(number, took);
        }
    }
}
