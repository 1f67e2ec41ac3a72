// SPDX-License-Identifier: GPL-2.0-only

//! Many runs on all cores.

use crate::play::{Case, Played};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Plays all cases and returns what came of them, in their order.
pub fn play_all(cases: &[Case]) -> Vec<Played> {
    play_each(cases, |_, _, played| played)
}

/// Plays all cases and returns what `keep` keeps of each, in their order. It is told the number of
/// the case.
pub fn play_each<T: Send>(
    cases: &[Case],
    keep: impl Fn(usize, &Case, Played) -> T + Sync,
) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(cases.len());
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(cases.len()));
    let bar = bar(cases.len() as u64);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, case)) = following(&next, cases) {
                    let kept = keep(number, case, case.play(&mut ()));
                    bar.inc(1);
                    let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    done.push((number, kept));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, kept)| kept).collect()
}

fn following<'a>(next: &AtomicUsize, cases: &'a [Case]) -> Option<(usize, &'a Case)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    cases.get(number).map(|case| (number, case))
}

/// A progress bar, which only a terminal sees.
pub fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
