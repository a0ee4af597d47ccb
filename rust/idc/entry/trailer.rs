// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The trailer, by which an entry validates itself. IDC specification, "Trailer".
//!
//! Owns its layout and what is believed of it. Never looks into what is before it.

use super::super::member::MemberId;
use super::{Malformed, MAX_ENTRY_BYTES, UNIT_BYTES};
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::U32;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Last 12 bytes of the slot of every entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Trailer {
    from: u8,
    to: u8,
    kind: u8,
    units: u8,
    sequence: U32,
    epoch: U32,
}
const _: () = assert!(size_of::<Trailer>() == 12);
const _: () = assert!(offset_of!(Trailer, sequence) == 4);
const _: () = assert!(offset_of!(Trailer, epoch) == 8);

/// The kind of an entry: the low four bits of the trailer's `kind`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// A request.
    Request = 1,
    /// A response.
    Response = 2,
}

const KIND_MASK: u8 = 0x0f;
/// Flag of a request: no response is wanted.
pub const FLAG_NO_RESPONSE: u8 = 0x10;
/// Flag of a DATA request: more follows.
pub const FLAG_MORE: u8 = 0x20;

/// The last 8 bytes of an entry as its receiver polls for them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Stamp {
    /// The entry's index.
    pub sequence: u32,
    /// The epoch of what the entry lies in.
    pub epoch: u32,
}

impl Stamp {
    /// The stamp in a loaded cell.
    #[must_use]
    pub const fn from_cell(cell: u64) -> Self {
        Stamp {
            sequence: cell as u32,
            epoch: (cell >> 32) as u32,
        }
    }

    /// The cell of this stamp.
    #[must_use]
    pub const fn to_cell(self) -> u64 {
        ((self.epoch as u64) << 32) | self.sequence as u64
    }
}

/// Whom an entry is from and for, and the stamp that it carries.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Label {
    /// Who sends.
    pub from: MemberId,
    /// Who is to receive.
    pub to: MemberId,
    /// Its place in the order of entries.
    pub stamp: Stamp,
}

/// What a receiver knows of an entry before it looks: each member that is given, and the stamp.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Expected {
    /// The sender, where there is only one.
    pub from: Option<MemberId>,
    /// The receiver, where there is only one.
    pub to: Option<MemberId>,
    /// The stamp.
    pub stamp: Stamp,
}

impl Trailer {
    /// The trailer of an entry of `units` times 64 bytes.
    #[must_use]
    pub const fn new(label: &Label, kind: Kind, flags: u8, units: u8) -> Self {
        Trailer {
            from: label.from.get() as u8,
            to: label.to.get() as u8,
            kind: kind as u8 | (flags & !KIND_MASK),
            units,
            sequence: U32::new(label.stamp.sequence),
            epoch: U32::new(label.stamp.epoch),
        }
    }

    /// Bytes of the entry, trailer included, if they fit into a slot of `slot_bytes`.
    #[must_use]
    pub fn bytes(&self, slot_bytes: u32) -> Option<usize> {
        let bytes = usize::from(self.units).wrapping_mul(UNIT_BYTES);
        (self.units != 0 && bytes <= slot_bytes as usize).then_some(bytes)
    }

    /// What a metadata word says of the entry: bytes 0 to 3 of the trailer, then its sequence.
    #[must_use]
    pub const fn metadata(&self) -> u64 {
        let first = u32::from_le_bytes([self.from, self.to, self.kind, self.units]);
        first as u64 | (self.sequence.get() as u64) << 32
    }

    /// The label, if it is what is expected and names two members that a mesh can have.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn label(&self, expected: &Expected) -> Result<Label, Malformed> {
        let from = MemberId::new(self.from.into()).ok_or(Malformed)?;
        let to = MemberId::new(self.to.into()).ok_or(Malformed)?;
        let stamp = Stamp {
            sequence: self.sequence.get(),
            epoch: self.epoch.get(),
        };
        let right = expected.from.unwrap_or(from) == from
            && expected.to.unwrap_or(to) == to
            && expected.stamp == stamp;
        if !right {
            return Err(Malformed);
        }
        Ok(Label { from, to, stamp })
    }

    /// The kind and the flags, if they are known.
    ///
    /// # Errors
    /// [`Malformed`].
    pub const fn kind(&self) -> Result<(Kind, u8), Malformed> {
        let flags = self.kind & !KIND_MASK;
        match self.kind & KIND_MASK {
            1 if flags & !(FLAG_NO_RESPONSE | FLAG_MORE) == 0 => Ok((Kind::Request, flags)),
            2 if flags == 0 => Ok((Kind::Response, 0)),
            _ => Err(Malformed),
        }
    }
}

/// What a metadata word says of the entry in its slot. IDC specification, "Metadata".
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Metadata {
    /// Who sends.
    pub from: MemberId,
    /// Who is to receive.
    pub to: MemberId,
    /// Request or response.
    pub kind: Kind,
    /// Bytes of the entry, trailer included.
    pub bytes: usize,
    /// The entry's index.
    pub sequence: u32,
}

impl Metadata {
    /// What the word says, if it is possible.
    #[must_use]
    pub fn parse(word: u64) -> Option<Self> {
        let [from, to, kind, units] = (word as u32).to_le_bytes();
        let trailer = Trailer {
            from,
            to,
            kind,
            units,
            sequence: U32::new((word >> 32) as u32),
            epoch: U32::ZERO,
        };
        Some(Metadata {
            from: MemberId::new(from.into())?,
            to: MemberId::new(to.into())?,
            kind: trailer.kind().ok()?.0,
            bytes: trailer.bytes(MAX_ENTRY_BYTES as u32)?,
            sequence: trailer.sequence.get(),
        })
    }
}
