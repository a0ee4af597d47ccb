// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Where a ring lies and how it is cut into entries. IDC specification, "Rings".
//!
//! Owns the arithmetic from an index to a place. Never touches the ring.

use super::super::entry::{MAX_ENTRY_BYTES, MIN_ENTRY_BYTES, OVERHEAD_BYTES};
use super::super::marks::cells_bytes;
use super::super::member::{Location, MemberId};
use super::super::memory::Fault;
use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Fewest entries of a ring.
pub const MIN_ENTRIES: u32 = 4;
/// Most entries of a ring.
pub const MAX_ENTRIES: u32 = 4096;

/// How a sender tells its receiver that entries are there.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Publish {
    /// By the entry's own last 8 bytes.
    #[default]
    Entry = 0,
    /// By a tail cell, written after the entries.
    Index = 1,
}

/// What a ring has besides its entries.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct RingFlags(u8);

impl RingFlags {
    /// Nothing.
    pub const NONE: RingFlags = RingFlags(0);
    /// Entries are released in any order: marks take the place of the credit cell.
    pub const OUT_OF_ORDER: RingFlags = RingFlags(1);
    /// The sender says in the tail cell how far it is, so that one cell for each sender is all that
    /// an idle receiver polls. [`Publish::Index`] has that anyway.
    pub const DOORBELL: RingFlags = RingFlags(2);
    /// An array beside the entries says from whom, for whom and how long each is.
    pub const METADATA: RingFlags = RingFlags(4);
    const KNOWN: u8 = 7;

    /// These and `other`.
    #[must_use]
    pub const fn with(self, other: RingFlags) -> Self {
        RingFlags(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: RingFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of these bits; `None` if one is unknown.
    #[must_use]
    pub const fn from_wire(bits: u8) -> Option<Self> {
        if bits & !Self::KNOWN == 0 {
            Some(RingFlags(bits))
        } else {
            None
        }
    }

    /// The bits.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        self.0
    }
}

/// Where a ring lies and how it is cut. Any part may lie in any memory that the end which writes it
/// and the end which reads it reach; both do without reads across the bus if each part lies in its
/// reader's.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingLayout {
    /// Entries, a power of two, 4..=4096.
    pub entries: u32,
    /// Bytes of an entry, a power of two, 64..=4096.
    pub entry_bytes: u32,
    /// Not 0, never used before on this memory.
    pub epoch: u32,
    /// Who sends.
    pub from: MemberId,
    /// Who receives.
    pub to: MemberId,
    /// How entries are announced.
    pub publish: Publish,
    /// What else there is.
    pub flags: RingFlags,
    /// The first entry, 64-byte aligned.
    pub base: Location,
    /// The credit cell, alone in its 64-byte line; the receiver is its only writer. Not used with
    /// [`RingFlags::OUT_OF_ORDER`].
    pub credit: Location,
    /// The tail cell, alone in its 64-byte line; the sender is its only writer. Used with
    /// [`Publish::Index`] or [`RingFlags::DOORBELL`].
    pub tail: Location,
    /// The marks of consumed slots, one cell for 32 of them, 64-byte aligned; the receiver is their
    /// only writer. Used with [`RingFlags::OUT_OF_ORDER`].
    pub marks: Location,
    /// One `u64` for each slot, 64-byte aligned, in the memory of the entries; the sender is their
    /// only writer. Used with [`RingFlags::METADATA`].
    pub metadata: Location,
}

/// What is wrong with a ring's layout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RingError {
    /// The number of entries is not a power of two in range.
    Entries,
    /// The size of an entry is not a power of two in range.
    EntryBytes,
    /// The epoch is 0.
    Epoch,
    /// A part that the ring uses is not aligned, or reaches past the 64-bit end.
    Placement,
    /// The ring does not connect the two members that it is meant for.
    Members,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingError::Entries => "entries must be a power of two, 4 to 4096",
            RingError::EntryBytes => "entry size must be a power of two, 64 to 4096 bytes",
            RingError::Epoch => "the epoch must not be 0",
            RingError::Placement => "a part of the ring is misplaced",
            RingError::Members => "the ring does not connect these members",
        })
    }
}

impl RingLayout {
    /// Checks everything that can be checked without knowing the memories.
    ///
    /// # Errors
    /// The first [`RingError`] found.
    pub fn check(&self) -> Result<(), RingError> {
        if !self.entries.is_power_of_two() || !(MIN_ENTRIES..=MAX_ENTRIES).contains(&self.entries) {
            return Err(RingError::Entries);
        }
        let size = MIN_ENTRY_BYTES as u32..=MAX_ENTRY_BYTES as u32;
        if !self.entry_bytes.is_power_of_two() || !size.contains(&self.entry_bytes) {
            return Err(RingError::EntryBytes);
        }
        if self.epoch == 0 {
            return Err(RingError::Epoch);
        }
        if self.from == self.to {
            return Err(RingError::Members);
        }
        let fits = |part: Location, bytes: u64| part.offset % 64 == 0 && part.at(bytes).is_some();
        let good = fits(self.base, self.bytes())
            && (self.out_of_order() || fits(self.credit, 64))
            && (!self.has_tail() || fits(self.tail, 64))
            && (!self.out_of_order() || fits(self.marks, self.marks_bytes()))
            && (!self.has_metadata() || fits(self.metadata, self.metadata_bytes()))
            // Words elsewhere could arrive after the entries that they describe.
            && (!self.has_metadata() || self.metadata.memory == self.base.memory);
        if good {
            Ok(())
        } else {
            Err(RingError::Placement)
        }
    }

    /// Whether entries may be consumed in any order.
    #[must_use]
    pub const fn out_of_order(&self) -> bool {
        self.flags.contains(RingFlags::OUT_OF_ORDER)
    }

    /// Whether there is a metadata array.
    #[must_use]
    pub const fn has_metadata(&self) -> bool {
        self.flags.contains(RingFlags::METADATA)
    }

    /// Whether there is a tail cell.
    #[must_use]
    pub const fn has_tail(&self) -> bool {
        matches!(self.publish, Publish::Index) || self.flags.contains(RingFlags::DOORBELL)
    }

    /// Bytes of the marks of consumed slots, where there are any: whole lines of 64 bytes.
    #[must_use]
    pub const fn marks_bytes(&self) -> u64 {
        cells_bytes(self.entries)
    }

    /// Bytes of the metadata array, where there is one: whole lines of 64 bytes.
    #[must_use]
    pub const fn metadata_bytes(&self) -> u64 {
        (self.entries as u64).wrapping_mul(8).next_multiple_of(64)
    }

    /// Bytes of all entries.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.entries as u64).wrapping_mul(self.entry_bytes as u64)
    }

    /// Data bytes of one entry.
    #[must_use]
    pub const fn inline_capacity(&self) -> usize {
        (self.entry_bytes as usize).saturating_sub(OVERHEAD_BYTES)
    }

    /// Entries consumed for each credit that the receiver writes.
    #[must_use]
    pub const fn credit_batch(&self) -> u32 {
        let quarter = self.entries >> 2;
        if quarter == 0 {
            1
        } else {
            quarter
        }
    }

    /// Place of the slot of `index`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] past the 64-bit end.
    pub(super) fn slot(&self, index: u32) -> Result<Location, Fault> {
        let slot = self.slot_number(index);
        let offset = u64::from(slot).wrapping_mul(u64::from(self.entry_bytes));
        self.base.at(offset).ok_or(Fault::OutOfRange)
    }

    /// The slot of `index`.
    #[must_use]
    pub(super) const fn slot_number(&self, index: u32) -> u32 {
        index & self.entries.wrapping_sub(1)
    }

    /// Place of the metadata of `index`.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] past the 64-bit end.
    pub(super) fn metadata_at(&self, index: u32) -> Result<Location, Fault> {
        let offset = u64::from(self.slot_number(index)).wrapping_mul(8);
        self.metadata.at(offset).ok_or(Fault::OutOfRange)
    }

    /// Place of cell `cell` of the marks.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] past the 64-bit end.
    pub(super) fn marks_at(&self, cell: u32) -> Result<Location, Fault> {
        let offset = u64::from(cell).wrapping_mul(8);
        self.marks.at(offset).ok_or(Fault::OutOfRange)
    }

    /// Whether entries and their tail cell lie in different memories, between which no order of
    /// writes is promised.
    pub(super) fn is_split(&self) -> bool {
        self.base.memory != self.tail.memory
    }
}
