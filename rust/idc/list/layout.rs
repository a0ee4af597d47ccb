// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Where a linked-list buffer lies and how it is cut into nodes.
//!
//! Owns the arithmetic from a node to its places. Never touches the buffer. IDC specification,
//! "Linked-list buffers".

use super::super::entry::{MAX_ENTRY_BYTES, MIN_ENTRY_BYTES, OVERHEAD_BYTES};
use super::super::marks::{cells, cells_bytes};
use super::super::member::{Location, MemberId};
use super::super::memory::Fault;
use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Fewest nodes of a pool.
pub const MIN_NODES: u32 = 2;
/// Most nodes of a pool.
pub const MAX_NODES: u32 = 256;

/// Where a linked-list buffer lies and how it is cut.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct ListLayout {
    /// Nodes, 2..=256. One of them is always the one that the receiver stands on.
    pub nodes: u32,
    /// Bytes of a node, a power of two, 64..=4096.
    pub node_bytes: u32,
    /// Not 0, never used before on this memory.
    pub epoch: u32,
    /// Who sends.
    pub from: MemberId,
    /// Who receives.
    pub to: MemberId,
    /// Node 0, 64-byte aligned.
    pub base: Location,
    /// The link words, 64-byte aligned; the sender is their only writer.
    pub links: Location,
    /// The head cell, alone in its 64-byte line; the receiver is its only writer.
    pub credit: Location,
    /// The mark cells, 64-byte aligned, in the memory of the head cell; the receiver is their only
    /// writer.
    pub marks: Location,
}

/// What is wrong with the layout of a linked-list buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListError {
    /// The number of nodes is out of range.
    Nodes,
    /// The size of a node is not a power of two in range.
    NodeBytes,
    /// The epoch is 0.
    Epoch,
    /// A part is not aligned or reaches past the 64-bit end, or head cell and marks are apart.
    Placement,
    /// The buffer does not connect the two members that it is meant for.
    Members,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListError::Nodes => "a list has 2 to 256 nodes",
            ListError::NodeBytes => "node size must be a power of two, 64 to 4096 bytes",
            ListError::Epoch => "the epoch must not be 0",
            ListError::Placement => "nodes, links, head cell or marks are misplaced",
            ListError::Members => "the list does not connect these members",
        })
    }
}

impl ListLayout {
    /// Checks everything that can be checked without knowing the memories.
    ///
    /// # Errors
    /// The first [`ListError`] found.
    pub fn check(&self) -> Result<(), ListError> {
        if !(MIN_NODES..=MAX_NODES).contains(&self.nodes) {
            return Err(ListError::Nodes);
        }
        let size = MIN_ENTRY_BYTES as u32..=MAX_ENTRY_BYTES as u32;
        if !self.node_bytes.is_power_of_two() || !size.contains(&self.node_bytes) {
            return Err(ListError::NodeBytes);
        }
        if self.epoch == 0 {
            return Err(ListError::Epoch);
        }
        if self.from == self.to {
            return Err(ListError::Members);
        }
        let parts = [
            (self.base, self.bytes()),
            (self.links, self.links_bytes()),
            (self.credit, 64),
            (self.marks, self.marks_bytes()),
        ];
        let misplaced =
            |(at, bytes): &(Location, u64)| at.offset % 64 != 0 || at.at(*bytes).is_none();
        // One memory, so that whoever sees a mark finds a head that has left its node.
        if parts.iter().any(misplaced) || self.credit.memory != self.marks.memory {
            return Err(ListError::Placement);
        }
        Ok(())
    }

    /// Bytes of all nodes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.nodes as u64).wrapping_mul(self.node_bytes as u64)
    }

    /// Bytes of the link words: whole lines of 64 bytes.
    #[must_use]
    pub const fn links_bytes(&self) -> u64 {
        (self.nodes as u64).wrapping_mul(8).next_multiple_of(64)
    }

    /// Bytes of the mark cells: whole lines of 64 bytes.
    #[must_use]
    pub const fn marks_bytes(&self) -> u64 {
        cells_bytes(self.nodes)
    }

    /// Mark cells.
    pub(super) const fn cells(&self) -> u32 {
        cells(self.nodes)
    }

    /// The most entries that it holds: one node is always the one that the receiver stands on.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.nodes.saturating_sub(1)
    }

    /// Data bytes of one node.
    #[must_use]
    pub const fn inline_capacity(&self) -> usize {
        (self.node_bytes as usize).saturating_sub(OVERHEAD_BYTES)
    }

    /// Nodes that the receiver gives back together, if the sender is not out of nodes.
    #[must_use]
    pub const fn credit_batch(&self) -> u32 {
        let quarter = self.nodes >> 2;
        if quarter == 0 {
            1
        } else {
            quarter
        }
    }

    /// Whether nodes and links lie in different memories, so that a link must wait for a flush.
    pub(super) fn is_split(&self) -> bool {
        self.base.memory != self.links.memory
    }

    pub(super) fn node(&self, node: u32) -> Result<Location, Fault> {
        self.part(self.base, node, self.nodes, self.node_bytes)
    }

    pub(super) fn link(&self, node: u32) -> Result<Location, Fault> {
        self.part(self.links, node, self.nodes, 8)
    }

    pub(super) fn cell(&self, cell: u32) -> Result<Location, Fault> {
        self.part(self.marks, cell, self.cells(), 8)
    }

    fn part(&self, base: Location, index: u32, count: u32, bytes: u32) -> Result<Location, Fault> {
        if index >= count {
            return Err(Fault::OutOfRange);
        }
        let offset = u64::from(index).wrapping_mul(bytes.into());
        base.at(offset).ok_or(Fault::OutOfRange)
    }
}
