// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The words of a linked-list buffer: links, the head cell, and mark cells.
//!
//! Owns their layout, and the half words of a private map that mark cells carry. Never touches
//! memory.

use super::super::marks::Marks;

/// Words of the private maps, one bit a node.
pub(super) const WORDS: usize = 4;
/// One bit for each node.
pub(super) type Nodes = Marks<WORDS>;

/// Marks of one cell: its low half, so that the high half says the epoch.
pub(super) const CELL_MARKS: u32 = 32;

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

/// The cell of the marks that are `map`'s bits `32 * cell` to `32 * cell + 31`.
pub(super) fn mark_cell(map: &Nodes, cell: u32, epoch: u32) -> u64 {
    let half = map.word(cell >> 1) >> shift(cell);
    (u64::from(epoch) << 32) | (half & 0xffff_ffff)
}

/// The marks in `value` in which it differs from `map`, at the place of their word; none if the cell
/// is of another epoch.
pub(super) fn new_marks(map: &Nodes, cell: u32, epoch: u32, value: u64) -> u64 {
    if (value >> 32) as u32 != epoch {
        return 0;
    }
    ((value ^ mark_cell(map, cell, epoch)) & 0xffff_ffff) << shift(cell)
}

const fn shift(cell: u32) -> u32 {
    (cell & 1).wrapping_mul(CELL_MARKS)
}
