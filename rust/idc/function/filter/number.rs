// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Decimal numbers as `filter` compares them: exact, without floating point.
//!
//! Owns the one grammar that literals in a predicate and fields of a record share:
//!
//! ```text
//! number = [ "+" | "-" ] , digit , { digit } , [ "." , digit , { digit } ] ;
//! ```
//!
//! with at most 9 digits after the point (zeros count) and a whole part that fits an `i64`. There
//! may be leading zeros. Nothing is trimmed. Bytes that do not have this shape are not a number.

use zerocopy::little_endian::{I32, I64};
use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Digits that a number may have after the point.
pub const MAX_FRACTION_DIGITS: usize = 9;

/// A decimal number: `whole + billionths / 10^9`, both parts with the number's sign.
///
/// As both parts have the same sign, the order of the fields is the order of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    whole: i64,
    billionths: i32,
}

/// [`Number`] as a compiled predicate keeps it: without alignment.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawNumber {
    whole: I64,
    billionths: I32,
}

impl Number {
    /// Bytes of [`Self::to_bytes`].
    pub const LEN: usize = size_of::<RawNumber>();

    /// The number that `text` spells as a whole, or nothing where it is not a number.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let mut parts = digits.splitn(2, |&byte| byte == b'.');
        let whole = whole(parts.next()?)?;
        let billionths = match parts.next() {
            Some(fraction) => billionths(fraction)?,
            None => 0,
        };
        // Both are negative so far: the negative side of an i64 reaches further.
        Some(if negative {
            Self { whole, billionths }
        } else {
            Self {
                whole: whole.checked_neg()?,
                billionths: billionths.checked_neg()?,
            }
        })
    }

    /// A whole number, or nothing where it is too large for one.
    pub fn from_unsigned(value: u64) -> Option<Self> {
        Some(Self {
            whole: i64::try_from(value).ok()?,
            billionths: 0,
        })
    }

    /// The number as bytes that [`Self::from_bytes`] takes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let raw = RawNumber {
            whole: I64::new(self.whole),
            billionths: I32::new(self.billionths),
        };
        let mut bytes = [0; Self::LEN];
        // Cannot fail: the lengths are the same.
        let _ = raw.write_to(&mut bytes);
        bytes
    }

    /// The number that [`Self::to_bytes`] made `bytes` of.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        match RawNumber::ref_from_bytes(bytes) {
            Ok(raw) => Self {
                whole: raw.whole.get(),
                billionths: raw.billionths.get(),
            },
            // Cannot happen: the lengths are the same.
            Err(_) => Self {
                whole: 0,
                billionths: 0,
            },
        }
    }
}

/// The value of a decimal digit.
fn digit(byte: u8) -> Option<u8> {
    byte.checked_sub(b'0').filter(|&value| value < 10)
}

/// Minus the whole part that `digits` spell.
fn whole(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0i64, |value, &byte| {
        value.checked_mul(10)?.checked_sub(i64::from(digit(byte)?))
    })
}

/// Minus the billionths that `digits`, the ones after the point, spell.
fn billionths(digits: &[u8]) -> Option<i32> {
    if digits.is_empty() || digits.len() > MAX_FRACTION_DIGITS {
        return None;
    }
    let zeros = core::iter::repeat(&b'0');
    digits
        .iter()
        .chain(zeros)
        .take(MAX_FRACTION_DIGITS)
        .try_fold(0i32, |value, &byte| {
            value.checked_mul(10)?.checked_sub(i32::from(digit(byte)?))
        })
}
