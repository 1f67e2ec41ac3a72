// SPDX-License-Identifier: GPL-2.0-only

//! Stalls: times in which the scheduling process did not decide, and the kernel half did by itself.

use super::backend::StallCause as Cause;
use super::reading::Reading;
use pandemonium_engine::time::Span;

const fn sentence(cause: Cause) -> &'static str {
    match cause {
        Cause::NoCpu => "a task of a higher scheduling class had its CPU",
        Cause::Stopped => "it was stopped",
        Cause::Blocked => "it waited in the kernel",
        Cause::Running => "one round took so long",
    }
}

/// A sentence about the stalls that ended between two readings, if there was one.
pub fn between(before: &Reading, after: &Reading) -> Option<String> {
    let (was, is) = (&before.numbers, &after.numbers);
    let stalls = is.stalls.saturating_sub(was.stalls);
    let time = Span::from_nanos(is.stalled_ns.saturating_sub(was.stalled_ns));
    let why = Cause::from_word(is.stall_cause).map_or("", sentence);
    (stalls > 0).then(|| {
        let times = if stalls > 1 { format!(" in {stalls} stalls") } else { String::new() };
        format!(
            "the scheduling process did not decide for {time}{times} ({why}); the kernel half \
             scheduled by itself"
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
        after.numbers.stall_cause = Cause::Stopped as u64;
        let told = between(&before, &after).expect("a stall");
        assert_eq!(
            told,
            "the scheduling process did not decide for 7000ms (it was stopped); the kernel half \
             scheduled by itself"
        );
        after.numbers.stalls = 3;
        let told = between(&before, &after).expect("stalls");
        assert!(told.contains("for 7000ms in 3 stalls (it was"), "{told}");
    }

    #[test]
    fn an_unknown_cause_is_left_out() {
        let mut after = Reading::default();
        after.numbers.stalls = 1;
        after.numbers.stall_cause = 9;
        assert!(between(&Reading::default(), &after).is_some_and(|told| told.contains("()")));
    }
}
