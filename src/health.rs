// SPDX-License-Identifier: GPL-2.0-only

//! Health: `ok`, or what is wrong, in one sentence.

use super::fast_path::State;
use super::fast_path_counters::Event;
use super::reading::Reading;
use super::stalls;
use pandemonium_engine::task::Tier;
use pandemonium_engine::time::{Span, Stamp};

/// A worker without a round for this time is stuck: the backend wakes it at least once a second.
pub const GAP_MAX: Span = Span::from_millis(3_000);
/// A longer wait for a decision approaches the 5 s after which the kernel's watchdog ejects the
/// scheduler. A Batch task waits by design if there are many of them.
const WAIT_MAX: Span = Span::from_millis(1_000);
/// A longer wait of an urgent task for a decision is visible: three frames.
const URGENT_WAIT_MAX: Span = Span::from_millis(50);
/// The same for a wait from the wakeup to the CPU, which the fast path counts in buckets: the edge
/// of one near 50 ms.
const URGENT_LATENCY_MAX: Span = Span::from_nanos(50_331_648);
/// Restarts within a minute. A CPU that goes off- and online causes two.
const RESTARTS_MAX: u64 = 5;
/// The adaptive loop runs once a second.
const LOOP_GAP_MAX: Span = Span::from_millis(5_000);
/// A scheduler that uses more of one CPU than this spins. Chosen.
const OWN_CPU_PCT_MAX: u64 = 75;
/// Events that are normal while they are few are a fault above this share, in percent, if there are
/// at least [`MANY`]. Chosen.
const SHARE_MAX: u64 = 2;
const MANY: u64 = 10;

/// `ok`, or the worst fault of the interval between the readings. A page fault before that comes
/// last, so that it hides nothing newer: it shows that the process's memory was not locked.
pub fn health(before: &Reading, after: &Reading) -> String {
    let faults = [stopped, lost, late, driver, wasteful, lasting];
    let worst = faults.into_iter().find_map(|faults| faults(before, after));
    worst.unwrap_or_else(|| "ok".into())
}

/// It does not schedule, or did not.
fn stopped(before: &Reading, after: &Reading) -> Option<String> {
    let (was, is) = (&before.numbers, &after.numbers);
    let gap = after.at.since(Stamp::from_nanos(is.last_round_ns));
    let silences = is.silences.saturating_sub(was.silences);
    let stalled = stalls::between(before, after);
    match () {
        () if is.rounds == 0 => Some("starting".into()),
        () if after.driver.is_unloaded => {
            Some("the state of sched_ext is not `enabled`: the kernel schedules by itself".into())
        }
        () if gap > GAP_MAX => Some(format!("the scheduler has not run for {gap}")),
        () if stalled.is_some() => stalled,
        () if silences > 0 => {
            Some(format!("the scheduler did not run for more than {GAP_MAX}, {silences} times"))
        }
        () => None,
    }
}

/// Memory, messages or decisions are lost.
fn lost(before: &Reading, after: &Reading) -> Option<String> {
    let (was, is) = (&before.numbers, &after.numbers);
    let page_faults = page_faults(after).saturating_sub(page_faults(before));
    let malformed = is.malformed.saturating_sub(was.malformed);
    let congested = is.congested.saturating_sub(was.congested);
    let refused = is.refused.saturating_sub(was.refused);
    match () {
        () if page_faults > 0 => Some(format!("{page_faults} page faults")),
        () if malformed > 0 => Some(format!("{malformed} malformed messages were skipped")),
        () if congested > 0 => Some(format!("congested: {congested} tasks bypassed the policy")),
        () if refused > 0 => Some(format!("the ring to the kernel was full {refused} times")),
        () => None,
    }
}

/// A task waited too long.
fn late(before: &Reading, after: &Reading) -> Option<String> {
    let is = &after.numbers;
    let waits = [is.wait_peak_ns, is.urgent_wait_peak_ns];
    let [wait, urgent_wait] = waits.map(Span::from_nanos);
    let counted = after.fast_path.since(&before.fast_path);
    let urgent = [Tier::Interactive, Tier::LatCritical].map(|tier| counted.waits(tier));
    let longest = urgent.iter().map(|waits| waits.quantile(1, 1)).max().unwrap_or_default();
    match () {
        () if wait > WAIT_MAX => Some(format!("a task waited {wait} for a decision")),
        () if urgent_wait > URGENT_WAIT_MAX => {
            Some(format!("an urgent task waited {urgent_wait} for a decision"))
        }
        () if longest > URGENT_LATENCY_MAX => Some(format!(
            "an urgent task waited up to {} ms for a CPU",
            longest.as_micros().div_ceil(1_000)
        )),
        () => None,
    }
}

/// The supervisor does not do its part.
fn driver(before: &Reading, after: &Reading) -> Option<String> {
    let driver = &after.driver;
    let dropped = driver.record_dropped.saturating_sub(before.driver.record_dropped);
    let unprinted = driver.unprinted.saturating_sub(before.driver.unprinted);
    let idle = after.at.since(driver.adapted);
    match () {
        () if driver.recent_restarts > RESTARTS_MAX => {
            Some(format!("{} restarts within a minute", driver.recent_restarts))
        }
        () if idle > LOOP_GAP_MAX => Some(format!("the adaptive loop has not run for {idle}")),
        () if dropped > 0 => Some(format!("the recording dropped {dropped} entries")),
        () if unprinted > 0 => Some(format!("{unprinted} lines could not be printed")),
        () => None,
    }
}

/// Work is done in vain.
fn wasteful(before: &Reading, after: &Reading) -> Option<String> {
    let (was, is) = (&before.numbers, &after.numbers);
    let decisions = is.user_dispatches.saturating_sub(was.user_dispatches);
    let counted = after.fast_path.since(&before.fast_path);
    let untold = counted.events(Event::NewsDropped);
    let wakeups = counted.events(Event::Wakeup);
    let shares = [
        (is.bounced.saturating_sub(was.bounced), decisions, "decisions named a forbidden CPU"),
        (is.cancelled.saturating_sub(was.cancelled), decisions, "decisions came too late"),
        (is.displaced.saturating_sub(was.displaced), decisions, "decisions ended another's order"),
        (counted.events(Event::Stolen), wakeups, "wakeups took another task's record or hint"),
        (counted.events(Event::Contended), wakeups, "wakeups found the task's record in use"),
    ];
    if let Some((part, whole, what)) = shares.into_iter().find(|it| is_too_many(it.0, it.1)) {
        return Some(format!("{part} of {whole} {what}"));
    }
    // The worker updates its CPU time once a second: a shorter interval has no figure.
    let elapsed = after.at.since(before.at).as_nanos();
    let cpu_pct = is.cpu_ns.saturating_sub(was.cpu_ns).saturating_mul(100) / elapsed.max(1);
    match () {
        () if untold > 0 => Some(format!("{untold} exits or execs were not reported")),
        () if elapsed >= 1_000_000_000 && cpu_pct > OWN_CPU_PCT_MAX => {
            Some(format!("the scheduler used {cpu_pct}% of a CPU"))
        }
        () => None,
    }
}

fn is_too_many(part: u64, whole: u64) -> bool {
    part >= MANY && u128::from(part) * 100 > u128::from(whole) * u128::from(SHARE_MAX)
}

/// What stays as it is.
fn lasting(_: &Reading, after: &Reading) -> Option<String> {
    let page_faults = page_faults(after);
    if after.driver.save_failed {
        return Some("the profiles of programs could not be saved".into());
    }
    if after.driver.not_real_time || after.numbers.not_real_time != 0 {
        return Some(
            "the threads that end or continue a scheduler that hangs are not real-time: \
             CAP_SYS_NICE is missing, or a limit of the service forbids it"
                .into(),
        );
    }
    State::from_word(after.numbers.fast_path)
        .fault()
        .or_else(|| (page_faults > 0).then(|| format!("{page_faults} page faults since the start")))
}

fn page_faults(reading: &Reading) -> u64 {
    reading.numbers.faults_major + reading.numbers.faults_minor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_path_counters::tests::{fast_path_counters, with_events};

    const SECOND: u64 = 1_000_000_000;

    fn healthy(second: u64) -> Reading {
        let mut reading = Reading { at: Stamp::from_nanos(second * SECOND), ..Reading::default() };
        reading.numbers.rounds = 9;
        reading.numbers.last_round_ns = second * SECOND;
        reading.driver.adapted = reading.at;
        reading
    }

    /// Health after a second without faults, except for one change in it.
    fn judge(change: impl Fn(&mut Reading)) -> String {
        let (before, mut after) = (healthy(9), healthy(10));
        change(&mut after);
        health(&before, &after)
    }

    /// Health if the change is older than the interval.
    fn judge_later(change: impl Fn(&mut Reading)) -> String {
        let [mut before, mut after] = [healthy(9), healthy(10)];
        change(&mut before);
        change(&mut after);
        health(&before, &after)
    }

    #[test]
    fn a_healthy_second_is_ok() {
        assert_eq!(judge(|_| ()), "ok");
    }

    #[test]
    fn each_fault_of_the_worker_has_its_message() {
        let count = |change: fn(&mut crate::shared::Numbers)| judge(|r| change(&mut r.numbers));
        assert_eq!(count(|n| n.rounds = 0), "starting");
        let silent = count(|n| n.last_round_ns = 5 * SECOND);
        assert_eq!(silent, "the scheduler has not run for 5000ms");
        let silence = "the scheduler did not run for more than 3000ms, 1 times";
        assert_eq!(count(|n| n.silences = 1), silence);
        assert_eq!(count(|n| n.faults_minor = 2), "2 page faults");
        assert_eq!(count(|n| n.faults_major = 1), "1 page faults");
        assert_eq!(count(|n| n.malformed = 4), "4 malformed messages were skipped");
        assert_eq!(count(|n| n.congested = 7), "congested: 7 tasks bypassed the policy");
        assert_eq!(count(|n| n.refused = 3), "the ring to the kernel was full 3 times");
        assert_eq!(count(|n| n.wait_peak_ns = 2 * SECOND), "a task waited 2000ms for a decision");
        assert_eq!(count(|n| n.wait_peak_ns = SECOND), "ok", "a Batch task waits by design");
        let urgent = count(|n| (n.wait_peak_ns, n.urgent_wait_peak_ns) = (SECOND, 51_000_000));
        assert_eq!(urgent, "an urgent task waited 51ms for a decision");
        assert_eq!(count(|n| n.urgent_wait_peak_ns = 50_000_000), "ok");
        assert_eq!(count(|n| n.cpu_ns = 9 * SECOND / 10), "the scheduler used 90% of a CPU");
        assert_eq!(
            count(|n| n.fast_path = State::Refused.to_word()),
            "the kernel refused the fast path: wakeups wait for a tick"
        );
    }

    #[test]
    fn few_decisions_in_vain_are_normal_and_many_are_a_fault() {
        let of_thousand = |bounced, cancelled| {
            judge(|r| {
                let n = &mut r.numbers;
                (n.user_dispatches, n.bounced, n.cancelled) = (1_000, bounced, cancelled);
            })
        };
        assert_eq!(of_thousand(20, 20), "ok");
        assert_eq!(of_thousand(21, 0), "21 of 1000 decisions named a forbidden CPU");
        assert_eq!(of_thousand(0, 21), "21 of 1000 decisions came too late");
        assert!(!is_too_many(MANY - 1, 0) && is_too_many(MANY, 0));
    }

    #[test]
    fn an_urgent_task_s_wait_above_50_ms_is_a_fault() {
        let waited = |ms| {
            let wait = Span::from_millis(ms);
            judge(|r| r.fast_path = fast_path_counters(Tier::Interactive, 1, wait, (0, wait)))
        };
        assert!(!waited(45).contains("urgent"), "{}", waited(45));
        assert_eq!(waited(55), "an urgent task waited up to 59 ms for a CPU");
    }

    #[test]
    fn events_that_the_fast_path_dropped_are_a_fault() {
        let of_thousand = |event, count| {
            let counters = with_events(&[(Event::Wakeup, 1_000), (event, count)]);
            let told = judge(|r| r.fast_path = counters);
            assert_eq!(judge_later(|r| r.fast_path = counters), "ok", "{event:?} earlier");
            told
        };
        assert_eq!(of_thousand(Event::Stolen, 20), "ok");
        assert_eq!(
            of_thousand(Event::Stolen, 21),
            "21 of 1000 wakeups took another task's record or hint"
        );
        assert_eq!(of_thousand(Event::Contended, 20), "ok");
        assert_eq!(
            of_thousand(Event::Contended, 21),
            "21 of 1000 wakeups found the task's record in use"
        );
        assert_eq!(of_thousand(Event::NewsDropped, 0), "ok");
        assert_eq!(of_thousand(Event::NewsDropped, 1), "1 exits or execs were not reported");
    }

    #[test]
    fn each_fault_of_the_supervisor_has_its_message() {
        let unloaded = judge(|r| r.driver.is_unloaded = true);
        assert!(unloaded.contains("not `enabled`"), "{unloaded}");
        assert_eq!(judge(|r| r.driver.recent_restarts = RESTARTS_MAX), "ok");
        assert_eq!(judge(|r| r.driver.recent_restarts = 6), "6 restarts within a minute");
        let dead = judge(|r| r.driver.adapted = Stamp::from_nanos(3 * SECOND));
        assert_eq!(dead, "the adaptive loop has not run for 7000ms");
        assert_eq!(judge(|r| r.driver.record_dropped = 5), "the recording dropped 5 entries");
        assert_eq!(judge(|r| r.driver.unprinted = 5), "5 lines could not be printed");
        let unsaved = judge(|r| r.driver.save_failed = true);
        assert_eq!(unsaved, "the profiles of programs could not be saved");
        let supervisor = judge(|r| r.driver.not_real_time = true);
        assert!(supervisor.contains("are not real-time"), "{supervisor}");
        assert_eq!(judge(|r| r.numbers.not_real_time = 1), supervisor, "the worker's thread");
    }

    #[test]
    fn an_old_page_fault_hides_nothing_that_comes_after_it() {
        let old = |r: &mut Reading| r.numbers.faults_minor = 1;
        assert_eq!(judge_later(old), "1 page faults since the start");
        let mut before = healthy(9);
        old(&mut before);
        let mut after = Reading { numbers: before.numbers, ..healthy(10) };
        after.numbers.last_round_ns = 10 * SECOND;
        after.numbers.congested = 7;
        assert_eq!(health(&before, &after), "congested: 7 tasks bypassed the policy");
        after.numbers.faults_minor = 2;
        assert_eq!(health(&before, &after), "1 page faults", "a new one comes first");
    }
}
