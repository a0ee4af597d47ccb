// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The mesh table: what buffers there are between the members, and where all their parts lie.
//!
//! Owns the places: one block in each memory, cut into one arena for each member that establishes
//! buffers there. Never allocates: the caller gives each block's place, in whatever memory. IDC
//! specification, "Mesh".

use super::super::function::Functions;
use super::super::member::{Location, MemberId, MemberSet, MAX_MEMBERS};
use super::super::range::{Carver, Range};
use super::super::ring::{Publish, RingError, RingFlags};
use super::error::MeshError;
use super::parts::{BufferId, PartId};
use super::policy::{Establish, Form, PairPolicy, Place, Policy};
use super::{MeshShape, BLOCK_ALIGN, CELL_BYTES};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// One place of the square of all members: what is known of the buffer there, and where the parts
/// named after that place lie.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Record {
    /// Where the parts lie, by kind, in lines from the start of the block; those of `known` count.
    lines: [u32; 3],
    pub(super) epoch: u32,
    pub(super) entries: u16,
    pub(super) entry_bytes: u16,
    /// Whose memory the entries lie in.
    pub(super) memory: MemberId,
    /// Who establishes the buffer; counts if `has_establisher`.
    establisher: MemberId,
    pub(super) form: Form,
    pub(super) publish: Publish,
    pub(super) flags: RingFlags,
    /// Bit N: the part of kind N has its place.
    known: u8,
    has_establisher: bool,
    reserved: [u8; 3],
}

/// A part of a block, in lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
struct Arena {
    start: u32,
    lines: u32,
}

/// A mesh as every member knows it once it is attached. About 45 KiB: built in place from zeros.
#[derive(FromZeros, Immutable, KnownLayout)]
pub struct MeshTable {
    shape: MeshShape,
    policy: Policy,
    epoch: u32,
    lends: MemberSet,
    placed: MemberSet,
    blocks: [Location; MAX_MEMBERS],
    /// Sizes of the blocks.
    lines: [u32; MAX_MEMBERS],
    functions: [u32; MAX_MEMBERS],
    /// By establisher, then by memory.
    arenas: [[Arena; MAX_MEMBERS]; MAX_MEMBERS],
    /// What is left of the arenas of whoever lays out now, by memory.
    carvers: [Carver; MAX_MEMBERS],
    records: [[Record; MAX_MEMBERS]; MAX_MEMBERS],
}
const _: () = assert!(core::mem::size_of::<MeshTable>() < 160 << 10);

impl MeshTable {
    /// Begins a mesh of rings in their receivers' memories, without any block placed.
    ///
    /// # Errors
    /// [`MeshError`] of the shape; `RingError::Epoch` if `epoch` is 0.
    pub fn init(&mut self, shape: &MeshShape, epoch: u32) -> Result<(), MeshError> {
        let lends = MemberId::all(shape.drives).fold(MemberSet::NONE, MemberSet::with);
        self.init_with(shape, &Policy::default(), &[], epoch, lends)
    }

    /// Begins a mesh, without any block placed. Members outside of `lends` have no memory; the host
    /// always has. Numbers of `policy` that are 0 are the shape's.
    ///
    /// If the host establishes the buffers they are laid out now; else by an
    /// `establish::Establisher`, or by
    /// [`establish_all`](Self::establish_all).
    ///
    /// # Errors
    /// What [`Policy::check`] refuses; [`MeshError::HubMemory`]; `RingError::Epoch` if `epoch` is 0.
    pub fn init_with(
        &mut self,
        shape: &MeshShape,
        policy: &Policy,
        pairs: &[PairPolicy],
        epoch: u32,
        lends: MemberSet,
    ) -> Result<(), MeshError> {
        let or = |value, default| if value == 0 { default } else { value };
        let policy = Policy {
            entries: or(policy.entries, shape.entries),
            entry_bytes: or(policy.entry_bytes, shape.entry_bytes),
            ..*policy
        };
        policy.check(pairs, shape.drives)?;
        // 0 is the shape's number no longer.
        if policy.entries == 0 {
            return Err(MeshError::Ring(RingError::Entries));
        }
        if policy.entry_bytes == 0 {
            return Err(MeshError::Ring(RingError::EntryBytes));
        }
        if epoch == 0 {
            return Err(MeshError::Ring(RingError::Epoch));
        }
        let places = pairs.iter().filter_map(|pair| pair.place);
        let lends = lends.with(MemberId::HOST);
        for place in places.chain([policy.place]) {
            match place {
                Place::Member(hub) if !lends.contains(hub) => return Err(MeshError::HubMemory),
                _ => {}
            }
        }
        self.shape = MeshShape {
            drives: shape.drives,
            entries: policy.entries,
            entry_bytes: policy.entry_bytes,
        };
        self.policy = policy;
        self.epoch = epoch;
        self.lends = lends;
        self.placed = MemberSet::NONE;
        self.blocks.fill(Location::default());
        self.functions.fill(0);
        self.fill_records(pairs);
        self.size_blocks();
        self.appoint_by_policy();
        if policy.establish == Establish::Host {
            self.establish_all();
        }
        Ok(())
    }

    fn fill_records(&mut self, pairs: &[PairPolicy]) {
        for row in &mut self.records {
            row.fill(Record::default());
        }
        let policy = self.policy;
        for from in MemberId::all(self.shape.drives) {
            for to in MemberId::all(self.shape.drives) {
                if let Some(buffer) = self.buffer_of(from, to) {
                    self.fill_record(buffer, &policy);
                }
            }
        }
        for pair in pairs {
            if let Some(buffer) = self.buffer_of(pair.from, pair.to) {
                self.fill_record(buffer, &pair.over(&policy));
            }
        }
    }

    fn fill_record(&mut self, buffer: BufferId, policy: &Policy) {
        let memory = self.place_of(buffer, policy.place);
        let epoch = self.epoch;
        let Some(record) = self.record_mut(buffer) else {
            return;
        };
        *record = Record {
            epoch,
            entries: policy.entries as u16,
            entry_bytes: policy.entry_bytes as u16,
            memory,
            form: policy.form,
            publish: policy.publish,
            flags: policy.flags,
            ..Record::default()
        };
    }

    fn size_blocks(&mut self) {
        self.lines.fill(0);
        for id in self.part_ids() {
            let Some(part) = self.part(id) else {
                continue;
            };
            if let Some(lines) = self.lines.get_mut(part.memory.index()) {
                *lines = lines.saturating_add(part.lines);
            }
        }
    }

    fn appoint_by_policy(&mut self) {
        for from in MemberId::all(self.shape.drives) {
            for to in MemberId::all(self.shape.drives) {
                let Some(buffer) = self.buffer_of(from, to) else {
                    continue;
                };
                if let Some(member) = self.appointed(buffer) {
                    self.set_establisher(buffer, member);
                }
            }
        }
        self.cut_arenas();
    }

    fn set_establisher(&mut self, buffer: BufferId, member: MemberId) {
        if let Some(record) = self.record_mut(buffer) {
            record.establisher = member;
            record.has_establisher = true;
        }
    }

    /// Cuts every block into arenas, in the order of those who establish something there.
    fn cut_arenas(&mut self) {
        for arenas in &mut self.arenas {
            arenas.fill(Arena::default());
        }
        for id in self.part_ids() {
            let Some(part) = self.part(id) else {
                continue;
            };
            let Some(by) = self.establisher_of(part.buffer) else {
                continue;
            };
            let arenas = self.arenas.get_mut(by.index());
            if let Some(arena) = arenas.and_then(|arenas| arenas.get_mut(part.memory.index())) {
                arena.lines = arena.lines.saturating_add(part.lines);
            }
        }
        let mut ends = [0_u32; MAX_MEMBERS];
        for arenas in &mut self.arenas {
            for (arena, end) in arenas.iter_mut().zip(&mut ends) {
                arena.start = *end;
                *end = end.saturating_add(arena.lines);
            }
        }
    }

    /// Lays out every buffer whose establisher is known, as that member would: for a host that does
    /// it in place of the others.
    pub fn establish_all(&mut self) {
        for by in MemberId::all(self.shape.drives) {
            self.begin_layout(by);
            for id in self.part_ids() {
                self.carve(by, id);
            }
        }
    }

    /// Takes back where the parts of `by`'s buffers lie; [`carve`](Self::carve) or
    /// [`accept`](Self::accept) then say it anew.
    pub(in super::super) fn begin_layout(&mut self, by: MemberId) {
        for id in self.part_ids() {
            let Some(part) = self.part(id) else {
                continue;
            };
            if self.establisher_of(part.buffer) == Some(by) {
                self.set_known(id, None);
            }
        }
        let arenas = self.arenas.get(by.index()).into_iter().flatten();
        for (carver, arena) in self.carvers.iter_mut().zip(arenas) {
            *carver = Carver::of(Range {
                start: u64::from(arena.start),
                len: u64::from(arena.lines),
            });
        }
    }

    /// Gives the part `id` the next free place of `by`'s arena, if it is `by`'s to establish.
    /// Returns that place, in lines from the start of the block.
    pub(in super::super) fn carve(&mut self, by: MemberId, id: PartId) -> Option<u32> {
        let part = self.part(id)?;
        if self.establisher_of(part.buffer) != Some(by) {
            return None;
        }
        let carver = self.carvers.get_mut(part.memory.index())?;
        let range = carver.carve(u64::from(part.lines)).ok()?;
        let line = u32::try_from(range.start).ok()?;
        self.set_known(id, Some(line));
        Some(line)
    }

    /// Believes `by` that the part `id` lies at `line` of its block. It must be `by`'s to establish,
    /// not have been told yet, and lie in `by`'s arena behind what was told before.
    pub(in super::super) fn accept(&mut self, by: MemberId, id: PartId, line: u32) -> bool {
        let Some(part) = self.part(id) else {
            return false;
        };
        if self.establisher_of(part.buffer) != Some(by) || self.line(id).is_some() {
            return false;
        }
        let range = Range {
            start: line.into(),
            len: part.lines.into(),
        };
        let carver = self.carvers.get_mut(part.memory.index());
        let good = carver.is_some_and(|carver| carver.take(range).is_ok());
        if good {
            self.set_known(id, Some(line));
        }
        good
    }

    fn set_known(&mut self, id: PartId, line: Option<u32>) {
        let place = BufferId {
            row: id.row,
            column: id.column,
        };
        let kind = id.kind as usize;
        let Some(record) = self.record_mut(place) else {
            return;
        };
        let Some(known) = record.lines.get_mut(kind) else {
            return;
        };
        *known = line.unwrap_or(0);
        let bit = 1_u8.wrapping_shl(kind as u32);
        if line.is_some() {
            record.known |= bit;
        } else {
            record.known &= !bit;
        }
    }

    /// Where the part lies in its block, in lines, if that is known.
    pub(in super::super) fn line(&self, id: PartId) -> Option<u32> {
        let record = self.record(BufferId {
            row: id.row,
            column: id.column,
        })?;
        let bit = 1_u8.wrapping_shl(id.kind as u32);
        if record.known & bit == 0 {
            return None;
        }
        record.lines.get(id.kind as usize).copied()
    }

    /// Where the part lies.
    pub(super) fn locate(&self, id: PartId) -> Result<Location, MeshError> {
        let part = self.part(id).ok_or(MeshError::Member)?;
        let line = self.line(id).ok_or(MeshError::NotEstablished)?;
        let block = self.block(part.memory).ok_or(MeshError::Placement)?;
        let offset = u64::from(line).saturating_mul(CELL_BYTES);
        block.at(offset).ok_or(MeshError::Placement)
    }

    pub(super) fn record(&self, at: BufferId) -> Option<&Record> {
        self.records.get(at.row.index())?.get(at.column.index())
    }

    fn record_mut(&mut self, at: BufferId) -> Option<&mut Record> {
        let row = self.records.get_mut(at.row.index())?;
        row.get_mut(at.column.index())
    }

    pub(super) fn establisher_of(&self, buffer: BufferId) -> Option<MemberId> {
        let record = self.record(buffer)?;
        record.has_establisher.then_some(record.establisher)
    }

    /// Bytes of `member`'s block; 0 if nothing lies in its memory.
    #[must_use]
    pub fn block_bytes(&self, member: MemberId) -> u64 {
        let lines = self.lines.get(member.index()).copied().unwrap_or(0);
        u64::from(lines)
            .saturating_mul(CELL_BYTES)
            .next_multiple_of(BLOCK_ALIGN)
    }

    /// Says where `member`'s block lies. One of 0 bytes needs no place.
    ///
    /// # Errors
    /// [`MeshError::Member`], [`MeshError::Placement`].
    pub fn place(&mut self, member: MemberId, block: Location) -> Result<(), MeshError> {
        if !self.shape.contains(member) {
            return Err(MeshError::Member);
        }
        let end = block.at(self.block_bytes(member));
        if block.offset % BLOCK_ALIGN != 0 || end.is_none() {
            return Err(MeshError::Placement);
        }
        if let Some(place) = self.blocks.get_mut(member.index()) {
            *place = block;
            self.placed = self.placed.with(member);
        }
        Ok(())
    }

    /// Where `member`'s block lies, if it was placed.
    #[must_use]
    pub fn block(&self, member: MemberId) -> Option<Location> {
        let block = self.blocks.get(member.index()).copied();
        block.filter(|_| self.placed.contains(member))
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

    /// How many drives, and what buffers.
    #[must_use]
    pub const fn shape(&self) -> &MeshShape {
        &self.shape
    }

    /// What the buffers were asked to be, with all numbers filled in.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whose members lend a memory; the host always does.
    #[must_use]
    pub const fn lends(&self) -> MemberSet {
        self.lends
    }

    /// The epoch of all buffers that were not re-established since.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Gives the buffer from `from` to `to` a new epoch: when it is re-established. In a shared
    /// buffer that is the epoch of all who share it.
    ///
    /// # Errors
    /// [`MeshError::Member`]; `RingError::Epoch` if `epoch` is 0.
    pub fn set_epoch(&mut self, from: MemberId, to: MemberId, epoch: u32) -> Result<(), MeshError> {
        if epoch == 0 {
            return Err(MeshError::Ring(RingError::Epoch));
        }
        let buffer = self.buffer_of(from, to).ok_or(MeshError::Member)?;
        let record = self.record_mut(buffer).ok_or(MeshError::Member)?;
        record.epoch = epoch;
        Ok(())
    }

    /// Who establishes the buffer from `from` to `to`; `None` if they are not two members, or
    /// adverts decide and are not known yet.
    #[must_use]
    pub fn establisher(&self, from: MemberId, to: MemberId) -> Option<MemberId> {
        self.establisher_of(self.buffer_of(from, to)?)
    }
}
