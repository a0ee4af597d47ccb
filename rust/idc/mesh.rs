// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The mesh: who is in it, what buffers there are between its members, and where they lie.
//!
//! Owns the shape (how many drives, what buffers) and the list of the parts: what is asked for in
//! `policy`, what cannot be in `check` and `error`, what buffers consist of in `parts`, their places
//! in `table`, one direction between two members in `channel`, all buffers in `buffers`. Who decides
//! on the places and how all learn of them is in `establish`. IDC specification,
//! "Mesh".

mod buffers;
mod channel;
mod check;
mod error;
mod parts;
mod policy;
mod table;

pub use buffers::BufferInfo;
pub use channel::{Channel, ChannelKind};
pub use check::{Refusal, MAX_MARKED_ENTRIES, MIN_LIST_ENTRIES};
pub use error::MeshError;
pub use parts::{PartId, PartKind};
pub use policy::{Establish, Form, Notify, PairPolicy, Place, Policy, Share};
pub use table::MeshTable;

use super::member::{MemberId, MAX_DRIVES};
use super::ring::RingLayout;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Bytes from one credit cell to the next: each has a cache line to itself.
pub const CELL_BYTES: u64 = 64;
/// What the place and the size of a block are multiples of.
pub const BLOCK_ALIGN: u64 = 4096;

/// How many drives, and what rings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct MeshShape {
    /// Drives, 1..=32; they are members 1..=drives.
    pub drives: u16,
    /// Entries of a ring, a power of two, 4..=4096.
    pub entries: u32,
    /// Bytes of an entry, a power of two, 64..=4096.
    pub entry_bytes: u32,
}

impl MeshShape {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`MeshError::Drives`] or [`MeshError::Ring`].
    pub fn check(&self) -> Result<(), MeshError> {
        if self.drives == 0 || usize::from(self.drives) > MAX_DRIVES {
            return Err(MeshError::Drives);
        }
        RingLayout {
            entries: self.entries,
            entry_bytes: self.entry_bytes,
            epoch: 1,
            to: MemberId::HOST,
            from: MemberId::new(1).unwrap_or_default(),
            ..RingLayout::default()
        }
        .check()
        .map_err(MeshError::Ring)
    }

    /// Whether `member` takes part.
    #[must_use]
    pub const fn contains(&self, member: MemberId) -> bool {
        member.get() <= self.drives
    }

    /// Rings from drive to drive.
    #[must_use]
    pub fn peer_rings(&self) -> u32 {
        let drives = u32::from(self.drives);
        drives.saturating_mul(drives.saturating_sub(1))
    }

    /// Rings between host and drives.
    #[must_use]
    pub fn host_rings(&self) -> u32 {
        u32::from(self.drives).saturating_mul(2)
    }

    /// All rings as (from, to), grouped by the member whose block they lie in.
    pub fn rings(&self) -> impl Iterator<Item = (MemberId, MemberId)> {
        let members = MemberId::all(self.drives);
        members.clone().flat_map(move |to| {
            let senders = members.clone().filter(move |from| *from != to);
            senders.map(move |from| (from, to))
        })
    }

    const fn ring_bytes(&self) -> u64 {
        (self.entries as u64).saturating_mul(self.entry_bytes as u64)
    }

    /// Bytes of the cells at the start of each block.
    const fn cells_bytes(&self) -> u64 {
        (self.drives as u64).saturating_mul(CELL_BYTES)
    }

    /// Bytes of the block of any one member in a mesh of default [`Policy`]: the rings into it and
    /// the credit cells of the rings out of it, rounded up to 4096. For any other mesh, see
    /// [`MeshTable::block_bytes`].
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let rings = u64::from(self.drives).saturating_mul(self.ring_bytes());
        self.cells_bytes()
            .saturating_add(rings)
            .next_multiple_of(BLOCK_ALIGN)
    }
}
