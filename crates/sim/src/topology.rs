// SPDX-License-Identifier: GPL-2.0-only

//! The CPUs of a simulated machine, what they share, and sets of CPUs.

use alloc::vec::Vec;
use pandemonium_engine::facts::CpuSet;
use pandemonium_engine::task::CPUS_MAX;

/// Speed of an ordinary CPU: on it, a nanosecond of work takes a nanosecond.
pub const FULL_SPEED: u64 = 1024;

/// The topology of a machine. CPUs that share something have adjacent numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of CPUs, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// Threads per core.
    pub smt: u32,
    /// CPUs per second-level cache.
    pub l2: u32,
    /// CPUs per last-level cache.
    pub l3: u32,
    /// CPUs per NUMA node.
    pub node: u32,
    /// Number of fast CPUs, which come first; the others have `slow_speed`.
    pub fast: u32,
    /// Speed of the slow CPUs, relative to [`FULL_SPEED`].
    pub slow_speed: u32,
}

impl Shape {
    /// A plain machine: all CPUs share one cache and one NUMA node.
    pub const fn flat(cpus: u32) -> Shape {
        let cpus = if cpus == 0 { 1 } else { cpus };
        Shape { cpus, smt: 1, l2: 1, l3: cpus, node: cpus, fast: cpus, slow_speed: 1024 }
    }

    /// The same shape with every value in range, and with no domain larger than the one that
    /// contains it.
    pub fn sane(self) -> Shape {
        let cpus = self.cpus.clamp(1, CPUS_MAX);
        let smt = self.smt.clamp(1, 8);
        let l2 = self.l2.max(smt);
        let l3 = self.l3.max(l2);
        let slow_speed = self.slow_speed.clamp(64, FULL_SPEED as u32);
        Shape { cpus, smt, l2, l3, node: self.node.max(l3), fast: self.fast.min(cpus), slow_speed }
    }
}

impl Shape {
    /// Whether both are threads of one core.
    pub const fn share_core(&self, a: u32, b: u32) -> bool {
        a / self.smt == b / self.smt
    }

    /// Whether both share a second-level cache.
    pub const fn share_l2(&self, a: u32, b: u32) -> bool {
        a / self.l2 == b / self.l2
    }

    /// Whether both share a last-level cache.
    pub const fn share_l3(&self, a: u32, b: u32) -> bool {
        a / self.l3 == b / self.l3
    }

    /// Whether both belong to the same NUMA node.
    pub const fn share_node(&self, a: u32, b: u32) -> bool {
        a / self.node == b / self.node
    }

    /// Speed of a CPU while its siblings are idle.
    pub const fn speed(&self, cpu: u32) -> u64 {
        if cpu < self.fast { FULL_SPEED } else { self.slow_speed as u64 }
    }

    /// All threads of the core of `cpu`, including itself.
    pub fn core_of(&self, cpu: u32) -> core::ops::Range<u32> {
        let first = cpu - cpu % self.smt;
        first..(first + self.smt).min(self.cpus)
    }
}

/// An affinity mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// From the first number up to, but not including, the second.
    Range(u16, u16),
    /// Some of the first 64.
    Bits(u64),
}

impl Mask {
    /// All CPUs of a machine with `cpus` CPUs.
    pub const fn all(cpus: u32) -> Mask {
        Mask::Range(0, cpus as u16)
    }

    /// One CPU.
    pub const fn only(cpu: u32) -> Mask {
        Mask::Range(cpu as u16, cpu as u16 + 1)
    }

    /// Whether `cpu` is in the mask.
    pub const fn holds(self, cpu: u32) -> bool {
        match self {
            Mask::Range(first, end) => first as u32 <= cpu && cpu < end as u32,
            Mask::Bits(bits) => cpu < 64 && bits >> cpu & 1 == 1,
        }
    }

    /// Number of CPUs in the mask.
    pub const fn count(self) -> u32 {
        match self {
            Mask::Range(first, end) => end.saturating_sub(first) as u32,
            Mask::Bits(bits) => bits.count_ones(),
        }
    }

    /// The lowest CPU in the mask.
    pub const fn first(self) -> Option<u32> {
        match self {
            Mask::Range(first, end) if first < end => Some(first as u32),
            Mask::Bits(bits) if bits != 0 => Some(bits.trailing_zeros()),
            _ => None,
        }
    }

    /// The mask as the fast path reports it on a machine with `cpus` CPUs.
    pub const fn reported(self, cpus: u32) -> CpuSet {
        match self {
            Mask::Bits(bits) => CpuSet::first_64(bits),
            Mask::Range(0, end) if cpus > 64 && end as u32 >= cpus => CpuSet::ALL,
            Mask::Range(first, end) => {
                let group = first / 64;
                let bits = ones_below(end.saturating_sub(64 * group)) & !ones_below(first % 64);
                CpuSet::of_group(group, bits)
            }
        }
    }
}

const fn ones_below(bit: u16) -> u64 {
    if bit >= 64 { u64::MAX } else { (1 << bit) - 1 }
}

/// A mutable set of CPUs.
#[derive(Clone, Debug)]
pub struct Cpus {
    words: Vec<u64>,
}

impl Cpus {
    /// An empty set for a machine with `cpus` CPUs.
    pub fn none(cpus: u32) -> Cpus {
        Cpus { words: alloc::vec![0; cpus.div_ceil(64) as usize] }
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        self.words[cpu as usize / 64] |= 1 << (cpu % 64);
    }

    /// Removes a CPU; returns whether it was in the set.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let had = self.holds(cpu);
        self.words[cpu as usize / 64] &= !(1 << (cpu % 64));
        had
    }

    /// Whether `cpu` is in the set.
    pub fn holds(&self, cpu: u32) -> bool {
        self.words[cpu as usize / 64] >> (cpu % 64) & 1 == 1
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// All CPUs of the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    /// The first CPU that `fits`; the search starts at `near` and wraps around.
    pub fn find(&self, near: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
        let ahead = self.iter().filter(|&cpu| cpu >= near).find(|&cpu| fits(cpu));
        ahead.or_else(|| self.iter().take_while(|&cpu| cpu < near).find(|&cpu| fits(cpu)))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_view_of_a_mask_holds_the_same_cpus() {
        for mask in [
            Mask::all(8),
            Mask::only(3),
            Mask::Bits(0b1011_0000),
            Mask::Range(60, 130),
            Mask::Range(70, 80),
        ] {
            let held: Vec<u32> = (0..200).filter(|&cpu| mask.holds(cpu)).collect();
            assert_eq!(held.len() as u32, mask.count());
            assert_eq!(held.first().copied(), mask.first());
            let first = held[0] / 64;
            let group = |&&cpu: &&u32| cpu / 64 == first;
            let bits: u64 = held.iter().filter(group).map(|&cpu| 1 << (cpu % 64)).sum();
            assert_eq!(mask.reported(200), CpuSet::of_group(first as u16, bits));
        }
        assert_eq!(Mask::all(65).reported(65), CpuSet::ALL);
        assert_eq!(Mask::all(64).reported(64), CpuSet::first_64(u64::MAX));
    }

    #[test]
    fn a_search_in_a_set_wraps_around() {
        let mut set = Cpus::none(130);
        [3, 70, 129].into_iter().for_each(|cpu| set.insert(cpu));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 70, 129]);
        assert_eq!(set.find(71, |_| true), Some(129));
        assert_eq!(set.find(71, |cpu| cpu != 129), Some(3));
        assert!(set.remove(70) && !set.remove(70));
        assert!(!set.is_empty());
    }

    #[test]
    fn an_impossible_shape_is_clamped_into_range() {
        let odd = Shape { cpus: 0, smt: 0, l2: 0, l3: 0, node: 0, fast: 9, slow_speed: 0 };
        assert_eq!(odd.sane(), Shape { slow_speed: 64, ..Shape::flat(1) });
        let shape = Shape { smt: 2, l2: 2, l3: 4, node: 8, ..Shape::flat(16) }.sane();
        assert!(shape.share_core(2, 3) && !shape.share_core(1, 2));
        assert!(shape.share_l3(4, 7) && !shape.share_node(7, 8));
        assert_eq!(shape.core_of(5), 4..6);
    }
}
