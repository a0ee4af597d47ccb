// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Bitmaps in which a bit that changes sides says that something happened to its slot.
//!
//! Owns the arithmetic on a private copy of such a map, and the cells that carry one. Never touches
//! shared memory: whoever keeps a map reads and writes it word by word ([`Marks::word`],
//! [`Marks::set_word`]) or, where an epoch must be told, cell by cell ([`Marks::cell`],
//! [`Marks::news`]). A bit is toggled and not set, so that nobody ever has to clear one, and each map
//! has a single writer. IDC specification, "Marks".

use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Bits of one word of a map.
pub const WORD_BITS: u32 = 64;
/// Bits of a map that one cell carries, in its low half; the high half says the epoch.
pub const CELL_BITS: u32 = 32;

/// A map of `64 * WORDS` bits. All zero at the start.
#[derive(Clone, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Marks<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Default for Marks<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

/// The index of the word that holds bit `index`.
#[must_use]
pub const fn word_of(index: u32) -> u32 {
    index / WORD_BITS
}

/// Words of a map of `bits` bits.
#[must_use]
pub const fn words(bits: u32) -> u32 {
    bits.div_ceil(WORD_BITS)
}

/// Bytes of a map of `bits` bits in shared memory: whole words.
#[must_use]
pub const fn map_bytes(bits: u32) -> u64 {
    (words(bits) as u64).wrapping_mul(8)
}

/// The bits of word `word` that a map of `bits` bits uses.
#[must_use]
pub const fn used_bits(word: u32, bits: u32) -> u64 {
    let left = bits.saturating_sub(word.saturating_mul(WORD_BITS));
    if left >= WORD_BITS {
        u64::MAX
    } else {
        (1_u64 << left).wrapping_sub(1)
    }
}

/// Cells that carry a map of `bits` bits.
#[must_use]
pub const fn cells(bits: u32) -> u32 {
    bits.div_ceil(CELL_BITS)
}

/// Bytes of the cells that carry a map of `bits` bits: whole lines of 64 bytes.
#[must_use]
pub const fn cells_bytes(bits: u32) -> u64 {
    (cells(bits) as u64).wrapping_mul(8).next_multiple_of(64)
}

/// The cell that carries bit `index`.
#[must_use]
pub const fn cell_of(index: u32) -> u32 {
    index / CELL_BITS
}

const LOW_HALF: u64 = 0xffff_ffff;

/// Where in its word a cell's bits are.
const fn shift(cell: u32) -> u32 {
    (cell & 1).wrapping_mul(CELL_BITS)
}

const fn bit(index: u32) -> u64 {
    1 << (index % WORD_BITS)
}

impl<const WORDS: usize> Marks<WORDS> {
    /// All bits zero.
    #[must_use]
    pub const fn new() -> Self {
        Marks([0; WORDS])
    }

    /// All bits zero again, in place.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Bit `index`; false beyond the end.
    #[must_use]
    pub fn get(&self, index: u32) -> bool {
        self.word(word_of(index)) & bit(index) != 0
    }

    /// Changes bit `index` and returns the word that holds it, as it now is. Beyond the end nothing
    /// changes.
    pub fn toggle(&mut self, index: u32) -> u64 {
        match self.0.get_mut(word_of(index) as usize) {
            Some(word) => {
                *word ^= bit(index);
                *word
            }
            None => 0,
        }
    }

    /// Word `word` (bits `64 * word` to `64 * word + 63`); 0 beyond the end.
    #[must_use]
    pub fn word(&self, word: u32) -> u64 {
        self.0.get(word as usize).copied().unwrap_or(0)
    }

    /// Replaces word `word`, and returns the bits that changed. Beyond the end nothing changes.
    pub fn set_word(&mut self, word: u32, value: u64) -> u64 {
        match self.0.get_mut(word as usize) {
            Some(old) => core::mem::replace(old, value) ^ value,
            None => 0,
        }
    }

    /// Cell `cell`: its bits, and the epoch above them.
    #[must_use]
    pub fn cell(&self, cell: u32, epoch: u32) -> u64 {
        let bits = self.word(word_of(cell.wrapping_mul(CELL_BITS))) >> shift(cell);
        ((epoch as u64) << CELL_BITS) | (bits & LOW_HALF)
    }

    /// The bits in which cell `cell` with the value `value` differs from this map, at their place in
    /// their word; none if the value is of another epoch.
    #[must_use]
    pub fn news(&self, cell: u32, epoch: u32, value: u64) -> u64 {
        if (value >> CELL_BITS) as u32 != epoch {
            return 0;
        }
        ((value ^ self.cell(cell, epoch)) & LOW_HALF) << shift(cell)
    }

    /// The bits of word `word` in which this map and `other` differ.
    #[must_use]
    pub fn xor(&self, other: &Self, word: u32) -> u64 {
        self.word(word) ^ other.word(word)
    }
}
