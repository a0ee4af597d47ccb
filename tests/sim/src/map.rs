// SPDX-License-Identifier: GPL-2.0

//! What lies where in the memories of a mesh, and who may write there.
//!
//! Owns the truth that the checks go by: the blocks as Documentation/idc-protocol.rst ("Mesh") lays
//! them out, worked out here a second time, and the windows that the host has granted and not
//! revoked. Never asks idc.

use crate::pcie::{Class, MEMBERS};

const CELL: u64 = 64;

/// What lies at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// In an entry of the ring from one member to the owner of the memory.
    Entry {
        /// Who sends.
        from: usize,
        /// Which slot.
        slot: u64,
        /// Where in the entry.
        within: u64,
    },
    /// The credit cell of the ring from the owner of the memory to another member.
    Credit {
        /// Who receives, and writes the cell.
        to: usize,
    },
    /// In a window.
    Window(u32),
    /// Nobody may write here.
    Nowhere,
}

/// A window that is granted.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// Its id.
    pub id: u32,
    /// Whose memory.
    pub memory: usize,
    /// Its first byte, and the one behind its last.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// Bit per member.
    pub grantees: u32,
}

/// The layout of all memories.
#[derive(Clone, Debug)]
pub struct Map {
    drives: u64,
    /// Entries of a ring.
    pub entries: u64,
    /// Bytes of an entry.
    pub entry_bytes: u64,
    blocks: [u64; MEMBERS],
    windows: Vec<Lent>,
}

impl Map {
    /// A mesh without windows; the block of each member at `blocks`.
    #[must_use]
    pub fn new(drives: u64, entries: u64, entry_bytes: u64, blocks: [u64; MEMBERS]) -> Self {
        Map {
            drives,
            entries,
            entry_bytes,
            blocks,
            windows: Vec::new(),
        }
    }

    /// The member at `position` among those that are not `owner`.
    fn member(owner: usize, position: u64) -> usize {
        let position = position as usize;
        position + usize::from(position >= owner)
    }

    fn position(owner: usize, member: usize) -> u64 {
        (member - usize::from(member > owner)) as u64
    }

    /// Bytes of a ring.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.entries * self.entry_bytes
    }

    /// Where the ring from `from` to `to` begins, in `to`'s memory.
    #[must_use]
    pub fn ring(&self, from: usize, to: usize) -> u64 {
        self.blocks[to] + CELL * self.drives + Self::position(to, from) * self.ring_bytes()
    }

    /// Where the credit cell of the ring from `from` to `to` is, in `from`'s memory.
    #[must_use]
    pub fn credit(&self, from: usize, to: usize) -> u64 {
        self.blocks[from] + CELL * Self::position(from, to)
    }

    /// What lies in `len` bytes at `offset` of `memory`; a range over two things is nowhere.
    #[must_use]
    pub fn find(&self, memory: usize, offset: u64, len: u64) -> Place {
        let block = self.blocks[memory];
        let cells = CELL * self.drives;
        let block_end = block + cells + self.drives * self.ring_bytes();
        if offset >= block && offset < block_end {
            let offset = offset - block;
            if let Some(in_rings) = offset.checked_sub(cells) {
                let within = in_rings % self.entry_bytes;
                if within + len <= self.entry_bytes {
                    return Place::Entry {
                        from: Self::member(memory, in_rings / self.ring_bytes()),
                        slot: in_rings % self.ring_bytes() / self.entry_bytes,
                        within,
                    };
                }
            } else if offset % CELL == 0 && len <= 8 {
                return Place::Credit {
                    to: Self::member(memory, offset / CELL),
                };
            }
            return Place::Nowhere;
        }
        let inside = |lent: &&Lent| {
            lent.memory == memory && offset >= lent.start && offset + len <= lent.end
        };
        self.windows
            .iter()
            .find(inside)
            .map_or(Place::Nowhere, |lent| Place::Window(lent.id))
    }

    /// Whether `initiator` may write `place` in `memory`.
    #[must_use]
    pub fn allows(&self, initiator: usize, place: Place) -> bool {
        match place {
            Place::Entry { from, .. } => initiator == from,
            Place::Credit { to } => initiator == to,
            Place::Window(id) => self
                .windows
                .iter()
                .any(|lent| lent.id == id && lent.grantees & (1 << initiator) != 0),
            Place::Nowhere => false,
        }
    }

    /// What an access there counts as.
    #[must_use]
    pub fn class(place: Place, len: usize) -> Class {
        match place {
            Place::Entry { .. } => Class::Entry,
            Place::Credit { .. } => Class::Cell,
            Place::Window(_) if len == 8 => Class::Cell,
            _ => Class::Data,
        }
    }

    /// A window is granted.
    pub fn grant(&mut self, lent: Lent) {
        self.windows.push(lent);
    }

    /// A window is revoked.
    pub fn revoke(&mut self, id: u32) {
        self.windows.retain(|lent| lent.id != id);
    }

    /// The windows that are granted.
    #[must_use]
    pub fn windows(&self) -> &[Lent] {
        &self.windows
    }
}
