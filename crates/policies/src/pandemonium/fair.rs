// SPDX-License-Identifier: GPL-2.0-only

//! Who has had how much: virtual time, its clock, and the key by which a queue is ordered.
//!
//! A task's virtual time grows with the CPU time it uses, the slower the heavier it is. The clock
//! is where a task stands that has had exactly its share: it grows with the CPU time that all use,
//! divided by the weight of all who want some. A task behind the clock has credit, one ahead of it
//! has debt, and the key turns that into order:
//!
//! ```text
//! key = max(virtual time, clock - lag) + min(CPU time since the last wake-up, cap)
//! ```
//!
//! The second term lets a task that has just woken up pass one that has been running all along.

use crate::scaling::Scaling;
use pandemonium_engine::knobs::Knobs;
use pandemonium_engine::task::{Tier, Weight};
use pandemonium_engine::time::{Span, Vtime};

/// Weight that leaves time as it is (PANDEMONIUM 5.4.13); nice 0 has 100.
const WEIGHT_ONE: u64 = 128;
/// Credit for one unit of lag, and the most that a run counts for Batch.
const LAG_UNIT: Span = Span::from_millis(40);
/// Most units of lag: 2.56 s of credit, for a task that wakes up 640 times a second.
const LAG_MAX: u64 = 64;
/// In a queue deeper than this sleepers get one unit of credit, since all have slept.
const DEPTH_CROWDED: usize = 8;
/// In a queue deeper than this they get half.
const DEPTH_BUSY: usize = 4;

/// A task's weight in its tier: 2, 1.5 and 1 times its nice weight (PANDEMONIUM 5.4.13).
pub fn effective_weight(weight: Weight, tier: Tier) -> u64 {
    let tier_weight = match tier {
        Tier::LatCritical => 256,
        Tier::Interactive => 192,
        Tier::Batch => 128,
    };
    ((weight.get() * tier_weight) >> 7).max(1)
}

/// What `ran` costs in virtual time.
pub fn charge(ran: Span, effective_weight: u64) -> Span {
    ran.scale(WEIGHT_ONE, effective_weight)
}

/// How many units of credit a task may have that wakes up so often, before a queue of this depth.
pub fn lag(wake_freq: u64, lag_scale: u32, depth: usize) -> u64 {
    let units = ((wake_freq * u64::from(lag_scale)) >> 2).clamp(1, LAG_MAX);
    match depth {
        depth if depth > DEPTH_CROWDED => 1,
        depth if depth > DEPTH_BUSY && units > 2 => units / 2,
        _ => units,
    }
}

/// The most that CPU time since the last wake-up counts (PANDEMONIUM 5.4.13).
pub fn awake_cap(tier: Tier) -> Span {
    match tier {
        Tier::LatCritical => Span::from_millis(20),
        Tier::Interactive => Span::from_millis(30),
        Tier::Batch => LAG_UNIT,
    }
}

/// A task, as far as its place in a queue depends on it.
#[derive(Clone, Copy, Debug)]
pub struct KeyInput {
    /// Its virtual time.
    pub vruntime: Vtime,
    /// CPU time since its last wake-up.
    pub awake: Span,
    /// Its nice weight.
    pub weight: Weight,
    /// Its tier.
    pub tier: Tier,
    /// Wake-ups in 100 ms.
    pub wake_freq: u64,
    /// How many wait already where it is going to.
    pub depth: usize,
}

/// Where a task stands: its virtual time within the limits, and the key that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What of its virtual time is remembered.
    pub vruntime: Vtime,
    /// By what its queue is ordered.
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
    /// Where a task stands that has had its share.
    pub const fn now(&self) -> Vtime {
        self.now
    }

    /// Somebody ran for `ran` while tasks of `contenders` effective weight wanted the machine.
    ///
    /// That weight is an estimate: of those that run now the kernel tells the number only. So the
    /// clock is held to the facts: `neediest` is the first key of the Batch queue, which lies up
    /// to a run's cap beyond where that task stands. The clock is never outside of these bounds
    /// for long: it waits for the task, or follows it.
    pub fn advance(&mut self, ran: Span, contenders: u64, neediest: Option<Vtime>) {
        let moved = self.now.after(charge(ran, contenders.max(1)));
        self.now = match neediest {
            Some(key) if key < self.now => self.now,
            Some(key) => moved.min(key).max(key.before(awake_cap(Tier::Batch))),
            None => moved,
        };
    }

    /// Where a task with this key input stands.
    pub fn place(&self, key_input: &KeyInput, limits: &Scaling, knobs: &Knobs) -> Place {
        let mut vruntime = key_input.vruntime;
        if knobs.rules.lag {
            let units = lag(key_input.wake_freq, knobs.lag_scale, key_input.depth);
            vruntime = vruntime.max(self.now.before(LAG_UNIT.scale(units, 1)));
        }
        if let (true, Tier::Batch, Some(ceiling)) =
            (knobs.rules.vtime_ceiling, key_input.tier, limits.vtime_ceiling)
        {
            // A light task owes more for the same run, so its debt may be larger.
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
    fn lag_follows_the_table() {
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
            assert_eq!(lag(freq, scale, depth), units, "{freq} {scale} {depth}");
        }
    }

    #[test]
    fn a_tier_charges_what_the_table_says() {
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
            depth: 0,
        }
    }

    fn clock() -> Clock {
        Clock { now: Vtime::START.after(Span::from_millis(10_000)) }
    }

    #[test]
    fn sleep_earns_credit_within_the_lag() {
        let (limits, knobs) = (Scaling::new(8), Knobs::default());
        let credit = |wake_freq| {
            let key_input = KeyInput { wake_freq, ..key_input(Vtime::START) };
            let stands = clock().place(&key_input, &limits, &knobs).vruntime;
            (clock().now().as_raw() - stands.as_raw()) / 1_000_000
        };
        assert_eq!([credit(0), credit(10), credit(64)], [40, 400, 2_560]);
        let mut off = knobs;
        off.rules.lag = false;
        assert_eq!(clock().place(&key_input(Vtime::START), &limits, &off).vruntime, Vtime::START);
    }

    #[test]
    fn debt_ends_at_the_ceiling_which_is_further_off_for_light_tasks() {
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
    fn a_long_run_counts_up_to_its_cap() {
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

    /// Four hogs on two CPUs: whatever the estimate of the weight, the clock stays with them.
    #[test]
    fn the_clock_keeps_to_those_who_wait() {
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
        assert_eq!(clock.now(), before, "it waits");
        clock.advance(Span::ZERO, 0, None);
        assert_eq!(clock.now(), before);
    }
}
