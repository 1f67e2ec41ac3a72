// SPDX-License-Identifier: GPL-2.0-only

//! What the user demands for single processes: a treatment, and the processes that get it.
//!
//! The rules by which processes are found belong to another process than the scheduler's; a policy
//! receives their result by [`Policy::assign`](crate::Policy::assign).

use crate::task::{Pid, Tier, Weight};
use crate::time::Span;
use crate::topology::{self, CpuMask, Domain};

/// Most treatments at once, so that one byte and the number for none suffice.
pub const TREATMENTS_MAX: usize = 128;
/// Most assigned processes at once. A lookup takes twelve steps, and all of them fit into 32 KiB.
pub const ASSIGNED_MAX: usize = 4096;

/// The tier that is demanded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierDemand {
    /// The policy decides.
    #[default]
    None,
    /// At least this tier.
    AtLeast(Tier),
    /// At most this tier.
    AtMost(Tier),
    /// This tier.
    Fixed(Tier),
}

impl TierDemand {
    /// The tier of a task that the policy would give the tier `tier`.
    pub fn apply(self, tier: Tier) -> Tier {
        match self {
            TierDemand::None => tier,
            TierDemand::AtLeast(least) => tier.max(least),
            TierDemand::AtMost(most) => tier.min(most),
            TierDemand::Fixed(fixed) => fixed,
        }
    }

    fn to_word(self) -> u64 {
        let of = |kind: u64, tier: Tier| kind << 2 | tier.index() as u64;
        match self {
            TierDemand::None => 0,
            TierDemand::AtLeast(tier) => of(1, tier),
            TierDemand::AtMost(tier) => of(2, tier),
            TierDemand::Fixed(tier) => of(3, tier),
        }
    }

    fn from_word(word: u64) -> Option<TierDemand> {
        let tier = Tier::ALL.get((word & 3) as usize).copied();
        match word >> 2 {
            0 if word == 0 => Some(TierDemand::None),
            1 => tier.map(TierDemand::AtLeast),
            2 => tier.map(TierDemand::AtMost),
            3 => tier.map(TierDemand::Fixed),
            _ => None,
        }
    }
}

/// What is demanded for a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Its tier.
    pub tier: TierDemand,
    /// Its longest slice, in place of the knob's; zero if the knob applies.
    pub slice: Span,
    /// Its weight, in place of that of its nice value.
    pub weight: Option<Weight>,
    /// The CPUs that it prefers, in place of those of all tasks.
    pub domain: Option<Domain>,
}

/// The words of a treatment: tier, weight and whether the domain is strict; the slice; the CPUs of
/// the domain.
pub const TREATMENT_WORDS: usize = 2 + topology::WORDS;

/// Where the first word has the weight, above the tier.
const WEIGHT_SHIFT: u32 = 8;
/// Whether the domain is strict, in the first word.
const STRICT: u64 = 1 << 7;

impl Treatment {
    /// The treatment as words, for memory that processes share and for recordings.
    pub fn to_words(&self) -> [u64; TREATMENT_WORDS] {
        let weight = self.weight.map_or(0, Weight::get);
        let strict = self.domain.is_some_and(|domain| domain.strict);
        let cpus = self.domain.map_or(CpuMask::EMPTY, |domain| domain.cpus);
        let mut words = [0; _];
        let strict = if strict { STRICT } else { 0 };
        words[0] = weight << WEIGHT_SHIFT | strict | self.tier.to_word();
        words[1] = self.slice.as_nanos();
        words[2..].copy_from_slice(cpus.words());
        words
    }

    /// The treatment of such words; `None` if they are no treatment.
    pub fn from_words(words: [u64; TREATMENT_WORDS]) -> Option<Treatment> {
        let [head, slice, ..] = words;
        let weight = match head >> WEIGHT_SHIFT {
            0 => None,
            raw => Some(Some(Weight::new(raw)).filter(|weight| weight.get() == raw)?),
        };
        let tier = TierDemand::from_word(head & 0xff & !STRICT)?;
        let cpus = CpuMask::from_words(core::array::from_fn(|group| words[2 + group]));
        let strict = head & STRICT != 0;
        let domain = Some(Domain { cpus, strict }).filter(|domain| !domain.cpus.is_empty());
        let is_valid = domain.is_some() || !strict;
        is_valid.then_some(Treatment { tier, slice: Span::from_nanos(slice), weight, domain })
    }
}

/// A process that gets a treatment, with all its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// The first thread of the process.
    pub pid: Pid,
    /// The treatment, by its place in the list.
    pub treatment: u8,
}

impl Assignment {
    /// The assignment as a word.
    pub const fn to_word(self) -> u64 {
        (self.pid.as_raw() as u64) << 8 | self.treatment as u64
    }

    /// The assignment of such a word; `None` if it is none.
    pub fn from_word(word: u64) -> Option<Assignment> {
        let pid = Pid::new(i32::try_from(word >> 8).ok()?)?;
        Some(Assignment { pid, treatment: word as u8 })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::task::CpuId;

    #[test]
    fn words_come_back_as_what_they_were_and_others_are_refused() {
        let all = Tier::ALL.into_iter();
        let demands = all.flat_map(|tier| {
            [TierDemand::AtLeast(tier), TierDemand::AtMost(tier), TierDemand::Fixed(tier)]
        });
        for tier in demands.chain([TierDemand::None]) {
            let cpus = [5, 1023].into_iter().filter_map(CpuId::new).collect();
            for (us, weight, domain) in [
                (0, None, None),
                (4_000, Some(Weight::new(10_000)), Some(Domain { cpus, strict: true })),
                (100, None, Some(Domain { cpus, strict: false })),
            ] {
                let slice = Span::from_micros(us);
                let treatment = Treatment { tier, slice, weight, domain };
                assert_eq!(Treatment::from_words(treatment.to_words()), Some(treatment));
            }
        }
        for head in [1, 3, 7, 16, 0xff, 10_001 << 8, STRICT] {
            let mut words = [0; _];
            words[0] = head;
            assert_eq!(Treatment::from_words(words), None, "{head}");
        }
        let assignment = Assignment { pid: Pid::new(i32::MAX).unwrap(), treatment: 127 };
        assert_eq!(Assignment::from_word(assignment.to_word()), Some(assignment));
        assert_eq!(Assignment::from_word(5), None, "there is no process 0");
        assert_eq!(Assignment::from_word(u64::MAX), None);
    }

    #[test]
    fn a_demand_is_a_floor_a_ceiling_or_a_tier() {
        use Tier::{Batch, Interactive, LatCritical};
        let applied = |demand: TierDemand| Tier::ALL.map(|tier| demand.apply(tier));
        assert_eq!(applied(TierDemand::None), Tier::ALL);
        assert_eq!(
            applied(TierDemand::AtLeast(Interactive)),
            [Interactive, Interactive, LatCritical]
        );
        assert_eq!(applied(TierDemand::AtMost(Interactive)), [Batch, Interactive, Interactive]);
        assert_eq!(applied(TierDemand::Fixed(LatCritical)), [LatCritical; 3]);
    }
}
