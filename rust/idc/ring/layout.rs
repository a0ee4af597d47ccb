// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Where a ring lies and how it is cut into entries. IDC specification, "Rings".
//!
//! Owns the arithmetic from an index to a place. Never touches the ring.

use super::super::entry::{MAX_ENTRY_BYTES, MIN_ENTRY_BYTES, OVERHEAD_BYTES};
use super::super::member::{Location, MemberId};
use super::super::memory::Fault;
use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Fewest entries of a ring.
pub const MIN_ENTRIES: u32 = 4;
/// Most entries of a ring.
pub const MAX_ENTRIES: u32 = 4096;

/// Where a ring lies and how it is cut.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
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
    /// The first entry, 64-byte aligned.
    pub base: Location,
    /// The credit cell, alone in its 64-byte line; the receiver is its only writer.
    pub credit: Location,
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
    /// Base or credit cell are not aligned, or reach past the 64-bit end.
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
            RingError::Placement => "ring or credit cell is misplaced",
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
        let bad_base = self.base.offset % 64 != 0 || self.base.at(self.bytes()).is_none();
        let bad_credit = self.credit.offset % 64 != 0 || self.credit.at(64).is_none();
        if bad_base || bad_credit {
            return Err(RingError::Placement);
        }
        Ok(())
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

    pub(super) fn slot(&self, index: u32) -> Result<Location, Fault> {
        let slot = index & self.entries.wrapping_sub(1);
        let offset = u64::from(slot).wrapping_mul(u64::from(self.entry_bytes));
        self.base.at(offset).ok_or(Fault::OutOfRange)
    }

    /// Place of the last `bytes` bytes of the entry at `index`.
    pub(super) fn slot_end(&self, index: u32, bytes: u32) -> Result<Location, Fault> {
        let from_start = self.entry_bytes.saturating_sub(bytes);
        self.slot(index)?
            .at(u64::from(from_start))
            .ok_or(Fault::OutOfRange)
    }
}
