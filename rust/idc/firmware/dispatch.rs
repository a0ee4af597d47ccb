// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a member does with each message.
//!
//! Owns the checks that come before a message reaches a stream. Every request that wants an answer
//! gets exactly one, here or later from its stream.

use super::super::entry::{DataBody, Opcode, Request, Response};
use super::super::ipc::{Abandoned, Arrival, SendError};
use super::super::member::MemberId;
use super::super::pipeline::descriptor::Descriptor;
use super::super::pipeline::MAX_DESCRIPTOR;
use super::super::status::{Failure, StageId, Status};
use super::super::window::WindowRef;
use super::chain::Pool;
use super::opening::Origin;
use super::platform::Platform;
use super::shared::{Purpose, Shared, Tag};
use super::stream::{Due, Stream, FAILED, NEXT_GONE, RUNNING};
use super::STREAMS;

/// Opens a stream in a free slot.
pub(super) fn open_stream<P: Platform>(
    descriptor: &Descriptor<'_>,
    origin: Origin,
    streams: &mut [Stream; STREAMS],
    shared: &mut Shared,
    pool: &mut Pool,
    now: u64,
    platform: &mut P,
) -> Result<(), Failure> {
    let (stream, hop) = (descriptor.stream(), descriptor.first_hop());
    if streams.iter().any(|slot| slot.is(stream, hop)) {
        return Err(shared.failure(Status::BAD_DESCRIPTOR, StageId::NONE));
    }
    let mut slots = streams.iter_mut().zip(0_u8..);
    let free = slots.find(|(slot, _)| !slot.is_active());
    let (slot, index) = free.ok_or(shared.failure(Status::BUSY, StageId::NONE))?;
    slot.key.slot = index;
    slot.open(descriptor, origin, shared, pool, now, platform)
}

/// A request to a peer that was lost will never be answered.
pub(super) fn abandoned<P: Platform>(
    abandoned: &Abandoned,
    host_attached: u16,
    shared: &mut Shared,
    platform: &mut P,
) {
    let tag = Tag::from_u64(abandoned.tag);
    // Streams learn of the loss by themselves.
    if tag.purpose == Purpose::Relay && tag.generation == host_attached {
        let response = Response::status(tag.argument as u16, Status::PEER_LOST);
        shared.answer(MemberId::HOST, &response, platform);
    }
}

/// A message and all that it may concern.
pub(super) struct Dispatch<'f> {
    pub(super) shared: &'f mut Shared,
    pub(super) streams: &'f mut [Stream; STREAMS],
    pub(super) pool: &'f mut Pool,
    pub(super) descriptor: &'f mut [u8; MAX_DESCRIPTOR],
    pub(super) host_attached: u16,
    pub(super) now: u64,
}

/// A request that a peer made.
#[derive(Clone, Copy)]
struct Asked<'r> {
    from: MemberId,
    cid: u16,
    wants_response: bool,
    request: &'r Request<'r>,
}

impl Dispatch<'_> {
    /// Does what one message asks for.
    pub(super) fn arrived<P: Platform>(&mut self, arrival: &Arrival<'_>, platform: &mut P) {
        match arrival {
            Arrival::Request {
                from,
                cid,
                wants_response,
                request,
            } => {
                let asked = Asked {
                    from: *from,
                    cid: *cid,
                    wants_response: *wants_response,
                    request,
                };
                self.asked(asked, platform);
            }
            Arrival::Response {
                from,
                tag,
                response,
            } => self.answered(*from, Tag::from_u64(*tag), response, platform),
            Arrival::Late => {}
        }
    }

    fn asked<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) {
        let result = match asked.request.opcode {
            Opcode::PING => self.ping(asked, platform),
            Opcode::SEND => self.send(asked, platform),
            Opcode::HOLD => self.hold(asked, platform),
            // The rest makes sense only to someone who waits for the answer.
            _ if !asked.wants_response => Err(Status::BAD_ENTRY),
            Opcode::RELAY => self.relay(asked, platform),
            Opcode::OPEN => {
                self.open(asked, platform);
                return;
            }
            Opcode::DATA => self.data(asked, platform),
            Opcode::CANCEL => self.cancel(asked, platform),
            _ => Err(Status::UNKNOWN_OPCODE),
        };
        if let Err(status) = result {
            self.shared.stats.refused = self.shared.stats.refused.wrapping_add(1);
            if asked.wants_response {
                let failure = self.shared.failure(status, StageId::NONE);
                self.shared
                    .refuse(asked.from, asked.cid, &failure, platform);
            }
        }
    }

    fn reply<P: Platform>(&mut self, asked: Asked<'_>, inline: &[u8], platform: &mut P) {
        if asked.wants_response {
            let response = Response {
                inline,
                ..Response::status(asked.cid, Status::OK)
            };
            self.shared.answer(asked.from, &response, platform);
        }
    }

    fn ping<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) -> Result<(), Status> {
        let payload = asked.request.payload().ok_or(Status::BAD_ENTRY)?;
        self.shared.stats.pings = self.shared.stats.pings.wrapping_add(1);
        self.reply(asked, payload, platform);
        Ok(())
    }

    fn send<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) -> Result<(), Status> {
        let payload = asked.request.payload().ok_or(Status::BAD_ENTRY)?;
        if !platform.inbox(asked.from, payload) {
            return Err(Status::BUSY);
        }
        self.shared.stats.sends = self.shared.stats.sends.wrapping_add(1);
        self.reply(asked, &[], platform);
        Ok(())
    }

    fn relay<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) -> Result<(), Status> {
        let payload = asked.request.payload().ok_or(Status::BAD_ENTRY)?;
        let opcode = u8::try_from(asked.request.hop).map(Opcode);
        let to = u16::try_from(asked.request.arg32).ok();
        let to = to.and_then(MemberId::new).ok_or(Status::BAD_ENTRY)?;
        let relayed = match opcode {
            Ok(Opcode::PING) => Request::ping(payload),
            Ok(Opcode::SEND) => Request::send(payload),
            _ => return Err(Status::BAD_ENTRY),
        };
        if !asked.from.is_host() || to == self.shared.me {
            return Err(Status::BAD_ENTRY);
        }
        let tag = Tag {
            purpose: Purpose::Relay,
            slot: 0,
            generation: self.host_attached,
            argument: asked.cid.into(),
        };
        match self
            .shared
            .ipc
            .request(to, &relayed, tag.to_u64(), platform)
        {
            Ok(_) => {
                self.shared.stats.relays = self.shared.stats.relays.wrapping_add(1);
                Ok(())
            }
            Err(SendError::NoCredit) => Err(Status::BUSY),
            Err(SendError::TooLong) => Err(Status::BAD_PARAMETERS),
            Err(SendError::NotAttached) => Err(Status::PEER_LOST),
            Err(SendError::Fault(fault)) => {
                self.shared.lose(to, fault, platform);
                Err(Status::PEER_LOST)
            }
        }
    }

    fn hold<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) -> Result<(), Status> {
        let Request { stream, hop, .. } = *asked.request;
        let mut slots = self.streams.iter_mut();
        let slot = slots.find(|slot| slot.is(stream, hop));
        // A stream that has just ended is no fault of the sender.
        if let Some(slot) = slot.filter(|slot| slot.phase == RUNNING && slot.has_next()) {
            if slot.outlet.member == asked.from {
                slot.held(self.shared, self.now, platform);
            }
        }
        self.reply(asked, &[], platform);
        Ok(())
    }

    fn open<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) {
        if let Err(failure) = self.try_open(asked, platform) {
            self.shared.stats.refused = self.shared.stats.refused.wrapping_add(1);
            self.shared
                .refuse(asked.from, asked.cid, &failure, platform);
        }
    }

    fn try_open<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) -> Result<(), Failure> {
        let me = self.shared.me;
        let failure = |status| Failure::new(status, me, StageId::NONE);
        let body = DataBody::parse(asked.request.data).ok_or(failure(Status::BAD_ENTRY))?;
        let place = WindowRef {
            window: body.window(),
            offset: body.offset(),
        };
        let at = self
            .shared
            .windows
            .resolve_owned(me, asked.from, place, body.length().into())
            .map_err(|_| failure(Status::NOT_GRANTED))?;
        let copy = self.descriptor.get_mut(..body.length() as usize);
        let copy = copy.ok_or(failure(Status::BAD_DESCRIPTOR))?;
        platform
            .read(at, copy)
            .map_err(|_| failure(Status::FABRIC_ERROR))?;
        let descriptor = Descriptor::parse(copy).map_err(|_| failure(Status::BAD_DESCRIPTOR))?;
        let Request { stream, hop, .. } = *asked.request;
        if (descriptor.stream(), descriptor.first_hop()) != (stream, hop) {
            return Err(failure(Status::BAD_DESCRIPTOR));
        }
        let origin = Origin::Open(asked.from, asked.cid);
        open_stream(
            &descriptor,
            origin,
            self.streams,
            self.shared,
            self.pool,
            self.now,
            platform,
        )
    }

    fn data<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) -> Result<(), Status> {
        let Request { stream, hop, .. } = *asked.request;
        let body = DataBody::parse(asked.request.data).ok_or(Status::BAD_ENTRY)?;
        let place = WindowRef {
            window: body.window(),
            offset: body.offset(),
        };
        let granted = self.shared.windows.resolve_owned(
            self.shared.me,
            asked.from,
            place,
            body.length().into(),
        );
        let mut slots = self.streams.iter_mut();
        let slot = slots.find(|slot| slot.is(stream, hop) && slot.upstream == asked.from);
        let slot = slot.ok_or(Status::NO_STREAM)?;
        match slot.phase {
            FAILED => {
                slot.refuse(asked.cid, self.shared, platform);
                return Ok(());
            }
            RUNNING => {}
            _ => return Err(Status::BAD_ENTRY),
        }
        granted.map_err(|_| Status::NOT_GRANTED)?;
        slot.inlet.accept(asked.cid, &body, asked.request.more)?;
        slot.progress_at = self.now;
        Ok(())
    }

    /// A stream that has ended or was never opened is cancelled already.
    fn cancel<P: Platform>(&mut self, asked: Asked<'_>, platform: &mut P) -> Result<(), Status> {
        let Request { stream, hop, .. } = *asked.request;
        let failure = self.shared.failure(Status::CANCELLED, StageId::NONE);
        let mut slots = self.streams.iter_mut();
        let Some(slot) = slots.find(|slot| slot.is(stream, hop)) else {
            self.reply(asked, &[], platform);
            return Ok(());
        };
        if slot.is_source() || slot.upstream != asked.from || slot.cancel.is_due() {
            return Err(Status::NO_STREAM);
        }
        slot.cancel = Due::now(asked.cid);
        slot.fail(failure);
        Ok(())
    }

    fn answered<P: Platform>(
        &mut self,
        from: MemberId,
        tag: Tag,
        response: &Response<'_>,
        platform: &mut P,
    ) {
        if tag.purpose == Purpose::Relay {
            if tag.generation == self.host_attached {
                let response = Response {
                    cid: tag.argument as u16,
                    ..*response
                };
                self.shared.answer(MemberId::HOST, &response, platform);
            }
            return;
        }
        let slot = self.streams.get_mut(usize::from(tag.slot));
        let known = |slot: &&mut Stream| {
            slot.is_active() && slot.key.generation == tag.generation && slot.outlet.member == from
        };
        let Some(slot) = slot.filter(known) else {
            return;
        };
        match tag.purpose {
            Purpose::Open => slot.opened(from, response, self.now),
            Purpose::Data => slot.handed_on(from, tag.argument, response, self.now),
            // Whatever it says: the next hop does not hold the stream any more.
            Purpose::Cancel => slot.next = NEXT_GONE,
            Purpose::Relay => {}
        }
    }
}
