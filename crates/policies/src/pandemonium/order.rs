// SPDX-License-Identifier: GPL-2.0-only

//! Whose turn it is: the dispatch order of PANDEMONIUM, as a function of who waits for how long.
//!
//! ```text
//! 1. overflow rescue      Interactive beyond the limit, unless Batch is owed; Batch beyond it
//! 2. per-CPU work         what we sent to a CPU's own queue: served there by the kernel half
//! 3. deficit              Batch, when as many others as the budget allows went before
//! 4. starvation rescue    Batch beyond the hard limit, light tasks too
//! 5. interactive          LatCritical, then Interactive
//! 6. CoDel rescue         the oldest Batch task, when it is beyond the adaptive threshold
//! 7. batch                by key
//! 8. other nodes          by nearness, when the task is picked
//! 9. keep running         nobody waits: the kernel half lets the current task go on
//! ```
//!
//! Ages are those of tasks, each its own wait, beyond what the crowd explains: among ten hogs on
//! two CPUs everybody waits for four slices, and that is nobody's neglect.

use crate::scaling::Scaling;
use pandemonium_engine::Mode;
use pandemonium_engine::knobs::{Knobs, Rules};
use pandemonium_engine::task::{Reason, Tier};
use pandemonium_engine::time::Span;

/// A light task, which owes much for little, is rescued only when it has waited so long beyond its
/// turn, so that it gets no more than its weight is worth. Far below the kernel's watchdog of 5 s.
pub const LIGHT_WAIT: Span = Span::from_millis(1_000);

/// Who waits, and for how long beyond the turn; `None` where nobody waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Whether a LatCritical task waits.
    pub lat_critical: bool,
    /// Whether an Interactive task waits.
    pub interactive: bool,
    /// Whether a Batch task waits, a light one included.
    pub batch: bool,
    /// Age of the longest waiting task above Batch.
    pub urgent_age: Option<Span>,
    /// Age of the longest waiting Batch task of at least ordinary weight.
    pub batch_age: Option<Span>,
    /// Age of the longest waiting Batch task below ordinary weight.
    pub light_age: Option<Span>,
}

/// What was decided before, as far as it matters now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Decisions that passed waiting Batch work since it was served last.
    pub passed: u32,
    /// Whether the last decision was for age. At most every other one is, so that no crowd of old
    /// tasks keeps urgent ones out.
    pub rescued: bool,
}

/// Whom to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first of a tier's queue.
    First(Tier),
    /// The longest waiting of those above Batch.
    OldestUrgent,
    /// The longest waiting of Batch.
    OldestBatch,
    /// The longest waiting of Batch below ordinary weight.
    OldestLight,
}

/// Decides whose turn it is; `None` when nobody waits.
pub fn choose(
    who: &Situation,
    turns: &Turns,
    mode: Mode,
    limits: &Scaling,
    knobs: &Knobs,
) -> Option<(Choice, Reason)> {
    let rules = &knobs.rules;
    let beyond = |age: Option<Span>, limit: Span| age.is_some_and(|age| age > limit);
    let starving = beyond(who.batch_age, knobs.sojourn_thresh);
    let owed = rules.deficit && starving && turns.passed >= budget(mode, limits);
    let rescue = |age, limit| !turns.rescued && beyond(age, limit);

    if rules.overflow_rescue && !owed && rescue(who.urgent_age, limits.overflow_rescue) {
        return Some((Choice::OldestUrgent, Reason::OverflowRescue));
    }
    if rules.overflow_rescue && rescue(who.batch_age, limits.overflow_rescue) {
        return Some((Choice::OldestBatch, Reason::OverflowRescue));
    }
    if owed {
        return Some((Choice::First(Tier::Batch), Reason::Deficit));
    }
    if let Some(choice) = starved(who, limits, rules).filter(|_| !turns.rescued) {
        return Some((choice, Reason::StarvationRescue));
    }
    if who.lat_critical {
        return Some((Choice::First(Tier::LatCritical), Reason::Order));
    }
    if who.interactive {
        return Some((Choice::First(Tier::Interactive), Reason::Order));
    }
    if rules.codel_rescue && starving && !turns.rescued {
        return Some((Choice::OldestBatch, Reason::CodelRescue));
    }
    who.batch.then_some((Choice::First(Tier::Batch), Reason::Order))
}

fn starved(who: &Situation, limits: &Scaling, rules: &Rules) -> Option<Choice> {
    let beyond = |age: Option<Span>, limit: Span| age.is_some_and(|age| age > limit);
    if !rules.starvation_rescue {
        return None;
    }
    if beyond(who.batch_age, limits.starvation) {
        return Some(Choice::OldestBatch);
    }
    beyond(who.light_age, limits.starvation.max(LIGHT_WAIT)).then_some(Choice::OldestLight)
}

/// How many decisions may pass waiting Batch work.
fn budget(mode: Mode, limits: &Scaling) -> u32 {
    if mode.tight_deficit() { limits.deficit_budget_longrun } else { limits.deficit_budget }
}

impl Turns {
    /// What is known after a decision for a task of `tier`, while Batch work waited or not.
    pub fn after(self, tier: Tier, reason: Reason, batch_waits: bool) -> Turns {
        let passed = match tier {
            Tier::Batch => 0,
            _ if batch_waits => self.passed.saturating_add(1),
            _ => 0,
        };
        Turns { passed, rescued: reason.is_rescue() }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const LIMITS: fn() -> Scaling = || Scaling::new(4);

    const fn ms(ms: u64) -> Option<Span> {
        Some(Span::from_millis(ms))
    }

    /// Everybody waits, nobody for long.
    const ALL: Situation = Situation {
        lat_critical: true,
        interactive: true,
        batch: true,
        urgent_age: ms(0),
        batch_age: ms(0),
        light_age: None,
    };

    fn decide(who: Situation, turns: Turns, change: fn(&mut Knobs)) -> Option<(Choice, Reason)> {
        let mut knobs = Knobs::default();
        change(&mut knobs);
        choose(&who, &turns, Mode::default(), &LIMITS(), &knobs)
    }

    fn plain(who: Situation) -> (Choice, Reason) {
        decide(who, Turns::default(), |_| ()).unwrap()
    }

    const FRESH: Turns = Turns { passed: 0, rescued: false };
    const SPENT: Turns = Turns { passed: 16, rescued: false };
    const RESCUED: Turns = Turns { passed: 0, rescued: true };

    /// Four CPUs: overflow limit 8 ms, sojourn threshold 5 ms, starvation 100 ms, budget 16.
    #[test]
    fn each_step_has_its_place() {
        let batch = |ms| Situation { batch_age: Some(Span::from_millis(ms)), ..ALL };
        let urgent = |ms| Situation { urgent_age: Some(Span::from_millis(ms)), ..ALL };
        let old = Situation { urgent_age: ms(9), batch_age: ms(9), ..ALL };
        let (first, order) = (Choice::First, Reason::Order);
        for (who, turns, expected) in [
            (ALL, FRESH, (first(Tier::LatCritical), order)),
            (urgent(8), FRESH, (first(Tier::LatCritical), order)),
            (urgent(9), FRESH, (Choice::OldestUrgent, Reason::OverflowRescue)),
            (urgent(9), RESCUED, (first(Tier::LatCritical), order)),
            (batch(9), FRESH, (Choice::OldestBatch, Reason::OverflowRescue)),
            (old, FRESH, (Choice::OldestUrgent, Reason::OverflowRescue)),
            // Batch is owed: the rescue of others waits, and Batch takes the turn by age.
            (old, SPENT, (Choice::OldestBatch, Reason::OverflowRescue)),
            (batch(6), SPENT, (first(Tier::Batch), Reason::Deficit)),
            (batch(5), SPENT, (first(Tier::LatCritical), order)),
            (batch(6), FRESH, (first(Tier::LatCritical), order)),
        ] {
            assert_eq!(decide(who, turns, |_| ()), Some(expected), "{who:?} {turns:?}");
        }
    }

    #[test]
    fn batch_alone_goes_by_age_beyond_the_threshold_and_by_key_before() {
        let alone = |age| Situation {
            batch: true,
            batch_age: Some(Span::from_millis(age)),
            ..Situation::default()
        };
        assert_eq!(plain(alone(5)), (Choice::First(Tier::Batch), Reason::Order));
        assert_eq!(plain(alone(6)), (Choice::OldestBatch, Reason::CodelRescue));
        let by_key = Some((Choice::First(Tier::Batch), Reason::Order));
        assert_eq!(decide(alone(6), RESCUED, |_| ()), by_key);
        assert_eq!(decide(Situation::default(), FRESH, |_| ()), None);
        let light = |age| Situation {
            batch: true,
            light_age: Some(Span::from_millis(age)),
            ..Situation::default()
        };
        assert_eq!(plain(light(999)), (Choice::First(Tier::Batch), Reason::Order));
        assert_eq!(plain(light(1_001)), (Choice::OldestLight, Reason::StarvationRescue));
    }

    #[test]
    fn every_gate_can_be_switched_off() {
        let old = Situation { urgent_age: ms(101), batch_age: ms(101), ..ALL };
        let first = |tier| Some((Choice::First(tier), Reason::Order));
        let no_overflow: fn(&mut Knobs) = |knobs| knobs.rules.overflow_rescue = false;
        let starved = Some((Choice::OldestBatch, Reason::StarvationRescue));
        assert_eq!(decide(old, FRESH, no_overflow), starved);
        assert_eq!(
            decide(old, SPENT, no_overflow),
            Some((Choice::First(Tier::Batch), Reason::Deficit))
        );
        assert_eq!(
            decide(old, SPENT, |knobs| {
                (knobs.rules.overflow_rescue, knobs.rules.deficit) = (false, false);
            }),
            starved
        );
        let no_rescue: fn(&mut Knobs) = |knobs| {
            (knobs.rules.overflow_rescue, knobs.rules.starvation_rescue) = (false, false);
        };
        assert_eq!(decide(old, FRESH, no_rescue), first(Tier::LatCritical));
        let batch = Situation { batch: true, batch_age: ms(50), ..Situation::default() };
        assert_eq!(
            decide(batch, FRESH, |knobs| {
                (knobs.rules.overflow_rescue, knobs.rules.codel_rescue) = (false, false);
            }),
            first(Tier::Batch)
        );
    }

    #[test]
    fn the_budget_counts_what_passes_waiting_batch_work() {
        let mut turns = Turns::default();
        for passed in 1..=3 {
            turns = turns.after(Tier::LatCritical, Reason::Order, true);
            assert_eq!(turns.passed, passed);
        }
        assert_eq!(turns.after(Tier::Interactive, Reason::Order, false).passed, 0, "nobody waits");
        assert_eq!(turns.after(Tier::Batch, Reason::Order, true).passed, 0);
        assert!(turns.after(Tier::Batch, Reason::CodelRescue, true).rescued);
    }

    /// A long run cuts the budget from 16 to 4 on four CPUs.
    #[test]
    fn sustained_batch_pressure_cuts_the_budget() {
        let who = Situation { batch_age: ms(6), ..ALL };
        let turns = Turns { passed: 4, rescued: false };
        let decided = |longrun| {
            let mode = Mode { burst: false, longrun };
            choose(&who, &turns, mode, &LIMITS(), &Knobs::default()).unwrap().1
        };
        assert_eq!((decided(false), decided(true)), (Reason::Order, Reason::Deficit));
    }
}
