// SPDX-License-Identifier: GPL-2.0-only

//! Stalls: times in which the scheduling process did not decide, and the backend did by itself.

use super::backend::StallCause as Cause;
use super::reading::Reading;
use super::shared::Numbers;
use pandemonium_engine::time::Span;

const fn sentence(cause: Cause) -> &'static str {
    match cause {
        Cause::NoCpu => "a task of a higher scheduling class had its CPU",
        Cause::Stopped => "it was stopped",
        Cause::Blocked => "it waited in the kernel",
        Cause::Running => "one round took so long",
    }
}

/// How often the backend found this cause.
const fn found(cause: Cause, numbers: &Numbers) -> u64 {
    match cause {
        Cause::NoCpu => numbers.stalled_without_cpu,
        Cause::Stopped => numbers.stalled_stopped,
        Cause::Blocked => numbers.stalled_blocked,
        Cause::Running => numbers.stalled_running,
    }
}

/// The cause of most of the time. A process that is stopped has no CPU first, and again when it is
/// continued.
fn main_cause(was: &Numbers, is: &Numbers) -> Option<Cause> {
    let times = |&cause: &Cause| found(cause, is).saturating_sub(found(cause, was));
    Cause::ALL.into_iter().filter(|cause| times(cause) > 0).max_by_key(times)
}

/// A sentence about the stalls that ended between two readings, if there was one.
pub fn between(before: &Reading, after: &Reading) -> Option<String> {
    let (was, is) = (&before.numbers, &after.numbers);
    let stalls = is.stalls.saturating_sub(was.stalls);
    let time = Span::from_nanos(is.stalled_ns.saturating_sub(was.stalled_ns));
    let why = main_cause(was, is).map(|cause| format!(" ({})", sentence(cause)));
    (stalls > 0).then(|| {
        let times = if stalls > 1 { format!(" in {stalls} stalls") } else { String::new() };
        format!(
            "the scheduling process did not decide for {time}{times}{}; the backend scheduled \
             by itself",
            why.unwrap_or_default()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_told_with_its_length_and_cause() {
        let before = Reading::default();
        let mut after = before;
        assert_eq!(between(&before, &after), None);
        after.numbers.stalls = 1;
        after.numbers.stalled_ns = 7_000_000_000;
        after.numbers.stalled_stopped = 698;
        let told = between(&before, &after).expect("a stall");
        assert_eq!(
            told,
            "the scheduling process did not decide for 7000ms (it was stopped); the backend \
             scheduled by itself"
        );
        after.numbers.stalls = 3;
        let told = between(&before, &after).expect("stalls");
        assert!(told.contains("for 7000ms in 3 stalls (it was"), "{told}");
    }

    #[test]
    fn the_cause_of_most_of_the_time_is_told() {
        let mut before = Reading::default();
        before.numbers.stalled_blocked = 5_000;
        let mut after = before;
        after.numbers.stalls = 2;
        after.numbers.stalled_without_cpu = 3;
        after.numbers.stalled_stopped = 690;
        after.numbers.stalled_blocked += 4;
        let told = between(&before, &after).expect("stalls");
        assert!(told.contains("(it was stopped)"), "{told}");
    }

    #[test]
    fn an_unknown_cause_is_left_out() {
        let mut after = Reading::default();
        after.numbers.stalls = 1;
        let told = between(&Reading::default(), &after).expect("a stall");
        assert!(told.contains("for 0ns; the"), "{told}");
    }
}
