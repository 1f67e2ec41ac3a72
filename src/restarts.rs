// SPDX-License-Identifier: GPL-2.0-only

//! Whether a worker that has ended is started again, and when.
//!
//! A restart is asked for when a CPU goes on- or offline and the backend cannot stay loaded. A
//! start in the middle of such changes may fail, and succeed a moment later: it is tried again,
//! after a pause that doubles, for a limited number of times. A first start that fails is not: its
//! reason stays. Beside an earlier program's worker, which still schedules, every start is tried
//! again, for as long as that worker goes on: to give up would end that one.
//!
//! A worker that a signal killed after it scheduled is started again too, after the same pauses.
//! One that is killed again soon has scheduled meanwhile, so only a long life renews that budget.
//! An end with a reason of its own (a panic, an ejection) is final.

use super::mutex::lock;
use super::worker;
use pandemonium_engine::time::{Span, Stamp};
use std::sync::Mutex;
use std::time::Duration;

/// A worker that ran for less than this waits as long before its restart.
const SHORT: Duration = Duration::from_millis(500);
/// The pause after the first start that failed, or the first worker that was killed.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Starts in a row that may fail. With their pauses they take 20 s: a machine that wakes up has all
/// its CPUs by then.
const FAILURES_MAX: u32 = 10;
/// Workers that may be killed, unless one has lived for so long since.
const KILLS_MAX: u32 = 10;
const LONG: Duration = Duration::from_secs(60);
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
    /// Whether the worker of an earlier program still schedules.
    pub earlier_schedules: bool,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The kernel asked for a restart: start again after the pause.
    Restart(Duration),
    /// The start failed for the `failures`th time in a row: try again after the pause.
    Retry { failures: u32, pause: Duration },
    /// A signal killed a worker that had scheduled, for the `kills`th time: start again after the
    /// pause.
    Replace { kills: u32, pause: Duration },
    /// So many starts in a row have failed, or workers were killed, that no further one is tried.
    GiveUp,
    /// The worker ended for good.
    End,
}

/// The restarts so far.
#[derive(Debug, Default)]
pub struct Restarts {
    /// Whether there was a reason for one.
    again: bool,
    /// Starts in a row that failed.
    failures: u32,
    /// Workers that were killed, since the last one that lived long.
    kills: u32,
}

impl Restarts {
    /// Decides what follows the end of a worker.
    pub fn after(&mut self, ended: &Ended) -> Next {
        let asks = ended.code == Some(i32::from(worker::RESTART));
        let is_killed = ended.code.is_none() && ended.scheduled;
        self.again |= asks || is_killed;
        if ended.scheduled {
            self.failures = 0;
        }
        if ended.lived >= LONG {
            self.kills = 0;
        }
        match ended.code {
            Some(_) if asks && ended.scheduled => {
                Next::Restart(if ended.lived < SHORT { SHORT } else { Duration::ZERO })
            }
            None if is_killed => self.replace(),
            _ if asks || self.may_retry(ended) => self.retry(ended.earlier_schedules),
            _ => Next::End,
        }
    }

    /// Whether a start that failed like this is tried again. One that a signal killed is, if it was
    /// not the first.
    fn may_retry(&self, ended: &Ended) -> bool {
        let is_transient = ended.code.is_none_or(|code| TRANSIENT.contains(&code));
        !ended.scheduled && (self.again && is_transient || ended.earlier_schedules)
    }

    fn replace(&mut self) -> Next {
        self.kills += 1;
        if self.kills > KILLS_MAX {
            return Next::GiveUp;
        }
        Next::Replace { kills: self.kills, pause: pause_after(self.kills) }
    }

    fn retry(&mut self, earlier_schedules: bool) -> Next {
        self.failures += 1;
        if self.failures > FAILURES_MAX && !earlier_schedules {
            return Next::GiveUp;
        }
        Next::Retry { failures: self.failures, pause: pause_after(self.failures) }
    }
}

/// The pause after the `n`th in a row, from 1 on.
fn pause_after(n: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(n - 1)).min(PAUSE_MAX)
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
        let lived = Duration::from_secs(9);
        Ended { code: Some(code), scheduled, lived, earlier_schedules: false }
    }

    /// A worker that a signal killed after so many seconds.
    fn killed(seconds: u64) -> Ended {
        Ended { code: None, lived: Duration::from_secs(seconds), ..ended(0, true) }
    }

    fn restart() -> Ended {
        ended(i32::from(worker::RESTART), true)
    }

    fn pause(next: Next) -> u128 {
        match next {
            Next::Retry { pause, .. } | Next::Replace { pause, .. } => pause.as_millis(),
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
        for end in [ended(0, true), ended(7, true), ended(1, true), ended(2, false)] {
            assert_eq!(restarts.after(&end), Next::End);
        }
        assert_eq!(restarts.after(&ended(REFUSED, true)), Next::End, "it had scheduled");
    }

    #[test]
    fn a_killed_worker_is_replaced_until_the_budget_is_used_up() {
        let mut restarts = Restarts::default();
        let pauses: Vec<u128> =
            (0..KILLS_MAX).map(|_| pause(restarts.after(&killed(59)))).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000]);
        assert_eq!(restarts.after(&restart()), Next::Restart(Duration::ZERO), "no budget for it");
        assert_eq!(restarts.after(&killed(59)), Next::GiveUp, "that it scheduled renews nothing");
    }

    #[test]
    fn a_long_life_renews_the_budget_of_kills() {
        let mut restarts = Restarts::default();
        for _ in 0..2 * KILLS_MAX {
            assert_eq!(pause(restarts.after(&killed(60))), 100);
            assert_eq!(pause(restarts.after(&killed(1))), 200);
        }
    }

    #[test]
    fn a_start_after_a_kill_is_tried_again_and_a_first_one_that_is_killed_is_not() {
        let killed_while_loading = Ended { scheduled: false, ..killed(1) };
        let mut restarts = Restarts::default();
        assert_eq!(restarts.after(&killed_while_loading), Next::End);
        restarts.after(&killed(1));
        assert_eq!(pause(restarts.after(&ended(REFUSED, false))), 100);
        assert_eq!(pause(restarts.after(&killed_while_loading)), 200);
    }

    #[test]
    fn beside_an_earlier_worker_every_start_that_fails_is_tried_again() {
        let beside = |code| Ended { earlier_schedules: true, ..ended(code, false) };
        let mut restarts = Restarts::default();
        for n in 1..=5 * FAILURES_MAX {
            let next = restarts.after(&beside([1, 2, REFUSED][n as usize % 3]));
            assert!(matches!(next, Next::Retry { failures, .. } if failures == n), "{next:?}");
        }
        let alone = restarts.after(&Ended { earlier_schedules: false, ..beside(REFUSED) });
        assert_eq!(alone, Next::End, "the earlier one has ended");
    }

    #[test]
    fn restarts_of_the_last_minute_are_recent() {
        let times = RestartTimes::default();
        let at = |s: u64| Stamp::from_nanos(s * 1_000_000_000);
        [1, 50, 100, 109].iter().for_each(|s| times.add(at(*s)));
        assert_eq!((times.count(), times.recent(at(110)), times.recent(at(500))), (4, 2, 0));
    }
}
