// SPDX-License-Identifier: GPL-2.0-only

//! Fair shares: virtual time, the virtual clock, and the key that orders a queue.
//!
//! A task's virtual time grows by the CPU time it uses, divided by its weight. The clock is the
//! virtual time of a task that had exactly its share: it grows by the CPU time of all tasks,
//! divided by the weight of all runnable tasks. A task behind the clock has credit, a task ahead of
//! it has debt. The key turns this into an order:
//!
//! ```text
//! key = max(virtual time, clock - sleeper credit) + min(CPU time since the last wakeup, cap)
//! ```
//!
//! A task that sleeps falls behind the clock; the first term limits the credit that it collects. A
//! Batch task collects none by sleeping: it wakes up with the credit it had, as under EEVDF.
//! The second term lets a task that has just woken up overtake one that has run since long.

use crate::knobs::Knobs;
use crate::scaling::Scaling;
use pandemonium_engine::task::{Tier, Weight};
use pandemonium_engine::time::{Span, Vtime};

/// The weight for which virtual time equals CPU time, and a Batch slice is a whole one (PANDEMONIUM
/// 5.4.13); nice 0 has 100.
pub const WEIGHT_ONE: u64 = 128;
/// One unit of sleeper credit (PANDEMONIUM 5.4.13).
const CREDIT_UNIT: Span = Span::from_millis(40);
/// The most that CPU time since the last wakeup counts for Batch (PANDEMONIUM 5.4.13).
const BATCH_AWAKE_CAP: Span = Span::from_millis(40);
/// The clock is at most this far behind the first key of the Batch queue: a key exceeds the virtual
/// time of its task by no more.
const CLOCK_BEHIND_MAX: Span = BATCH_AWAKE_CAP;
/// A task this far behind the clock has had less than its share. Chosen: half a unit of credit, and
/// more than the slices by which equal hogs differ.
const FAR_BEHIND: Span = Span::from_millis(20);
/// Most units of sleeper credit: 2.56 s, for a task that wakes up 640 times a second.
const CREDIT_MAX: u64 = 64;
/// In a queue deeper than this a sleeper gets one unit, because all tasks in it have slept.
const DEPTH_CROWDED: usize = 8;
/// In a queue deeper than this a sleeper gets half of its credit.
const DEPTH_BUSY: usize = 4;

/// A task's weight in its tier: 2, 1.5 and 1 times its nice weight for LatCritical, Interactive and
/// Batch (PANDEMONIUM 5.4.13).
pub fn effective_weight(weight: Weight, tier: Tier) -> u64 {
    let tier_weight = match tier {
        Tier::LatCritical => 2 * WEIGHT_ONE,
        Tier::Interactive => WEIGHT_ONE * 3 / 2,
        Tier::Batch => WEIGHT_ONE,
    };
    (weight.get() * tier_weight / WEIGHT_ONE).max(1)
}

/// The effective weight of a Batch task of nice 0.
pub fn ordinary_batch_weight() -> u64 {
    effective_weight(Weight::default(), Tier::Batch)
}

/// The virtual time charged for `ran`.
pub fn charge(ran: Span, effective_weight: u64) -> Span {
    ran.scale(WEIGHT_ONE, effective_weight)
}

/// Sleeper credit in units of [`CREDIT_UNIT`], by the task's wakeups in 100 ms and the depth of
/// its queue.
pub fn credit(wake_freq: u64, sleeper_credit_scale: u32, depth: usize) -> u64 {
    let units = ((wake_freq * u64::from(sleeper_credit_scale)) >> 2).clamp(1, CREDIT_MAX);
    match depth {
        depth if depth > DEPTH_CROWDED => 1,
        depth if depth > DEPTH_BUSY && units > 2 => units / 2,
        _ => units,
    }
}

/// The most that CPU time since the last wakeup counts (PANDEMONIUM 5.4.13).
pub fn awake_cap(tier: Tier) -> Span {
    match tier {
        Tier::LatCritical => Span::from_millis(20),
        Tier::Interactive => Span::from_millis(30),
        Tier::Batch => BATCH_AWAKE_CAP,
    }
}

/// The properties of a task that its key depends on.
#[derive(Clone, Copy, Debug)]
pub struct KeyInput {
    /// Its virtual time.
    pub vruntime: Vtime,
    /// CPU time since its last wakeup.
    pub awake: Span,
    /// Its nice weight.
    pub weight: Weight,
    /// Its tier.
    pub tier: Tier,
    /// Wakeups in 100 ms.
    pub wake_freq: u64,
    /// The most credit that it may have, if that is limited.
    pub kept: Option<Span>,
    /// The number of tasks in the queue that it enters.
    pub depth: usize,
}

/// A task's virtual time within the limits, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The virtual time to store for the task.
    pub vruntime: Vtime,
    /// The key that orders its queue.
    pub key: Vtime,
}

/// The virtual clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    now: Vtime,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { now: Vtime::START }
    }
}

impl Clock {
    /// The virtual time of a task that had exactly its share.
    pub const fn now(&self) -> Vtime {
        self.now
    }

    /// Advances the clock: a task ran for `ran` while tasks of `contenders` effective weight were
    /// runnable.
    ///
    /// `contenders` is an estimate, because the kernel reports only the number of running tasks. So
    /// the clock is bounded by `neediest`, the first key of the Batch queue. The clock stops while
    /// it is ahead of that key, and it stays at most [`CLOCK_BEHIND_MAX`] behind it.
    pub fn advance(&mut self, ran: Span, contenders: u64, neediest: Option<Vtime>) {
        let moved = self.now.after(charge(ran, contenders.max(1)));
        self.now = match neediest {
            Some(key) if key < self.now => self.now,
            Some(key) => moved.min(key).max(key.before(CLOCK_BEHIND_MAX)),
            None => moved,
        };
    }

    /// How far a task with this virtual time is behind the clock.
    pub fn credit(&self, vruntime: Vtime) -> Span {
        Span::from_nanos(self.now.as_raw().saturating_sub(vruntime.as_raw()))
    }

    /// Whether a task with this virtual time has had less than its share.
    pub fn is_far_ahead_of(&self, vruntime: Vtime) -> bool {
        self.credit(vruntime) > FAR_BEHIND
    }

    /// Limits a task's virtual time and computes its key.
    pub fn place(&self, key_input: &KeyInput, limits: &Scaling, knobs: &Knobs) -> Place {
        let mut vruntime = key_input.vruntime;
        if knobs.rules.sleeper_credit {
            let units = credit(key_input.wake_freq, knobs.sleeper_credit_scale, key_input.depth);
            let most = CREDIT_UNIT.scale(units, 1);
            let most = key_input.kept.map_or(most, |kept| kept.min(most));
            vruntime = vruntime.max(self.now.before(most));
        }
        if let (true, Tier::Batch, Some(ceiling)) =
            (knobs.rules.vtime_ceiling, key_input.tier, limits.vtime_ceiling)
        {
            // A low-weight task is charged more for the same run, so its debt may be larger.
            let weighted = ceiling
                .scale(u64::from(pandemonium_engine::task::WEIGHT_DEFAULT), key_input.weight.get());
            vruntime = vruntime.min(self.now.after(weighted.max(ceiling)));
        }
        let mut awake = charge(key_input.awake, effective_weight(key_input.weight, key_input.tier));
        if knobs.rules.awake_cap {
            awake = awake.min(awake_cap(key_input.tier));
        }
        Place { vruntime, key: vruntime.after(awake) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const NICE_0: Weight = Weight::new(100);

    #[test]
    fn sleeper_credit_follows_the_table() {
        for (freq, scale, depth, units) in [
            (20, 4, 0, 20),
            (20, 4, 5, 10),
            (20, 4, 9, 1),
            (64, 6, 0, 64),
            (0, 4, 0, 1),
            (2, 4, 6, 2),
            (3, 4, 6, 1),
            (10, 2, 4, 5),
        ] {
            assert_eq!(credit(freq, scale, depth), units, "{freq} {scale} {depth}");
        }
    }

    #[test]
    fn the_charge_of_a_tier_follows_the_table() {
        let ran = Span::from_millis(1);
        for (tier, weight, cost) in [
            (Tier::Batch, 100, 1_280_000),
            (Tier::Interactive, 150, 853_333),
            (Tier::LatCritical, 200, 640_000),
        ] {
            assert_eq!(effective_weight(NICE_0, tier), weight);
            assert_eq!(charge(ran, weight).as_nanos(), cost);
        }
    }

    fn key_input(vruntime: Vtime) -> KeyInput {
        KeyInput {
            vruntime,
            awake: Span::ZERO,
            weight: NICE_0,
            tier: Tier::Batch,
            wake_freq: 0,
            kept: None,
            depth: 0,
        }
    }

    fn clock() -> Clock {
        Clock { now: Vtime::START.after(Span::from_millis(10_000)) }
    }

    #[test]
    fn sleeper_credit_is_limited() {
        let (limits, knobs) = (Scaling::new(8), Knobs::default());
        let credit = |wake_freq| {
            let key_input = KeyInput { wake_freq, ..key_input(Vtime::START) };
            let vruntime = clock().place(&key_input, &limits, &knobs).vruntime;
            clock().credit(vruntime).as_micros() / 1_000
        };
        assert_eq!([credit(0), credit(10), credit(64)], [40, 400, 2_560]);
        for (kept, most) in [(0, 0), (7, 7), (100, 40)] {
            let kept = Some(Span::from_millis(kept));
            let key_input = KeyInput { kept, ..key_input(Vtime::START) };
            let vruntime = clock().place(&key_input, &limits, &knobs).vruntime;
            assert_eq!(clock().credit(vruntime), Span::from_millis(most), "{kept:?}");
        }
        let mut off = knobs;
        off.rules.sleeper_credit = false;
        assert_eq!(clock().place(&key_input(Vtime::START), &limits, &off).vruntime, Vtime::START);
    }

    #[test]
    fn debt_ends_at_a_ceiling_that_is_higher_for_low_weight_tasks() {
        let (limits, knobs) = (Scaling::new(8), Knobs::default());
        let far = clock().now().after(Span::from_millis(60_000));
        let debt = |weight, limits: &Scaling, knobs: &Knobs| {
            let key_input = KeyInput { weight: Weight::new(weight), ..key_input(far) };
            (clock().place(&key_input, limits, knobs).vruntime.as_raw() - clock().now().as_raw())
                / 1_000_000
        };
        assert_eq!(debt(100, &limits, &knobs), 30);
        assert_eq!(debt(800, &limits, &knobs), 30);
        assert_eq!(debt(10, &limits, &knobs), 300);
        let mut off = knobs;
        off.rules.vtime_ceiling = false;
        assert_eq!(debt(100, &limits, &off), 60_000);
    }

    #[test]
    fn cpu_time_since_the_wake_up_counts_up_to_a_cap() {
        let (limits, mut knobs) = (Scaling::new(4), Knobs::default());
        let counts = |tier, awake, knobs: &Knobs| {
            let key_input = KeyInput { tier, awake, ..key_input(clock().now()) };
            (clock().place(&key_input, &limits, knobs).key.as_raw() - clock().now().as_raw())
                / 1_000
        };
        assert_eq!(counts(Tier::Batch, Span::from_millis(1), &knobs), 1_280);
        assert_eq!(
            Tier::ALL.map(|tier| counts(tier, Span::from_millis(500), &knobs)),
            [40_000, 30_000, 20_000]
        );
        knobs.rules.awake_cap = false;
        assert_eq!(counts(Tier::Batch, Span::from_millis(500), &knobs), 640_000);
    }

    /// Four hogs on two CPUs, with any estimate of the weight.
    #[test]
    fn the_clock_follows_the_waiting_batch_tasks() {
        for contenders in [1, 400, 1_000_000] {
            let mut clock = Clock::default();
            let mut hogs = [Vtime::START; 4];
            for _ in 0..4_000 {
                let neediest = hogs.iter().min().copied();
                let next = hogs.iter_mut().min().unwrap();
                *next = next.after(charge(Span::from_millis(4), 100));
                clock.advance(Span::from_millis(4), contenders, {
                    neediest.map(|vruntime| vruntime.after(awake_cap(Tier::Batch)))
                });
            }
            let off = clock.now().as_raw().abs_diff(hogs[0].as_raw()) / 1_000_000;
            assert!(off <= 40 + 2 * 5, "{contenders}: {off} ms");
        }
    }

    #[test]
    fn the_clock_never_goes_back() {
        let mut clock = clock();
        let before = clock.now();
        clock.advance(Span::from_millis(4), 100, Some(Vtime::START));
        assert_eq!(clock.now(), before, "it stops");
        clock.advance(Span::ZERO, 0, None);
        assert_eq!(clock.now(), before);
    }
}
