// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A predicate compiled: comparisons in the order of the text, each of which says which one to try
//! next when it holds and when it does not.
//!
//! Owns the compiled form and its evaluation. It never parses ([`super::predicate`] does) and knows
//! records only as slices.
//!
//! Every jump goes forward, so an evaluation ends after at most as many comparisons as there are.
//! `not` costs nothing: it swaps the two ways out.

use super::number::Number;
use super::predicate::{
    self, Emit, Field, Literal, Operator, PredicateError, Reason, MAX_COMPARISONS,
    MAX_PREDICATE_LEN,
};
use super::scan;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// A way out that ends the evaluation: the record does not match.
const REJECT: u8 = 0xff;
/// A way out that ends the evaluation: the record matches.
const ACCEPT: u8 = 0xfe;

/// Marks a [`Comparison`] whose operand is a number.
const NUMBER: u8 = 0x80;
/// Which field it is of: the bits of [`Comparison::operator`] that tell.
const FIELDS: u8 = 0x30;
const COLUMN: u8 = 0x00;
const BYTES: u8 = 0x10;
const LITTLE: u8 = 0x20;
const BIG: u8 = 0x30;

/// A comparison of one field.
#[derive(Clone, Copy, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
struct Comparison {
    /// Number of a column, or offset.
    place: u16,
    /// Length, where the field has one.
    length: u16,
    /// [`Operator`], the field's bits, and [`NUMBER`] where the operand is one.
    operator: u8,
    /// Where to go when it holds.
    held: u8,
    /// Where to go when it does not.
    failed: u8,
    /// A [`Number`]; or start and length, 16 bits each, of a text in [`Program::texts`].
    operand: [u8; Number::LEN],
}

const _: () = assert!(size_of::<Comparison>() == 20);
const _: () = assert!(MAX_COMPARISONS <= ACCEPT as usize);

/// A compiled predicate. All zero is the program that matches nothing.
#[derive(FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Program {
    comparisons: [Comparison; MAX_COMPARISONS],
    /// The texts of all quoted literals, escapes resolved. They are never longer than the predicate.
    texts: [u8; MAX_PREDICATE_LEN],
    texts_len: u16,
    comparisons_len: u16,
}

impl Program {
    /// Compiles `predicate` in place.
    ///
    /// # Errors
    /// Where and why it is not a predicate. The program then matches nothing.
    pub fn compile(&mut self, predicate: &[u8]) -> Result<(), PredicateError> {
        self.texts_len = 0;
        self.comparisons_len = 0;
        let parsed = predicate::parse(predicate, self);
        if parsed.is_err() {
            self.comparisons_len = 0;
        }
        parsed
    }

    /// Whether `record` matches; its columns are separated by `delimiter`, and without one it has none.
    pub fn matches(&self, record: &[u8], delimiter: Option<u8>) -> bool {
        let mut columns = Columns::new(record, delimiter);
        let mut at = 0;
        for _ in 0..self.comparisons_len {
            let Some(comparison) = self.comparisons.get(usize::from(at)) else {
                return false;
            };
            let bytes = match comparison.operator & FIELDS {
                COLUMN => columns.get(comparison.place),
                _ => record
                    .get(usize::from(comparison.place)..)
                    .and_then(|rest| rest.get(..usize::from(comparison.length))),
            };
            let held = bytes.is_some_and(|bytes| self.holds(comparison, bytes));
            at = if held {
                comparison.held
            } else {
                comparison.failed
            };
            match at {
                ACCEPT => return true,
                REJECT => return false,
                _ => (),
            }
        }
        false
    }

    /// Whether `comparison` holds for `column`, the bytes of its field.
    fn holds(&self, comparison: &Comparison, column: &[u8]) -> bool {
        let operator = comparison.operator & !(NUMBER | FIELDS);
        if comparison.operator & NUMBER != 0 {
            let number = match comparison.operator & FIELDS {
                LITTLE => Number::from_unsigned(integer(column.iter().rev())),
                BIG => Number::from_unsigned(integer(column.iter())),
                _ => Number::parse(column),
            };
            let Some(number) = number else {
                return false;
            };
            let operand = Number::from_bytes(&comparison.operand);
            return match operator {
                EQUAL => number == operand,
                NOT_EQUAL => number != operand,
                LESS => number < operand,
                GREATER => number > operand,
                _ => false,
            };
        }
        let [start_low, start_high, len_low, len_high, ..] = comparison.operand;
        let start = usize::from(u16::from_le_bytes([start_low, start_high]));
        let len = usize::from(u16::from_le_bytes([len_low, len_high]));
        let Some(text) = self.texts.get(start..).and_then(|texts| texts.get(..len)) else {
            return false;
        };
        match operator {
            EQUAL => column == text,
            NOT_EQUAL => column != text,
            LESS => column < text,
            GREATER => column > text,
            CONTAINS => scan::contains(column, text),
            PREFIX => column.starts_with(text),
            _ => false,
        }
    }

    /// Puts the bytes of a literal behind those of the others and says where they are.
    fn keep(&mut self, text: predicate::Text<'_>) -> Result<[u8; Number::LEN], Reason> {
        let start = self.texts_len;
        for byte in text.bytes() {
            // Cannot fail: a text is shorter than the part of the predicate that it comes from.
            let slot = self.texts.get_mut(usize::from(self.texts_len));
            *slot.ok_or(Reason::TooLong)? = byte;
            self.texts_len = self.texts_len.wrapping_add(1);
        }
        let len = self.texts_len.wrapping_sub(start);
        let ([s0, s1], [l0, l1]) = (start.to_le_bytes(), len.to_le_bytes());
        let mut operand = [0; Number::LEN];
        if let Some(place) = operand.first_chunk_mut() {
            *place = [s0, s1, l0, l1];
        }
        Ok(operand)
    }

    /// Leads the ways out of `part` that end the evaluation with `from` to `to` instead.
    fn lead(&mut self, part: Part, from: u8, to: u8) {
        let count = usize::from(part.end.saturating_sub(part.start));
        let comparisons = self.comparisons.iter_mut();
        for comparison in comparisons.skip(part.start.into()).take(count) {
            if comparison.held == from {
                comparison.held = to;
            }
            if comparison.failed == from {
                comparison.failed = to;
            }
        }
    }
}

/// The unsigned integer whose bytes come from the most significant on. At most 8 of them.
fn integer<'b>(bytes: impl Iterator<Item = &'b u8>) -> u64 {
    bytes.fold(0, |value: u64, byte| {
        value.wrapping_shl(8) | u64::from(*byte)
    })
}

// Operators as patterns.
const EQUAL: u8 = Operator::Equal as u8;
const NOT_EQUAL: u8 = Operator::NotEqual as u8;
const LESS: u8 = Operator::Less as u8;
const GREATER: u8 = Operator::Greater as u8;
const CONTAINS: u8 = Operator::Contains as u8;
const PREFIX: u8 = Operator::Prefix as u8;

/// The comparisons `start..end`, joined so that ACCEPT and REJECT are the two ways out of the whole.
#[derive(Clone, Copy)]
pub struct Part {
    start: u8,
    end: u8,
}

impl Emit for Program {
    type Part = Part;

    fn comparison(
        &mut self,
        field: Field,
        operator: Operator,
        literal: Literal<'_>,
    ) -> Result<Part, Reason> {
        let index = self.comparisons_len;
        if usize::from(index) >= MAX_COMPARISONS {
            return Err(Reason::TooManyComparisons);
        }
        let (kind, operand) = match literal {
            Literal::Text(text) => (0, self.keep(text)?),
            Literal::Number(number) => (NUMBER, number.to_bytes()),
        };
        let (field, place, length) = match field {
            Field::Column(number) => (COLUMN, number, 0),
            Field::Bytes(offset, length) => (BYTES, offset, length),
            Field::Little(offset, length) => (LITTLE, offset, length),
            Field::Big(offset, length) => (BIG, offset, length),
        };
        let slot = self.comparisons.get_mut(usize::from(index));
        *slot.ok_or(Reason::TooManyComparisons)? = Comparison {
            place,
            length,
            operator: operator as u8 | kind | field,
            held: ACCEPT,
            failed: REJECT,
            operand,
        };
        self.comparisons_len = index.wrapping_add(1);
        // Below MAX_COMPARISONS, which is below ACCEPT.
        let start = index as u8;
        Ok(Part {
            start,
            end: start.wrapping_add(1),
        })
    }

    fn not(&mut self, part: Part) -> Part {
        let count = usize::from(part.end.saturating_sub(part.start));
        let comparisons = self.comparisons.iter_mut();
        for comparison in comparisons.skip(part.start.into()).take(count) {
            for way in [&mut comparison.held, &mut comparison.failed] {
                *way = match *way {
                    ACCEPT => REJECT,
                    REJECT => ACCEPT,
                    inside => inside,
                };
            }
        }
        part
    }

    fn and(&mut self, left: Part, right: Part) -> Part {
        self.lead(left, ACCEPT, right.start);
        Part {
            start: left.start,
            end: right.end,
        }
    }

    fn or(&mut self, left: Part, right: Part) -> Part {
        self.lead(left, REJECT, right.start);
        Part {
            start: left.start,
            end: right.end,
        }
    }
}

/// The columns of a record, found from left to right as they are asked for.
struct Columns<'a> {
    record: &'a [u8],
    delimiter: Option<u8>,
    /// The column found last, from 1.
    number: u16,
    column: &'a [u8],
    /// What follows its delimiter, where it has one.
    rest: Option<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn new(record: &'a [u8], delimiter: Option<u8>) -> Self {
        let (column, rest) = match delimiter {
            Some(delimiter) => split(record, delimiter),
            None => (record, None),
        };
        Self {
            record,
            delimiter,
            number: 1,
            column,
            rest,
        }
    }

    /// Column `number`; the record as a whole for 0; nothing where there is no such column.
    fn get(&mut self, number: u16) -> Option<&'a [u8]> {
        if number == 0 {
            return Some(self.record);
        }
        let delimiter = self.delimiter?;
        if number < self.number {
            *self = Self::new(self.record, self.delimiter);
        }
        while self.number < number {
            (self.column, self.rest) = split(self.rest?, delimiter);
            self.number = self.number.wrapping_add(1);
        }
        Some(self.column)
    }
}

/// What stands before the first delimiter and, where there is one, what stands after it.
fn split(bytes: &[u8], delimiter: u8) -> (&[u8], Option<&[u8]>) {
    match scan::find_byte(delimiter, bytes).and_then(|index| bytes.split_at_checked(index)) {
        Some((before, at_delimiter)) => (before, at_delimiter.get(1..)),
        None => (bytes, None),
    }
}
