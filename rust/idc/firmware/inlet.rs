// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Where a hop's data comes from: chunks that the hop before has written into this member's
//! buffers, or, at the first hop, storage reads into them.
//!
//! Owns the queue of chunks and the reads ahead. Never looks at data. Bytes are taken in the order
//! of the stream, reads may end in any order.

use super::super::entry::DataBody;
use super::super::member::Location;
use super::super::pipeline::MAX_BUFFERS;
use super::super::status::{Failure, StageId, Status};
use super::super::window::WindowRef;
use super::platform::{Platform, StorageError, StorageRequest};
use super::shared::{Key, Shared};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// One more than buffers: an empty last chunk needs none.
const QUEUE: usize = MAX_BUFFERS as usize + 1;

const READING: u8 = 1;
const READY: u8 = 2;
const FAILED: u8 = 3;

#[derive(Clone, Copy, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
struct Chunk {
    /// Bytes from the start of the buffers to the first byte of data.
    offset: u32,
    /// Bytes of data.
    length: u32,
    /// The request that brought it.
    cid: u16,
    /// NVMe status of a read that failed.
    error: u16,
    state: u8,
    last: bool,
}

/// The queue of chunks of one hop.
#[derive(Clone, Copy, Default, FromZeros, Immutable, KnownLayout)]
pub(super) struct Inlet {
    /// The buffers: where they lie, and how the hop before names them.
    pub(super) base: Location,
    pub(super) place: WindowRef,
    pub(super) chunk_bytes: u32,
    pub(super) buffers: u16,
    /// The first hop reads storage.
    pub(super) is_source: bool,
    /// The last chunk is in the queue, or was.
    ended: bool,
    first: u8,
    count: u8,
    in_flight: u16,
    /// Bytes taken of the first chunk.
    position: u32,
    /// The number of the next chunk to come.
    sequence: u32,
    /// Chunks taken.
    pub(super) chunks: u32,
    /// Bytes that have come, and bytes taken.
    arrived: u64,
    pub(super) taken: u64,
    /// The source: what is still to be read.
    pub(super) nsid: u32,
    pub(super) block_bytes: u32,
    pub(super) next: u64,
    pub(super) end: u64,
    queue: [Chunk; QUEUE],
}

/// What [`Inlet::settle`] found at the head of the queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Head {
    /// Bytes to take, and how many.
    Data(Location, usize),
    /// A chunk was taken to its end: its request may be answered.
    Taken { cid: u16, last: bool },
    /// Nothing yet.
    Wait,
    /// The end.
    End,
}

impl Inlet {
    fn bytes(&self) -> u64 {
        u64::from(self.chunk_bytes).saturating_mul(u64::from(self.buffers))
    }

    fn entry(&self, index: u8) -> Option<&Chunk> {
        let at = usize::from(self.first.wrapping_add(index)).checked_rem(QUEUE)?;
        self.queue.get(at)
    }

    fn push(&mut self, chunk: Chunk) -> bool {
        let at = usize::from(self.first.wrapping_add(self.count)).checked_rem(QUEUE);
        let slot = at.and_then(|at| self.queue.get_mut(at));
        match slot {
            Some(slot) if usize::from(self.count) < QUEUE => {
                *slot = chunk;
                self.count = self.count.wrapping_add(1);
                true
            }
            _ => false,
        }
    }

    fn pop(&mut self) {
        let next = usize::from(self.first).wrapping_add(1);
        self.first = next.checked_rem(QUEUE).unwrap_or(0) as u8;
        self.count = self.count.saturating_sub(1);
        self.position = 0;
    }

    /// Reads in flight.
    pub(super) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Nothing can be taken before a storage read ends, or is begun.
    pub(super) fn awaits_storage(&self) -> bool {
        let unread = self.is_source && self.next != self.end && self.count == 0;
        self.in_flight != 0 || unread
    }

    /// Whether all bytes of the stream were taken.
    pub(super) fn is_drained(&self) -> bool {
        self.has_ended() && self.count == 0
    }

    fn has_ended(&self) -> bool {
        self.ended || (self.is_source && self.next == self.end)
    }

    /// A DATA request came in. Its place was found granted to its sender already.
    pub(super) fn accept(&mut self, cid: u16, body: &DataBody, more: bool) -> Result<(), Status> {
        if self.is_source || self.ended {
            return Err(Status::BAD_ENTRY);
        }
        let length = body.length();
        let offset = body.offset().checked_sub(self.place.offset);
        let offset = offset.ok_or(Status::NOT_GRANTED)?;
        let end = offset.checked_add(length.into());
        let inside = end.is_some_and(|end| end <= self.bytes());
        if body.window() != self.place.window || !inside {
            return Err(Status::NOT_GRANTED);
        }
        let expected = (self.sequence, self.arrived);
        let too_many = self.count >= self.buffers as u8 && length != 0;
        if (body.sequence(), body.stream_offset()) != expected
            || length > self.chunk_bytes
            || (length == 0 && more)
            || too_many
        {
            return Err(Status::BAD_ENTRY);
        }
        let chunk = Chunk {
            offset: offset as u32,
            length,
            cid,
            error: 0,
            state: READY,
            last: !more,
        };
        if !self.push(chunk) {
            return Err(Status::BAD_ENTRY);
        }
        self.ended = !more;
        self.sequence = self.sequence.wrapping_add(1);
        self.arrived = self.arrived.saturating_add(length.into());
        Ok(())
    }

    /// What is at the head of the queue.
    pub(super) fn settle(&mut self, shared: &Shared) -> Result<Head, Failure> {
        let Some(chunk) = self.entry(0).copied().filter(|_| self.count != 0) else {
            return Ok(if self.has_ended() {
                Head::End
            } else {
                Head::Wait
            });
        };
        match chunk.state {
            FAILED => Err(shared
                .failure(Status::STORAGE_ERROR, StageId::SOURCE)
                .with_code(chunk.error.into())
                .with_offset(self.taken)),
            READY => {
                let left = chunk.length.saturating_sub(self.position);
                if left == 0 {
                    self.pop();
                    self.chunks = self.chunks.wrapping_add(1);
                    return Ok(Head::Taken {
                        cid: chunk.cid,
                        last: chunk.last,
                    });
                }
                let offset = u64::from(chunk.offset).saturating_add(self.position.into());
                let at = self.base.at(offset);
                let at = at.ok_or(shared.failure(Status::INTERNAL, StageId::SOURCE))?;
                Ok(Head::Data(at, left as usize))
            }
            _ => Ok(Head::Wait),
        }
    }

    /// `bytes` bytes of what [`settle`](Self::settle) showed were taken.
    pub(super) fn take(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes as u32);
        self.taken = self.taken.saturating_add(bytes as u64);
    }

    /// The request of one chunk that was not taken, for a stream that failed.
    pub(super) fn drop_chunk(&mut self) -> Option<u16> {
        while self.count != 0 {
            let chunk = self.entry(0).copied()?;
            self.pop();
            if !self.is_source {
                return Some(chunk.cid);
            }
        }
        None
    }

    /// Starts reads into all buffers that are free. Returns whether any was started.
    pub(super) fn read_ahead<P: Platform>(
        &mut self,
        key: &Key,
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        let mut any = false;
        while self.is_source && self.next != self.end && u16::from(self.count) < self.buffers {
            let buffer = self.sequence.checked_rem(self.buffers.into()).unwrap_or(0);
            let at = buffer.saturating_mul(self.chunk_bytes);
            let block = u64::from(self.block_bytes);
            let lba = self.next.checked_div(block).unwrap_or(0);
            let skipped = self.next.checked_rem(block).unwrap_or(0);
            let room = u64::from(self.chunk_bytes).saturating_sub(skipped);
            let length = self.end.saturating_sub(self.next).min(room);
            let blocks = skipped.saturating_add(length).div_ceil(block.max(1));
            let internal = shared.failure(Status::INTERNAL, StageId::SOURCE);
            let request = StorageRequest {
                tag: storage_tag(key, buffer),
                write: false,
                nsid: self.nsid,
                lba,
                blocks: u32::try_from(blocks).map_err(|_| internal)?,
                block_bytes: self.block_bytes,
                at: self.base.at(at.into()).ok_or(internal)?,
            };
            match platform.storage(&request) {
                Ok(()) => {}
                Err(StorageError::Busy) => {
                    shared.storage_busy = true;
                    break;
                }
                Err(StorageError::Failed(code)) => {
                    return Err(shared
                        .failure(Status::STORAGE_ERROR, StageId::SOURCE)
                        .with_code(code.into())
                        .with_offset(self.arrived))
                }
            }
            self.push(Chunk {
                offset: at.saturating_add(skipped as u32),
                length: length as u32,
                state: READING,
                ..Chunk::default()
            });
            self.in_flight = self.in_flight.saturating_add(1);
            self.next = self.next.saturating_add(length);
            self.arrived = self.arrived.saturating_add(length);
            self.sequence = self.sequence.wrapping_add(1);
            any = true;
        }
        Ok(any)
    }

    /// A read into `buffer` has ended.
    pub(super) fn read_done(&mut self, buffer: u32, result: Result<(), u16>) {
        let start = buffer.saturating_mul(self.chunk_bytes);
        let end = start.saturating_add(self.chunk_bytes);
        self.in_flight = self.in_flight.saturating_sub(1);
        let reading = self
            .queue
            .iter_mut()
            .find(|chunk| chunk.state == READING && (start..end).contains(&chunk.offset));
        if let Some(chunk) = reading {
            match result {
                Ok(()) => chunk.state = READY,
                Err(code) => {
                    chunk.state = FAILED;
                    chunk.error = code;
                }
            }
        }
    }
}

/// Set in the buffer part of a storage tag: a write of the sink.
pub(super) const SINK_TAG: u32 = 0x80;

/// The tag of a storage request: slot, buffer, generation.
pub(super) fn storage_tag(key: &Key, buffer: u32) -> u32 {
    u32::from(key.slot) | ((buffer & 0xff) << 8) | (u32::from(key.generation) << 16)
}
