// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What buffers consist of: which parts there are, in whose memory each lies, how large it is.
//!
//! Owns the arithmetic from a policy to parts; where in a memory a part lies is the table's. IDC
//! specification, "Parts".

use super::super::list::ListLayout;
use super::super::member::{MemberId, MemberSet};
use super::super::ring::RingLayout;
use super::policy::{Establish, Form, Place, Share};
use super::table::{MeshTable, Record};
use super::CELL_BYTES;

/// What a part is for. The numbers are those on the board.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum PartKind {
    /// The entries, with the metadata array or the links behind them.
    Entries = 0,
    /// What the sender reads (credit cell, marks), or what one member of a shared buffer reads.
    Cells = 1,
    /// What the receiver reads beside the entries (tail cell), or what the arbiter of a shared
    /// buffer reads.
    Inbox = 2,
}

impl PartKind {
    /// The kind of that number.
    #[must_use]
    pub const fn from_wire(code: u8) -> Option<Self> {
        match code {
            0 => Some(PartKind::Entries),
            1 => Some(PartKind::Cells),
            2 => Some(PartKind::Inbox),
            _ => None,
        }
    }
}

/// The name of a part: a place in the square of all members, and a kind.
///
/// Buffers of their own: row is the sender, column the receiver, of all three kinds. Shared buffers
/// of an owner (writers, readers; the host for the one that all share): column is the owner, row
/// whose cells they are; the rest is in the owner's row. Shared by a pair: cells in the row of whose
/// they are and the column of the other; the rest in the row of the lower id.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PartId {
    /// The row.
    pub row: MemberId,
    /// The column.
    pub column: MemberId,
    /// What it is for.
    pub kind: PartKind,
}

/// A buffer: its place in the square of all members. Buffers of their own are at (sender, receiver),
/// those of a pair at (lower id, higher id), all others at (owner, owner).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct BufferId {
    pub(super) row: MemberId,
    pub(super) column: MemberId,
}

/// A part that there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) buffer: BufferId,
    /// Whose memory it lies in.
    pub(super) memory: MemberId,
    /// Its size, in lines of 64 bytes; not 0.
    pub(super) lines: u32,
}

impl MeshTable {
    /// All names of parts, in the order in which they are laid out: cells first, so that what is
    /// polled lies together.
    pub(super) fn part_ids(&self) -> impl Iterator<Item = PartId> {
        let members = MemberId::all(self.shape().drives);
        let square = members
            .clone()
            .flat_map(move |row| members.clone().map(move |column| (row, column)));
        let of = |kind| move |(row, column)| PartId { row, column, kind };
        let cells = square.clone().flat_map(move |place| {
            [PartKind::Cells, PartKind::Inbox]
                .into_iter()
                .map(move |kind| of(kind)(place))
        });
        cells.chain(square.map(of(PartKind::Entries)))
    }

    /// The buffer that carries entries from `from` to `to`, if they are two members.
    pub(super) fn buffer_of(&self, from: MemberId, to: MemberId) -> Option<BufferId> {
        if from == to || !self.shape().contains(from) || !self.shape().contains(to) {
            return None;
        }
        let (row, column) = match self.policy().share {
            Share::None => (from, to),
            Share::Writers => (to, to),
            Share::Readers => (from, from),
            Share::Both => (MemberId::HOST, MemberId::HOST),
            Share::Pair => (from.min(to), from.max(to)),
        };
        Some(BufferId { row, column })
    }

    /// The buffer that a part belongs to, if there is such a part.
    fn buffer_of_part(&self, id: PartId) -> Option<BufferId> {
        let PartId { row, column, kind } = id;
        if !self.shape().contains(row) || !self.shape().contains(column) {
            return None;
        }
        let is_cells = kind == PartKind::Cells;
        let (good, row, column) = match self.policy().share {
            Share::None => (row != column, row, column),
            Share::Writers | Share::Readers => (is_cells || row == column, column, column),
            Share::Both => (
                column.is_host() && (is_cells || row.is_host()),
                column,
                column,
            ),
            Share::Pair => (
                row != column && (is_cells || row < column),
                row.min(column),
                row.max(column),
            ),
        };
        good.then_some(BufferId { row, column })
    }

    /// The part of that name; `None` if there is none, or it would be empty.
    pub(super) fn part(&self, id: PartId) -> Option<Part> {
        let buffer = self.buffer_of_part(id)?;
        let record = self.record(buffer)?;
        let own = self.policy().share == Share::None;
        let (memory, bytes) = match id.kind {
            PartKind::Entries => (record.memory, record.entries_bytes()),
            PartKind::Cells => (self.home(id.row), record.cells_bytes(own)),
            PartKind::Inbox if own => (self.home(id.column), record.inbox_bytes(own)),
            PartKind::Inbox => (self.home(self.arbiter(buffer)), record.inbox_bytes(own)),
        };
        let lines = u32::try_from(bytes.div_ceil(CELL_BYTES)).ok()?;
        (lines != 0).then_some(Part {
            buffer,
            memory,
            lines,
        })
    }

    /// Whose memory holds what `member` reads: its own, or the host's if it lends none.
    pub(super) fn home(&self, member: MemberId) -> MemberId {
        if self.lends().contains(member) {
            member
        } else {
            MemberId::HOST
        }
    }

    /// Whose memory the entries of a buffer lie in.
    pub(super) fn place_of(&self, buffer: BufferId, place: Place) -> MemberId {
        match place {
            Place::Receiver => self.home(buffer.column),
            Place::Sender => self.home(buffer.row),
            Place::Host => MemberId::HOST,
            Place::Member(member) => self.home(member),
        }
    }

    /// Who writes a shared buffer.
    pub(super) fn writers(&self, buffer: BufferId) -> MemberSet {
        match self.policy().share {
            Share::Writers => self.all().without(buffer.row),
            Share::Readers => MemberSet::of(buffer.row),
            Share::Both => self.all(),
            Share::None => MemberSet::of(buffer.row),
            Share::Pair => MemberSet::of(buffer.row).with(buffer.column),
        }
    }

    /// Who reads a shared buffer.
    pub(super) fn readers(&self, buffer: BufferId) -> MemberSet {
        match self.policy().share {
            Share::Writers => MemberSet::of(buffer.row),
            Share::Readers => self.all().without(buffer.row),
            Share::Both => self.all(),
            Share::None => MemberSet::of(buffer.column),
            Share::Pair => MemberSet::of(buffer.row).with(buffer.column),
        }
    }

    /// Who grants the right to write a shared buffer: its one receiver or sender, else whoever's
    /// memory it lies in, if that is one of its members; else the one of the higher id.
    pub(super) fn arbiter(&self, buffer: BufferId) -> MemberId {
        let memory = self.record(buffer).map(|record| record.memory);
        match (self.policy().share, memory) {
            (Share::Both, Some(memory)) => memory,
            (Share::Pair, Some(memory)) if memory == buffer.row => memory,
            _ => buffer.column,
        }
    }

    /// All members.
    pub(super) fn all(&self) -> MemberSet {
        MemberId::all(self.shape().drives).fold(MemberSet::NONE, MemberSet::with)
    }

    /// Who may establish a buffer, by policy; `None` if adverts decide.
    pub(super) fn appointed(&self, buffer: BufferId) -> Option<MemberId> {
        match self.policy().establish {
            Establish::Host => Some(MemberId::HOST),
            Establish::Receiver => Some(buffer.column),
            Establish::Sender => Some(buffer.row),
            Establish::Member(member) => Some(member),
            Establish::Discover => None,
        }
    }
}

impl Record {
    /// A ring of these numbers, anywhere.
    pub(super) fn ring_shape(&self) -> RingLayout {
        RingLayout {
            entries: self.entries.into(),
            entry_bytes: self.entry_bytes.into(),
            epoch: self.epoch,
            publish: self.publish,
            flags: self.flags,
            ..RingLayout::default()
        }
    }

    /// A list of these numbers, anywhere.
    pub(super) fn list_shape(&self) -> ListLayout {
        ListLayout {
            nodes: self.entries.into(),
            node_bytes: self.entry_bytes.into(),
            epoch: self.epoch,
            ..ListLayout::default()
        }
    }

    fn entries_bytes(&self) -> u64 {
        let slots = self.ring_shape().bytes();
        let beside = match self.form {
            Form::List => self.list_shape().links_bytes(),
            Form::Ring if self.ring_shape().has_metadata() => self.ring_shape().metadata_bytes(),
            Form::Ring => 0,
        };
        slots.saturating_add(beside)
    }

    fn cells_bytes(&self, own: bool) -> u64 {
        match self.form {
            _ if !own => shared_cells_bytes(self.entries.into()),
            Form::List => self.list_shape().marks_bytes().saturating_add(CELL_BYTES),
            Form::Ring if self.ring_shape().out_of_order() => self.ring_shape().marks_bytes(),
            Form::Ring => CELL_BYTES,
        }
    }

    fn inbox_bytes(&self, own: bool) -> u64 {
        match self.form {
            _ if !own => shared_arena_bytes(self.entries.into()),
            Form::Ring if self.ring_shape().has_tail() => CELL_BYTES,
            _ => 0,
        }
    }
}

/// Bytes of the cells of one member of a shared buffer of `n` entries.
const fn shared_cells_bytes(_n: u32) -> u64 {
    CELL_BYTES.saturating_mul(34)
}

/// Bytes of what the arbiter of a shared buffer of `n` entries reads.
const fn shared_arena_bytes(_n: u32) -> u64 {
    CELL_BYTES.saturating_mul(66)
}
