// SPDX-License-Identifier: GPL-2.0-only

//! Properties of every policy under any script.

use crate::checkers::{self, Verdict};
use crate::script::{Step, arrival, scripts};
use crate::world::{Conditions, Event, Time, play, sent};
use pandemonium_engine::Policy;
use pandemonium_engine::Setup;
use pandemonium_engine::time::Span;
use pandemonium_policies::{Dropping, Fifo, LOW_WEIGHT_WAIT, Pandemonium, Scaling, Vruntime};
use proptest::prelude::*;

/// Few cases, because every new policy allocates its full tables, which takes most of the time.
const CASES: u32 = 64;
const CPUS: u32 = 4;
const FOREVER: Span = Span::from_nanos(u64::MAX);

fn cases(cases: u32) -> ProptestConfig {
    // Proptest prints a failing script. It belongs into a named test, not into a regressions file.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn pandemonium() -> Pandemonium {
    Pandemonium::new(&Setup::of_cpus(CPUS))
}

/// A checker and its name.
type Checker<'a> = (&'a str, &'a dyn Fn(&[Event]) -> Verdict);

/// Checkers that must pass under any clock.
const ALWAYS: [Checker; 3] = [
    ("loses no task", &checkers::conserves),
    ("keeps bounds", &checkers::keeps_bounds),
    ("places by message", &checkers::places_by_message),
];
/// Checkers that need a clock that never goes backward.
const IN_TIME: [Checker; 2] = [
    ("keeps counts", &checkers::keeps_counts),
    ("repeats what was refused", &checkers::repeats_refused),
];

fn pass(log: &[Event], checkers: &[Checker]) -> Result<(), TestCaseError> {
    for (name, check) in checkers {
        check(log).map_err(|why| TestCaseError::fail(format!("{name}: {why}")))?;
    }
    Ok(())
}

/// Runs the script under fair conditions with all checkers.
fn passes_all<Q: Policy>(
    mut policy: Q,
    script: &[Step],
    order: &[Checker],
) -> Result<(), TestCaseError> {
    let log = play(&mut policy, script, Conditions::FAIR);
    pass(&log, &ALWAYS)?;
    pass(&log, &IN_TIME)?;
    pass(&log, order)
}

/// The accepted decisions if every decision is refused `stubborn` times before.
fn decisions<Q: Policy>(mut policy: Q, script: &[Step], stubborn: usize) -> Vec<Event> {
    let conditions = Conditions { stubborn, ..Conditions::FAIR };
    sent(&play(&mut policy, script, conditions)).into_iter().map(Event::Sent).collect()
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn fifo_passes_all_checkers_and_serves_in_order_of_arrival(script in scripts()) {
        let by_key = |log: &[Event]| checkers::serves_in_order_of_key(log, FOREVER);
        let order: [Checker; 2] =
            [("by arrival", &checkers::serves_in_order_of_arrival), ("by key", &by_key)];
        passes_all(Fifo::new(), &script, &order)?;
    }

    #[test]
    fn vruntime_passes_all_checkers_and_serves_in_order_of_key(script in scripts()) {
        let by_key = |log: &[Event]| checkers::serves_in_order_of_key(log, FOREVER);
        passes_all(Vruntime::new(), &script, &[("by key", &by_key)])?;
    }

    #[test]
    fn pandemonium_passes_all_checkers_and_rescues_overdue_tasks(script in scripts()) {
        // Beside high-weight tasks the turn of others comes later, by at most LOW_WEIGHT_WAIT.
        let limit = Scaling::new(CPUS).starvation + LOW_WEIGHT_WAIT;
        let rescues = |log: &[Event]| checkers::rescues_beyond(log, limit);
        passes_all(pandemonium(), &script, &[("rescues", &rescues)])?;
    }
}

proptest! {
    #![proptest_config(cases(CASES / 2))]

    #[test]
    fn no_task_is_lost_if_the_clock_runs_backward(script in scripts()) {
        let backward = Conditions { time: Time::Backward, ..Conditions::FAIR };
        pass(&play(&mut Fifo::new(), &script, backward), &ALWAYS)?;
        pass(&play(&mut Vruntime::new(), &script, backward), &ALWAYS)?;
        pass(&play(&mut pandemonium(), &script, backward), &ALWAYS)?;
    }

    /// A full ring only delays decisions.
    #[test]
    fn refusals_change_no_decision(script in scripts(), stubborn in 1..4usize) {
        let [smooth, stubborn] = [0, stubborn].map(|stubborn| {
            let fifo = decisions(Fifo::new(), &script, stubborn);
            let vruntime = decisions(Vruntime::new(), &script, stubborn);
            (fifo, vruntime, decisions(pandemonium(), &script, stubborn))
        });
        prop_assert_eq!(smooth.0, stubborn.0, "fifo");
        prop_assert_eq!(smooth.1, stubborn.1, "vruntime");
        prop_assert_eq!(smooth.2, stubborn.2, "pandemonium");
    }

    #[test]
    fn equal_inputs_give_equal_decisions(script in scripts()) {
        let conditions = Conditions::FAIR;
        let pandemoniums = [(), ()].map(|()| play(&mut pandemonium(), &script, conditions));
        prop_assert_eq!(&pandemoniums[0], &pandemoniums[1]);
        let vruntimes = [(), ()].map(|()| play(&mut Vruntime::new(), &script, conditions));
        prop_assert_eq!(&vruntimes[0], &vruntimes[1]);
    }
}

/// The tests that boot kernels use this policy to show that they can fail, and so does this test.
#[test]
fn a_policy_that_loses_tasks_is_noticed() {
    let arrivals = (1..=200).map(|pid| Step::Arrive(arrival(pid, 1)));
    let script: Vec<Step> = arrivals.collect();
    let log = play(&mut Dropping::new(Fifo::new()), &script, Conditions::FAIR);
    let why = checkers::conserves(&log).unwrap_err();
    assert!(why.contains("never dispatched: [Pid(100), Pid(200)]"), "{why}");
}
