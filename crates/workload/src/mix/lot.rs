// SPDX-License-Identifier: GPL-2.0-only

//! What the drawing of a mix draws from: the seed, the CPUs, and what urgent parts may still want.

use pandemonium_sim::random::Random;

/// Share of the machine that all urgent parts together may want, and that one of them may want, in
/// thousandths.
const URGENT_MAX: u64 = 500;
const URGENT_MAX_EACH: u64 = 200;
/// The least that an urgent part wants, in thousandths of a CPU.
const URGENT_MIN: u64 = 5;
/// The shortest work in microseconds: less is lost in the cost of a wakeup.
const WORK_MIN: u64 = 5;

/// The state of one drawing.
pub struct Lot {
    random: Random,
    cpus: u64,
    /// What urgent parts may still want, in thousandths of a CPU.
    left: u64,
}

impl Lot {
    /// A drawing for a machine with so many CPUs. The kinds and rhythms of a seed are the same on
    /// every machine; the numbers of tasks follow the CPUs.
    pub fn new(seed: u64, cpus: u32) -> Lot {
        let cpus = u64::from(cpus);
        Lot { random: Random::derive(seed, 0), cpus, left: URGENT_MAX * cpus }
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> u64 {
        self.cpus
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.random.between(low, high)
    }

    /// A number from `low` to `high`, small ones as often as large ones: each doubling is as likely
    /// as any other.
    pub fn scale(&mut self, low: u64, high: u64) -> u64 {
        let doublings = (high / low).max(1).ilog2();
        let from = low << self.random.below(u64::from(doublings) + 1);
        self.between(from, 2 * from).min(high)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize]
    }

    /// A number of tasks between these multiples of the CPUs, in quarters; at least one.
    pub fn tasks(&mut self, low: u64, high: u64) -> u64 {
        (self.between(low, high) * self.cpus / 4).max(1)
    }

    /// A number of urgent tasks up to `most` that together wake up often enough, if each does after
    /// `mean` microseconds: a p99 needs 100 wakeups in five seconds.
    pub fn tasks_every(&mut self, mean: u64, most: u64) -> u64 {
        let least = 150 * mean / 5_000_000 + 1;
        self.between(least, most.max(least))
    }

    /// The work of each of `tasks` tasks of an urgent part in a period of `period` microseconds.
    /// One task works for at most a part of `serial` in a thousand of the period.
    pub fn urgent_work(&mut self, tasks: u64, period: u64, serial: u64) -> u64 {
        let most = self.left.min(URGENT_MAX_EACH * self.cpus).max(URGENT_MIN);
        let share = self.between(URGENT_MIN, most);
        let work = (share * period / 1_000 / tasks).min(period * serial / 1_000).max(WORK_MIN);
        self.left = self.left.saturating_sub(work * tasks * 1_000 / period);
        work
    }
}
