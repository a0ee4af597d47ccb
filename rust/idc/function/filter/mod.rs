// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The `filter` function: keeps the records of a table that match a predicate.
//!
//! Owns the cutting of a stream into records and the state between two chunks. The predicate
//! language is [`predicate`]'s, its evaluation [`program`]'s.
//!
//! # Meaning
//!
//! - Bytes are bytes, as under `LC_ALL=C`. Nothing is decoded, quoted or trimmed.
//! - A record ends in a newline (0Ah). What follows the last newline, unless it is nothing, is a
//!   record too, and gets a newline in the output, as in awk. A carriage return is data.
//! - A record has at most [`MAX_RECORD_LEN`] bytes, its newline not counted.
//! - A record with `d` delimiters has `d + 1` columns, which count from 1, so even an empty record
//!   has one (empty) column. `col(0)` is the record, without its newline.
//! - Where a column is absent, every comparison of it is false, `!=` too.
//! - A quoted literal is compared as bytes: `=`, `!=`, `<` and `>` in the order of unsigned bytes,
//!   where a text comes before every longer text that it begins; `contains` and `prefix` as they say.
//! - Records may have a fixed size instead. Then there is no newline and no delimiter: the stream is
//!   cut every so many bytes, what follows the last whole record is a (shorter) record too, and
//!   records leave as they came. `col(0)` is the record; there are no other columns.
//! - `bytes(OFFSET,LENGTH)` are bytes of the record, from 0, and are compared as a column is.
//!   `le(OFFSET,LENGTH)` and `be(OFFSET,LENGTH)` are the unsigned integer that 1 to 8 of them make,
//!   little or big endian; one over 2^63 - 1 is not a number. Where the record is too short for
//!   them, they are absent as a column is. They may be used with either kind of record.
//! - An unquoted literal is a decimal number and is compared as one, exactly ([`number`]). Where the
//!   column is not a number of the same grammar, the comparison is false, `!=` too. Here 1, +1, 01
//!   and 1.0 are equal, and so are 0 and -0.
//! - `not` makes true of false, whatever the reason for the false was: `not col(9) = "x"` holds where
//!   there is no column 9.

mod lexer;
pub mod number;
pub mod predicate;
pub mod program;
pub mod scan;

use super::options::{FilterParameters, Records};
use super::{Crypto, Function, FunctionError, Outcome, Status, Step};
use predicate::PredicateError;
use program::Program;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The longest record, in bytes, its newline not counted.
pub const MAX_RECORD_LEN: usize = 65536;

/// What ends a record.
pub const NEWLINE: u8 = b'\n';

/// What the filter does with the next byte of input.
#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
enum Mode {
    /// Looks for the end of a record, whose beginning may be in the scratch memory.
    Seek = 0,
    /// Copies the record whose rest is at the start of the input, newline included: it matches.
    Pass = 1,
    /// Copies the record in the scratch memory, then a newline: it matches.
    Drain = 2,
}

/// A table being filtered. The scratch memory holds the beginning of a record that was cut off by
/// the end of a chunk; records that lie in one chunk are not copied there.
#[derive(FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Filter {
    /// Stream offset of the next byte of input.
    offset: u64,
    records_in: u64,
    records_out: u64,
    /// Bytes of a record in the scratch memory.
    carried: u32,
    /// Bytes of it that have been copied to the output; 0 but while the mode is [`Mode::Drain`].
    drained: u32,
    /// Bytes of every record; 0: records end in newline.
    record_size: u32,
    /// Bytes still to copy of a record of fixed size while the mode is [`Mode::Pass`].
    left: u32,
    program: Program,
    mode: Mode,
    delimiter: u8,
    reserved: [u8; 2],
}

impl Filter {
    /// Begins a new stream.
    ///
    /// # Errors
    /// Where and why the predicate is not one. The filter then matches nothing.
    pub fn start(&mut self, parameters: &FilterParameters<'_>) -> Result<(), PredicateError> {
        self.offset = 0;
        self.records_in = 0;
        self.records_out = 0;
        self.carried = 0;
        self.drained = 0;
        self.mode = Mode::Seek;
        self.left = 0;
        (self.delimiter, self.record_size) = match parameters.records {
            Records::Lines { delimiter } => (delimiter, 0),
            Records::Fixed { size } => (0, size),
        };
        self.program.compile(parameters.predicate)
    }

    /// Looks at one record and counts it.
    fn matches(&mut self, record: &[u8]) -> bool {
        self.records_in = self.records_in.wrapping_add(1);
        let delimiter = (self.record_size == 0).then_some(self.delimiter);
        let matches = self.program.matches(record, delimiter);
        self.records_out = self.records_out.wrapping_add(u64::from(matches));
        matches
    }

    /// Looks at the record in the scratch memory.
    fn judge_carried(&mut self, scratch: &[u8]) -> Result<(), FunctionError> {
        let record = scratch.get(..self.carried as usize);
        if self.matches(record.ok_or(FunctionError::Scratch)?) {
            self.mode = Mode::Drain;
        } else {
            self.carried = 0;
        }
        Ok(())
    }

    /// Cuts the record at the start of `tail`, of which some may be in the scratch memory: what of
    /// it is there, and what follows it if its end is.
    fn cut<'a>(&self, tail: &'a [u8]) -> (&'a [u8], Option<&'a [u8]>) {
        if self.record_size == 0 {
            let newline = scan::find_byte(NEWLINE, tail);
            return match newline.and_then(|index| tail.split_at_checked(index)) {
                Some((part, after)) => (part, Some(after.get(1..).unwrap_or_default())),
                None => (tail, None),
            };
        }
        let missing = self.record_size.saturating_sub(self.carried);
        match tail.split_at_checked(missing as usize) {
            Some((part, after)) => (part, Some(after)),
            None => (tail, None),
        }
    }

    /// What of the record that is being passed on is at the start of `window`, and whether that is
    /// all the rest of it.
    fn rest<'a>(&mut self, window: &'a [u8]) -> (&'a [u8], bool) {
        if self.record_size == 0 {
            let line = match scan::find_byte(NEWLINE, window) {
                Some(index) => window.get(..=index).unwrap_or(window),
                None => window,
            };
            return (line, line.last() == Some(&NEWLINE));
        }
        let part = window.get(..self.left as usize).unwrap_or(window);
        self.left = self.left.saturating_sub(part.len() as u32);
        (part, self.left == 0)
    }

    /// Puts `part` of a record into the scratch memory.
    fn carry(&mut self, scratch: &mut [u8], part: &[u8]) -> Result<(), FunctionError> {
        let free = scratch.get_mut(self.carried as usize..);
        let place = free.and_then(|free| free.get_mut(..part.len()));
        place.ok_or(FunctionError::Scratch)?.copy_from_slice(part);
        // At most MAX_RECORD_LEN, which the caller has seen to.
        self.carried = self.carried.wrapping_add(part.len() as u32);
        Ok(())
    }
}

impl Function for Filter {
    fn step(
        &mut self,
        scratch: &mut [u8],
        input: &[u8],
        last: bool,
        output: &mut [u8],
        _crypto: &mut dyn Crypto,
    ) -> Result<Step, FunctionError> {
        let end = super::advance(self.offset, input.len())?;
        let mut tail = input;
        let mut output = Output {
            room: output,
            produced: 0,
        };
        let status = loop {
            match self.mode {
                Mode::Seek => {
                    let (part, after) = self.cut(tail);
                    let carried = self.carried as usize;
                    if carried.saturating_add(part.len()) > MAX_RECORD_LEN {
                        let here = end.saturating_sub(tail.len() as u64);
                        return Err(FunctionError::RecordTooLong {
                            offset: here.saturating_sub(carried as u64),
                        });
                    }
                    let ended = after.is_some();
                    let after = after.unwrap_or_default();
                    if ended && carried == 0 {
                        if self.matches(part) {
                            self.mode = Mode::Pass;
                            self.left = self.record_size;
                        } else {
                            tail = after;
                        }
                        continue;
                    }
                    self.carry(scratch, part)?;
                    tail = after;
                    if ended || (last && self.carried != 0) {
                        self.judge_carried(scratch)?;
                    } else if last {
                        break Status::Done;
                    } else {
                        break Status::NeedInput;
                    }
                }
                Mode::Pass => {
                    // No further than the output reaches, lest a long record that leaves in small
                    // pieces be searched as a whole for each.
                    let window = tail.get(..output.free()).unwrap_or(tail);
                    let (line, ended) = self.rest(window);
                    output.put(line);
                    tail = tail.get(line.len()..).unwrap_or_default();
                    if ended {
                        self.mode = Mode::Seek;
                    } else if !tail.is_empty() {
                        break Status::NeedOutput;
                    } else if last && self.record_size != 0 {
                        self.mode = Mode::Seek;
                    } else if last {
                        // The newline was there when the record was judged; the caller has cut the
                        // stream shorter since. It still ends like any other.
                        self.mode = Mode::Drain;
                    } else {
                        break Status::NeedInput;
                    }
                }
                Mode::Drain => {
                    let record = scratch
                        .get(..self.carried as usize)
                        .and_then(|record| record.get(self.drained as usize..))
                        .ok_or(FunctionError::Scratch)?;
                    let copied = output.put(record);
                    // At most `carried`.
                    self.drained = self.drained.wrapping_add(copied as u32);
                    let newline: &[u8] = if self.record_size == 0 {
                        &[NEWLINE]
                    } else {
                        &[]
                    };
                    if copied < record.len() || output.put(newline) < newline.len() {
                        break Status::NeedOutput;
                    }
                    self.carried = 0;
                    self.drained = 0;
                    self.mode = Mode::Seek;
                }
            }
        };
        self.offset = end.saturating_sub(tail.len() as u64);
        Ok(Step {
            consumed: input.len().saturating_sub(tail.len()),
            produced: output.produced,
            status,
        })
    }

    fn result(&self) -> Outcome {
        Outcome::Filter {
            records_in: self.records_in,
            records_out: self.records_out,
        }
    }
}

/// The output of one step, as it fills.
struct Output<'a> {
    room: &'a mut [u8],
    produced: usize,
}

impl Output<'_> {
    /// The room left, in bytes.
    fn free(&self) -> usize {
        self.room.len().saturating_sub(self.produced)
    }

    /// Copies as much of the start of `from` as there is room for and returns how much that was.
    fn put(&mut self, from: &[u8]) -> usize {
        let free = self.room.get_mut(self.produced..).unwrap_or_default();
        let copied = super::pass(from, free).len();
        self.produced = self.produced.saturating_add(copied);
        copied
    }
}
