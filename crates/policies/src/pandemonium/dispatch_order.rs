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

use crate::knobs::Knobs;
use crate::scaling::Scaling;
use pandemonium_engine::Mode;
use pandemonium_engine::table::Class;
use pandemonium_engine::task::{Reason, Tier, Weight};
use pandemonium_engine::time::Span;

/// While no CPU is free, a low-weight task is rescued only after it has waited this long beyond its
/// turn, so that rescues do not give it more than the share of its weight. Far below the kernel's
/// watchdog of 5 s.
pub const LOW_WEIGHT_WAIT: Span = Span::from_millis(1_000);

/// Waiting tasks whose ages are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Above Batch.
    Urgent,
    /// Batch tasks of at least ordinary weight.
    Batch,
    /// Batch tasks below ordinary weight, which are meant to wait longer.
    LowWeight,
}

impl Group {
    pub const ALL: [Group; 3] = [Group::Urgent, Group::Batch, Group::LowWeight];

    /// The group of a task.
    pub fn of(tier: Tier, weight: Weight) -> Group {
        match tier {
            Tier::Batch if weight < Weight::default() => Group::LowWeight,
            Tier::Batch => Group::Batch,
            _ => Group::Urgent,
        }
    }

    /// Its number in the table of tasks.
    pub const fn class(self) -> Class {
        Class::new(self as u8)
    }
}

/// Which tasks wait, and for how long beyond their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Whether a task waits, by [`Tier::index`].
    pub waits: [bool; 3],
    /// How long the longest waiting task waits beyond its turn, in the order of [`Group::ALL`];
    /// `None` if there is no such task.
    pub ages: [Option<Span>; 3],
    /// Whether a CPU is free.
    pub has_free_cpu: bool,
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
    /// The longest waiting task of a group.
    Oldest(Group),
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
    let (overflow, hard, soft) = (limits.overflow_rescue, limits.starvation, knobs.sojourn_thresh);
    let is_beyond =
        |group: Group, limit: Span| waiting.ages[group as usize].is_some_and(|age| age > limit);
    let low_weight_limit = if waiting.has_free_cpu { hard } else { hard.max(LOW_WEIGHT_WAIT) };
    let is_due =
        rules.deficit && is_beyond(Group::Batch, soft) && turns.deficit >= budget(mode, limits);
    let first = |tier: Tier, reason| Some((Choice::First(tier), reason));
    let order = |tier: Tier| first(tier, Reason::Order).filter(|_| waiting.waits[tier.index()]);
    let rescue = |reason, applies: bool, group, limit| {
        let applies = applies && !turns.rescued && is_beyond(group, limit);
        applies.then_some((Choice::Oldest(group), reason))
    };
    let starved =
        |group, limit| rescue(Reason::StarvationRescue, rules.starvation_rescue, group, limit);
    let steps = [
        rescue(Reason::OverflowRescue, rules.overflow_rescue && !is_due, Group::Urgent, overflow),
        rescue(Reason::OverflowRescue, rules.overflow_rescue, Group::Batch, overflow),
        first(Tier::Batch, Reason::Deficit).filter(|_| is_due),
        starved(Group::Batch, hard),
        starved(Group::LowWeight, low_weight_limit),
        order(Tier::LatCritical),
        order(Tier::Interactive),
        rescue(Reason::CodelRescue, rules.codel_rescue, Group::Batch, soft),
        order(Tier::Batch),
    ];
    steps.into_iter().flatten().next()
}

/// How many decisions for urgent tasks a waiting Batch task allows before it is in deficit: during
/// a long run one for each CPU.
pub fn budget(mode: Mode, limits: &Scaling) -> u32 {
    if mode.tight_deficit() { limits.cpus } else { limits.deficit_budget }
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
    const ALL: Situation =
        Situation { waits: [true; 3], ages: [ms(0), ms(0), None], has_free_cpu: false };

    const BATCH_ALONE: [bool; 3] = [true, false, false];

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
        let batch = |age| Situation { ages: [ms(0), ms(age), None], ..ALL };
        let urgent = |age| Situation { ages: [ms(age), ms(0), None], ..ALL };
        let old = Situation { ages: [ms(9), ms(9), None], ..ALL };
        let (first, order) = (Choice::First, Reason::Order);
        for (waiting, turns, expected) in [
            (ALL, FRESH, (first(Tier::LatCritical), order)),
            (urgent(8), FRESH, (first(Tier::LatCritical), order)),
            (urgent(9), FRESH, (Choice::Oldest(Group::Urgent), Reason::OverflowRescue)),
            (urgent(9), RESCUED, (first(Tier::LatCritical), order)),
            (batch(9), FRESH, (Choice::Oldest(Group::Batch), Reason::OverflowRescue)),
            (old, FRESH, (Choice::Oldest(Group::Urgent), Reason::OverflowRescue)),
            // Batch is in deficit, so the urgent task is not rescued and the old Batch task is.
            (old, SPENT, (Choice::Oldest(Group::Batch), Reason::OverflowRescue)),
            (batch(6), SPENT, (first(Tier::Batch), Reason::Deficit)),
            (batch(5), SPENT, (first(Tier::LatCritical), order)),
            (batch(6), FRESH, (first(Tier::LatCritical), order)),
        ] {
            assert_eq!(decide(waiting, turns, |_| ()), Some(expected), "{waiting:?} {turns:?}");
        }
    }

    #[test]
    fn batch_alone_is_ordered_by_key_and_beyond_the_threshold_by_age() {
        let alone = |age| Situation { waits: BATCH_ALONE, ages: [None, ms(age), None], ..ALL };
        assert_eq!(plain(alone(5)), (Choice::First(Tier::Batch), Reason::Order));
        assert_eq!(plain(alone(6)), (Choice::Oldest(Group::Batch), Reason::CodelRescue));
        let by_key = Some((Choice::First(Tier::Batch), Reason::Order));
        assert_eq!(decide(alone(6), RESCUED, |_| ()), by_key);
        assert_eq!(decide(Situation::default(), FRESH, |_| ()), None);
        let low_weight = |age| Situation { waits: BATCH_ALONE, ages: [None, None, ms(age)], ..ALL };
        assert_eq!(plain(low_weight(999)), (Choice::First(Tier::Batch), Reason::Order));
        assert_eq!(
            plain(low_weight(1_001)),
            (Choice::Oldest(Group::LowWeight), Reason::StarvationRescue)
        );
        let beside_free_cpu = Situation { has_free_cpu: true, ..low_weight(101) };
        assert_eq!(
            plain(beside_free_cpu),
            (Choice::Oldest(Group::LowWeight), Reason::StarvationRescue)
        );
    }

    #[test]
    fn each_step_can_be_switched_off() {
        let old = Situation { ages: [ms(101), ms(101), None], ..ALL };
        let first = |tier| Some((Choice::First(tier), Reason::Order));
        let no_overflow: fn(&mut Knobs) = |knobs| knobs.rules.overflow_rescue = false;
        let starved = Some((Choice::Oldest(Group::Batch), Reason::StarvationRescue));
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
        let batch = Situation { waits: BATCH_ALONE, ages: [None, ms(50), None], ..ALL };
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
        let waiting = Situation { ages: [ms(0), ms(6), None], ..ALL };
        let turns = Turns { deficit: 4, rescued: false };
        let decided = |longrun| {
            let mode = Mode { burst: false, longrun };
            choose(&waiting, &turns, mode, &LIMITS(), &Knobs::default()).unwrap().1
        };
        assert_eq!((decided(false), decided(true)), (Reason::Order, Reason::Deficit));
    }
}
