// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How a stream opens: everything that its descriptor names is found, checked and taken, or nothing.
//!
//! Owns the checks that need this member's windows, functions and namespaces. Never believes a
//! place that its windows do not grant.

use super::super::function::Functions;
use super::super::member::{Location, MemberId, MemoryId};
use super::super::pipeline::descriptor::{Descriptor, HopSpec, Sink};
use super::super::pipeline::report::{slots, REPORT_BYTES};
use super::super::status::{Failure, StageId, Status};
use super::super::window::{Rights, WindowRef};
use super::chain::{AddError, Pool};
use super::inlet::Inlet;
use super::outlet::{memory_failure, Outlet, HOST_WINDOW, NAMESPACE, NEXT_HOP};
use super::platform::{Namespace, Platform};
use super::shared::{Key, Shared};
use super::stream::{Due, Stream, NEXT_GONE, NEXT_UNASKED, OPENING, RUNNING};

const NS_PER_MS: u64 = 1_000_000;
/// Storage is moved to and from multiples of this.
const STORAGE_ALIGN: u64 = 4096;

/// Who wants the stream.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// The host, by this command.
    Command(u32),
    /// The hop before, by this OPEN request.
    Open(MemberId, u16),
}

impl Stream {
    /// Opens a stream in this free slot, whose number and generation are set.
    ///
    /// # Errors
    /// The failure; the slot is free and nothing is held.
    pub(super) fn open<P: Platform>(
        &mut self,
        descriptor: &Descriptor<'_>,
        origin: Origin,
        shared: &mut Shared,
        pool: &mut Pool,
        now: u64,
        platform: &mut P,
    ) -> Result<(), Failure> {
        self.key = Key {
            stream: descriptor.stream(),
            hop: descriptor.first_hop(),
            ..self.key
        };
        self.outlet = Outlet::default();
        let prepared = self.prepare(descriptor, origin, shared, pool, platform);
        if let Err(failure) = prepared {
            self.settle(platform);
            self.chain.clear(pool);
            self.inlet = Inlet::default();
            self.outlet = Outlet::default();
            return Err(failure);
        }
        let after = descriptor.hop_count().saturating_sub(1) as u64;
        let deadline = u64::from(descriptor.deadline_ms()).saturating_mul(NS_PER_MS);
        // A hop further up waits a little longer, so that the one next to the culprit tells.
        let allowance = (deadline >> 3).saturating_mul(after);
        self.deadline = deadline.saturating_add(allowance);
        self.hold_every = deadline >> 2;
        self.progress_at = now;
        self.hold_at = now.saturating_add(self.hold_every);
        self.upstream_lost = false;
        self.aborted = false;
        self.winding_down = false;
        self.cancel_sent = false;
        self.storage_ended = false;
        self.last_data = Due::default();
        self.cancel = Due::default();
        self.open = Due::default();
        self.upstream = MemberId::HOST;
        match origin {
            Origin::Command(command) => self.command = command,
            Origin::Open(from, cid) => {
                self.upstream = from;
                self.open = Due::now(cid);
            }
        }
        self.messages = 0;
        self.reported = 0;
        self.updates = 0;
        self.failure = Failure::default();
        self.phase = if self.has_next() { OPENING } else { RUNNING };
        self.next = if self.has_next() {
            NEXT_UNASKED
        } else {
            NEXT_GONE
        };
        shared.stats.streams_opened = shared.stats.streams_opened.wrapping_add(1);
        Ok(())
    }

    fn prepare<P: Platform>(
        &mut self,
        descriptor: &Descriptor<'_>,
        origin: Origin,
        shared: &Shared,
        pool: &mut Pool,
        platform: &mut P,
    ) -> Result<(), Failure> {
        let bad = shared.failure(Status::BAD_DESCRIPTOR, StageId::NONE);
        let own = descriptor.hop(0).ok_or(bad)?;
        let first = descriptor.first_hop() == 0;
        let from_host = matches!(origin, Origin::Command(_));
        if own.member != shared.me || first != from_host {
            return Err(bad);
        }
        self.first_stage = descriptor.first_stage();
        self.all_stages = descriptor.all_stages();
        let report_bytes = slots(self.all_stages.into()).saturating_mul(REPORT_BYTES);
        self.report = writable(shared, descriptor.report(), report_bytes as u64)?;
        self.add_stages(descriptor, shared, pool)?;
        self.prepare_inlet(descriptor, &own, origin, shared, platform)?;
        match descriptor.hop(1) {
            Some(next) => self.prepare_next(descriptor, &next, shared, platform)?,
            None => self.prepare_sink(descriptor, shared, platform)?,
        }
        platform
            .open_scratch(self.key.slot.into(), self.chain.scratch_len())
            .map_err(|_| shared.failure(Status::NO_MEMORY, StageId::NONE))
    }

    fn add_stages(
        &mut self,
        descriptor: &Descriptor<'_>,
        shared: &Shared,
        pool: &mut Pool,
    ) -> Result<(), Failure> {
        let offered = Functions::from_wire(shared.functions);
        for (stage, number) in descriptor.own_stages().zip(self.first_stage..) {
            let failure = |status| shared.failure(status, StageId(number));
            if !offered.contains(stage.function) {
                return Err(failure(Status::NO_FUNCTION));
            }
            self.chain
                .add(stage.function, stage.params, pool)
                .map_err(|error| match error {
                    AddError::Busy => failure(Status::BUSY),
                    AddError::Parameters => failure(Status::BAD_PARAMETERS),
                })?;
        }
        Ok(())
    }

    fn prepare_inlet<P: Platform>(
        &mut self,
        descriptor: &Descriptor<'_>,
        own: &HopSpec,
        origin: Origin,
        shared: &Shared,
        platform: &mut P,
    ) -> Result<(), Failure> {
        let failure = |status| shared.failure(status, StageId::SOURCE);
        let bytes = buffers_len(descriptor, own.buffers);
        let inlet = &mut self.inlet;
        *inlet = Inlet::default();
        inlet.place = own.input;
        inlet.chunk_bytes = descriptor.chunk_bytes();
        inlet.buffers = own.buffers;
        match origin {
            Origin::Open(from, _) => {
                inlet.base = shared
                    .windows
                    .resolve_owned(shared.me, from, own.input, bytes)
                    .map_err(|_| failure(Status::NOT_GRANTED))?;
            }
            Origin::Command(_) => {
                let source = descriptor.source();
                let namespace = namespace(platform, source.nsid);
                let namespace = namespace.ok_or(failure(Status::RANGE))?;
                let end = source.offset.saturating_add(source.length);
                if end > namespace.bytes() {
                    return Err(failure(Status::RANGE));
                }
                inlet.base = storage_buffers(shared, own.input, bytes)
                    .ok_or(failure(Status::NOT_GRANTED))?;
                inlet.is_source = true;
                inlet.nsid = source.nsid;
                inlet.block_bytes = namespace.block_bytes;
                inlet.next = source.offset;
                inlet.end = end;
            }
        }
        Ok(())
    }

    /// Puts the descriptor of the hops still to run where the next hop will find it.
    fn prepare_next<P: Platform>(
        &mut self,
        descriptor: &Descriptor<'_>,
        next: &HopSpec,
        shared: &Shared,
        platform: &mut P,
    ) -> Result<(), Failure> {
        let stage = self.next_stage();
        if !shared.ipc.is_attached(next.member) {
            return Err(Failure::new(Status::PEER_LOST, next.member, stage));
        }
        let bytes = buffers_len(descriptor, next.buffers);
        let base = writable(shared, next.input, bytes)?;
        let internal = shared.failure(Status::INTERNAL, StageId::NONE);
        let rest = descriptor.rest().ok_or(internal)?;
        self.descriptor_len = rest.len() as u32;
        let outlet = &mut self.outlet;
        outlet.kind = NEXT_HOP;
        outlet.base = base;
        outlet.place = next.input;
        outlet.member = next.member;
        outlet.hop = descriptor.first_hop().wrapping_add(1);
        outlet.buffers = next.buffers;
        outlet.chunk_bytes = descriptor.chunk_bytes();
        let mut at = base;
        for part in [&rest.header[..], rest.hops, rest.stages] {
            platform
                .write(at, part)
                .map_err(|fault| memory_failure(shared, at.memory, fault, stage))?;
            at = at.at(part.len() as u64).ok_or(internal)?;
        }
        Ok(())
    }

    fn prepare_sink<P: Platform>(
        &mut self,
        descriptor: &Descriptor<'_>,
        shared: &Shared,
        platform: &mut P,
    ) -> Result<(), Failure> {
        let failure = |status| shared.failure(status, StageId::SINK);
        let outlet = &mut self.outlet;
        match descriptor.sink() {
            Sink::HostWindow {
                ring,
                length,
                produced,
                consumed,
            } => {
                outlet.kind = HOST_WINDOW;
                outlet.base = writable(shared, ring, length)?;
                outlet.limit = length;
                outlet.produced = writable(shared, produced, 8)?;
                outlet.consumed = writable(shared, consumed, 8)?;
            }
            Sink::Namespace {
                nsid,
                offset,
                limit,
                buffers,
                count,
            } => {
                let namespace = namespace(platform, nsid).ok_or(failure(Status::RANGE))?;
                let block = u64::from(namespace.block_bytes);
                let aligned = offset.checked_rem(block) == Some(0);
                if !aligned || offset.saturating_add(limit) > namespace.bytes() {
                    return Err(failure(Status::RANGE));
                }
                let bytes = buffers_len(descriptor, count);
                outlet.kind = NAMESPACE;
                outlet.base =
                    storage_buffers(shared, buffers, bytes).ok_or(failure(Status::NOT_GRANTED))?;
                outlet.limit = limit;
                outlet.buffers = count;
                outlet.chunk_bytes = descriptor.chunk_bytes();
                outlet.nsid = nsid;
                outlet.block_bytes = namespace.block_bytes;
                outlet.lba = offset.checked_div(block).unwrap_or(0);
            }
        }
        Ok(())
    }
}

fn buffers_len(descriptor: &Descriptor<'_>, buffers: u16) -> u64 {
    u64::from(descriptor.chunk_bytes()).saturating_mul(buffers.into())
}

/// A namespace whose blocks the buffers can hold.
fn namespace<P: Platform>(platform: &mut P, nsid: u32) -> Option<Namespace> {
    let namespace = platform.namespace(nsid)?;
    let block = namespace.block_bytes;
    (block.is_power_of_two() && (512..=4096).contains(&block)).then_some(namespace)
}

/// Where something lies that this member may write.
fn writable(shared: &Shared, place: WindowRef, bytes: u64) -> Result<Location, Failure> {
    shared
        .windows
        .resolve(shared.me, place, bytes, Rights::WRITE)
        .map_err(|_| shared.failure(Status::NOT_GRANTED, StageId::NONE))
}

/// Buffers that storage reads and writes: in this member's own memory, aligned.
fn storage_buffers(shared: &Shared, place: WindowRef, bytes: u64) -> Option<Location> {
    let at = writable(shared, place, bytes).ok()?;
    let own = at.memory == MemoryId::of(shared.me);
    (own && at.offset % STORAGE_ALIGN == 0).then_some(at)
}
