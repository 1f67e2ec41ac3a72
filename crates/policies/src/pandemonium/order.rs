// SPDX-License-Identifier: GPL-2.0-only

//! The dispatch order of PANDEMONIUM: which queue the next task comes from, as a function of which
//! tiers wait and for how long.
//!
//! ```text
//! 1. overflow rescue     the oldest urgent task beyond the limit, unless Batch is in deficit;
//!                        else the oldest Batch task beyond the limit
//! 2. deficit             the first Batch task, once the budget of other decisions is used up
//! 3. starvation rescue   the oldest Batch task beyond the hard limit; low-weight tasks too
//! 4. urgent tiers        the first LatCritical task, else the first Interactive one
//! 5. CoDel rescue        the oldest Batch task beyond the adaptive threshold
//! 6. Batch               the first Batch task
//! ```
//!
//! PANDEMONIUM's order has nine steps, and [`choose`] has these six. Two of the other three are
//! steps of the backend: it serves a CPU's own queue, and it lets the running task continue if no
//! task waits. The last one, which prefers tasks of the CPU's memory node, is [`Placer::nearest`].
//!
//! An age is the wait of one task beyond its turn, that is beyond the wait that the number of
//! waiting tasks explains. With ten hogs on two CPUs every task waits for four slices, and none of
//! them starves.
//!
//! [`Placer::nearest`]: super::placement::Placer::nearest

use crate::knobs::{Knobs, Rules};
use crate::scaling::Scaling;
use pandemonium_engine::Mode;
use pandemonium_engine::task::{Reason, Tier};
use pandemonium_engine::time::Span;

/// A low-weight task is rescued only after it has waited this long beyond its turn, so that rescues
/// do not give it more than the share of its weight. Far below the kernel's watchdog of 5 s.
pub const LIGHT_WAIT: Span = Span::from_millis(1_000);

/// Which tiers wait, and for how long beyond the turn. An age is `None` if no such task waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Whether a LatCritical task waits.
    pub lat_critical: bool,
    /// Whether an Interactive task waits.
    pub interactive: bool,
    /// Whether a Batch task waits, low-weight tasks included.
    pub batch: bool,
    /// Age of the longest waiting task above Batch.
    pub urgent_age: Option<Span>,
    /// Age of the longest waiting Batch task of at least ordinary weight.
    pub batch_age: Option<Span>,
    /// Age of the longest waiting Batch task below ordinary weight.
    pub light_age: Option<Span>,
}

/// The earlier decisions that the next one depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Decisions for urgent tasks since a Batch task was last dispatched, counted while a Batch
    /// task waits.
    pub deficit: u32,
    /// Whether the last decision was a rescue. At most every other decision is one, so that many
    /// old tasks cannot block urgent ones.
    pub rescued: bool,
}

/// Which task to dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first task of a tier's queue.
    First(Tier),
    /// The longest waiting task above Batch.
    OldestUrgent,
    /// The longest waiting Batch task of at least ordinary weight.
    OldestBatch,
    /// The longest waiting Batch task below ordinary weight.
    OldestLight,
}

/// Selects the task to dispatch next; `None` if no task waits.
pub fn choose(
    waiting: &Situation,
    turns: &Turns,
    mode: Mode,
    limits: &Scaling,
    knobs: &Knobs,
) -> Option<(Choice, Reason)> {
    let rules = &knobs.rules;
    let beyond = |age: Option<Span>, limit: Span| age.is_some_and(|age| age > limit);
    let starving = beyond(waiting.batch_age, knobs.sojourn_thresh);
    let deficit_due = rules.deficit && starving && turns.deficit >= budget(mode, limits);
    let rescue = |age, limit| !turns.rescued && beyond(age, limit);

    // 1. Overflow rescue.
    if rules.overflow_rescue && !deficit_due && rescue(waiting.urgent_age, limits.overflow_rescue) {
        return Some((Choice::OldestUrgent, Reason::OverflowRescue));
    }
    if rules.overflow_rescue && rescue(waiting.batch_age, limits.overflow_rescue) {
        return Some((Choice::OldestBatch, Reason::OverflowRescue));
    }
    // 2. Deficit.
    if deficit_due {
        return Some((Choice::First(Tier::Batch), Reason::Deficit));
    }
    // 3. Starvation rescue.
    if let Some(choice) = starved(waiting, limits, rules).filter(|_| !turns.rescued) {
        return Some((choice, Reason::StarvationRescue));
    }
    // 4. Urgent tiers.
    if waiting.lat_critical {
        return Some((Choice::First(Tier::LatCritical), Reason::Order));
    }
    if waiting.interactive {
        return Some((Choice::First(Tier::Interactive), Reason::Order));
    }
    // 5. CoDel rescue.
    if rules.codel_rescue && starving && !turns.rescued {
        return Some((Choice::OldestBatch, Reason::CodelRescue));
    }
    // 6. Batch.
    waiting.batch.then_some((Choice::First(Tier::Batch), Reason::Order))
}

/// The task to rescue because it has waited beyond the hard limit.
fn starved(waiting: &Situation, limits: &Scaling, rules: &Rules) -> Option<Choice> {
    let beyond = |age: Option<Span>, limit: Span| age.is_some_and(|age| age > limit);
    if !rules.starvation_rescue {
        return None;
    }
    if beyond(waiting.batch_age, limits.starvation) {
        return Some(Choice::OldestBatch);
    }
    beyond(waiting.light_age, limits.starvation.max(LIGHT_WAIT)).then_some(Choice::OldestLight)
}

/// How many decisions for urgent tasks a waiting Batch task allows before it is in deficit.
pub fn budget(mode: Mode, limits: &Scaling) -> u32 {
    if mode.tight_deficit() { limits.deficit_budget_longrun } else { limits.deficit_budget }
}

impl Turns {
    /// The state after a decision for a task of `tier`. `batch_waits` says whether a Batch task
    /// waits.
    pub fn after(self, tier: Tier, reason: Reason, batch_waits: bool) -> Turns {
        let deficit = match tier {
            Tier::Batch => 0,
            _ if batch_waits => self.deficit.saturating_add(1),
            _ => 0,
        };
        Turns { deficit, rescued: reason.is_rescue() }
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

    /// A task of every tier waits, none beyond its turn.
    const ALL: Situation = Situation {
        lat_critical: true,
        interactive: true,
        batch: true,
        urgent_age: ms(0),
        batch_age: ms(0),
        light_age: None,
    };

    fn decide(
        waiting: Situation,
        turns: Turns,
        change: fn(&mut Knobs),
    ) -> Option<(Choice, Reason)> {
        let mut knobs = Knobs::default();
        change(&mut knobs);
        choose(&waiting, &turns, Mode::default(), &LIMITS(), &knobs)
    }

    fn plain(waiting: Situation) -> (Choice, Reason) {
        decide(waiting, Turns::default(), |_| ()).unwrap()
    }

    const FRESH: Turns = Turns { deficit: 0, rescued: false };
    const SPENT: Turns = Turns { deficit: 16, rescued: false };
    const RESCUED: Turns = Turns { deficit: 0, rescued: true };

    /// On four CPUs: overflow limit 8 ms, sojourn threshold 5 ms, starvation limit 100 ms, budget
    /// 16.
    #[test]
    fn rescues_come_before_deficit_and_deficit_before_urgent_tiers() {
        let batch = |ms| Situation { batch_age: Some(Span::from_millis(ms)), ..ALL };
        let urgent = |ms| Situation { urgent_age: Some(Span::from_millis(ms)), ..ALL };
        let old = Situation { urgent_age: ms(9), batch_age: ms(9), ..ALL };
        let (first, order) = (Choice::First, Reason::Order);
        for (waiting, turns, expected) in [
            (ALL, FRESH, (first(Tier::LatCritical), order)),
            (urgent(8), FRESH, (first(Tier::LatCritical), order)),
            (urgent(9), FRESH, (Choice::OldestUrgent, Reason::OverflowRescue)),
            (urgent(9), RESCUED, (first(Tier::LatCritical), order)),
            (batch(9), FRESH, (Choice::OldestBatch, Reason::OverflowRescue)),
            (old, FRESH, (Choice::OldestUrgent, Reason::OverflowRescue)),
            // Batch is in deficit, so the urgent task is not rescued and the old Batch task is.
            (old, SPENT, (Choice::OldestBatch, Reason::OverflowRescue)),
            (batch(6), SPENT, (first(Tier::Batch), Reason::Deficit)),
            (batch(5), SPENT, (first(Tier::LatCritical), order)),
            (batch(6), FRESH, (first(Tier::LatCritical), order)),
        ] {
            assert_eq!(decide(waiting, turns, |_| ()), Some(expected), "{waiting:?} {turns:?}");
        }
    }

    #[test]
    fn batch_alone_is_ordered_by_key_and_beyond_the_threshold_by_age() {
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
        let low_weight = |age| Situation {
            batch: true,
            light_age: Some(Span::from_millis(age)),
            ..Situation::default()
        };
        assert_eq!(plain(low_weight(999)), (Choice::First(Tier::Batch), Reason::Order));
        assert_eq!(plain(low_weight(1_001)), (Choice::OldestLight, Reason::StarvationRescue));
    }

    #[test]
    fn each_step_can_be_switched_off() {
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
    fn the_deficit_counts_urgent_decisions_while_batch_work_waits() {
        let mut turns = Turns::default();
        for deficit in 1..=3 {
            turns = turns.after(Tier::LatCritical, Reason::Order, true);
            assert_eq!(turns.deficit, deficit);
        }
        assert_eq!(
            turns.after(Tier::Interactive, Reason::Order, false).deficit,
            0,
            "no Batch task waits"
        );
        assert_eq!(turns.after(Tier::Batch, Reason::Order, true).deficit, 0);
        assert!(turns.after(Tier::Batch, Reason::CodelRescue, true).rescued);
    }

    /// On four CPUs from 16 to 4.
    #[test]
    fn a_long_run_cuts_the_budget() {
        let waiting = Situation { batch_age: ms(6), ..ALL };
        let turns = Turns { deficit: 4, rescued: false };
        let decided = |longrun| {
            let mode = Mode { burst: false, longrun };
            choose(&waiting, &turns, mode, &LIMITS(), &Knobs::default()).unwrap().1
        };
        assert_eq!((decided(false), decided(true)), (Reason::Order, Reason::Deficit));
    }
}
