// SPDX-License-Identifier: GPL-2.0-only

//! Whether a worker that has ended is started again, and when.
//!
//! A restart is asked for when a CPU goes on- or offline and the backend cannot stay loaded. A
//! start in the middle of such changes may fail, and succeed a moment later: it is tried again,
//! after a pause that doubles, for a limited number of times. A first start that fails is not: its
//! reason stays.

use super::mutex::lock;
use super::worker;
use pandemonium_engine::time::{Span, Stamp};
use std::sync::Mutex;
use std::time::Duration;

/// A worker that ran for less than this waits as long before its restart.
const SHORT: Duration = Duration::from_millis(500);
/// The pause after the first start that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Starts in a row that may fail. With their pauses they take 20 s: a machine that wakes up has all
/// its CPUs by then.
const FAILURES_MAX: u32 = 10;
const MINUTE: Span = Span::from_millis(60_000);
/// Exit codes of a start that may succeed later: an internal error, as when the file of a CPU
/// vanishes while it is read, and a refusal by the kernel.
const TRANSIENT: [i32; 2] = [1, 6];

/// How a worker ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its exit code; `None` if a signal killed it.
    pub code: Option<i32>,
    /// Whether it began to schedule.
    pub scheduled: bool,
    /// How long it existed.
    pub lived: Duration,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The kernel asked for a restart: start again after the pause.
    Restart(Duration),
    /// The start failed for the `failures`th time in a row: try again after the pause.
    Retry { failures: u32, pause: Duration },
    /// So many starts in a row have failed that no further one is tried.
    GiveUp,
    /// The worker ended for good.
    End,
}

/// The restarts so far.
#[derive(Debug, Default)]
pub struct Restarts {
    /// Whether the kernel has asked for one.
    asked: bool,
    /// Starts in a row that failed.
    failures: u32,
}

impl Restarts {
    /// Decides what follows the end of a worker.
    pub fn after(&mut self, ended: &Ended) -> Next {
        let asks = ended.code == Some(i32::from(worker::RESTART));
        self.asked |= asks;
        if ended.scheduled {
            self.failures = 0;
        }
        match ended.code {
            Some(_) if asks && ended.scheduled => {
                Next::Restart(if ended.lived < SHORT { SHORT } else { Duration::ZERO })
            }
            Some(code) if asks || self.may_retry(code, ended) => self.retry(),
            _ => Next::End,
        }
    }

    fn may_retry(&self, code: i32, ended: &Ended) -> bool {
        self.asked && !ended.scheduled && TRANSIENT.contains(&code)
    }

    fn retry(&mut self) -> Next {
        self.failures += 1;
        if self.failures > FAILURES_MAX {
            return Next::GiveUp;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.failures - 1)).min(PAUSE_MAX);
        Next::Retry { failures: self.failures, pause }
    }
}

/// When workers were started again.
#[derive(Debug, Default)]
pub struct RestartTimes(Mutex<Vec<Stamp>>);

impl RestartTimes {
    /// Adds a restart.
    pub fn add(&self, now: Stamp) {
        lock(&self.0).push(now);
    }

    /// All restarts.
    pub fn count(&self) -> u64 {
        lock(&self.0).len() as u64
    }

    /// Those of the last minute.
    pub fn recent(&self, now: Stamp) -> u64 {
        let times = lock(&self.0);
        times.iter().rev().take_while(|at| now.since(**at) < MINUTE).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: i32 = 6;

    fn ended(code: i32, scheduled: bool) -> Ended {
        Ended { code: Some(code), scheduled, lived: Duration::from_secs(9) }
    }

    fn restart() -> Ended {
        ended(i32::from(worker::RESTART), true)
    }

    fn pause(next: Next) -> u128 {
        match next {
            Next::Retry { pause, .. } => pause.as_millis(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_refusal_is_tried_again_after_hotplug_only() {
        let mut restarts = Restarts::default();
        assert_eq!(restarts.after(&ended(REFUSED, false)), Next::End);
        assert_eq!(restarts.after(&restart()), Next::Restart(Duration::ZERO));
        assert_eq!(pause(restarts.after(&ended(REFUSED, false))), 100);
        assert_eq!(pause(restarts.after(&ended(1, false))), 200);
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_then_it_gives_up() {
        let mut restarts = Restarts::default();
        restarts.after(&restart());
        let mut failure = || restarts.after(&ended(REFUSED, false));
        let pauses: Vec<u128> = (0..FAILURES_MAX).map(|_| pause(failure())).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000]);
        assert_eq!(failure(), Next::GiveUp);
    }

    #[test]
    fn a_worker_that_schedules_renews_the_budget() {
        let mut restarts = Restarts::default();
        for _ in 0..3 * FAILURES_MAX {
            assert_eq!(restarts.after(&restart()), Next::Restart(Duration::ZERO));
            assert_eq!(pause(restarts.after(&ended(REFUSED, false))), 100);
        }
    }

    #[test]
    fn cpus_that_change_during_every_start_use_up_the_budget() {
        let mut restarts = Restarts::default();
        let changed = ended(i32::from(worker::RESTART), false);
        assert_eq!(pause(restarts.after(&changed)), 100);
        for _ in 1..FAILURES_MAX {
            restarts.after(&changed);
        }
        assert_eq!(restarts.after(&changed), Next::GiveUp);
    }

    #[test]
    fn a_short_life_waits_and_other_ends_are_final() {
        let mut restarts = Restarts::default();
        let short = Ended { lived: Duration::from_millis(499), ..restart() };
        assert_eq!(restarts.after(&short), Next::Restart(SHORT));
        for end in [ended(0, true), ended(7, true), Ended { code: None, ..restart() }] {
            assert_eq!(restarts.after(&end), Next::End);
        }
        assert_eq!(restarts.after(&ended(REFUSED, true)), Next::End, "it had scheduled");
    }

    #[test]
    fn restarts_of_the_last_minute_are_recent() {
        let times = RestartTimes::default();
        let at = |s: u64| Stamp::from_nanos(s * 1_000_000_000);
        [1, 50, 100, 109].iter().for_each(|s| times.add(at(*s)));
        assert_eq!((times.count(), times.recent(at(110)), times.recent(at(500))), (4, 2, 0));
    }
}
