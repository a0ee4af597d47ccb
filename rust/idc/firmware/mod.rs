// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The logic of a computational storage drive that takes part in a mesh.
//!
//! Sans-I/O: [`Firmware`] has no thread, lock, clock or allocation. Whoever hosts it (a kernel
//! worker for a proxied drive, an emulator, a test) calls [`Firmware::poll`] when something was
//! stored for the member or a time has come, and supplies memory, storage and ciphers through
//! [`Platform`]. Owns the streams and the dispatch of messages. Never trusts a message: places are
//! looked up in windows that the host granted, and a peer that breaks the protocol is left.

mod chain;
mod dispatch;
mod ending;
mod inlet;
mod opening;
mod outlet;
mod platform;
mod shared;
mod stream;

pub use platform::{Namespace, NoMemory, Platform, StorageError, StorageRequest};

use super::entry::MAX_ENTRY_BYTES;
use super::function::Functions;
use super::ipc::{Ipc, MAX_STREAM_REQUESTS};
use super::member::{MemberId, MemberSet};
use super::mesh::{MeshError, MeshTable};
use super::pipeline::descriptor::Descriptor;
use super::pipeline::{MAX_BUFFERS, MAX_DESCRIPTOR};
use super::ring::{RingError, RingLayout};
use super::status::{Failure, StageId, Status};
use super::window::{Window, WindowError};
use chain::Pool;
use inlet::SINK_TAG;
use opening::Origin;
use shared::Shared;
use stream::{Stream, NEXT_GONE};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Hops that one member runs at a time.
pub const STREAMS: usize = 8;

/// Messages that one poll takes from one peer.
const MESSAGES: usize = 16;
/// When a storage request found no room, it is tried again after this time at the latest.
const RETRY_NS: u64 = 1_000_000;

/// What a member has counted, besides its rings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stats {
    /// PING requests answered.
    pub pings: u64,
    /// SEND requests that found room.
    pub sends: u64,
    /// RELAY requests carried out.
    pub relays: u64,
    /// Hops opened.
    pub streams_opened: u64,
    /// Hops that came to their end.
    pub streams_done: u64,
    /// Hops that ended early.
    pub streams_failed: u64,
    /// Requests refused: malformed, not granted, unknown.
    pub refused: u64,
    /// Peers left because they broke the protocol or went out of reach.
    pub ring_faults: u64,
}

/// What a poll came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Poll {
    /// Something happened: poll again at once.
    pub progressed: bool,
    /// Poll again at this time (ns of the caller's clock) at the latest; `None`: only when something
    /// was stored for this member or storage has ended.
    pub wake_at: Option<u64>,
}

impl Poll {
    fn wake_by(&mut self, at: Option<u64>) {
        self.wake_at = match (self.wake_at, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// One member's firmware. About 400 KiB: built in place from zeros, then [`Firmware::init`].
#[derive(FromZeros, Immutable, KnownLayout)]
pub struct Firmware {
    shared: Shared,
    streams: [Stream; STREAMS],
    pool: Pool,
    first_peer: u16,
    first_stream: u16,
    /// Tells answers to relayed messages of one host ring from those of the next.
    host_attached: u16,
    entry: [u8; MAX_ENTRY_BYTES],
    descriptor: [u8; MAX_DESCRIPTOR],
}

/// With rings and cells, a member must stay below 1 MiB.
const _: () = assert!(core::mem::size_of::<Firmware>() <= 512 << 10);
/// A hop has one request open for each buffer, one for an empty last chunk or OPEN, and CANCEL.
const _: () = {
    let requests = STREAMS * (MAX_BUFFERS as usize + 2);
    assert!(requests <= MAX_STREAM_REQUESTS as usize);
};

impl Firmware {
    /// Says whose firmware this is and what it offers.
    pub fn init(&mut self, me: MemberId, functions: Functions) {
        self.shared.me = me;
        self.shared.functions = functions.to_wire();
        self.shared.ipc.init(me);
    }

    /// Joins the rings to all members of a mesh. Their memory must have been cleared.
    ///
    /// # Errors
    /// [`MeshError`]: some rings may be joined then.
    pub fn attach(&mut self, table: &MeshTable) -> Result<(), MeshError> {
        let me = self.shared.me;
        for peer in MemberId::all(table.shape().drives).filter(|peer| *peer != me) {
            let outgoing = table.ring(me, peer)?;
            let incoming = table.ring(peer, me)?;
            self.attach_peer(peer, &outgoing, &incoming)
                .map_err(MeshError::Ring)?;
        }
        Ok(())
    }

    /// Joins the rings to one peer, whose memory was cleared: when a ring is re-established.
    ///
    /// # Errors
    /// [`RingError`]: the peer is then detached.
    pub fn attach_peer(
        &mut self,
        peer: MemberId,
        outgoing: &RingLayout,
        incoming: &RingLayout,
    ) -> Result<(), RingError> {
        self.detach_peer(peer);
        if peer.is_host() {
            self.host_attached = self.host_attached.wrapping_add(1);
        }
        self.shared.ipc.attach(peer, outgoing, incoming)
    }

    /// Leaves `peer`. Streams over it fail with [`Status::PEER_LOST`]; then poll.
    pub fn detach_peer(&mut self, peer: MemberId) {
        if self.shared.ipc.is_attached(peer) {
            self.shared.ipc.detach(peer);
            self.shared.lost = self.shared.lost.with(peer);
        }
        self.tell_lost();
    }

    /// Enters a window: this member's own, or one granted to it.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn grant(&mut self, window: &Window) -> Result<(), WindowError> {
        self.shared.windows.grant(window)
    }

    /// Removes a window. Streams that use it must have ended ([`Firmware::is_active`]).
    pub fn revoke(&mut self, id: u32) {
        self.shared.windows.revoke(id);
    }

    /// Starts a pipeline of which this member is the first drive. `command` comes back in
    /// [`Platform::complete`], exactly once.
    ///
    /// # Errors
    /// The failure; nothing was started and nothing will complete.
    pub fn execute<P: Platform>(
        &mut self,
        command: u32,
        descriptor: &[u8],
        now: u64,
        platform: &mut P,
    ) -> Result<(), Failure> {
        let bad = self.shared.failure(Status::BAD_DESCRIPTOR, StageId::NONE);
        let descriptor = Descriptor::parse(descriptor).map_err(|_| bad)?;
        self.open(&descriptor, Origin::Command(command), now, platform)
    }

    fn open<P: Platform>(
        &mut self,
        descriptor: &Descriptor<'_>,
        origin: Origin,
        now: u64,
        platform: &mut P,
    ) -> Result<(), Failure> {
        let Firmware {
            shared,
            streams,
            pool,
            ..
        } = self;
        dispatch::open_stream(descriptor, origin, streams, shared, pool, now, platform)
    }

    /// Ends a pipeline that started here, in order; [`Platform::complete`] tells when. Returns
    /// whether there was one. Then poll.
    pub fn cancel(&mut self, stream: u32) -> bool {
        let failure = self.shared.failure(Status::CANCELLED, StageId::NONE);
        let mut found = false;
        for slot in self.streams.iter_mut() {
            if slot.is_active() && slot.key.stream == stream && slot.is_source() {
                slot.fail(failure);
                found = true;
            }
        }
        found
    }

    /// Drops a stream at this member without waiting for peers: for when one of them is silent. The
    /// slot goes as soon as its storage requests have ended. Returns whether there was one that was
    /// not being dropped already; then poll.
    pub fn abort(&mut self, stream: u32, status: Status) -> bool {
        let failure = self.shared.failure(status, StageId::NONE);
        let mut found = false;
        for slot in self.streams.iter_mut() {
            if slot.is_active() && slot.key.stream == stream && !slot.aborted {
                slot.aborted = true;
                slot.fail(failure);
                found = true;
            }
        }
        found
    }

    /// Whether any slot still holds the stream; until then its windows and memory must stay.
    #[must_use]
    pub fn is_active(&self, stream: u32) -> bool {
        self.streams
            .iter()
            .any(|slot| slot.is_active() && slot.key.stream == stream)
    }

    /// Hops at work.
    #[must_use]
    pub fn active_streams(&self) -> usize {
        self.streams.iter().filter(|slot| slot.is_active()).count()
    }

    /// Function states in use; 0 when no stream is active.
    #[must_use]
    pub fn functions_in_use(&self) -> usize {
        self.pool.in_use()
    }

    /// A storage request has ended; an error is its NVMe status. Then poll.
    pub fn storage_done(&mut self, tag: u32, result: Result<(), u16>) {
        let slot = (tag & 0xff) as usize;
        let generation = (tag >> 16) as u16;
        let buffer = (tag >> 8) & 0xff;
        let stream = self.streams.get_mut(slot);
        let Some(stream) = stream.filter(|s| s.is_active() && s.key.generation == generation)
        else {
            return;
        };
        stream.storage_ended = true;
        if buffer & SINK_TAG == 0 {
            stream.inlet.read_done(buffer, result);
            return;
        }
        stream.outlet.write_done(buffer & !SINK_TAG);
        if let Err(code) = result {
            let failure = self
                .shared
                .failure(Status::STORAGE_ERROR, StageId::SINK)
                .with_code(code.into());
            stream.fail(failure);
        }
    }

    /// The member's rings.
    #[must_use]
    pub fn ipc(&self) -> &Ipc {
        &self.shared.ipc
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Does a bounded amount of work: takes messages, answers, moves data. `now` is any monotonic
    /// clock in ns, the same for every call.
    pub fn poll<P: Platform>(&mut self, now: u64, platform: &mut P) -> Poll {
        let mut poll = Poll::default();
        poll.progressed |= self.take_messages(now, platform);
        poll.progressed |= self.shared.ipc.service(platform);
        poll.progressed |= self.take_abandoned(platform);
        self.tell_lost();
        self.first_stream = self.first_stream.wrapping_add(1);
        for turn in 0..STREAMS {
            let index = turn
                .wrapping_add(self.first_stream.into())
                .checked_rem(STREAMS);
            let stream = index.and_then(|index| self.streams.get_mut(index));
            let Some(stream) = stream.filter(|stream| stream.is_active()) else {
                continue;
            };
            let ran = stream.run(&mut self.shared, &mut self.pool, now, platform);
            poll.progressed |= ran;
            poll.wake_by(stream.wake_at());
        }
        if !self.shared.lost.is_empty() {
            self.tell_lost();
            poll.progressed = true;
        }
        if core::mem::take(&mut self.shared.storage_busy) {
            poll.wake_by(Some(now.saturating_add(RETRY_NS)));
        }
        poll
    }

    fn take_messages<P: Platform>(&mut self, now: u64, platform: &mut P) -> bool {
        let Firmware {
            shared,
            streams,
            pool,
            entry,
            descriptor,
            host_attached,
            ..
        } = self;
        let mut any = false;
        self.first_peer = self.first_peer.wrapping_add(1);
        let first = usize::from(self.first_peer);
        let peers = shared.ipc.peers();
        let behind = peers.iter().filter(move |peer| peer.index() >= first);
        let ahead = peers.iter().filter(move |peer| peer.index() < first);
        if peers.iter().all(|peer| peer.index() < first) {
            self.first_peer = 0;
        }
        for peer in behind.chain(ahead) {
            for _ in 0..MESSAGES {
                let arrival = match shared.ipc.receive(peer, platform, entry) {
                    Ok(Some(arrival)) => arrival,
                    Ok(None) => break,
                    Err(fault) => {
                        shared.lose(peer, fault, platform);
                        any = true;
                        break;
                    }
                };
                any = true;
                let mut dispatch = dispatch::Dispatch {
                    shared: &mut *shared,
                    streams: &mut *streams,
                    pool: &mut *pool,
                    descriptor: &mut *descriptor,
                    host_attached: *host_attached,
                    now,
                };
                dispatch.arrived(&arrival, platform);
            }
        }
        any
    }

    fn take_abandoned<P: Platform>(&mut self, platform: &mut P) -> bool {
        let mut any = false;
        while let Some(abandoned) = self.shared.ipc.take_abandoned() {
            any = true;
            dispatch::abandoned(&abandoned, self.host_attached, &mut self.shared, platform);
        }
        any
    }

    /// Fails the streams over peers that were lost.
    fn tell_lost(&mut self) {
        let lost = core::mem::replace(&mut self.shared.lost, MemberSet::NONE);
        if lost.is_empty() {
            return;
        }
        for stream in self.streams.iter_mut().filter(|stream| stream.is_active()) {
            if !stream.is_source() && lost.contains(stream.upstream) {
                stream.upstream_lost = true;
                stream.fail(Failure::new(
                    Status::PEER_LOST,
                    stream.upstream,
                    StageId::NONE,
                ));
            }
            if stream.has_next() && lost.contains(stream.outlet.member) {
                let failure =
                    Failure::new(Status::PEER_LOST, stream.outlet.member, stream.next_stage());
                stream.next = NEXT_GONE;
                stream.fail(failure);
            }
        }
    }
}
