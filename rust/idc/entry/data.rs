// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The data of requests that say where something lies. IDC specification, "DATA".
//!
//! Owns its layout. Never looks at what lies there.

use super::MIN_INLINE;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes as _, IntoBytes as _};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes 16..52 of OPEN and DATA: where it lies. IDC specification, "DATA".
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataBody {
    window: U32,
    length: U32,
    offset: U64,
    stream_offset: U64,
    sequence: U32,
    zero: [u8; 8],
}
const _: () = assert!(size_of::<DataBody>() == MIN_INLINE);
const _: () = assert!(offset_of!(DataBody, offset) == 8);
const _: () = assert!(offset_of!(DataBody, stream_offset) == 16);
const _: () = assert!(offset_of!(DataBody, sequence) == 24);

impl DataBody {
    /// `length` bytes at `offset` of `window`, which stand at `stream_offset` of the stream in its
    /// chunk `sequence`.
    #[must_use]
    pub fn new(window: u32, offset: u64, length: u32, stream_offset: u64, sequence: u32) -> Self {
        DataBody {
            window: window.into(),
            length: length.into(),
            offset: offset.into(),
            stream_offset: stream_offset.into(),
            sequence: sequence.into(),
            zero: [0; 8],
        }
    }

    /// The bytes as a request's data.
    #[must_use]
    pub fn as_data(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The body in a request's data, or `None` if it is too short or a reserved byte is set.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (body, _) = DataBody::read_from_prefix(data).ok()?;
        (body.zero == [0; 8]).then_some(body)
    }

    /// The window's id.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window.get()
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length.get()
    }

    /// Offset in the window.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// Offset in the stream.
    #[must_use]
    pub fn stream_offset(&self) -> u64 {
        self.stream_offset.get()
    }

    /// The chunk's number in its stream, from 0.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence.get()
    }
}
