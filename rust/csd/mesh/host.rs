// SPDX-License-Identifier: GPL-2.0

//! The host as a member of a mesh: member 0, with a ring to and from every drive.
//!
//! Owns the host's ends of these rings and the calls that wait for an answer. Whoever rings the
//! host's bell serves the rings right there, so that an idle mesh needs no thread for it. Never
//! carries pipeline data.

use super::{
    bus::Bus,
    inbox::Inbox, //
};
use crate::{
    idc::{
        entry::{
            Opcode,
            Request,
            Response, //
        },
        ipc::{
            Arrival,
            Ipc,
            SendError, //
        },
        member::{
            MemberId,
            MemberSet, //
        },
        mesh::MeshTable,
        ring::{
            PeerFault,
            RingCounters, //
        },
        status::{
            Failure,
            Status, //
        }, //
    },
    sys::{
        boxes::zeroed_vbox,
        time::{
            now_ns,
            Timer, //
        }, //
    }, //
};
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        CondVar,
        Mutex, //
    }, //
};

/// How often a sender without credit looks again, in milliseconds.
const CREDIT_STEP_MS: u32 = 4;

enum Progress {
    Waiting,
    Answered(Status),
    Lost,
}

/// A call whose answer has not been taken yet.
struct Call {
    tag: u64,
    progress: Progress,
    /// The answer's payload, cut to the capacity that the caller asked for.
    answer: KVec<u8>,
    /// Its length, uncut.
    len: usize,
}

struct End {
    ipc: KVBox<Ipc>,
    calls: KVec<Call>,
    /// One entry, copied out of a ring.
    entry: KVec<u8>,
    /// Drives whose rings broke the protocol; they are detached.
    fenced: MemberSet,
    last_tag: u64,
    closed: Option<Error>,
}

impl End {
    fn position(&self, tag: u64) -> Option<usize> {
        self.calls.iter().position(|call| call.tag == tag)
    }

    fn forget(&mut self, tag: u64) {
        if let Some(position) = self.position(tag) {
            let _ = self.calls.remove(position);
        }
    }
}

/// What came back.
pub(crate) struct Answer {
    /// The answer's NVMe status.
    pub(crate) status: Status,
    /// Its payload, at most as long as asked for.
    pub(crate) payload: KVec<u8>,
    /// How long it was.
    pub(crate) len: usize,
    /// Time from the push to the answer.
    pub(crate) rtt_ns: u64,
}

/// The host's ends.
#[pin_data]
pub(crate) struct Host {
    #[pin]
    end: Mutex<End>,
    #[pin]
    changed: CondVar,
    /// Nobody notifies it: for waits that only time ends.
    #[pin]
    pause: CondVar,
    /// Messages sent to the host.
    #[pin]
    pub(crate) inbox: Inbox,
}

impl Host {
    /// The ends of all host rings in `table`, whose memory is clear.
    ///
    /// # Errors
    ///
    /// - ENOMEM, EINVAL if the table is not complete.
    pub(crate) fn new(table: &MeshTable) -> Result<impl PinInit<Self, Error>> {
        let mut ipc = zeroed_vbox::<Ipc>()?;
        ipc.init(MemberId::HOST);
        let shape = table.shape();
        for peer in MemberId::all(shape.drives).filter(|member| !member.is_host()) {
            let outgoing = table.ring(MemberId::HOST, peer).map_err(|_| EINVAL)?;
            let incoming = table.ring(peer, MemberId::HOST).map_err(|_| EINVAL)?;
            ipc.attach(peer, &outgoing, &incoming).map_err(|_| EINVAL)?;
        }
        let entry = KVec::from_elem(0u8, shape.entry_bytes as usize, GFP_KERNEL)?;
        Ok(try_pin_init!(Self {
            end <- new_mutex!(End {
                ipc,
                calls: KVec::new(),
                entry,
                fenced: MemberSet::NONE,
                last_tag: 0,
                closed: None,
            }, "csd_host"),
            changed <- new_condvar!("csd_host"),
            pause <- new_condvar!("csd_host_pause"),
            inbox <- Inbox::new(),
        }))
    }

    /// Sends `request` to `to` and waits for the answer, of which at most `room` bytes are kept.
    ///
    /// # Errors
    ///
    /// - ENODEV if `to` is lost, EMSGSIZE if the payload does not fit an entry,
    /// - EAGAIN without credit and ETIMEDOUT without an answer within `timeout_ms`, EINTR,
    /// - what the host's end was closed with.
    pub(crate) fn call(
        &self,
        bus: &Bus,
        to: MemberId,
        request: &Request<'_>,
        room: usize,
        timeout_ms: u32,
    ) -> Result<Answer> {
        self.call_once(bus, to, request, room, &mut Timer::start(timeout_ms))
    }

    /// Has `over` send what `request` tells it to, and waits for the answer as [`Host::call`] does.
    /// While `over` itself has no credit it is asked again.
    ///
    /// # Errors
    ///
    /// - As [`Host::call`].
    pub(crate) fn relay(
        &self,
        bus: &Bus,
        over: MemberId,
        request: &Request<'_>,
        room: usize,
        timeout_ms: u32,
    ) -> Result<Answer> {
        let mut timer = Timer::start(timeout_ms);
        // A drive that refuses says who it is.
        let room = room.max(Failure::WIRE_BYTES);
        loop {
            let answer = self.call_once(bus, over, request, room, &mut timer)?;
            let refused = answer.status == Status::BUSY
                && Failure::from_wire(answer.status, &answer.payload, MemberId::HOST).member
                    == over;
            if !refused {
                return Ok(answer);
            }
            let mut end = self.end.lock();
            timer
                .wait_step(&self.pause, &mut end, CREDIT_STEP_MS)
                .map_err(|error| if error == ETIMEDOUT { EAGAIN } else { error })?;
        }
    }

    fn call_once(
        &self,
        bus: &Bus,
        to: MemberId,
        request: &Request<'_>,
        room: usize,
        timer: &mut Timer,
    ) -> Result<Answer> {
        let mut answer = KVec::with_capacity(room, GFP_KERNEL)?;
        let mut end = self.end.lock();
        end.calls.reserve(1, GFP_KERNEL)?;
        end.last_tag = end.last_tag.wrapping_add(1);
        let tag = end.last_tag;

        let mut started = now_ns();
        let cid = self.push(&mut end, timer, |end| {
            started = now_ns();
            end.ipc.request(to, request, tag, &mut bus.access())
        })?;
        answer.clear();
        let call = Call {
            tag,
            progress: Progress::Waiting,
            answer,
            len: 0,
        };
        // Others may have taken the reserved place while this one waited for credit.
        if end.calls.push(call, GFP_KERNEL).is_err() {
            end.ipc.forget(to, cid);
            return Err(ENOMEM);
        }

        loop {
            let Some(position) = end.position(tag) else {
                return Err(EIO);
            };
            let status = match end.calls.get(position).map(|call| &call.progress) {
                Some(Progress::Answered(status)) => Some(*status),
                Some(Progress::Lost) => None,
                Some(Progress::Waiting) | None => {
                    let waited = match end.closed {
                        Some(error) => Err(error),
                        None => timer.wait(&self.changed, &mut end),
                    };
                    if let Err(error) = waited {
                        end.ipc.forget(to, cid);
                        end.forget(tag);
                        return Err(error);
                    }
                    continue;
                }
            };
            let call = end.calls.remove(position).map_err(|_| EIO)?;
            return match status {
                Some(status) => Ok(Answer {
                    status,
                    payload: call.answer,
                    len: call.len,
                    rtt_ns: now_ns().saturating_sub(started),
                }),
                None => Err(ENODEV),
            };
        }
    }

    /// Sends `request` to `to` without asking for an answer.
    ///
    /// # Errors
    ///
    /// - As [`Host::call`], apart from ETIMEDOUT.
    pub(crate) fn notice(
        &self,
        bus: &Bus,
        to: MemberId,
        request: &Request<'_>,
        timeout_ms: u32,
    ) -> Result {
        let mut timer = Timer::start(timeout_ms);
        let mut end = self.end.lock();
        self.push(&mut end, &mut timer, |end| {
            end.ipc.notice(to, request, &mut bus.access())
        })
    }

    /// Runs `attempt` until it does not lack credit any more.
    fn push<R>(
        &self,
        end: &mut kernel::sync::MutexGuard<'_, End>,
        timer: &mut Timer,
        mut attempt: impl FnMut(&mut End) -> Result<R, SendError>,
    ) -> Result<R> {
        loop {
            if let Some(error) = end.closed {
                return Err(error);
            }
            match attempt(end) {
                Ok(done) => return Ok(done),
                Err(SendError::NoCredit) => timer
                    .wait_step(&self.changed, end, CREDIT_STEP_MS)
                    .map_err(|error| if error == ETIMEDOUT { EAGAIN } else { error })?,
                Err(SendError::TooLong) => return Err(EMSGSIZE),
                Err(SendError::NotAttached) => return Err(ENODEV),
                Err(SendError::Fault(_)) => return Err(ENODEV),
            }
        }
    }

    /// Takes what `from` has sent to the host. Returns the fault if its ring broke the protocol.
    pub(crate) fn serve(&self, bus: &Bus, from: MemberId) -> Option<PeerFault> {
        let mut guard = self.end.lock();
        let End {
            ipc,
            calls,
            entry,
            fenced,
            ..
        } = &mut *guard;
        let mut access = bus.access();
        let mut fault = None;
        // One turn takes at most a ring's worth; the sender rings again for more.
        for _ in 0..crate::idc::ring::MAX_ENTRIES {
            match ipc.receive(from, &mut access, entry) {
                Ok(None) => break,
                // The answer to a call that was given up.
                Ok(Some(Arrival::Late)) => {}
                Ok(Some(Arrival::Response {
                    tag,
                    response: Response { status, inline, .. },
                    ..
                })) => {
                    if let Some(call) = calls.iter_mut().find(|call| call.tag == tag) {
                        let room = call.answer.capacity().min(inline.len());
                        for byte in inline.iter().take(room) {
                            let _ = call.answer.push_within_capacity(*byte);
                        }
                        call.len = inline.len();
                        call.progress = Progress::Answered(status);
                    }
                }
                Ok(Some(Arrival::Request {
                    cid,
                    wants_response,
                    request,
                    ..
                })) => {
                    let response = self.answer(from, cid, &request);
                    if wants_response {
                        // Without the ring there is nobody left to tell.
                        let _ = ipc.respond(from, &response, &mut access);
                    }
                }
                Err(broken) => {
                    if !matches!(broken, PeerFault::Fenced) {
                        fault = Some(broken);
                    }
                    break;
                }
            }
        }
        ipc.service(&mut access);
        if fault.is_some() {
            // The pair is of no use any more: whoever waits for this drive is told at once.
            *fenced = fenced.with(from);
            ipc.detach(from);
            Self::abandon(ipc, calls);
        }
        drop(guard);
        self.changed.notify_all();
        fault
    }

    /// What the host answers to a drive's request.
    fn answer<'a>(&self, from: MemberId, cid: u16, request: &Request<'a>) -> Response<'a> {
        let Some(payload) = request.payload() else {
            return Response::status(cid, Status::BAD_ENTRY);
        };
        match request.opcode {
            Opcode::PING => Response {
                cid,
                status: Status::OK,
                result: 0,
                inline: payload,
            },
            Opcode::SEND => {
                let accepted = self.inbox.push(from, payload);
                Response::status(cid, if accepted { Status::OK } else { Status::BUSY })
            }
            _ => Response::status(cid, Status::UNKNOWN_OPCODE),
        }
    }

    /// Marks the calls lost that nobody will answer.
    fn abandon(ipc: &mut Ipc, calls: &mut KVec<Call>) {
        while let Some(lost) = ipc.take_abandoned() {
            if let Some(call) = calls.iter_mut().find(|call| call.tag == lost.tag) {
                call.progress = Progress::Lost;
            }
        }
    }

    /// Gives up `peer`: its calls end with ENODEV.
    pub(crate) fn detach(&self, peer: MemberId) {
        let mut guard = self.end.lock();
        let End { ipc, calls, .. } = &mut *guard;
        ipc.detach(peer);
        Self::abandon(ipc, calls);
        drop(guard);
        self.changed.notify_all();
    }

    /// Ends every call and every wait for a message with `error`.
    pub(crate) fn close(&self, error: Error) {
        self.end.lock().closed = Some(error);
        self.changed.notify_all();
        self.inbox.close(error);
    }

    /// Runs `f` on the counters of the rings to and from `peer`, and whether they are fenced.
    pub(crate) fn with_rings<R>(
        &self,
        peer: MemberId,
        f: impl FnOnce(&RingCounters, &RingCounters, bool) -> R,
    ) -> Option<R> {
        let end = self.end.lock();
        let (outgoing, incoming) = end.ipc.counters(peer)?;
        let fenced = end.ipc.is_fenced(peer) || end.fenced.contains(peer);
        Some(f(outgoing, incoming, fenced))
    }

    /// Host memory of the ends, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let end = self.end.lock();
        (size_of::<Ipc>() as u64)
            .saturating_add(end.entry.len() as u64)
            .saturating_add(size_of::<Self>() as u64)
    }
}
