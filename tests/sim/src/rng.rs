// SPDX-License-Identifier: GPL-2.0

//! The one source of choices: SplitMix64 (Steele, Lea, Flood, 2014), so that a run is its seed.
//!
//! Owns the algorithm and the shapes of distribution. Never asks anything else for randomness.

/// A deterministic generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Begins with `seed`; every value is good.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Another generator, independent of what is drawn from this one later.
    pub fn fork(&mut self) -> Self {
        Rng(self.draw())
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for all bounds in use.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `bound`, which is not 0.
    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// From 1 to `most`, small values as likely as large ones (uniform in the logarithm).
    pub fn magnitude(&mut self, most: u64) -> u64 {
        let bits = u64::from(64 - most.leading_zeros());
        let top = 1_u64 << self.below(bits);
        self.range(top, top.saturating_mul(2) - 1).min(most)
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.draw().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}
