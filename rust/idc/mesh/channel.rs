// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The channel from one member to another: the layout of the buffer that carries it.
//!
//! Owns how a layout is put together from the places that the table knows. Never decides on a place.

use super::super::list::ListLayout;
use super::super::member::{Location, MemberId};
use super::super::ring::RingLayout;
use super::error::MeshError;
use super::parts::{BufferId, PartId, PartKind};
use super::policy::{Form, Share};
use super::table::MeshTable;
use super::CELL_BYTES;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// What kind of buffer carries a channel.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum ChannelKind {
    /// A ring of its own: [`Channel::ring`] counts.
    #[default]
    Ring = 0,
    /// A linked list of its own: [`Channel::list`] counts.
    List = 1,
    /// A shared buffer: `Channel::shared` counts.
    Shared = 2,
}

/// From one member to another: what carries the entries. About 1 KiB, built in place from zeros.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Channel {
    /// Which of the layouts counts; the others are zero.
    pub kind: ChannelKind,
    /// The sender.
    pub from: MemberId,
    /// The receiver.
    pub to: MemberId,
    /// The index at which both ends begin; the table always says 0. Both ends must be given the
    /// same: how tests reach the 32-bit wrap.
    pub start: u32,
    /// The ring.
    pub ring: RingLayout,
    /// The list.
    pub list: ListLayout,
}

impl MeshTable {
    /// The channel from `from` to `to`, into `channel`.
    ///
    /// # Errors
    /// [`MeshError::Member`] if they are not two members, [`MeshError::NotEstablished`] if the
    /// buffer was not laid out, [`MeshError::Placement`] if a block that it needs has no place;
    /// `channel` is then undefined.
    pub fn channel(
        &self,
        from: MemberId,
        to: MemberId,
        channel: &mut Channel,
    ) -> Result<(), MeshError> {
        let buffer = self.buffer_of(from, to).ok_or(MeshError::Member)?;
        let record = self.record(buffer).ok_or(MeshError::Member)?;
        channel.from = from;
        channel.to = to;
        channel.start = 0;
        channel.ring = RingLayout::default();
        channel.list = ListLayout::default();
        match (self.policy().share, record.form) {
            (Share::None, Form::Ring) => {
                channel.kind = ChannelKind::Ring;
                channel.ring = self.ring_of(buffer)?;
            }
            (Share::None, Form::List) => {
                channel.kind = ChannelKind::List;
                channel.list = self.list_of(buffer)?;
            }
            _ => {
                channel.kind = ChannelKind::Shared;
                return Err(MeshError::NotEstablished);
            }
        }
        Ok(())
    }

    /// The ring from `from` to `to`, where they have one of their own.
    ///
    /// # Errors
    /// As [`channel`](Self::channel); [`MeshError::NotRing`] if the buffer is another.
    pub fn ring(&self, from: MemberId, to: MemberId) -> Result<RingLayout, MeshError> {
        let buffer = self.buffer_of(from, to).ok_or(MeshError::Member)?;
        let record = self.record(buffer).ok_or(MeshError::Member)?;
        if self.policy().share != Share::None || record.form != Form::Ring {
            return Err(MeshError::NotRing);
        }
        self.ring_of(buffer)
    }

    /// Where a part of a buffer of one sender and one receiver lies.
    fn own_part(&self, buffer: BufferId, kind: PartKind) -> Result<Location, MeshError> {
        self.locate(PartId {
            row: buffer.row,
            column: buffer.column,
            kind,
        })
    }

    fn ring_of(&self, buffer: BufferId) -> Result<RingLayout, MeshError> {
        let record = self.record(buffer).ok_or(MeshError::Member)?;
        let mut ring = record.ring_shape();
        ring.from = buffer.row;
        ring.to = buffer.column;
        ring.base = self.own_part(buffer, PartKind::Entries)?;
        let cells = self.own_part(buffer, PartKind::Cells)?;
        if ring.out_of_order() {
            ring.marks = cells;
        } else {
            ring.credit = cells;
        }
        if ring.has_tail() {
            ring.tail = self.own_part(buffer, PartKind::Inbox)?;
        }
        if ring.has_metadata() {
            ring.metadata = behind(ring.base, ring.bytes())?;
        }
        ring.check().map_err(MeshError::Ring)?;
        Ok(ring)
    }

    fn list_of(&self, buffer: BufferId) -> Result<ListLayout, MeshError> {
        let record = self.record(buffer).ok_or(MeshError::Member)?;
        let mut list = record.list_shape();
        list.from = buffer.row;
        list.to = buffer.column;
        list.base = self.own_part(buffer, PartKind::Entries)?;
        list.links = behind(list.base, list.bytes())?;
        list.credit = self.own_part(buffer, PartKind::Cells)?;
        list.marks = behind(list.credit, CELL_BYTES)?;
        list.check().map_err(MeshError::List)?;
        Ok(list)
    }
}

/// The place behind `bytes` bytes at `start`.
fn behind(start: Location, bytes: u64) -> Result<Location, MeshError> {
    start.at(bytes).ok_or(MeshError::Placement)
}
