// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a member keeps of one peer: the two ring ends, the requests that it waits for, the
//! responses that it owes.
//!
//! Owns the two tables. Never looks into a message.

use super::super::entry::{Kind, Request, Response, HEADER_BYTES};
use super::super::member::MemberId;
use super::super::memory::{Fabric, Memory};
use super::super::ring::{Body, PushError, Receiver, Sender};
use super::super::status::Status;
use super::{
    SendError, MAX_MESSAGES, MAX_REQUESTS, MAX_RESPONSE_INLINE, MAX_STREAM_REQUESTS, SLOT_MASK,
};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

pub(super) const FREE: u8 = 0;
pub(super) const OPEN: u8 = 1;
/// Nobody waits for the answer any more, but the peer still holds the request.
pub(super) const FORGOTTEN: u8 = 2;
/// The peer was detached; whoever waits has not been told yet.
pub(super) const ABANDONED: u8 = 3;

#[derive(FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Outstanding {
    pub(super) tag: u64,
    pub(super) cid: u16,
    pub(super) state: u8,
    pub(super) is_message: bool,
}

#[derive(FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Owed {
    pub(super) result: u64,
    pub(super) cid: u16,
    pub(super) status: Status,
    pub(super) inline_length: u8,
    pub(super) inline: [u8; MAX_RESPONSE_INLINE],
}

#[derive(FromZeros, Immutable, KnownLayout)]
pub(super) struct Peer {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// Requests of ours that the peer holds, and of these, messages.
    pub(super) open: u32,
    pub(super) open_messages: u32,
    /// Requests of the peer that we have not answered on the ring.
    pub(super) unanswered: u32,
    /// The queue of responses that wait for credit.
    pub(super) first_owed: u32,
    pub(super) owed_count: u32,
    pub(super) outstanding: [Outstanding; MAX_REQUESTS],
    pub(super) owed: [Owed; MAX_REQUESTS],
}

pub(super) fn push_request<M: Memory + ?Sized>(
    sender: &mut Sender,
    memory: &mut M,
    request: &Request<'_>,
    cid: u16,
    flags: u8,
) -> Result<(), SendError> {
    let header = request.header(cid);
    let header: &[u8; HEADER_BYTES] = zerocopy::transmute_ref!(&header);
    let body = Body {
        kind: Kind::Request,
        flags,
        header,
        data: request.data,
    };
    sender.push(memory, &body).map_err(SendError::from)
}

impl Peer {
    /// Whether one more request of that class may be open.
    pub(super) fn may_ask(&self, is_message: bool) -> bool {
        if is_message {
            self.open_messages < MAX_MESSAGES
        } else {
            self.open.saturating_sub(self.open_messages) < MAX_STREAM_REQUESTS
        }
    }

    /// Sends what is owed, so that responses go ahead of requests. Returns whether nothing is owed.
    pub(super) fn pay_first<F: Fabric>(&mut self, me: MemberId, fabric: &mut F) -> bool {
        if self.owed_count != 0 && self.send_owed(fabric) {
            fabric.notify(me);
        }
        self.owed_count == 0
    }

    /// The answer to `cid` came: `Some(Some(tag))` if somebody waits for it, `Some(None)` if it was
    /// forgotten, `None` if there is no such request.
    pub(super) fn settle(&mut self, cid: u16) -> Option<Option<u64>> {
        let slot = self
            .outstanding
            .get_mut(usize::from(cid & SLOT_MASK))
            .filter(|slot| slot.cid == cid)?;
        let tag = match slot.state {
            OPEN => Some(slot.tag),
            FORGOTTEN => None,
            _ => return None,
        };
        slot.state = FREE;
        self.open = self.open.saturating_sub(1);
        let message = u32::from(slot.is_message);
        self.open_messages = self.open_messages.saturating_sub(message);
        Some(tag)
    }

    pub(super) fn push_response<M: Memory + ?Sized>(
        &mut self,
        response: &Response<'_>,
        memory: &mut M,
    ) -> Result<(), PushError> {
        let header = response.header();
        let header: &[u8; HEADER_BYTES] = zerocopy::transmute_ref!(&header);
        let body = Body {
            kind: Kind::Response,
            flags: 0,
            header,
            data: response.inline,
        };
        self.sender.push(memory, &body)?;
        self.unanswered = self.unanswered.saturating_sub(1);
        Ok(())
    }

    pub(super) fn owe(&mut self, response: &Response<'_>) {
        let end = self.first_owed.saturating_add(self.owed_count) as usize;
        let index = end.checked_rem(MAX_REQUESTS);
        let Some(slot) = index.and_then(|index| self.owed.get_mut(index)) else {
            return;
        };
        slot.result = response.result;
        slot.cid = response.cid;
        slot.status = response.status;
        slot.inline_length = 0;
        match slot.inline.get_mut(..response.inline.len()) {
            Some(inline) => {
                inline.copy_from_slice(response.inline);
                slot.inline_length = response.inline.len() as u8;
            }
            None => slot.status = Status::BUSY,
        }
        self.owed_count = self.owed_count.saturating_add(1);
    }

    pub(super) fn send_owed<M: Memory + ?Sized>(&mut self, memory: &mut M) -> bool {
        let mut any = false;
        while self.owed_count != 0 {
            let Some(owed) = self.owed.get(self.first_owed as usize) else {
                break;
            };
            let inline = owed.inline;
            let response = Response {
                cid: owed.cid,
                status: owed.status,
                result: owed.result,
                inline: inline
                    .get(..usize::from(owed.inline_length))
                    .unwrap_or_default(),
            };
            if self.push_response(&response, memory).is_err() {
                break;
            }
            let next = self.first_owed.wrapping_add(1);
            self.first_owed = next.checked_rem(MAX_REQUESTS as u32).unwrap_or(0);
            self.owed_count = self.owed_count.saturating_sub(1);
            any = true;
        }
        any
    }
}
