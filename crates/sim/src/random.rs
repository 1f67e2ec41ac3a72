// SPDX-License-Identifier: GPL-2.0-only

//! The only source of randomness: a generator that repeats its numbers for the same seed.

/// A generator with one word of state. Each task has its own, so that it behaves the same under
/// every policy.
///
/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random(u64);

/// The probability 1 of [`Random::chance`], in parts of a million.
pub const CERTAIN: u32 = 1_000_000;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// A generator for `seed`.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator for the `index`th of many users of one seed.
    pub const fn derive(seed: u64, index: u64) -> Random {
        Random(mix(seed ^ mix(index.wrapping_add(1).wrapping_mul(GOLDEN))))
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`, which must not be zero. The bias is below `bound / 2^64`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            return low;
        }
        let width = high - low;
        if width == u64::MAX { self.bits() } else { low + self.below(width + 1) }
    }

    /// Returns true with a probability of `ppm` in a million.
    pub const fn chance(&mut self, ppm: u32) -> bool {
        self.below(CERTAIN as u64) < ppm as u64
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation's first numbers for seed 0.
    #[test]
    fn the_sequence_matches_the_reference_implementation() {
        let mut random = Random::new(0);
        let expected = [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F];
        assert_eq!([random.bits(), random.bits(), random.bits()], expected);
    }

    #[test]
    fn ranges_are_respected_and_their_ends_reached() {
        let mut random = Random::new(7);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[random.between(3, 6) as usize - 3] = true;
            assert!(random.below(5) < 5);
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(random.between(9, 2), 9);
        assert!(!random.chance(0) && random.chance(CERTAIN));
    }
}
