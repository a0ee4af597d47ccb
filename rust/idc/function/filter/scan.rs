// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Searching bytes, a word at a time, where there is no `memchr` to call and no vector unit to use.
//!
//! Owns the searches and nothing else.

/// 01h in every byte.
const LOW: u64 = u64::from_le_bytes([0x01; 8]);
/// 80h in every byte.
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

/// Words looked at before it is asked whether one of them had the byte.
const UNROLLED: usize = 4;

/// A value whose lowest set bit, if any, lies in the first byte of `word` that is `byte`, where
/// `wanted` is `byte` in every byte and the word's first byte is its lowest.
///
/// Bits above the lowest one may be false alarms: the subtraction borrows out of a matching byte.
#[inline(always)]
fn marks(word: [u8; 8], wanted: u64) -> u64 {
    let zero_where_equal = u64::from_le_bytes(word) ^ wanted;
    zero_where_equal.wrapping_sub(LOW) & !zero_where_equal & HIGH
}

/// The index of the first `byte` in `bytes`.
pub fn find_byte(byte: u8, bytes: &[u8]) -> Option<usize> {
    let wanted = u64::from_le_bytes([byte; 8]);
    let mut tail = bytes;
    while let Some((block, rest)) = tail.split_first_chunk::<{ 8 * UNROLLED }>() {
        let found = block.chunks_exact(8).fold(0, |found, word| {
            found | word.try_into().map_or(0, |word| marks(word, wanted))
        });
        if found != 0 {
            break;
        }
        tail = rest;
    }
    while let Some((&word, rest)) = tail.split_first_chunk::<8>() {
        let found = marks(word, wanted);
        if found != 0 {
            let before = bytes.len().wrapping_sub(tail.len());
            return Some(before.wrapping_add(found.trailing_zeros() as usize / 8));
        }
        tail = rest;
    }
    let before = bytes.len().wrapping_sub(tail.len());
    let inside = tail.iter().position(|&other| other == byte)?;
    Some(before.wrapping_add(inside))
}

/// Whether `text` occurs in `bytes`. The empty text occurs everywhere.
///
/// Takes up to `bytes.len() * text.len()` steps where `bytes` are made for it, and about
/// `bytes.len() / 8` where they are not.
pub fn contains(bytes: &[u8], text: &[u8]) -> bool {
    let Some(&first) = text.first() else {
        return true;
    };
    let mut tail = bytes;
    while tail.len() >= text.len() {
        let Some(candidate) = find_byte(first, tail).and_then(|index| tail.get(index..)) else {
            return false;
        };
        if candidate.starts_with(text) {
            return true;
        }
        tail = candidate.get(1..).unwrap_or_default();
    }
    false
}
