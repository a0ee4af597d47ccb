// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What all streams of a member use together: its rings, its windows, its counters.
//!
//! Owns how a send that failed is told apart, and the tags by which answers find their stream. Never
//! knows what a stream is doing.

use super::super::entry::{Request, Response};
use super::super::ipc::{Ipc, SendError};
use super::super::member::{MemberId, MemberSet};
use super::super::ring::PeerFault;
use super::super::status::{Failure, StageId, Status};
use super::super::window::WindowTable;
use super::platform::Platform;
use super::Stats;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Who a stream's messages and storage requests belong to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Key {
    /// The pipeline's number.
    pub(super) stream: u32,
    /// This hop's number.
    pub(super) hop: u16,
    /// Counts the uses of the slot, so that late answers find nobody.
    pub(super) generation: u16,
    /// The slot.
    pub(super) slot: u8,
}

/// What a request was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// To open the next hop.
    Open,
    /// To hand a chunk on; the buffer's number, or [`NO_BUFFER`] for an empty last chunk.
    Data,
    /// To drop the next hop.
    Cancel,
    /// To send on what the host wants sent.
    Relay,
}

/// The argument of a [`Purpose::Data`] without buffer.
pub(super) const NO_BUFFER: u32 = 0xff;
/// Set in the argument of the last [`Purpose::Data`].
pub(super) const LAST: u32 = 0x100;

/// The tag of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Tag {
    pub(super) purpose: Purpose,
    pub(super) slot: u8,
    pub(super) generation: u16,
    pub(super) argument: u32,
}

impl Tag {
    pub(super) fn of(key: &Key, purpose: Purpose, argument: u32) -> u64 {
        Tag {
            purpose,
            slot: key.slot,
            generation: key.generation,
            argument,
        }
        .to_u64()
    }

    pub(super) fn to_u64(self) -> u64 {
        let purpose = match self.purpose {
            Purpose::Open => 0,
            Purpose::Data => 1,
            Purpose::Cancel => 2,
            Purpose::Relay => 3,
        };
        purpose
            | (u64::from(self.slot) << 8)
            | (u64::from(self.generation) << 16)
            | (u64::from(self.argument) << 32)
    }

    pub(super) fn from_u64(tag: u64) -> Self {
        Tag {
            purpose: match tag & 3 {
                0 => Purpose::Open,
                1 => Purpose::Data,
                2 => Purpose::Cancel,
                _ => Purpose::Relay,
            },
            slot: (tag >> 8) as u8,
            generation: (tag >> 16) as u16,
            argument: (tag >> 32) as u32,
        }
    }
}

/// How a send went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sent {
    /// It is on its way, under this CID.
    Yes(u16),
    /// No credit: again at a later poll.
    NotNow,
    /// The peer is lost; the stream is told.
    Lost,
}

#[derive(FromZeros, Immutable, KnownLayout)]
pub(super) struct Shared {
    pub(super) me: MemberId,
    pub(super) functions: u32,
    pub(super) ipc: Ipc,
    pub(super) windows: WindowTable,
    /// Peers that were detached and of which the streams do not know yet.
    pub(super) lost: MemberSet,
    /// A storage request found no room in this poll.
    pub(super) storage_busy: bool,
    pub(super) stats: Stats,
}

impl Shared {
    /// A failure at this member.
    pub(super) fn failure(&self, status: Status, stage: StageId) -> Failure {
        Failure::new(status, self.me, stage)
    }

    /// Leaves `peer`, which broke the protocol or is out of reach.
    pub(super) fn lose<P: Platform>(&mut self, peer: MemberId, fault: PeerFault, platform: &mut P) {
        if !self.ipc.is_attached(peer) {
            return;
        }
        self.ipc.detach(peer);
        self.lost = self.lost.with(peer);
        self.stats.ring_faults = self.stats.ring_faults.wrapping_add(1);
        platform.ring_fault(peer, fault);
    }

    /// Sends a request of a stream.
    pub(super) fn ask<P: Platform>(
        &mut self,
        to: MemberId,
        request: &Request<'_>,
        tag: u64,
        platform: &mut P,
    ) -> Sent {
        match self.ipc.request(to, request, tag, platform) {
            Ok(cid) => Sent::Yes(cid),
            Err(SendError::NoCredit) => Sent::NotNow,
            Err(SendError::Fault(fault)) => {
                self.lose(to, fault, platform);
                Sent::Lost
            }
            Err(SendError::NotAttached | SendError::TooLong) => Sent::Lost,
        }
    }

    /// Answers a request. A peer that cannot be answered is lost, which its streams are told.
    pub(super) fn answer<P: Platform>(
        &mut self,
        to: MemberId,
        response: &Response<'_>,
        platform: &mut P,
    ) {
        match self.ipc.respond(to, response, platform) {
            Ok(()) | Err(SendError::NotAttached) => {}
            Err(SendError::Fault(fault)) => self.lose(to, fault, platform),
            Err(SendError::NoCredit | SendError::TooLong) => {
                self.lose(to, PeerFault::Unmatched, platform);
            }
        }
    }

    /// Answers a request with a failure.
    pub(super) fn refuse<P: Platform>(
        &mut self,
        to: MemberId,
        cid: u16,
        failure: &Failure,
        platform: &mut P,
    ) {
        let response = Response {
            cid,
            status: failure.status,
            result: 0,
            inline: &failure.to_wire(),
        };
        self.answer(to, &response, platform);
    }
}
