// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Allocation of ranges of a drive's memory (CMB, PMR, or any 64-bit space).
//!
//! Owns the knowledge of which ranges are taken; never touches the memory itself. It keeps its
//! records apart from the memory that it manages, which a device can write and which is slow to
//! read.
//!
//! The records are the live allocations, sorted. Free space is what lies between them, so freeing
//! coalesces by construction, freeing twice or freeing what was never allocated finds no record, and
//! fragmentation cannot use up more records than there are allocations.
//!
//! Allocation is **best fit**, the lowest of the smallest gaps that suffice: small rings live long and
//! large chunk buffers come and go, and best fit puts the small into the holes and leaves the large
//! gaps large. It costs one walk over the records, and so would first fit wherever memory is scarce.

use core::fmt;
use core::iter;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A part of a 64-bit space: `len` bytes from `start`. Its end does not pass 2^64 - 1 wherever this
/// module returns one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// How many bytes.
    pub len: u64,
}

impl Range {
    /// The byte after the last one, or nothing where that is not a 64-bit number.
    pub const fn end(&self) -> Option<u64> {
        self.start.checked_add(self.len)
    }

    /// Whether all of `other` lies inside. An empty range lies in every range that its place is in
    /// or at the end of.
    pub fn contains(&self, other: &Range) -> bool {
        match (self.end(), other.end()) {
            (Some(end), Some(other_end)) => self.start <= other.start && other_end <= end,
            _ => false,
        }
    }
}

/// Why a range is not allocated, reserved or freed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// The range has no bytes.
    Empty,
    /// The alignment is not a power of two.
    Alignment,
    /// No gap is large enough.
    NoSpace,
    /// All records are in use: the allocator's `N` allocations are live.
    NoRecord,
    /// The range is not wholly inside the space, or passes 2^64 - 1.
    Outside,
    /// A part of the range is allocated already.
    Overlap,
    /// No allocation is exactly this range: it was freed already, or is not from here.
    NotAllocated,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a range has at least one byte",
            Self::Alignment => "an alignment is a power of two",
            Self::NoSpace => "no free range is large enough",
            Self::NoRecord => "no more ranges can be allocated at a time",
            Self::Outside => "the range lies outside of the space",
            Self::Overlap => "a part of the range is allocated already",
            Self::NotAllocated => "no such range is allocated",
        })
    }
}

impl core::error::Error for RangeError {}

/// Allocates ranges of one space, at most `N` at a time.
///
/// All zero manages an empty space; [`RangeAllocator::init`] gives it one, in place. With a large
/// `N` it is large: 16 bytes a record.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeAllocator<const N: usize> {
    space: Range,
    free_bytes: u64,
    live: u64,
    /// The first `live` of them are the allocations, in ascending order, and do not overlap.
    records: [Range; N],
}

impl<const N: usize> RangeAllocator<N> {
    /// Begins anew with all of `space` free. Allocations that there were are forgotten.
    ///
    /// # Errors
    /// [`RangeError::Outside`]: `space` passes 2^64 - 1.
    pub fn init(&mut self, space: Range) -> Result<(), RangeError> {
        space.end().ok_or(RangeError::Outside)?;
        self.space = space;
        self.free_bytes = space.len;
        self.live = 0;
        Ok(())
    }

    /// Allocates `len` bytes whose start, as a number in the space, is a multiple of `align`.
    ///
    /// # Errors
    /// [`RangeError::Empty`], [`RangeError::Alignment`], [`RangeError::NoRecord`],
    /// [`RangeError::NoSpace`].
    pub fn alloc(&mut self, len: u64, align: u64) -> Result<Range, RangeError> {
        if len == 0 {
            return Err(RangeError::Empty);
        }
        if !align.is_power_of_two() {
            return Err(RangeError::Alignment);
        }
        if self.len() >= N {
            return Err(RangeError::NoRecord);
        }
        let mut best: Option<(usize, Range, u64)> = None;
        for (index, gap) in self.indexed_gaps() {
            let Some(range) = place(&gap, len, align) else {
                continue;
            };
            if best.is_none_or(|(_, _, best_len)| gap.len < best_len) {
                best = Some((index, range, gap.len));
                if gap.len == len {
                    break;
                }
            }
        }
        let (index, range, _) = best.ok_or(RangeError::NoSpace)?;
        self.insert(index, range)?;
        Ok(range)
    }

    /// Allocates just `range`, as for a part of the memory that is already in use.
    ///
    /// # Errors
    /// [`RangeError::Empty`], [`RangeError::Outside`], [`RangeError::Overlap`],
    /// [`RangeError::NoRecord`].
    pub fn reserve(&mut self, range: Range) -> Result<(), RangeError> {
        if range.len == 0 {
            return Err(RangeError::Empty);
        }
        if !self.space.contains(&range) {
            return Err(RangeError::Outside);
        }
        let index = self.index_of(range.start);
        let (_, gap) = self.indexed_gaps().nth(index).ok_or(RangeError::Overlap)?;
        if !gap.contains(&range) {
            return Err(RangeError::Overlap);
        }
        self.insert(index, range)
    }

    /// Frees `range`, which must be an allocation as a whole.
    ///
    /// # Errors
    /// [`RangeError::NotAllocated`]: it is not.
    pub fn free(&mut self, range: Range) -> Result<(), RangeError> {
        let index = self.index_of(range.start);
        let live = self.len();
        let records = self.records.get_mut(..live).unwrap_or_default();
        let from = records.get_mut(index..).unwrap_or_default();
        if from.first() != Some(&range) {
            return Err(RangeError::NotAllocated);
        }
        from.rotate_left(1);
        self.live = self.live.saturating_sub(1);
        self.free_bytes = self.free_bytes.saturating_add(range.len);
        Ok(())
    }

    /// What it allocates from.
    pub const fn space(&self) -> Range {
        self.space
    }

    /// Bytes that are not allocated, in all gaps together.
    pub const fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes in the largest gap: what [`Self::alloc`] can give without alignment.
    pub fn largest(&self) -> u64 {
        self.gaps().map(|gap| gap.len).max().unwrap_or(0)
    }

    /// How many ranges are allocated.
    pub fn len(&self) -> usize {
        // Never more than N.
        self.live as usize
    }

    /// Whether nothing is allocated.
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The allocated ranges, in ascending order.
    pub fn allocated(&self) -> impl Iterator<Item = Range> + '_ {
        self.records().iter().copied()
    }

    /// The free ranges, in ascending order, each as large as can be; none is empty.
    pub fn gaps(&self) -> impl Iterator<Item = Range> + '_ {
        self.indexed_gaps()
            .map(|(_, gap)| gap)
            .filter(|gap| gap.len != 0)
    }

    fn records(&self) -> &[Range] {
        self.records.get(..self.len()).unwrap_or_default()
    }

    /// The index of the first record that does not lie before `start`.
    fn index_of(&self, start: u64) -> usize {
        self.records()
            .partition_point(|record| record.start < start)
    }

    /// What lies before each record, and after the last one, with the index that an allocation in
    /// it would have. May be empty.
    fn indexed_gaps(&self) -> impl Iterator<Item = (usize, Range)> + '_ {
        let after_all = Range {
            start: self.space.end().unwrap_or(self.space.start),
            len: 0,
        };
        let mut start = self.space.start;
        self.allocated()
            .chain(iter::once(after_all))
            .map(move |record| {
                let gap = Range {
                    start,
                    len: record.start.saturating_sub(start),
                };
                start = record.end().unwrap_or(u64::MAX);
                gap
            })
            .enumerate()
    }

    /// Makes `range`, which lies in the gap before record `index`, record `index`.
    fn insert(&mut self, index: usize, range: Range) -> Result<(), RangeError> {
        let live = self.len().saturating_add(1);
        let from = self
            .records
            .get_mut(..live)
            .and_then(|records| records.get_mut(index..))
            .ok_or(RangeError::NoRecord)?;
        // The free record behind the last one takes the range and then moves to its place.
        *from.last_mut().ok_or(RangeError::NoRecord)? = range;
        from.rotate_right(1);
        self.live = live as u64;
        self.free_bytes = self.free_bytes.saturating_sub(range.len);
        Ok(())
    }
}

/// Takes ranges of one space one after the other, each behind the last one: for what is laid out
/// once and never freed. Also checks that somebody else did just that. All zero has no space.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Carver {
    /// What was not taken or passed over.
    left: Range,
}

impl Carver {
    /// Begins with all of `space`.
    pub const fn of(space: Range) -> Self {
        Carver { left: space }
    }

    /// Takes the next `len` bytes.
    ///
    /// # Errors
    /// [`RangeError::Empty`], [`RangeError::NoSpace`].
    pub fn carve(&mut self, len: u64) -> Result<Range, RangeError> {
        let range = Range {
            start: self.left.start,
            len,
        };
        match self.take(range) {
            Err(RangeError::Outside) => Err(RangeError::NoSpace),
            Err(error) => Err(error),
            Ok(()) => Ok(range),
        }
    }

    /// Takes just `range`, and gives up what lies before it.
    ///
    /// # Errors
    /// [`RangeError::Empty`]; [`RangeError::Outside`]: it is not wholly in what is left.
    pub fn take(&mut self, range: Range) -> Result<(), RangeError> {
        if range.len == 0 {
            return Err(RangeError::Empty);
        }
        let end = range.end().filter(|_| self.left.contains(&range));
        let (Some(end), Some(left_end)) = (end, self.left.end()) else {
            return Err(RangeError::Outside);
        };
        self.left = Range {
            start: end,
            len: left_end.saturating_sub(end),
        };
        Ok(())
    }

    /// What can still be taken.
    pub const fn left(&self) -> Range {
        self.left
    }
}

/// The lowest `len` bytes of `gap` that start at a multiple of `align`.
fn place(gap: &Range, len: u64, align: u64) -> Option<Range> {
    let range = Range {
        start: gap.start.checked_next_multiple_of(align)?,
        len,
    };
    gap.contains(&range).then_some(range)
}
