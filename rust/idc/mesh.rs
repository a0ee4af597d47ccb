// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The mesh table: who is in a mesh, and where every ring between them lies.
//!
//! Owns the arithmetic of placement: one block per receiver, with the credit cells of its outgoing
//! rings first and the rings into it behind. Never allocates: the caller gives each block's place,
//! in whatever memory. IDC specification, "Mesh".

use super::function::Functions;
use super::member::{Location, MemberId, MAX_DRIVES, MAX_MEMBERS};
use super::memory::{Fault, Memory};
use super::ring::{RingError, RingLayout};
use core::fmt;
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

/// Why a mesh cannot be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MeshError {
    /// Not 1..=32 drives.
    Drives,
    /// The member is not in this mesh, or a ring from a member to itself was asked for.
    Member,
    /// The member's block has not been placed, or not at a multiple of 4096.
    Placement,
    /// A ring's layout is impossible.
    Ring(RingError),
}

impl fmt::Display for MeshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeshError::Drives => f.write_str("a mesh has 1 to 32 drives"),
            MeshError::Member => f.write_str("no such member in the mesh"),
            MeshError::Placement => f.write_str("the member's rings have no valid place"),
            MeshError::Ring(error) => error.fmt(f),
        }
    }
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

    /// Bytes of the block of any one member: the rings into it and the credit cells of the rings
    /// out of it, rounded up to 4096.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let rings = u64::from(self.drives).saturating_mul(self.ring_bytes());
        self.cells_bytes()
            .saturating_add(rings)
            .next_multiple_of(BLOCK_ALIGN)
    }

    /// The position of `other` among the members that are not `me`.
    fn position(&self, me: MemberId, other: MemberId) -> Option<u64> {
        if me == other || !self.contains(me) || !self.contains(other) {
            return None;
        }
        let skipped = u64::from(other > me);
        u64::from(other.get()).checked_sub(skipped)
    }
}

/// A mesh as every member is told at its attach.
#[derive(FromZeros, Immutable, KnownLayout)]
pub struct MeshTable {
    shape: MeshShape,
    epoch: u32,
    placed: [bool; MAX_MEMBERS],
    blocks: [Location; MAX_MEMBERS],
    functions: [u32; MAX_MEMBERS],
}

impl MeshTable {
    /// Begins a mesh without any block placed.
    ///
    /// # Errors
    /// [`MeshError`] of the shape; `RingError::Epoch` if `epoch` is 0.
    pub fn init(&mut self, shape: &MeshShape, epoch: u32) -> Result<(), MeshError> {
        shape.check()?;
        if epoch == 0 {
            return Err(MeshError::Ring(RingError::Epoch));
        }
        self.shape = *shape;
        self.epoch = epoch;
        self.placed.fill(false);
        self.blocks.fill(Location::default());
        self.functions.fill(0);
        Ok(())
    }

    /// Says where `member`'s block lies: normally in its own memory, elsewhere for another placement.
    ///
    /// # Errors
    /// [`MeshError::Member`], [`MeshError::Placement`].
    pub fn place(&mut self, member: MemberId, block: Location) -> Result<(), MeshError> {
        let end = block.at(self.shape.block_bytes());
        if block.offset % BLOCK_ALIGN != 0 || end.is_none() {
            return Err(MeshError::Placement);
        }
        if !self.shape.contains(member) {
            return Err(MeshError::Member);
        }
        let places = self.placed.iter_mut().zip(self.blocks.iter_mut());
        if let Some((placed, place)) = places.into_iter().nth(member.index()) {
            *placed = true;
            *place = block;
        }
        Ok(())
    }

    /// Says what functions `member` offers.
    pub fn set_functions(&mut self, member: MemberId, functions: Functions) {
        if let Some(known) = self.functions.get_mut(member.index()) {
            *known = functions.to_wire();
        }
    }

    /// What functions `member` offers.
    #[must_use]
    pub fn functions(&self, member: MemberId) -> Functions {
        let bits = self.functions.get(member.index()).copied();
        Functions::from_wire(bits.unwrap_or(0))
    }

    /// How many drives, and what rings.
    #[must_use]
    pub const fn shape(&self) -> &MeshShape {
        &self.shape
    }

    /// The epoch of all rings that were not re-established since.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Where `member`'s block lies, if it was placed.
    #[must_use]
    pub fn block(&self, member: MemberId) -> Option<Location> {
        let placed = self.placed.get(member.index()).copied();
        let block = self.blocks.get(member.index()).copied();
        block.filter(|_| placed == Some(true))
    }

    /// The ring from `from` to `to`.
    ///
    /// # Errors
    /// [`MeshError::Member`] if they are not two members; [`MeshError::Placement`] if either's block
    /// has no place.
    pub fn ring(&self, from: MemberId, to: MemberId) -> Result<RingLayout, MeshError> {
        let shape = &self.shape;
        let ring = shape.position(to, from).ok_or(MeshError::Member)?;
        let cell = shape.position(from, to).ok_or(MeshError::Member)?;
        let into = self.block(to).ok_or(MeshError::Placement)?;
        let out_of = self.block(from).ok_or(MeshError::Placement)?;
        let rings = shape.cells_bytes();
        let offset = ring
            .saturating_mul(shape.ring_bytes())
            .saturating_add(rings);
        let layout = RingLayout {
            entries: shape.entries,
            entry_bytes: shape.entry_bytes,
            epoch: self.epoch,
            from,
            to,
            base: into.at(offset).ok_or(MeshError::Placement)?,
            credit: out_of
                .at(cell.saturating_mul(CELL_BYTES))
                .ok_or(MeshError::Placement)?,
            ..RingLayout::default()
        };
        layout.check().map_err(MeshError::Ring)?;
        Ok(layout)
    }

    /// Zeroes `member`'s block: before anyone attaches, and as the scrub when the mesh ends.
    ///
    /// # Errors
    /// [`Fault`] of the memory, [`Fault::NoMemory`] if the block has no place.
    pub fn clear<M: Memory + ?Sized>(&self, member: MemberId, memory: &mut M) -> Result<(), Fault> {
        let block = self.block(member).ok_or(Fault::NoMemory)?;
        memory.zero(block, self.shape.block_bytes())
    }
}
