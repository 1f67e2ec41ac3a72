// SPDX-License-Identifier: GPL-2.0-only

//! Judges a load: every worker must make progress in every window.

use super::load::Load;
use super::report;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// The longest time without progress. The kernel's watchdog ejects a scheduler after 5 s; this
/// limit is stricter, and far longer than a slice times the number of workers.
const WINDOW: Duration = Duration::from_secs(3);
const SAMPLE: Duration = Duration::from_secs(1);

/// Watches for `seconds`, and calls `each_second` after each sample. Fails early with the name of a
/// worker without progress. Reports the least and the most work of each kind of worker.
pub fn every_worker_moves(
    load: &Load,
    seconds: u64,
    each_second: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    every_worker_moves_within(WINDOW, load, seconds, each_second)
}

/// The same with another limit.
pub fn every_worker_moves_within(
    window: Duration,
    load: &Load,
    seconds: u64,
    mut each_second: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let first = load.steps();
    let mut last = first.clone();
    let mut moved_at = vec![start; last.len()];
    for second in 1..=seconds {
        let due = start + SAMPLE * second as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        for (index, steps) in load.steps().into_iter().enumerate() {
            if steps != last[index] {
                last[index] = steps;
                moved_at[index] = now;
            } else if now - moved_at[index] >= window {
                bail!(
                    "{} made no progress for {} s",
                    describe(load, index),
                    (now - moved_at[index]).as_secs()
                );
            }
        }
        report::progress(format!("second {second} of {seconds}, {} workers", last.len()));
        each_second(second)?;
    }
    expect_all_moved(load, &first, &last)?;
    report_spread(load, &first, &last);
    Ok(())
}

/// Every worker must also make progress in a run shorter than the window.
fn expect_all_moved(load: &Load, first: &[u64], last: &[u64]) -> Result<()> {
    match first.iter().zip(last).position(|(first, last)| first == last) {
        Some(index) => bail!("{} made no progress at all", describe(load, index)),
        None => Ok(()),
    }
}

fn report_spread(load: &Load, first: &[u64], last: &[u64]) {
    let mut kinds: Vec<(&str, u64, u64)> = Vec::new();
    for (worker, (first, last)) in load.workers().iter().zip(first.iter().zip(last)) {
        let done = last - first;
        match kinds.iter_mut().find(|kind| kind.0 == worker.kind.name()) {
            Some(kind) => *kind = (kind.0, kind.1.min(done), kind.2.max(done)),
            None => kinds.push((worker.kind.name(), done, done)),
        }
    }
    let spread: Vec<String> =
        kinds.iter().map(|(name, least, most)| format!("{name} {least}..{most}")).collect();
    report::note(format!("work, least..most: {}", spread.join(", ")));
}

fn describe(load: &Load, index: usize) -> String {
    let worker = &load.workers()[index];
    format!("{} (pid {})", worker.name, worker.pid)
}
