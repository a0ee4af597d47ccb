// SPDX-License-Identifier: GPL-2.0 OR MIT

//! All ends of one member: to each peer a sending and a receiving end, the table of requests that
//! it waits for, and the responses that it still owes.
//!
//! Owns the credit rules that make the mesh free of deadlock: so few requests open at a time that the
//! receiver has room for all of them and their responses, and responses ahead of requests. Never
//! interprets a request but for its class. The host and the drives' firmware use the same type. IDC
//! specification, "Request credits".

mod peer;

use super::entry::{Entry, Request, Response, FLAG_MORE, FLAG_NO_RESPONSE, MIN_INLINE};
use super::member::{MemberId, MemberSet, MAX_MEMBERS};
use super::memory::Fabric;
use super::ring::{PeerFault, PushError, RingCounters, RingError, RingLayout};
use core::fmt;
use peer::{push_request, Peer, ABANDONED, FORGOTTEN, FREE, OPEN};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The most messages (PING, SEND, RELAY) that a member has open at one peer.
pub const MAX_MESSAGES: u32 = 16;
/// The most requests about streams that a member has open at one peer: enough for every hop that the
/// peer can run, so that no stream ever waits for another one's credit.
pub const MAX_STREAM_REQUESTS: u32 = 80;
/// All of them.
pub const MAX_REQUESTS: usize = (MAX_MESSAGES + MAX_STREAM_REQUESTS) as usize;
/// The most inline data of a response that has to wait for credit.
pub const MAX_RESPONSE_INLINE: usize = MIN_INLINE;

/// The part of a CID that is the slot of its request.
const SLOT_MASK: u16 = 0x7f;
const _: () = assert!(MAX_REQUESTS <= SLOT_MASK as usize + 1);

/// Why a message was not sent. Nothing of it was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendError {
    /// No ring to that member.
    NotAttached,
    /// Too many requests open, or the ring is full: try again later.
    NoCredit,
    /// The data does not fit into an entry of that ring.
    TooLong,
    /// The peer is not believed any more; detach it.
    Fault(PeerFault),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::NotAttached => f.write_str("no ring to that member"),
            SendError::NoCredit => f.write_str("no credit"),
            SendError::TooLong => f.write_str("the data does not fit into an entry"),
            SendError::Fault(fault) => fault.fmt(f),
        }
    }
}

impl From<PushError> for SendError {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Full => SendError::NoCredit,
            PushError::TooLong => SendError::TooLong,
            PushError::Fault(fault) => SendError::Fault(fault),
        }
    }
}

/// What came from a peer, in the caller's copy.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'b> {
    /// The peer asks; if it wants a response, exactly one [`Ipc::respond`] with this `cid` is due.
    Request {
        /// Who asks.
        from: MemberId,
        /// The request's name.
        cid: u16,
        /// Whether a response is due.
        wants_response: bool,
        /// What is asked.
        request: Request<'b>,
    },
    /// The answer to a request.
    Response {
        /// Who answers.
        from: MemberId,
        /// What the request was tagged with.
        tag: u64,
        /// The answer.
        response: Response<'b>,
    },
    /// The answer to a request that was forgotten.
    Late,
}

/// A request whose answer will never come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Abandoned {
    /// Who was asked.
    pub peer: MemberId,
    /// What the request was tagged with.
    pub tag: u64,
}

/// All ends of one member. About 250 KiB: built in place from zeros, then [`Ipc::init`].
#[derive(FromZeros, Immutable, KnownLayout)]
pub struct Ipc {
    me: MemberId,
    attached: MemberSet,
    peers: [Peer; MAX_MEMBERS],
}

impl Ipc {
    /// Says whose ends these are.
    pub fn init(&mut self, me: MemberId) {
        self.me = me;
    }

    /// Whose ends these are.
    #[must_use]
    pub const fn member(&self) -> MemberId {
        self.me
    }

    /// The peers to which there are rings.
    #[must_use]
    pub const fn peers(&self) -> MemberSet {
        self.attached
    }

    /// Whether there are rings to and from `peer`.
    #[must_use]
    pub const fn is_attached(&self, peer: MemberId) -> bool {
        self.attached.contains(peer)
    }

    /// Joins the two rings between this member and `peer`, whose memory and cells were zeroed.
    ///
    /// # Errors
    /// [`RingError`]; the peer is then detached.
    pub fn attach(
        &mut self,
        peer: MemberId,
        outgoing: &RingLayout,
        incoming: &RingLayout,
    ) -> Result<(), RingError> {
        self.detach(peer);
        let me = self.me;
        let to_peer = outgoing.from == me && outgoing.to == peer;
        let from_peer = incoming.from == peer && incoming.to == me;
        let other = self.peers.get_mut(peer.index());
        let (true, true, Some(other)) = (to_peer, from_peer, other) else {
            return Err(RingError::Members);
        };
        outgoing.check()?;
        other.receiver.attach(incoming)?;
        other.sender.attach(outgoing)?;
        other.open = 0;
        other.open_messages = 0;
        other.unanswered = 0;
        other.owed_count = 0;
        self.attached = self.attached.with(peer);
        Ok(())
    }

    /// Leaves the rings to and from `peer`. Open requests are abandoned ([`Ipc::take_abandoned`]),
    /// owed responses dropped.
    pub fn detach(&mut self, peer: MemberId) {
        self.attached = self.attached.without(peer);
        let Some(other) = self.peers.get_mut(peer.index()) else {
            return;
        };
        other.sender.detach();
        other.receiver.detach();
        other.open = 0;
        other.open_messages = 0;
        other.unanswered = 0;
        other.owed_count = 0;
        for request in &mut other.outstanding {
            match request.state {
                OPEN => request.state = ABANDONED,
                FORGOTTEN => request.state = FREE,
                _ => {}
            }
        }
    }

    /// One request of a detached peer that nobody was told about yet.
    pub fn take_abandoned(&mut self) -> Option<Abandoned> {
        for (index, other) in self.peers.iter_mut().enumerate() {
            let mut abandoned = other.outstanding.iter_mut();
            let Some(request) = abandoned.find(|request| request.state == ABANDONED) else {
                continue;
            };
            request.state = FREE;
            let peer = MemberId::new(u16::try_from(index).ok()?)?;
            return Some(Abandoned {
                peer,
                tag: request.tag,
            });
        }
        None
    }

    fn peer(&mut self, peer: MemberId) -> Option<&mut Peer> {
        if self.attached.contains(peer) {
            self.peers.get_mut(peer.index())
        } else {
            None
        }
    }

    /// Data bytes that one message to `peer` carries; 0 without a ring.
    #[must_use]
    pub fn inline_capacity(&self, peer: MemberId) -> usize {
        let other = self.peers.get(peer.index());
        other.map_or(0, |other| other.sender.layout().inline_capacity())
    }

    /// Requests of this member that `peer` has not answered.
    #[must_use]
    pub fn open_requests(&self, peer: MemberId) -> u32 {
        self.peers.get(peer.index()).map_or(0, |other| other.open)
    }

    /// Requests of `peer` that this member has not answered.
    #[must_use]
    pub fn unanswered(&self, peer: MemberId) -> u32 {
        let other = self.peers.get(peer.index());
        other.map_or(0, |other| other.unanswered)
    }

    /// Whether either ring between this member and `peer` was fenced by a fault.
    #[must_use]
    pub fn is_fenced(&self, peer: MemberId) -> bool {
        let other = self.peers.get(peer.index());
        other.is_some_and(|other| other.sender.is_fenced() || other.receiver.is_fenced())
    }

    /// What the sending and the receiving end of `peer` counted.
    #[must_use]
    pub fn counters(&self, peer: MemberId) -> Option<(&RingCounters, &RingCounters)> {
        let other = self.peers.get(peer.index())?;
        Some((other.sender.counters(), other.receiver.counters()))
    }

    /// Sends a request that wants a response; [`Arrival::Response`] will bring `tag` back.
    /// Returns the CID, by which [`Ipc::forget`] names it.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn request<F: Fabric>(
        &mut self,
        to: MemberId,
        request: &Request<'_>,
        tag: u64,
        fabric: &mut F,
    ) -> Result<u16, SendError> {
        let other = self.peer(to).ok_or(SendError::NotAttached)?;
        let is_message = request.opcode.is_message();
        if !other.may_ask(is_message) || !other.pay_first(to, fabric) {
            return Err(SendError::NoCredit);
        }
        let mut slots = other.outstanding.iter_mut().zip(0_u16..);
        let free = slots.find(|(slot, _)| slot.state == FREE);
        let (slot, index) = free.ok_or(SendError::NoCredit)?;
        // The upper bits count how often the slot was used, so that a late answer finds nobody.
        let used = slot.cid.wrapping_add(SLOT_MASK.wrapping_add(1)) & !SLOT_MASK;
        let cid = used | index;
        let flags = if request.more { FLAG_MORE } else { 0 };
        push_request(&mut other.sender, fabric, request, cid, flags)?;
        slot.cid = cid;
        slot.tag = tag;
        slot.state = OPEN;
        slot.is_message = is_message;
        other.open = other.open.saturating_add(1);
        other.open_messages = other.open_messages.saturating_add(is_message.into());
        fabric.notify(to);
        Ok(cid)
    }

    /// Sends a request that wants no response. Only goes while more than a quarter of the ring is
    /// free, so that it does not get in the way of others.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn notice<F: Fabric>(
        &mut self,
        to: MemberId,
        request: &Request<'_>,
        fabric: &mut F,
    ) -> Result<(), SendError> {
        let other = self.peer(to).ok_or(SendError::NotAttached)?;
        if !other.pay_first(to, fabric) {
            return Err(SendError::NoCredit);
        }
        let quarter = other.sender.layout().entries >> 2;
        if other.sender.free() <= quarter {
            other.sender.refresh(fabric).map_err(SendError::Fault)?;
            if other.sender.free() <= quarter {
                return Err(SendError::NoCredit);
            }
        }
        push_request(&mut other.sender, fabric, request, 0, FLAG_NO_RESPONSE)?;
        fabric.notify(to);
        Ok(())
    }

    /// Answers a request of `to`. Without credit the answer waits here; then inline data of more
    /// than [`MAX_RESPONSE_INLINE`] bytes becomes [`Status::BUSY`](super::status::Status::BUSY).
    ///
    /// # Errors
    /// [`SendError`], but never [`SendError::NoCredit`].
    pub fn respond<F: Fabric>(
        &mut self,
        to: MemberId,
        response: &Response<'_>,
        fabric: &mut F,
    ) -> Result<(), SendError> {
        let other = self.peer(to).ok_or(SendError::NotAttached)?;
        if other.unanswered == 0 || other.owed_count >= other.unanswered {
            return Err(SendError::Fault(PeerFault::Unmatched));
        }
        if other.owed_count == 0 {
            match other.push_response(response, fabric) {
                Ok(()) => {
                    fabric.notify(to);
                    return Ok(());
                }
                Err(PushError::Full) => {}
                Err(error) => return Err(error.into()),
            }
        }
        other.owe(response);
        Ok(())
    }

    /// Sends waiting responses where credit came. Returns whether any went.
    pub fn service<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        let mut any = false;
        for peer in self.attached.iter() {
            let Some(other) = self.peers.get_mut(peer.index()) else {
                continue;
            };
            if other.owed_count == 0 {
                continue;
            }
            if other.send_owed(fabric) {
                any = true;
                fabric.notify(peer);
            }
        }
        any
    }

    /// Whether responses wait for credit.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.peers.iter().any(|other| other.owed_count != 0)
    }

    /// Nobody waits for the answer to `cid` any more. The request stays open at the peer, and counts
    /// as such, until the answer comes or the peer is detached.
    pub fn forget(&mut self, peer: MemberId, cid: u16) {
        let Some(other) = self.peers.get_mut(peer.index()) else {
            return;
        };
        let slot = other.outstanding.get_mut(usize::from(cid & SLOT_MASK));
        match slot {
            Some(slot) if slot.cid == cid && slot.state == OPEN => slot.state = FORGOTTEN,
            Some(slot) if slot.cid == cid && slot.state == ABANDONED => slot.state = FREE,
            _ => {}
        }
    }

    /// Takes the next message of `from`, if there is one, into `buffer` (at least the entry size).
    ///
    /// # Errors
    /// [`PeerFault`]: `from` is not believed any more and must be detached.
    pub fn receive<'b, F: Fabric>(
        &mut self,
        from: MemberId,
        fabric: &mut F,
        buffer: &'b mut [u8],
    ) -> Result<Option<Arrival<'b>>, PeerFault> {
        let other = self.peer(from).ok_or(PeerFault::Fenced)?;
        let Some(popped) = other.receiver.pop(fabric, buffer)? else {
            return Ok(None);
        };
        if popped.credited {
            fabric.notify(from);
        }
        match popped.entry {
            Entry::Request {
                cid,
                wants_response,
                request,
            } => {
                if wants_response {
                    if other.unanswered >= MAX_REQUESTS as u32 {
                        return Err(other.receiver.fence_for(PeerFault::TooManyRequests));
                    }
                    other.unanswered = other.unanswered.saturating_add(1);
                }
                Ok(Some(Arrival::Request {
                    from,
                    cid,
                    wants_response,
                    request,
                }))
            }
            Entry::Response(response) => match other.settle(response.cid) {
                Some(Some(tag)) => Ok(Some(Arrival::Response {
                    from,
                    tag,
                    response,
                })),
                Some(None) => Ok(Some(Arrival::Late)),
                None => Err(other.receiver.fence_for(PeerFault::Unmatched)),
            },
        }
    }
}
