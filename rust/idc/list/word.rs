// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The words of a linked-list buffer that say a node: links and the head cell.
//!
//! Owns their layout. Never touches memory.

use super::super::marks::Marks;

/// Words of the private maps, one bit a node.
pub(super) const WORDS: usize = 4;
/// One bit for each node.
pub(super) type Nodes = Marks<WORDS>;

/// Where a list goes on, or where its receiver stands: a node, and the low half of the sequence of
/// the entry in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) node: u32,
    pub(super) sequence: u16,
    pub(super) epoch: u32,
}

impl Link {
    pub(super) const fn from_cell(cell: u64) -> Self {
        Link {
            node: (cell & 0xffff) as u32,
            sequence: (cell >> 16) as u16,
            epoch: (cell >> 32) as u32,
        }
    }

    pub(super) const fn to_cell(self) -> u64 {
        ((self.epoch as u64) << 32) | ((self.sequence as u64) << 16) | (self.node as u64 & 0xffff)
    }
}

/// The low half of a sequence.
pub(super) const fn low(sequence: u32) -> u16 {
    sequence as u16
}
