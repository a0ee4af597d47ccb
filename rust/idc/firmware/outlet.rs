// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Where a hop's result goes: the next hop's buffers, the host's result window, or a namespace.
//!
//! Owns the buffers' bookkeeping and the rule that data is where it belongs before anybody is told
//! of it. Never waits: what cannot go now is tried again at the next poll.

use super::super::entry::{DataBody, Opcode, Request};
use super::super::member::{Location, MemberId, MemoryId};
use super::super::memory::Fault;
use super::super::status::{Failure, StageId, Status};
use super::super::window::WindowRef;
use super::inlet::{storage_tag, SINK_TAG};
use super::platform::{Platform, StorageError, StorageRequest};
use super::shared::{Key, Purpose, Sent, Shared, Tag, LAST, NO_BUFFER};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Not known yet.
pub(super) const NO_OUTLET: u8 = 0;
/// The result goes to the next hop.
pub(super) const NEXT_HOP: u8 = 1;
/// The result goes to the host's window.
pub(super) const HOST_WINDOW: u8 = 2;
/// The result goes to a namespace.
pub(super) const NAMESPACE: u8 = 3;

/// The way out of one hop.
#[derive(Clone, Copy, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Outlet {
    /// One of the four above.
    pub(super) kind: u8,
    /// A buffer is being filled: `current`.
    filling: bool,
    current: u8,
    /// Nothing follows.
    closed: bool,
    /// All is delivered.
    pub(super) done: bool,
    /// The host has not taken enough of the result for more to fit.
    pub(super) awaits_host: bool,
    /// Buffers that are on their way (bit per buffer), and in the last bit the last chunk.
    busy: u16,
    pub(super) buffers: u16,
    pub(super) chunk_bytes: u32,
    /// Bytes in the buffer that is being filled.
    fill: u32,
    /// Chunks delivered, and the number of the next.
    pub(super) chunks: u32,
    /// Entries sent.
    pub(super) messages: u32,
    /// Buffers or the window's ring.
    pub(super) base: Location,
    /// Bytes put in so far.
    pub(super) written: u64,
    /// True length of the pipeline's result, when `done`.
    pub(super) result_bytes: u64,
    /// Window: its bytes. Namespace: bytes that may be written.
    pub(super) limit: u64,
    /// Next hop: how it names its buffers, who it is, its number.
    pub(super) place: WindowRef,
    pub(super) member: MemberId,
    pub(super) hop: u16,
    /// Namespace.
    pub(super) nsid: u32,
    pub(super) block_bytes: u32,
    pub(super) lba: u64,
    /// Window: the cells, what was announced, what the host has taken.
    pub(super) produced: Location,
    pub(super) consumed: Location,
    announced: u64,
    host_taken: u64,
}

const LAST_BIT: u16 = 1 << 15;

/// What a failed access to `memory` means: a drive that is gone is named, not we.
pub(super) fn memory_failure(
    shared: &Shared,
    memory: MemoryId,
    fault: Fault,
    stage: StageId,
) -> Failure {
    match fault {
        Fault::Gone => {
            let owner = MemberId::new(memory.get()).unwrap_or(shared.me);
            Failure::new(Status::PEER_LOST, owner, stage)
        }
        Fault::NoMemory | Fault::OutOfRange => shared.failure(Status::FABRIC_ERROR, stage),
    }
}

impl Outlet {
    /// Buffers that are on their way.
    pub(super) fn in_flight(&self) -> bool {
        self.busy != 0
    }

    /// Something is ready to go that found no credit, or the storage busy.
    pub(super) fn is_held_up(&self) -> bool {
        let full = self.filling && self.fill == self.chunk_bytes;
        self.kind != HOST_WINDOW && !self.done && (full || self.closed)
    }

    fn sink_failure(&self, shared: &Shared, status: Status) -> Failure {
        shared
            .failure(status, StageId::SINK)
            .with_offset(self.written)
    }

    /// A buffer to fill and its place, if one is free.
    fn buffer(&mut self) -> Option<Location> {
        if !self.filling {
            let busy = self.busy;
            let after = u16::from(self.current).wrapping_add(1);
            let free = (after..self.buffers)
                .chain(0..after)
                .find(|buffer| *buffer < self.buffers && busy & (1 << buffer) == 0)?;
            self.current = free as u8;
            self.filling = true;
            self.fill = 0;
        }
        let offset = u64::from(self.current).saturating_mul(self.chunk_bytes.into());
        self.base.at(offset)
    }

    /// Puts in as much of `data` as fits now; returns how much.
    pub(super) fn put<P: Platform>(
        &mut self,
        data: &[u8],
        key: &Key,
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<usize, Failure> {
        if self.kind == HOST_WINDOW {
            return self.put_in_window(data, shared, platform);
        }
        if self.filling && self.fill == self.chunk_bytes && !self.send(key, shared, platform)? {
            return Ok(0);
        }
        let Some(buffer) = self.buffer() else {
            return Ok(0);
        };
        let room = self.chunk_bytes.saturating_sub(self.fill) as usize;
        let mut fitting = data.len().min(room);
        if self.kind == NAMESPACE {
            let left = self.limit.saturating_sub(self.written);
            fitting = fitting.min(usize::try_from(left).unwrap_or(usize::MAX));
            if fitting == 0 && !data.is_empty() {
                return Err(self.sink_failure(shared, Status::SINK_FULL));
            }
        }
        let at = buffer.at(self.fill.into());
        let at = at.ok_or(self.sink_failure(shared, Status::INTERNAL))?;
        let piece = data.get(..fitting).unwrap_or_default();
        platform
            .write(at, piece)
            .map_err(|fault| memory_failure(shared, at.memory, fault, StageId::SINK))?;
        self.fill = self.fill.saturating_add(fitting as u32);
        self.written = self.written.saturating_add(fitting as u64);
        if self.fill == self.chunk_bytes {
            self.send(key, shared, platform)?;
        }
        Ok(fitting)
    }

    fn put_in_window<P: Platform>(
        &mut self,
        data: &[u8],
        shared: &Shared,
        platform: &mut P,
    ) -> Result<usize, Failure> {
        let taken = platform
            .load_u64(self.consumed)
            .map_err(|fault| memory_failure(shared, self.consumed.memory, fault, StageId::SINK))?;
        // The host can only have taken what was announced, and never gives any back.
        if taken < self.host_taken || taken > self.announced {
            return Err(Failure::new(
                Status::BAD_ENTRY,
                MemberId::HOST,
                StageId::SINK,
            ));
        }
        self.host_taken = taken;
        let waiting = self.written.saturating_sub(taken);
        let room = self.limit.saturating_sub(waiting);
        let position = self.written.checked_rem(self.limit).unwrap_or(0);
        let until_wrap = self.limit.saturating_sub(position);
        let fitting = room.min(until_wrap).min(data.len() as u64);
        self.awaits_host = fitting == 0 && !data.is_empty();
        let piece = data.get(..fitting as usize).unwrap_or_default();
        if !piece.is_empty() {
            let at = self.base.at(position);
            let at = at.ok_or(self.sink_failure(shared, Status::INTERNAL))?;
            platform
                .write(at, piece)
                .map_err(|fault| memory_failure(shared, at.memory, fault, StageId::SINK))?;
            self.written = self.written.saturating_add(fitting);
        }
        Ok(piece.len())
    }

    /// Tells the host what was written since the last time. The data goes to a drive's memory and
    /// its announcement to the host's, so the data is flushed first.
    pub(super) fn announce<P: Platform>(
        &mut self,
        shared: &Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        if self.kind != HOST_WINDOW || self.announced == self.written {
            return Ok(false);
        }
        if self.base.memory != self.produced.memory {
            platform
                .flush(self.base.memory)
                .map_err(|fault| memory_failure(shared, self.base.memory, fault, StageId::SINK))?;
        }
        platform
            .store_release_u64(self.produced, self.written)
            .map_err(|fault| memory_failure(shared, self.produced.memory, fault, StageId::SINK))?;
        self.announced = self.written;
        self.chunks = self.chunks.wrapping_add(1);
        platform.notify(MemberId::HOST);
        Ok(true)
    }

    /// Hands on a full buffer that found no credit, or the storage busy, also when no more data comes.
    /// Returns whether it went.
    pub(super) fn hand_on<P: Platform>(
        &mut self,
        key: &Key,
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        if self.kind == HOST_WINDOW || !self.filling || self.fill != self.chunk_bytes {
            return Ok(false);
        }
        self.send(key, shared, platform)
    }

    /// Hands on the buffer that is being filled. Returns whether it went.
    fn send<P: Platform>(
        &mut self,
        key: &Key,
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        match self.kind {
            NEXT_HOP => self.send_data(key, shared, platform),
            _ => self.write_storage(key, shared, platform),
        }
    }

    fn send_data<P: Platform>(
        &mut self,
        key: &Key,
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        let full = self.filling && self.fill != 0;
        let (buffer, fill) = if full {
            (u32::from(self.current), self.fill)
        } else {
            (NO_BUFFER, 0)
        };
        let in_window = if full {
            u64::from(buffer).saturating_mul(self.chunk_bytes.into())
        } else {
            0
        };
        let body = DataBody::new(
            self.place.window,
            self.place.offset.saturating_add(in_window),
            fill,
            self.written.saturating_sub(fill.into()),
            self.chunks,
        );
        let mut request = Request::stream(Opcode::DATA, key.stream, self.hop, body.as_data());
        request.more = !self.closed;
        let last = if self.closed { LAST } else { 0 };
        let tag = Tag::of(key, Purpose::Data, buffer | last);
        match shared.ask(self.member, &request, tag, platform) {
            Sent::Yes(_) => {}
            Sent::NotNow | Sent::Lost => return Ok(false),
        }
        self.messages = self.messages.wrapping_add(1);
        self.chunks = self.chunks.wrapping_add(1);
        if full {
            self.busy |= 1 << self.current;
        }
        if self.closed {
            self.busy |= LAST_BIT;
        }
        self.filling = false;
        self.fill = 0;
        Ok(true)
    }

    /// The next hop has answered a DATA request with success.
    pub(super) fn data_done(&mut self, argument: u32, result: u64) {
        let buffer = argument & 0xff;
        if buffer < u32::from(self.buffers) {
            self.busy &= !(1 << buffer);
        }
        if argument & LAST != 0 {
            self.busy &= !LAST_BIT;
            self.result_bytes = result;
            self.done = true;
        }
    }

    fn write_storage<P: Platform>(
        &mut self,
        key: &Key,
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        let internal = self.sink_failure(shared, Status::INTERNAL);
        let at = self.buffer().ok_or(internal)?;
        let blocks = self.fill.div_ceil(self.block_bytes.max(1));
        let padded = blocks.saturating_mul(self.block_bytes);
        let padding = padded.saturating_sub(self.fill);
        if padding != 0 {
            let end = at.at(self.fill.into()).ok_or(internal)?;
            platform
                .zero(end, padding.into())
                .map_err(|fault| memory_failure(shared, end.memory, fault, StageId::SINK))?;
        }
        let request = StorageRequest {
            tag: storage_tag(key, u32::from(self.current) | SINK_TAG),
            write: true,
            nsid: self.nsid,
            lba: self.lba,
            blocks,
            block_bytes: self.block_bytes,
            at,
        };
        match platform.storage(&request) {
            Ok(()) => {}
            Err(StorageError::Busy) => {
                shared.storage_busy = true;
                return Ok(false);
            }
            Err(StorageError::Failed(code)) => {
                let failure = self.sink_failure(shared, Status::STORAGE_ERROR);
                return Err(failure.with_code(code.into()));
            }
        }
        self.lba = self.lba.saturating_add(blocks.into());
        self.busy |= 1 << self.current;
        self.chunks = self.chunks.wrapping_add(1);
        self.filling = false;
        self.fill = 0;
        Ok(true)
    }

    /// The storage write from `buffer` has ended.
    pub(super) fn write_done(&mut self, buffer: u32) {
        if buffer < u32::from(self.buffers) {
            self.busy &= !(1 << buffer);
        }
    }

    /// Nothing follows: hands on what is left. Returns whether anything happened.
    pub(super) fn close<P: Platform>(
        &mut self,
        key: &Key,
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        if self.done {
            return Ok(false);
        }
        match self.kind {
            NEXT_HOP => {
                if self.busy & LAST_BIT != 0 {
                    return Ok(false);
                }
                // A full buffer that found no credit is the last one then.
                self.closed = true;
                self.send_data(key, shared, platform)
            }
            HOST_WINDOW => {
                self.done = self.announced == self.written;
                self.result_bytes = self.written;
                Ok(self.done)
            }
            _ => {
                self.closed = true;
                let sent = self.filling && self.fill != 0 && self.send(key, shared, platform)?;
                let left = self.filling && self.fill != 0;
                if !left && self.busy == 0 {
                    self.done = true;
                    self.result_bytes = self.written;
                }
                Ok(sent || self.done)
            }
        }
    }
}
