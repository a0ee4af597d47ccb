// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How an entry gets into a slot of shared memory, and out of it into a private copy.
//!
//! Owns the order of the accesses: the trailer lies at the slot's end, whatever the entry's size, and
//! its last 8 bytes are written last. Never decides whether a slot is free or an entry is there. IDC
//! specification, "Entries".

use super::super::member::Location;
use super::super::memory::{Fault, Memory};
use super::{
    Kind, Label, Malformed, Trailer, HEADER_BYTES, MAX_ENTRY_BYTES, MIN_ENTRY_BYTES, MIN_INLINE,
    OVERHEAD_BYTES, UNIT_BYTES,
};
use core::mem::size_of;
use zerocopy::{FromZeros as _, IntoBytes as _};

const TRAILER_BYTES: usize = size_of::<Trailer>();

/// What an entry is to hold, besides its trailer.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    /// Request or response.
    pub kind: Kind,
    /// Flags of the trailer.
    pub flags: u8,
    /// The header's bytes.
    pub header: &'a [u8; HEADER_BYTES],
    /// Inline data.
    pub data: &'a [u8],
}

/// Why an entry was not copied out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadError {
    /// The memory cannot be reached, or the copy is too small.
    Memory(Fault),
    /// The trailer says a size that the slot does not have.
    Malformed,
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        ReadError::Memory(fault)
    }
}

impl From<Malformed> for ReadError {
    fn from(_: Malformed) -> Self {
        ReadError::Malformed
    }
}

/// Units of 64 bytes of the smallest entry that holds `data` bytes of data; `None` if there is none.
#[must_use]
pub fn units_for(data: usize) -> Option<u8> {
    let bytes = data.checked_add(OVERHEAD_BYTES)?;
    if bytes > MAX_ENTRY_BYTES {
        return None;
    }
    u8::try_from(bytes.div_ceil(UNIT_BYTES)).ok()
}

/// Place of the last `bytes` bytes of the slot of `slot_bytes` at `slot`.
///
/// # Errors
/// [`Fault::OutOfRange`] past the 64-bit end.
pub fn end_of(slot: Location, slot_bytes: u32, bytes: u32) -> Result<Location, Fault> {
    let from_start = slot_bytes.saturating_sub(bytes);
    slot.at(from_start.into()).ok_or(Fault::OutOfRange)
}

/// Writes an entry, its last 8 bytes last, so that these announce it. Returns how many bytes it has.
///
/// # Errors
/// [`Fault`]; the last 8 bytes were not written. [`Fault::OutOfRange`] also if the data does not fit
/// into the slot.
pub fn write<M: Memory + ?Sized>(
    memory: &mut M,
    slot: Location,
    slot_bytes: u32,
    label: &Label,
    body: &Body<'_>,
) -> Result<u32, Fault> {
    fill(memory, slot, slot_bytes, label, body, M::publish)
}

/// Writes an entry in any order: something else announces it. Returns how many bytes it has.
///
/// # Errors
/// As [`write`], but any part may have been written.
pub fn place<M: Memory + ?Sized>(
    memory: &mut M,
    slot: Location,
    slot_bytes: u32,
    label: &Label,
    body: &Body<'_>,
) -> Result<u32, Fault> {
    fill(memory, slot, slot_bytes, label, body, M::write)
}

/// Writes an entry, its trailer by `write_end`.
fn fill<M: Memory + ?Sized>(
    memory: &mut M,
    slot: Location,
    slot_bytes: u32,
    label: &Label,
    body: &Body<'_>,
    write_end: impl FnOnce(&mut M, Location, &[u8]) -> Result<(), Fault>,
) -> Result<u32, Fault> {
    let units = units_for(body.data.len()).ok_or(Fault::OutOfRange)?;
    let bytes = u32::from(units).wrapping_mul(UNIT_BYTES as u32);
    if bytes > slot_bytes {
        return Err(Fault::OutOfRange);
    }
    let trailer = Trailer::new(label, body.kind, body.flags, units);
    // The first 52 bytes are always written in full, so that reserved fields read as zero.
    let (first, more) = body
        .data
        .split_at_checked(MIN_INLINE)
        .unwrap_or((body.data, &[]));
    let mut line = [0; MIN_ENTRY_BYTES];
    let (header, rest) = line.split_at_mut(HEADER_BYTES);
    header.copy_from_slice(body.header);
    let (inline, end) = rest.split_at_mut(MIN_INLINE);
    if let Some(inline) = inline.get_mut(..first.len()) {
        inline.copy_from_slice(first);
    }
    if slot_bytes == MIN_ENTRY_BYTES as u32 {
        end.copy_from_slice(trailer.as_bytes());
        write_end(memory, slot, &line)?;
        return Ok(bytes);
    }
    let head_bytes = HEADER_BYTES.wrapping_add(MIN_INLINE);
    memory.write(slot, line.get(..head_bytes).unwrap_or_default())?;
    if !more.is_empty() {
        memory.write(slot.at(head_bytes as u64).ok_or(Fault::OutOfRange)?, more)?;
    }
    let end = end_of(slot, slot_bytes, TRAILER_BYTES as u32)?;
    write_end(memory, end, trailer.as_bytes())?;
    Ok(bytes)
}

/// Copies an entry out, each byte once: its first bytes to the start of `copy`, its trailer behind
/// them. Returns what it filled, for [`parse`](super::parse).
///
/// # Errors
/// [`ReadError`].
pub fn read<'c, M: Memory + ?Sized>(
    memory: &mut M,
    slot: Location,
    slot_bytes: u32,
    copy: &'c mut [u8],
) -> Result<&'c [u8], ReadError> {
    if slot_bytes == MIN_ENTRY_BYTES as u32 {
        let copy = copy.get_mut(..MIN_ENTRY_BYTES).ok_or(Fault::OutOfRange)?;
        memory.read(slot, copy)?;
        return Ok(copy);
    }
    let mut trailer = Trailer::new_zeroed();
    let end = end_of(slot, slot_bytes, TRAILER_BYTES as u32)?;
    memory.read(end, trailer.as_mut_bytes())?;
    let bytes = trailer.bytes(slot_bytes).ok_or(Malformed)?;
    let copy = copy.get_mut(..bytes).ok_or(Fault::OutOfRange)?;
    let (body, last) = copy
        .split_last_chunk_mut::<TRAILER_BYTES>()
        .ok_or(Fault::OutOfRange)?;
    memory.read(slot, body)?;
    last.copy_from_slice(trailer.as_bytes());
    Ok(copy)
}
