// SPDX-License-Identifier: GPL-2.0-only

//! Pseudo-random noise for tests of statistics. Equal seeds give equal numbers.

/// SplitMix64, by Sebastiano Vigna. The field is the seed, and then the state.
pub struct Noise(pub u64);

impl Noise {
    /// The next 64 bits.
    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A factor between 0.97 and 1.03.
    pub fn factor(&mut self) -> f64 {
        0.97 + 0.06 * (self.next_bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}
