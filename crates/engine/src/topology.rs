// SPDX-License-Identifier: GPL-2.0-only

//! CPU numbers, sets of CPUs, and which CPUs share a core, a cache or a memory node.

use alloc::vec::Vec;
use core::fmt;

/// Highest number of CPUs, a limit of the BPF backend (`MAX_CPUS` in its `intf.h`).
pub const CPUS_MAX: u32 = 1024;

/// A CPU number below [`CPUS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(u16);

impl CpuId {
    /// A CPU number, or `None` outside `0..CPUS_MAX`.
    pub const fn new(raw: i32) -> Option<CpuId> {
        if raw >= 0 && (raw as u32) < CPUS_MAX { Some(CpuId(raw as u16)) } else { None }
    }

    /// The kernel's number.
    pub const fn as_raw(self) -> i32 {
        self.0 as i32
    }
}

/// The CPUs that a task may use, in two words: all CPUs, or those of one group of 64. A task that
/// may use CPUs of several groups, and not all, is known by those of the first one: it is placed on
/// none that is forbidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    bits: u64,
    /// CPUs `64 * group` and up, or [`ALL_GROUPS`](CpuSet::ALL_GROUPS).
    group: u16,
}

impl CpuSet {
    /// The group of a task that may use all CPUs.
    pub const ALL_GROUPS: u16 = u16::MAX;

    /// All CPUs of a machine of any size.
    pub const ALL: CpuSet = CpuSet::of_group(CpuSet::ALL_GROUPS, u64::MAX);

    /// CPUs among the first 64, one bit each.
    pub const fn first_64(bits: u64) -> CpuSet {
        CpuSet::of_group(0, bits)
    }

    /// CPUs `64 * group` and up, one bit each.
    pub const fn of_group(group: u16, bits: u64) -> CpuSet {
        CpuSet { bits, group }
    }

    /// One bit for each CPU of the group.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// The number of the group, or [`ALL_GROUPS`](CpuSet::ALL_GROUPS).
    pub const fn group(self) -> u16 {
        self.group
    }

    /// Whether `cpu` is in the set.
    pub const fn contains(self, cpu: CpuId) -> bool {
        let number = cpu.as_raw() as u32;
        self.group == CpuSet::ALL_GROUPS
            || number / u64::BITS == self.group as u32 && self.bits >> (number % u64::BITS) & 1 == 1
    }
}

/// Words of a [`CpuMask`].
pub const WORDS: usize = CPUS_MAX as usize / 64;

/// A set of CPUs of a machine of any size.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuMask([u64; WORDS]);

impl CpuMask {
    /// No CPU.
    pub const EMPTY: CpuMask = CpuMask([0; WORDS]);

    /// The CPUs `0..cpus`.
    pub fn first(cpus: u32) -> CpuMask {
        (0..cpus as i32).filter_map(CpuId::new).collect()
    }

    /// Whether `cpu` is in the set.
    pub const fn contains(&self, cpu: CpuId) -> bool {
        let number = cpu.as_raw() as usize;
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        let number = cpu.as_raw() as usize;
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// How many CPUs are in the set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The CPUs that are in both sets.
    pub fn and(&self, other: &CpuMask) -> CpuMask {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        both
    }

    /// The CPUs that are not in the other set.
    pub fn without(&self, other: &CpuMask) -> CpuMask {
        let mut rest = *self;
        rest.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        rest
    }

    /// All CPUs, 64 a word, lowest first.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// The set with these [`words`](Self::words).
    pub const fn from_words(words: [u64; WORDS]) -> CpuMask {
        CpuMask(words)
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        (0..CPUS_MAX as i32).filter_map(CpuId::new).filter(|cpu| self.contains(*cpu))
    }

    /// Parses a mask of any length that begins with `0x` (`0xff`, `0xff,00000000`), or a list of
    /// CPUs in the kernel's format (`0-3,8,10-20:2`).
    pub fn parse(text: &str) -> Result<CpuMask, MaskError> {
        let text = text.trim();
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => CpuMask::parse_digits(digits),
            None => CpuMask::parse_list(text),
        }
    }

    fn parse_digits(digits: &str) -> Result<CpuMask, MaskError> {
        let mut mask = CpuMask::EMPTY;
        let mut number = 0u32;
        for digit in digits.chars().rev().filter(|&digit| digit != ',' && digit != '_') {
            let value = digit.to_digit(16).ok_or(MaskError::Digit(digit))?;
            for bit in (0..4).filter(|bit| value >> bit & 1 == 1) {
                mask.insert(cpu(u64::from(number + bit))?);
            }
            number = number.saturating_add(4);
        }
        mask.unless_empty()
    }

    fn parse_list(text: &str) -> Result<CpuMask, MaskError> {
        let mut mask = CpuMask::EMPTY;
        for part in text.split(',').map(str::trim) {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            };
            if step == 0 || first > last {
                return Err(MaskError::Range);
            }
            cpu(last)?;
            for one in (first..=last).step_by(step as usize) {
                mask.insert(cpu(one)?);
            }
        }
        mask.unless_empty()
    }

    fn unless_empty(self) -> Result<CpuMask, MaskError> {
        if self.is_empty() { Err(MaskError::Empty) } else { Ok(self) }
    }
}

fn number(text: &str) -> Result<u64, MaskError> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large for 64 bits is above the highest CPU number.
    if digits { text.parse().or(Err(MaskError::Beyond)) } else { Err(MaskError::Number) }
}

fn cpu(number: u64) -> Result<CpuId, MaskError> {
    i32::try_from(number).ok().and_then(CpuId::new).ok_or(MaskError::Beyond)
}

impl FromIterator<CpuId> for CpuMask {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> CpuMask {
        let mut mask = CpuMask::EMPTY;
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
        mask
    }
}

impl fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(CpuId::as_raw)).finish()
    }
}

/// Why a text is not a set of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError {
    /// A character of a mask is not a hexadecimal digit.
    Digit(char),
    /// A part of a list is not a number.
    Number,
    /// A range ends before it begins, or its step is zero.
    Range,
    /// A CPU number is not below [`CPUS_MAX`].
    Beyond,
    /// The text names no CPU.
    Empty,
}

impl fmt::Display for MaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaskError::Digit(digit) => write!(f, "`{digit}` is no hexadecimal digit"),
            MaskError::Number => {
                f.write_str("expected CPU numbers such as 0-3,8,10-20:2, or a mask such as 0xff00")
            }
            MaskError::Range => f.write_str("a range goes upwards, in steps of at least 1"),
            MaskError::Beyond => write!(f, "CPUs are numbered 0 to {}", CPUS_MAX - 1),
            MaskError::Empty => f.write_str("it names no CPU"),
        }
    }
}

/// What one CPU shares with others. CPUs with an equal number in a field share that resource.
/// [`u16::MAX`] shares nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// The core, which several CPUs share under SMT.
    pub core: u16,
    /// The second-level cache.
    pub l2: u16,
    /// The last-level cache.
    pub llc: u16,
    /// The memory node.
    pub node: u16,
}

impl CpuPlace {
    /// The place of a CPU of which nothing is known, as of an offline one.
    pub const UNKNOWN: CpuPlace = CpuPlace { core: u16::MAX, l2: u16::MAX, llc: u16::MAX, node: 0 };

    /// The place as a word.
    pub const fn to_word(self) -> u64 {
        let CpuPlace { core, l2, llc, node } = self;
        core as u64 | (l2 as u64) << 16 | (llc as u64) << 32 | (node as u64) << 48
    }

    /// The place of a [word](Self::to_word). Every word is one.
    pub const fn from_word(word: u64) -> CpuPlace {
        CpuPlace {
            core: word as u16,
            l2: (word >> 16) as u16,
            llc: (word >> 32) as u16,
            node: (word >> 48) as u16,
        }
    }
}

/// The [`CpuPlace`] of every CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    places: Vec<CpuPlace>,
}

impl Topology {
    /// A machine with CPU `i` at `places[i]`.
    pub fn new(places: Vec<CpuPlace>) -> Topology {
        Topology { places }
    }

    /// The same, with room for the largest machine: to [`refill`](Self::refill) it allocates
    /// nothing.
    pub fn with_room(&self) -> Topology {
        let mut places = Vec::with_capacity(CPUS_MAX as usize);
        places.extend_from_slice(&self.places);
        Topology { places }
    }

    /// Replaces the places, from CPU 0 on. Places beyond [`CPUS_MAX`] are dropped.
    pub fn refill(&mut self, places: impl Iterator<Item = CpuPlace>) {
        self.places.clear();
        self.places.extend(places.take(CPUS_MAX as usize));
    }

    /// The places of all known CPUs, from CPU 0 on.
    pub fn places(&self) -> &[CpuPlace] {
        &self.places
    }

    /// A machine with one memory node and one last-level cache. Every CPU has its own core and
    /// second-level cache.
    pub fn flat(cpus: u32) -> Topology {
        let own = |number: u16| CpuPlace { core: number, l2: number, llc: 0, node: 0 };
        Topology::new((0..cpus.min(CPUS_MAX) as u16).map(own).collect())
    }

    /// The place of `cpu`. An unknown CPU shares no core and no cache.
    pub fn place(&self, cpu: CpuId) -> CpuPlace {
        self.places.get(cpu.as_raw() as usize).copied().unwrap_or(CpuPlace::UNKNOWN)
    }

    /// How many CPUs are known.
    pub fn cpus(&self) -> u32 {
        self.places.len() as u32
    }

    /// How many memory nodes there are, at least one.
    pub fn nodes(&self) -> u32 {
        self.places.iter().map(|place| u32::from(place.node) + 1).max().unwrap_or(1)
    }

    /// Whether two CPUs share a second-level cache.
    pub fn shares_l2(&self, one: CpuId, other: CpuId) -> bool {
        one == other || {
            let (one, other) = (self.place(one), self.place(other));
            one.l2 == other.l2 && one.l2 != u16::MAX
        }
    }
}

/// The CPUs that tasks prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The preferred CPUs.
    pub cpus: CpuMask,
    /// Never use a CPU outside of the domain, even if all CPUs of the domain are busy.
    pub strict: bool,
}
