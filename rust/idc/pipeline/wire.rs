// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The pipeline descriptor's bytes. IDC specification, "Pipeline descriptor".
//!
//! Owns the layout and nothing else: `builder` writes it, `descriptor` makes sense of it.

use super::super::window::WindowRef;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::IntoBytes as _;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const MAGIC: [u8; 4] = *b"CSDP";
pub(super) const VERSION: u16 = 1;
pub(super) const SINK_HOST_WINDOW: u8 = 1;
pub(super) const SINK_NAMESPACE: u8 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawRef {
    pub(super) window: U32,
    pub(super) zero: U32,
    pub(super) offset: U64,
}
const _: () = assert!(size_of::<RawRef>() == 16);

impl RawRef {
    pub(super) fn new(place: WindowRef) -> Self {
        RawRef {
            window: place.window.into(),
            zero: U32::ZERO,
            offset: place.offset.into(),
        }
    }

    pub(super) fn get(&self) -> WindowRef {
        WindowRef {
            window: self.window.get(),
            offset: self.offset.get(),
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }
}

/// Bytes of the header.
pub const HEADER_BYTES: usize = 144;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) magic: [u8; 4],
    pub(super) version: U16,
    pub(super) zero: U16,
    pub(super) total_bytes: U32,
    pub(super) stream: U32,
    pub(super) chunk_bytes: U32,
    pub(super) deadline_ms: U32,
    pub(super) first_hop: U16,
    pub(super) hop_count: U16,
    pub(super) first_stage: U16,
    pub(super) stage_count: U16,
    pub(super) all_stages: U16,
    pub(super) sink_kind: u8,
    pub(super) zero2: u8,
    pub(super) source_nsid: U32,
    pub(super) source_offset: U64,
    pub(super) source_length: U64,
    pub(super) report: RawRef,
    pub(super) sink_nsid: U32,
    pub(super) sink_buffers: U16,
    pub(super) zero3: U16,
    pub(super) sink_offset: U64,
    pub(super) sink_length: U64,
    pub(super) sink_data: RawRef,
    pub(super) produced: RawRef,
    pub(super) consumed: RawRef,
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(RawHeader, first_hop) == 24);
const _: () = assert!(offset_of!(RawHeader, source_offset) == 40);
const _: () = assert!(offset_of!(RawHeader, report) == 56);
const _: () = assert!(offset_of!(RawHeader, sink_nsid) == 72);
const _: () = assert!(offset_of!(RawHeader, sink_data) == 96);
const _: () = assert!(offset_of!(RawHeader, consumed) == 128);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawHop {
    pub(super) member: U16,
    pub(super) stage_count: U16,
    pub(super) buffers: U16,
    pub(super) zero: U16,
    pub(super) input: RawRef,
    pub(super) reserved: U64,
}
const _: () = assert!(size_of::<RawHop>() == 32);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawStage {
    pub(super) function: U16,
    pub(super) params_len: U16,
}
const _: () = assert!(size_of::<RawStage>() == 4);
