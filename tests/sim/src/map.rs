// SPDX-License-Identifier: GPL-2.0

//! What lies where in the memories of a mesh, who may write there and who may read.
//!
//! Owns the truth that the checks go by: the places that members were told at their attach, each with
//! its one writer and its one reader as Documentation/idc-protocol.rst gives them, and the windows that
//! the host has granted and not revoked. Holds the layout itself to that page: nothing overlaps, every
//! cell lies in the memory of whoever reads it. Never asks idc.

use crate::pcie::{Class, MEMBERS};
use std::collections::BTreeMap;

/// A bit per member.
pub type Members = u32;

/// The set of one member.
#[must_use]
pub const fn only(member: usize) -> Members {
    1 << member
}

/// What a word beside the entries is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The receiver's head.
    Credit,
    /// The sender's tail, or its hint that something came.
    Tail,
    /// The receiver's map of consumed slots.
    Marks,
    /// The sender's words about each slot.
    Metadata,
    /// Successors of the nodes of a list.
    Links,
    /// What the arbiter of a shared buffer says to one member.
    Grant,
    /// Slots that one member wrote for another.
    Produced,
    /// What one member says to the arbiter.
    Request,
    /// Slots that one member has consumed.
    Consumed,
}

impl Role {
    /// Whether a write there is what makes entries count.
    #[must_use]
    pub const fn announces(self) -> bool {
        matches!(self, Role::Tail | Role::Links | Role::Produced)
    }

    /// It lies beside the entries, wherever those are; all others where they are read.
    const fn is_beside(self) -> bool {
        matches!(self, Role::Metadata | Role::Links)
    }
}

/// What lies at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// In an entry.
    Slot {
        /// Of which buffer.
        buffer: usize,
        /// Which slot.
        slot: u64,
        /// Where in the entry.
        within: u64,
    },
    /// A word beside the entries.
    Cell {
        /// Of which buffer.
        buffer: usize,
        /// What it is for.
        role: Role,
        /// Who may write it.
        writer: usize,
        /// Who may read it.
        reader: usize,
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
    /// Its first byte.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// Who may write.
    pub grantees: Members,
}

/// The entries of one ring, list or shared buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Buffer {
    /// Whose memory the entries are in.
    pub memory: usize,
    /// Where they begin.
    pub base: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of an entry.
    pub entry_bytes: u64,
    /// Who may write entries.
    pub writers: Members,
    /// Who may read them.
    pub readers: Members,
    /// Entries count when they arrive, not when something else says so.
    pub is_self_announcing: bool,
}

impl Buffer {
    /// Bytes of all entries.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.entries * self.entry_bytes
    }
}

/// A part of a memory with a meaning.
#[derive(Clone, Copy, Debug)]
struct Region {
    end: u64,
    buffer: usize,
    /// `None`: its entries.
    cell: Option<(Role, usize, usize)>,
}

/// The layout of all memories.
#[derive(Clone, Debug)]
pub struct Map {
    buffers: Vec<Buffer>,
    between: [[Option<u16>; MEMBERS]; MEMBERS],
    /// By start, for each memory.
    regions: Vec<BTreeMap<u64, Region>>,
    windows: Vec<Lent>,
    lends: Members,
    faults: Vec<String>,
}

impl Map {
    /// Nothing yet, in a mesh where `lends` have memory.
    #[must_use]
    pub fn new(lends: Members) -> Self {
        Map {
            buffers: Vec::new(),
            between: [[None; MEMBERS]; MEMBERS],
            regions: vec![BTreeMap::new(); MEMBERS],
            windows: Vec::new(),
            lends,
            faults: Vec::new(),
        }
    }

    /// Enters a buffer. Returns its number.
    pub fn add(&mut self, buffer: Buffer) -> usize {
        let number = self.buffers.len();
        let region = Region {
            end: buffer.base + buffer.bytes(),
            buffer: number,
            cell: None,
        };
        self.insert(buffer.memory, buffer.base, region);
        self.buffers.push(buffer);
        for from in members(buffer.writers) {
            for to in members(buffer.readers).filter(|to| *to != from) {
                self.between[from][to] = Some(number as u16);
            }
        }
        number
    }

    /// Enters `len` bytes of words of `buffer`, which one member writes for another.
    pub fn add_cell(
        &mut self,
        buffer: usize,
        role: Role,
        (memory, start): (usize, u64),
        len: u64,
        (writer, reader): (usize, usize),
    ) {
        let lies_well = memory == reader || self.lends & only(reader) == 0 || role.is_beside();
        if !lies_well || start % 8 != 0 {
            self.faults.push(format!(
                "{role:?} from {writer} to {reader} lies at {memory}:{start:#x}"
            ));
        }
        let region = Region {
            end: start + len,
            buffer,
            cell: Some((role, writer, reader)),
        };
        self.insert(memory, start, region);
    }

    fn insert(&mut self, memory: usize, start: u64, region: Region) {
        let regions = &mut self.regions[memory];
        let before = regions.range(..region.end).next_back();
        if let Some((other, known)) = before.filter(|(_, known)| known.end > start) {
            self.faults.push(format!(
                "{:?} of buffer {} at {memory}:{start:#x} overlaps {:?} of buffer {} at {other:#x}",
                region.cell, region.buffer, known.cell, known.buffer
            ));
        }
        regions.insert(start, region);
    }

    /// What is wrong with the layout.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// All buffers.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The buffer that carries what `from` sends to `to`.
    #[must_use]
    pub fn between(&self, from: usize, to: usize) -> Option<usize> {
        self.between[from][to].map(usize::from)
    }

    /// Sender and receiver of an entry whose trailer names `from` and `to`; in a buffer with one sender and
    /// one receiver these, whatever it names. `None` if there can be no such entry.
    #[must_use]
    pub fn pair(&self, buffer: usize, from: u8, to: u8) -> Option<(usize, usize)> {
        let Buffer {
            writers, readers, ..
        } = self.buffers[buffer];
        if writers.is_power_of_two() && readers.is_power_of_two() {
            return Some((
                writers.trailing_zeros() as usize,
                readers.trailing_zeros() as usize,
            ));
        }
        let (from, to) = (usize::from(from), usize::from(to));
        let known = from < MEMBERS && to < MEMBERS && from != to;
        let known = known && writers & only(from) != 0 && readers & only(to) != 0;
        known.then_some((from, to))
    }

    /// All parts of `buffer`: memory, start, bytes, and what it is if it is not the entries.
    pub fn parts(
        &self,
        buffer: usize,
    ) -> impl Iterator<Item = (usize, u64, u64, Option<(Role, usize, usize)>)> + '_ {
        let of_memory = move |(memory, regions): (usize, &'_ BTreeMap<u64, Region>)| {
            let parts: Vec<_> = regions
                .iter()
                .filter(move |(_, region)| region.buffer == buffer)
                .map(|(start, region)| (memory, *start, region.end - start, region.cell))
                .collect();
            parts
        };
        self.regions.iter().enumerate().flat_map(of_memory)
    }

    /// What lies in `len` bytes at `offset` of `memory`; a range over two things is nowhere.
    #[must_use]
    pub fn find(&self, memory: usize, offset: u64, len: u64) -> Place {
        let region = self.regions[memory].range(..=offset).next_back();
        if let Some((start, region)) = region.filter(|(_, region)| offset < region.end) {
            let buffer = region.buffer;
            let offset = offset - start;
            if let Some((role, writer, reader)) = region.cell {
                let fits = offset % 8 == 0 && start + offset + len <= region.end;
                let one = len <= 8 || (role == Role::Grant && len <= 16);
                if fits && one {
                    return Place::Cell {
                        buffer,
                        role,
                        writer,
                        reader,
                    };
                }
            } else {
                let entry_bytes = self.buffers[buffer].entry_bytes;
                let (slot, within) = (offset / entry_bytes, offset % entry_bytes);
                if within + len <= entry_bytes {
                    return Place::Slot {
                        buffer,
                        slot,
                        within,
                    };
                }
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

    /// Whether `initiator` may write `place`.
    #[must_use]
    pub fn allows(&self, initiator: usize, place: Place) -> bool {
        match place {
            Place::Slot { buffer, .. } => self.buffers[buffer].writers & only(initiator) != 0,
            Place::Cell { writer, .. } => initiator == writer,
            Place::Window(id) => self
                .windows
                .iter()
                .any(|lent| lent.id == id && lent.grantees & only(initiator) != 0),
            Place::Nowhere => false,
        }
    }

    /// Whether `initiator` may read `place` across the bus.
    #[must_use]
    pub fn may_read(&self, initiator: usize, place: Place) -> bool {
        match place {
            Place::Slot { buffer, .. } => self.buffers[buffer].readers & only(initiator) != 0,
            Place::Cell { reader, .. } => initiator == reader,
            Place::Window(_) | Place::Nowhere => false,
        }
    }

    /// What an access there counts as.
    #[must_use]
    pub fn class(place: Place, len: usize) -> Class {
        match place {
            Place::Slot { .. } => Class::Entry,
            Place::Cell { .. } => Class::Cell,
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

/// The members of a set.
pub fn members(mut set: Members) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let member = set.trailing_zeros();
        set &= set - 1;
        Some(member as usize)
    })
}
