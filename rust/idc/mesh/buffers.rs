// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The buffers of a mesh as a whole: which there are, what each is, whether two tables say the same.
//!
//! Owns numbers of buffers, the digest, and what is zeroed. Never places anything.

use super::super::function::crc32c;
use super::super::member::{MemberId, MemberSet};
use super::super::memory::{Fault, Memory};
use super::super::ring::{Publish, RingFlags};
use super::error::MeshError;
use super::parts::{BufferId, PartId, PartKind};
use super::policy::{Form, Share};
use super::table::MeshTable;
use super::CELL_BYTES;

/// One buffer, for reports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BufferInfo {
    /// Its number in the mesh, from 0, without gaps.
    pub id: u32,
    /// A sender and a receiver that use it, the first ones.
    pub from: MemberId,
    /// See `from`.
    pub to: MemberId,
    /// Who has it together.
    pub share: Share,
    /// What it is made of.
    pub form: Form,
    /// How its entries are published; counts for a ring of its own.
    pub publish: Publish,
    /// What it has besides; counts for a ring of its own.
    pub flags: RingFlags,
    /// Entries or nodes.
    pub entries: u32,
    /// Bytes of each.
    pub entry_bytes: u32,
    /// Its epoch.
    pub epoch: u32,
    /// Whose memory its entries lie in.
    pub memory: MemberId,
    /// Who establishes it, once that is known.
    pub establisher: Option<MemberId>,
    /// Who grants the right to write it; counts for a shared buffer.
    pub arbiter: MemberId,
    /// Who writes it.
    pub writers: MemberSet,
    /// Who reads it.
    pub readers: MemberSet,
    /// Bytes of all its parts, in all memories.
    pub bytes: u64,
}

impl MeshTable {
    /// The number of the buffer from `from` to `to`, from 0, without gaps.
    #[must_use]
    pub fn buffer_id(&self, from: MemberId, to: MemberId) -> Option<u32> {
        self.buffer_of(from, to).map(|buffer| self.number(buffer))
    }

    fn number(&self, buffer: BufferId) -> u32 {
        let row = u32::from(buffer.row.get());
        let column = u32::from(buffer.column.get());
        match self.policy().share {
            Share::None => {
                let skipped = u32::from(column > row);
                row.saturating_mul(self.shape().drives.into())
                    .saturating_add(column.saturating_sub(skipped))
            }
            // Below column c there are c (c - 1) / 2 pairs.
            Share::Pair => column
                .saturating_mul(column.saturating_sub(1))
                .wrapping_div(2)
                .saturating_add(row),
            _ => row,
        }
    }

    /// What the buffer from `from` to `to` is.
    #[must_use]
    pub fn info(&self, from: MemberId, to: MemberId) -> Option<BufferInfo> {
        self.describe(self.buffer_of(from, to)?)
    }

    /// Every buffer, once.
    pub fn buffers(&self) -> impl Iterator<Item = BufferInfo> + '_ {
        let members = MemberId::all(self.shape().drives);
        let square = members
            .clone()
            .flat_map(move |row| members.clone().map(move |column| BufferId { row, column }));
        square
            .filter(|buffer| self.is_buffer(*buffer))
            .filter_map(|buffer| self.describe(buffer))
    }

    fn is_buffer(&self, buffer: BufferId) -> bool {
        let BufferId { row, column } = buffer;
        match self.policy().share {
            Share::None => row != column,
            Share::Writers | Share::Readers => row == column,
            Share::Both => row.is_host() && column.is_host(),
            Share::Pair => row < column,
        }
    }

    fn describe(&self, buffer: BufferId) -> Option<BufferInfo> {
        let record = self.record(buffer)?;
        let (writers, readers) = (self.writers(buffer), self.readers(buffer));
        let from = writers.iter().next()?;
        let to = readers.iter().find(|reader| *reader != from)?;
        let from = writers.iter().find(|writer| *writer != to).unwrap_or(from);
        let bytes = self
            .parts_of(buffer)
            .filter_map(|id| self.part(id))
            .map(|part| u64::from(part.lines).saturating_mul(CELL_BYTES))
            .fold(0, u64::saturating_add);
        Some(BufferInfo {
            id: self.number(buffer),
            from,
            to,
            share: self.policy().share,
            form: record.form,
            publish: record.publish,
            flags: record.flags,
            entries: record.entries.into(),
            entry_bytes: record.entry_bytes.into(),
            epoch: record.epoch,
            memory: record.memory,
            establisher: self.establisher_of(buffer),
            arbiter: self.arbiter(buffer),
            writers,
            readers,
            bytes,
        })
    }

    /// The names of all parts that a buffer can have; [`part`](Self::part) tells which it has.
    pub(super) fn parts_of(&self, buffer: BufferId) -> impl Iterator<Item = PartId> {
        let BufferId { row, column } = buffer;
        let own = self.policy().share == Share::None;
        let members = if own {
            MemberSet::of(row)
        } else {
            self.writers(buffer).with_all(self.readers(buffer))
        };
        let is_pair = self.policy().share == Share::Pair;
        let cells = members.iter().map(move |member| {
            // The cells of a pair's higher member are in its row, under the other one.
            let across = is_pair && member == column;
            PartId {
                row: member,
                column: if across { row } else { column },
                kind: PartKind::Cells,
            }
        });
        let others = [PartKind::Entries, PartKind::Inbox].into_iter();
        cells.chain(others.map(move |kind| PartId { row, column, kind }))
    }

    /// Bytes of the largest entry of any buffer: what a receiver's copy needs room for.
    #[must_use]
    pub fn max_entry_bytes(&self) -> u32 {
        let sizes = self.buffers().map(|buffer| buffer.entry_bytes);
        sizes.max().unwrap_or(0)
    }

    /// Whether every part of every buffer has its place.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.part_ids()
            .all(|id| self.part(id).is_none() || self.line(id).is_some())
    }

    /// A checksum (CRC-32C) of all that members must agree on: who they are and what they offer,
    /// what every buffer is, its epoch, who established it, and where every part of it lies. Tables
    /// that say the same have the same.
    #[must_use]
    pub fn digest(&self) -> u32 {
        let policy = self.policy();
        let [low, high] = self.shape().drives.to_le_bytes();
        let share = policy.share.to_wire();
        let mut crc = crc32c::update(0, &[low, high, share, policy.select.to_wire()]);
        for member in MemberId::all(self.shape().drives) {
            crc = crc32c::update(crc, &self.functions(member).to_wire().to_le_bytes());
        }
        for id in self.part_ids() {
            let Some(part) = self.part(id) else {
                continue;
            };
            if id.kind == PartKind::Entries {
                crc = self.digest_buffer(crc, part.buffer);
            }
            // A part without a place differs from any part with one.
            let (memory, offset) = match self.locate(id) {
                Ok(place) => (place.memory.get(), place.offset),
                Err(_) => (u16::MAX, u64::MAX),
            };
            crc = crc32c::update(crc, &[id.kind as u8]);
            crc = crc32c::update(crc, &id.row.get().to_le_bytes());
            crc = crc32c::update(crc, &id.column.get().to_le_bytes());
            crc = crc32c::update(crc, &memory.to_le_bytes());
            crc = crc32c::update(crc, &offset.to_le_bytes());
        }
        crc
    }

    fn digest_buffer(&self, crc: u32, buffer: BufferId) -> u32 {
        let Some(record) = self.record(buffer) else {
            return crc;
        };
        let establisher = self.establisher_of(buffer).map(MemberId::get);
        let establisher = establisher.unwrap_or(u16::MAX);
        let mut crc = crc32c::update(crc, &record.epoch.to_le_bytes());
        crc = crc32c::update(crc, &record.entries.to_le_bytes());
        crc = crc32c::update(crc, &record.entry_bytes.to_le_bytes());
        crc = crc32c::update(crc, &establisher.to_le_bytes());
        let choices = [
            record.form.to_wire(),
            record.publish as u8,
            record.flags.to_wire(),
        ];
        crc32c::update(crc, &choices)
    }

    /// Zeroes `member`'s block: before anyone attaches, and as the scrub when the mesh ends.
    ///
    /// # Errors
    /// [`Fault`] of the memory, [`Fault::NoMemory`] if the block has no place.
    pub fn clear<M: Memory + ?Sized>(&self, member: MemberId, memory: &mut M) -> Result<(), Fault> {
        let bytes = self.block_bytes(member);
        if bytes == 0 {
            return Ok(());
        }
        let block = self.block(member).ok_or(Fault::NoMemory)?;
        memory.zero(block, bytes)
    }

    /// Zeroes all parts of the buffer from `from` to `to`, and nothing else: before it is attached
    /// under a new epoch. Parts in other memories are zeroed even if one cannot be reached.
    ///
    /// # Errors
    /// The first [`Fault`] of a memory; [`Fault::NoMemory`] if there is no such buffer or a part has
    /// no place.
    pub fn clear_channel<M: Memory + ?Sized>(
        &self,
        from: MemberId,
        to: MemberId,
        memory: &mut M,
    ) -> Result<(), Fault> {
        let buffer = self.buffer_of(from, to).ok_or(Fault::NoMemory)?;
        let mut result = Ok(());
        for id in self.parts_of(buffer) {
            let Some(part) = self.part(id) else {
                continue;
            };
            let bytes = u64::from(part.lines).saturating_mul(CELL_BYTES);
            let place = self.locate(id).map_err(|_: MeshError| Fault::NoMemory);
            let done = place.and_then(|place| memory.zero(place, bytes));
            result = result.and(done);
        }
        result
    }
}
