// SPDX-License-Identifier: GPL-2.0-only

//! What a person reads: the line of statistics and the word on health.

use super::stats::{Metrics, Reading};
use super::worker::fast_path_state;
use scx_pandemonium_user::engine::Limits;
use scx_pandemonium_user::time::{Span, Stamp};
use std::io::Write;

/// A worker that has not decided for so long is stuck: the kernel half wakes it at least once a
/// second.
const SILENCE: Span = Span::from_millis(3_000);
/// A task that waits so long for a decision is close to the kernel's watchdog, which ends us
/// after 5 s.
const WAIT: Span = Span::from_millis(1_000);
/// More of one CPU than this is not scheduling but spinning. Chosen.
const OWN_CPU_PCT: u64 = 75;

/// Prints a line for the user. A reader that has gone away is no reason to stop scheduling.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// `ok`, or the first reason why it is not, worst first. Page faults stay until the end, since
/// one is enough to show that the process is not as locked as it should be; everything else is
/// about the time between the two readings.
pub fn health(before: &Reading, after: &Reading) -> String {
    let (was, is) = (&before.numbers, &after.numbers);
    let silent = after.at.since(Stamp::from_nanos(is.last_round_ns));
    let wait = Span::from_nanos(is.wait_peak_ns);
    let elapsed = after.at.since(before.at).as_nanos();
    let cpu_pct = is.cpu_ns.saturating_sub(was.cpu_ns).saturating_mul(100) / elapsed.max(1);
    let (congested, refused) =
        (is.congested.saturating_sub(was.congested), is.refused.saturating_sub(was.refused));
    match () {
        () if is.rounds == 0 => "starting".into(),
        () if silent > SILENCE => format!("the scheduler has not run for {silent}"),
        () if is.faults_major + is.faults_minor > 0 => {
            format!("{} page faults since the start", is.faults_major + is.faults_minor)
        }
        () if congested > 0 => format!("congested: {congested} tasks bypassed the policy"),
        () if refused > 0 => format!("the ring to the kernel was full {refused} times"),
        () if is.fast_path == fast_path_state::REFUSED => {
            "the kernel refused the fast path: wake-ups wait for a tick".into()
        }
        () if wait > WAIT => format!("a task waited {wait} for a decision"),
        // The processor time is renewed once a second, so a shorter interval says nothing.
        () if elapsed >= 1_000_000_000 && cpu_pct > OWN_CPU_PCT => {
            format!("the scheduler used {cpu_pct}% of a CPU")
        }
        () => "ok".into(),
    }
}

/// The state of the fast path in a word.
pub fn fast_path(state: u64) -> &'static str {
    match state {
        fast_path_state::LOADED => "loaded",
        fast_path_state::REFUSED => "refused",
        _ => "none",
    }
}

/// One line: what happens, the state of health, and what that judgement rests on.
pub fn line(m: &Metrics) -> String {
    let wait = Span::from_micros(m.oldest_wait_us);
    let tiers = [m.nr_batch, m.nr_interactive, m.nr_lat_critical];
    let all = tiers.iter().sum::<u64>().max(1);
    let [batch, interactive, lat_critical] = tiers.map(|n| n * 100 / all);
    format!(
        "d/s: {} idle: {:.0}% shared: {} kick: H={} enq: W={} R={} p99: {} \
         tier: B={batch}% I={interactive}% LC={lat_critical}% sjrn: {wait}/{} rescue: {} [{}] \
         health: {} | faults: {}+{} congested: {} bounced: {} cancelled: {} refused: {} \
         ring: {}/{} oldest: {wait} dec/s: {} cpu: {:.1}%",
        m.dispatches_per_sec,
        m.idle_pct,
        m.decisions_per_sec,
        m.kicks,
        m.wakeups_per_sec,
        m.requeues_per_sec,
        Span::from_micros(m.wake_p99_us),
        Span::from_micros(m.starvation_limit_us),
        m.rescues,
        m.policy.to_uppercase(),
        m.health,
        m.page_faults_minor,
        m.page_faults_major,
        m.nr_sched_congested,
        m.nr_bounce_dispatches,
        m.nr_cancel_dispatches,
        m.nr_refused_dispatches,
        m.ring_occupancy,
        Limits::ARRIVALS,
        m.decisions_per_sec,
        m.own_cpu_pct,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::shared::Numbers;

    const SECOND: u64 = 1_000_000_000;

    /// A second of healthy work, to be made unhealthy in one place.
    fn judge(change: fn(&mut Numbers)) -> String {
        let numbers = Numbers { rounds: 9, last_round_ns: 10 * SECOND, ..Numbers::default() };
        let before = Reading { at: Stamp::from_nanos(9 * SECOND), numbers };
        let mut after = Reading { at: Stamp::from_nanos(10 * SECOND), numbers };
        change(&mut after.numbers);
        health(&before, &after)
    }

    #[test]
    fn a_healthy_second_is_ok() {
        assert_eq!(judge(|_| ()), "ok");
    }

    #[test]
    fn each_trouble_has_its_words() {
        assert_eq!(judge(|n| n.rounds = 0), "starting");
        assert_eq!(judge(|n| n.last_round_ns = 5 * SECOND), "the scheduler has not run for 5000ms");
        assert_eq!(judge(|n| n.faults_minor = 2), "2 page faults since the start");
        assert_eq!(judge(|n| n.faults_major = 1), "1 page faults since the start");
        assert_eq!(judge(|n| n.congested = 7), "congested: 7 tasks bypassed the policy");
        assert_eq!(judge(|n| n.refused = 3), "the ring to the kernel was full 3 times");
        assert_eq!(
            judge(|n| n.fast_path = fast_path_state::REFUSED),
            "the kernel refused the fast path: wake-ups wait for a tick"
        );
        assert_eq!(judge(|n| n.wait_peak_ns = 2 * SECOND), "a task waited 2000ms for a decision");
        assert_eq!(judge(|n| n.cpu_ns = 9 * SECOND / 10), "the scheduler used 90% of a CPU");
    }

    #[test]
    fn the_worst_trouble_is_named_first() {
        let both = judge(|n| (n.faults_minor, n.congested) = (1, 1));
        assert_eq!(both, "1 page faults since the start");
    }

    #[test]
    fn the_line_carries_the_fields_by_their_names() {
        let metrics = Metrics {
            health: "ok".into(),
            policy: "pandemonium".into(),
            dispatches_per_sec: 2510,
            decisions_per_sec: 2300,
            idle_pct: 8.4,
            kicks: 640,
            wake_p99_us: 250,
            wakeups_per_sec: 800,
            requeues_per_sec: 1500,
            nr_batch: 60,
            nr_interactive: 30,
            nr_lat_critical: 10,
            oldest_wait_us: 3_000,
            starvation_limit_us: 50_000,
            ring_occupancy: 12,
            own_cpu_pct: 1.25,
            ..Metrics::default()
        };
        assert_eq!(
            line(&metrics),
            "d/s: 2510 idle: 8% shared: 2300 kick: H=640 enq: W=800 R=1500 p99: 250us \
             tier: B=60% I=30% LC=10% sjrn: 3ms/50ms rescue: 0 [PANDEMONIUM] health: ok | \
             faults: 0+0 congested: 0 bounced: 0 cancelled: 0 refused: 0 ring: 12/4096 \
             oldest: 3ms dec/s: 2300 cpu: 1.2%"
        );
    }
}
