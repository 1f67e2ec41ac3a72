// SPDX-License-Identifier: GPL-2.0-only

//! What holds for every policy in any script.

use crate::judge::{self, Verdict};
use crate::script::{Step, arrival, scripts};
use crate::world::{Conditions, Event, Time, play, sent};
use proptest::prelude::*;
use scx_pandemonium_user::engine::Policy;
use scx_pandemonium_user::policy::{Dropping, Fifo, Pandemonium, Scaling, Vruntime};
use scx_pandemonium_user::time::Span;

/// A policy allocates its full tables when it is made, which is most of what a case costs.
const CASES: u32 = 48;
const CPUS: u32 = 4;
const FOREVER: Span = Span::from_nanos(u64::MAX);

fn config() -> ProptestConfig {
    // A failing script is printed whole and belongs into a test with a name, not into a file.
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

fn pandemonium() -> Pandemonium {
    Pandemonium::new(CPUS, &[])
}

/// Judges what each policy makes of the script.
fn every_policy(
    script: &[Step],
    conditions: Conditions,
    judge: impl Fn(&[Event]) -> Verdict,
) -> Result<(), TestCaseError> {
    let logs = [
        ("fifo", play(&mut Fifo::new(), script, conditions)),
        ("vruntime", play(&mut Vruntime::new(), script, conditions)),
        ("pandemonium", play(&mut pandemonium(), script, conditions)),
    ];
    for (name, log) in logs {
        judge(&log).map_err(|why| TestCaseError::fail(format!("{name}: {why}")))?;
    }
    Ok(())
}

fn all_that_needs_no_clock(log: &[Event]) -> Verdict {
    judge::conserves(log)?;
    judge::keeps_bounds(log)?;
    judge::places_by_message(log)
}

fn fails(verdict: Verdict) -> Result<(), TestCaseError> {
    verdict.map_err(TestCaseError::fail)
}

/// What was decided and sent when every decision was refused `stubborn` times before.
fn decisions<Q: Policy>(mut policy: Q, script: &[Step], stubborn: usize) -> Vec<Event> {
    let conditions = Conditions { stubborn, ..Conditions::FAIR };
    sent(&play(&mut policy, script, conditions)).into_iter().map(Event::Sent).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_is_lost_and_nothing_is_made_up(script in scripts()) {
        every_policy(&script, Conditions::FAIR, judge::conserves)?;
    }

    #[test]
    fn a_round_keeps_its_limits_and_tells_the_truth(script in scripts()) {
        every_policy(&script, Conditions::FAIR, judge::keeps_bounds)?;
    }

    #[test]
    fn the_books_agree_with_what_is_seen_from_outside(script in scripts()) {
        every_policy(&script, Conditions::FAIR, judge::keeps_books)?;
    }

    #[test]
    fn a_refused_decision_is_made_again_unchanged(script in scripts()) {
        every_policy(&script, Conditions::FAIR, judge::repeats_refused)?;
    }

    #[test]
    fn a_task_runs_where_its_newest_message_says(script in scripts()) {
        every_policy(&script, Conditions::FAIR, judge::places_by_message)?;
    }

    #[test]
    fn a_clock_that_runs_backwards_costs_no_task(script in scripts()) {
        let conditions = Conditions { time: Time::Backward, ..Conditions::FAIR };
        every_policy(&script, conditions, all_that_needs_no_clock)?;
    }

    /// A full ring delays decisions and changes none, now or later.
    #[test]
    fn refusals_leave_no_trace(script in scripts(), stubborn in 1..4usize) {
        let (fifo, vruntime) = (Fifo::new, Vruntime::new);
        prop_assert_eq!(
            decisions(fifo(), &script, 0), decisions(fifo(), &script, stubborn), "fifo"
        );
        prop_assert_eq!(
            decisions(vruntime(), &script, 0), decisions(vruntime(), &script, stubborn), "vruntime"
        );
        prop_assert_eq!(
            decisions(pandemonium(), &script, 0), decisions(pandemonium(), &script, stubborn),
            "pandemonium"
        );
    }

    #[test]
    fn equal_inputs_give_equal_decisions(script in scripts()) {
        let conditions = Conditions::FAIR;
        let pandemoniums = [(), ()].map(|()| play(&mut pandemonium(), &script, conditions));
        prop_assert_eq!(&pandemoniums[0], &pandemoniums[1]);
        let vruntimes = [(), ()].map(|()| play(&mut Vruntime::new(), &script, conditions));
        prop_assert_eq!(&vruntimes[0], &vruntimes[1]);
    }

    #[test]
    fn fifo_serves_in_order_of_arrival(script in scripts()) {
        let log = play(&mut Fifo::new(), &script, Conditions::FAIR);
        fails(judge::serves_in_order_of_arrival(&log))?;
    }

    #[test]
    fn vruntime_serves_in_order_of_key(script in scripts()) {
        let log = play(&mut Vruntime::new(), &script, Conditions::FAIR);
        fails(judge::serves_in_order_of_key(&log, FOREVER))?;
    }

    #[test]
    fn pandemonium_serves_in_order_of_key_until_somebody_is_overdue(script in scripts()) {
        let log = play(&mut pandemonium(), &script, Conditions::FAIR);
        fails(judge::serves_in_order_of_key(&log, Scaling::new(CPUS).starvation))?;
    }

    #[test]
    fn pandemonium_rescues_whoever_is_overdue(script in scripts()) {
        let log = play(&mut pandemonium(), &script, Conditions::FAIR);
        fails(judge::rescues_beyond(&log, Scaling::new(CPUS).starvation))?;
    }
}

/// The suites that boot kernels rely on this policy to show that they can fail. So does this one.
#[test]
fn a_policy_that_drops_tasks_is_caught() {
    let arrivals = (1..=200).map(|pid| Step::Arrive(arrival(pid, 1)));
    let script: Vec<Step> = arrivals.collect();
    let log = play(&mut Dropping::new(Fifo::new()), &script, Conditions::FAIR);
    let why = judge::conserves(&log).unwrap_err();
    assert!(why.contains("never dispatched: [Pid(100), Pid(200)]"), "{why}");
}
