// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One hop of one pipeline at this member: how it opens and how data moves through it.
//!
//! Owns the slot's state. How it ends is in `ending`, how it is opened in `opening`. Never waits and
//! never moves more than a bounded amount at a time.

use super::super::entry::{DataBody, Opcode, Request, Response};
use super::super::function::{CryptoError, FunctionError};
use super::super::member::{Location, MemberId};
use super::super::status::{Failure, StageId, Status};
use super::chain::{Chain, Pool, StageError};
use super::inlet::{Head, Inlet};
use super::outlet::{memory_failure, Outlet, HOST_WINDOW, NAMESPACE, NEXT_HOP};
use super::platform::Platform;
use super::shared::{Key, Purpose, Sent, Shared, Tag};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The slot is free.
pub(super) const FREE: u8 = 0;
/// The next hop has not accepted yet.
pub(super) const OPENING: u8 = 1;
/// Data moves.
pub(super) const RUNNING: u8 = 2;
/// It failed, and waits until nobody uses its memory any more.
pub(super) const FAILED: u8 = 3;

/// The next hop was not asked yet.
pub(super) const NEXT_UNASKED: u8 = 0;
/// OPEN is on its way.
pub(super) const NEXT_ASKED: u8 = 1;
/// It has answered, and may hold the stream.
pub(super) const NEXT_OPEN: u8 = 2;
/// It is done, was cancelled or is lost.
pub(super) const NEXT_GONE: u8 = 3;

/// Buffers' worth of data that one poll moves through one stream.
const ROUNDS: usize = 8;

/// A request that is still to be answered.
#[derive(Clone, Copy, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Due {
    cid: u16,
    is_due: bool,
}

impl Due {
    pub(super) fn now(cid: u16) -> Self {
        Due { cid, is_due: true }
    }

    pub(super) fn is_due(self) -> bool {
        self.is_due
    }

    /// The request to answer now, once.
    pub(super) fn take(&mut self) -> Option<u16> {
        core::mem::take(&mut self.is_due).then_some(self.cid)
    }
}

/// A hop slot.
#[derive(FromZeros, Immutable, KnownLayout)]
pub(super) struct Stream {
    pub(super) phase: u8,
    pub(super) next: u8,
    pub(super) key: Key,
    /// Who sends the data; the host at the first hop.
    pub(super) upstream: MemberId,
    /// The rings to `upstream` are gone.
    pub(super) upstream_lost: bool,
    /// It was aborted: it ends without the peers' consent.
    pub(super) aborted: bool,
    /// The end of the pipeline was prepared, the deadline for it runs.
    pub(super) winding_down: bool,
    /// First hop: the command.
    pub(super) command: u32,
    pub(super) open: Due,
    pub(super) last_data: Due,
    pub(super) cancel: Due,
    /// Our own CANCEL and OPEN to the next hop.
    pub(super) asked_open: u16,
    pub(super) asked_cancel: u16,
    pub(super) cancel_sent: bool,
    /// A storage request has ended since the last look.
    pub(super) storage_ended: bool,
    pub(super) first_stage: u16,
    pub(super) all_stages: u16,
    /// Bytes of the descriptor that waits in the next hop's buffer.
    pub(super) descriptor_len: u32,
    /// Longest time without progress, in ns, with the allowance for the hops after this one.
    pub(super) deadline: u64,
    pub(super) hold_every: u64,
    pub(super) progress_at: u64,
    pub(super) hold_at: u64,
    /// Entries sent, but for DATA.
    pub(super) messages: u32,
    /// Reports: chunks at the last one, how many, where.
    pub(super) reported: u32,
    pub(super) updates: u64,
    pub(super) report: Location,
    pub(super) failure: Failure,
    pub(super) inlet: Inlet,
    pub(super) outlet: Outlet,
    pub(super) chain: Chain,
}

/// Whom a stream waits for that the deadline holds to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Waiting {
    Nobody,
    Next,
    Source,
    Sink,
}

impl Stream {
    pub(super) fn is_active(&self) -> bool {
        self.phase != FREE
    }

    /// Whether it is this hop of this pipeline.
    pub(super) fn is(&self, stream: u32, hop: u16) -> bool {
        self.is_active() && self.key.stream == stream && self.key.hop == hop
    }

    pub(super) fn is_source(&self) -> bool {
        self.inlet.is_source
    }

    pub(super) fn has_next(&self) -> bool {
        self.outlet.kind == NEXT_HOP
    }

    /// The first stage after this hop.
    pub(super) fn next_stage(&self) -> StageId {
        let own = self.chain.stages().len() as u16;
        let next = self.first_stage.saturating_add(own);
        if next < self.all_stages {
            StageId(next)
        } else {
            StageId::SINK
        }
    }

    /// Storage requests in flight.
    pub(super) fn uses_storage(&self) -> bool {
        let writes = self.outlet.kind == NAMESPACE && self.outlet.in_flight();
        writes || self.inlet.in_flight() != 0
    }

    pub(super) fn waiting(&self) -> Waiting {
        let out = self.outlet.in_flight() || self.outlet.is_held_up();
        if self.phase == OPENING || (self.has_next() && out) {
            Waiting::Next
        } else if self.outlet.kind == HOST_WINDOW && self.outlet.awaits_host {
            Waiting::Nobody
        } else if self.outlet.kind == NAMESPACE && out {
            Waiting::Sink
        } else if self.inlet.awaits_storage() {
            Waiting::Source
        } else {
            Waiting::Nobody
        }
    }

    /// Ends the stream early, for the first reason only.
    pub(super) fn fail(&mut self, failure: Failure) {
        if self.is_active() && self.phase != FAILED {
            self.failure = failure;
            self.phase = FAILED;
        }
    }

    /// One bounded step. Returns whether anything happened.
    pub(super) fn run<P: Platform>(
        &mut self,
        shared: &mut Shared,
        pool: &mut Pool,
        now: u64,
        platform: &mut P,
    ) -> bool {
        let moved = match self.phase {
            FREE => return false,
            OPENING => Ok(self.ask_next(shared, platform)),
            RUNNING => self.flow(shared, pool, platform),
            _ => return self.wind_down(shared, pool, now, platform),
        };
        let storage_ended = core::mem::take(&mut self.storage_ended);
        match moved {
            Ok(moved) if moved || storage_ended => self.progress_at = now,
            Ok(_) => self.check_deadline(shared, now),
            Err(failure) => self.fail(failure),
        }
        self.hold(shared, now, platform);
        if self.phase == FAILED {
            return self.wind_down(shared, pool, now, platform) || self.is_active();
        }
        if self.phase == RUNNING && self.outlet.done {
            self.finish(shared, pool, platform);
            return true;
        }
        moved == Ok(true)
    }

    /// When it must be looked at even if nothing happens.
    pub(super) fn wake_at(&self) -> Option<u64> {
        let deadline = self.progress_at.saturating_add(self.deadline);
        match self.phase {
            FREE => None,
            FAILED => (self.next != NEXT_GONE).then_some(deadline),
            _ if self.outlet.awaits_host && !self.is_source() => Some(self.hold_at),
            _ if self.waiting() == Waiting::Nobody => None,
            _ => Some(deadline),
        }
    }

    fn check_deadline(&mut self, shared: &Shared, now: u64) {
        if now.saturating_sub(self.progress_at) < self.deadline {
            return;
        }
        let failure = match self.waiting() {
            Waiting::Nobody => return,
            Waiting::Next => Failure::new(Status::DEADLINE, self.outlet.member, self.next_stage()),
            Waiting::Source => shared.failure(Status::DEADLINE, StageId::SOURCE),
            Waiting::Sink => shared.failure(Status::DEADLINE, StageId::SINK),
        };
        self.fail(failure.with_offset(self.outlet.written));
    }

    /// Tells the hop before that the host is slow, not we; or that all goes on here, though the
    /// answer to its last chunk has to wait for the end.
    fn hold<P: Platform>(&mut self, shared: &mut Shared, now: u64, platform: &mut P) {
        let goes_on = self.outlet.awaits_host || self.progress_at == now;
        if self.phase != RUNNING {
            self.hold_at = now.saturating_add(self.hold_every);
        } else if goes_on && now >= self.hold_at && !self.is_source() {
            self.pass_hold(shared, platform);
            self.hold_at = now.saturating_add(self.hold_every);
        }
    }

    fn pass_hold<P: Platform>(&mut self, shared: &mut Shared, platform: &mut P) {
        let hop = self.key.hop.wrapping_sub(1);
        let request = Request::stream(Opcode::HOLD, self.key.stream, hop, &[]);
        // Without credit the next one will do.
        if shared.ipc.notice(self.upstream, &request, platform).is_ok() {
            self.messages = self.messages.wrapping_add(1);
        }
    }

    /// The next hop says that it is at work, or that the host is slow.
    pub(super) fn held<P: Platform>(&mut self, shared: &mut Shared, now: u64, platform: &mut P) {
        self.progress_at = now;
        if !self.is_source() {
            self.pass_hold(shared, platform);
            self.hold_at = now.saturating_add(self.hold_every);
        }
    }

    /// Asks the next hop to open; its descriptor lies there already.
    fn ask_next<P: Platform>(&mut self, shared: &mut Shared, platform: &mut P) -> bool {
        if self.next != NEXT_UNASKED {
            return false;
        }
        let place = self.outlet.place;
        let body = DataBody::new(place.window, place.offset, self.descriptor_len, 0, 0);
        let hop = self.outlet.hop;
        let request = Request::stream(Opcode::OPEN, self.key.stream, hop, body.as_data());
        let tag = Tag::of(&self.key, Purpose::Open, 0);
        match shared.ask(self.outlet.member, &request, tag, platform) {
            Sent::Yes(cid) => {
                self.next = NEXT_ASKED;
                self.asked_open = cid;
                self.messages = self.messages.wrapping_add(1);
                true
            }
            Sent::NotNow | Sent::Lost => false,
        }
    }

    /// The next hop has answered OPEN.
    pub(super) fn opened(&mut self, from: MemberId, response: &Response<'_>, now: u64) {
        self.progress_at = now;
        // A hop that refused is cancelled all the same: the hops behind it may have opened.
        self.next = NEXT_OPEN;
        if response.status.is_ok() {
            if self.phase == OPENING {
                self.phase = RUNNING;
            }
        } else {
            self.fail(Failure::from_wire(response.status, response.inline, from));
        }
    }

    /// The next hop has answered DATA.
    pub(super) fn handed_on(
        &mut self,
        from: MemberId,
        argument: u32,
        response: &Response<'_>,
        now: u64,
    ) {
        self.progress_at = now;
        if response.status.is_ok() {
            self.outlet.data_done(argument, response.result);
            if self.outlet.done {
                self.next = NEXT_GONE;
            }
        } else {
            self.fail(Failure::from_wire(response.status, response.inline, from));
        }
    }

    fn flow<P: Platform>(
        &mut self,
        shared: &mut Shared,
        pool: &mut Pool,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        let mut any = false;
        if let Some(cid) = self.open.take() {
            self.answer(cid, 0, shared, platform);
            any = true;
        }
        any |= self.inlet.read_ahead(&self.key, shared, platform)?;
        any |= self.outlet.hand_on(&self.key, shared, platform)?;
        let slot = usize::from(self.key.slot);
        let lost = shared.failure(Status::INTERNAL, StageId::NONE);
        let mut scratch = platform.take_scratch(slot).ok_or(lost)?;
        let moved = self.pump(scratch.as_mut(), shared, pool, platform);
        platform.give_scratch(slot, scratch);
        any |= moved?;
        any |= self.outlet.announce(shared, platform)?;
        if self.chain.is_done(self.inlet.is_drained()) {
            any |= self.outlet.close(&self.key, shared, platform)?;
        }
        any |= self.inlet.read_ahead(&self.key, shared, platform)?;
        if self.inlet.chunks.wrapping_add(self.outlet.chunks) != self.reported {
            self.write_reports(shared, pool, platform)
                .map_err(|fault| {
                    memory_failure(shared, self.report.memory, fault, StageId::NONE)
                })?;
        }
        Ok(any)
    }

    fn pump<P: Platform>(
        &mut self,
        scratch: &mut [u8],
        shared: &mut Shared,
        pool: &mut Pool,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        let mut any = false;
        for _ in 0..ROUNDS {
            let mut moved = self.fill(scratch, shared, platform)?;
            let last = self.inlet.is_drained();
            let crypto: &mut dyn super::super::function::Crypto = platform;
            moved |= self
                .chain
                .step(scratch, last, pool, crypto)
                .map_err(|error| self.stage_failure(shared, &error))?;
            loop {
                let output = self.chain.output(scratch);
                if output.is_empty() {
                    self.outlet.awaits_host = false;
                    break;
                }
                let put = self.outlet.put(output, &self.key, shared, platform)?;
                if put == 0 {
                    break;
                }
                self.chain.take(put);
                moved = true;
            }
            any |= moved;
            if !moved {
                break;
            }
        }
        Ok(any)
    }

    /// Fills the first buffer, and answers the requests whose chunks were taken.
    fn fill<P: Platform>(
        &mut self,
        scratch: &mut [u8],
        shared: &mut Shared,
        platform: &mut P,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            match self.inlet.settle(shared)? {
                Head::Data(at, left) => {
                    let room = self.chain.input(scratch);
                    let fitting = room.len().min(left);
                    let Some(room) = room.get_mut(..fitting).filter(|room| !room.is_empty()) else {
                        break;
                    };
                    platform
                        .read(at, room)
                        .map_err(|fault| memory_failure(shared, at.memory, fault, StageId::NONE))?;
                    self.chain.put(fitting);
                    self.inlet.take(fitting);
                }
                Head::Taken { .. } if self.is_source() => {}
                Head::Taken { cid, last: true } => self.last_data = Due::now(cid),
                Head::Taken { cid, last: false } => self.answer(cid, 0, shared, platform),
                Head::Wait | Head::End => break,
            }
            moved = true;
        }
        Ok(moved)
    }

    fn stage_failure(&self, shared: &Shared, error: &StageError) -> Failure {
        let status = match error.error {
            FunctionError::RecordTooLong { .. } => Status::FUNCTION_ERROR,
            FunctionError::Crypto(CryptoError::NoKey) => Status::NO_KEY,
            FunctionError::OffsetOverflow => Status::RANGE,
            FunctionError::Crypto(CryptoError::Failed)
            | FunctionError::NotStarted
            | FunctionError::Ended
            | FunctionError::Scratch => Status::INTERNAL,
        };
        let stage = self.first_stage.saturating_add(error.stage as u16);
        shared
            .failure(status, StageId(stage))
            .with_code(error.error.code().into())
            .with_offset(error.error.detail())
    }

    /// Answers a request of the hop before with success.
    pub(super) fn answer<P: Platform>(
        &mut self,
        cid: u16,
        result: u64,
        shared: &mut Shared,
        platform: &mut P,
    ) {
        if self.upstream_lost {
            return;
        }
        let response = Response {
            cid,
            status: Status::OK,
            result,
            inline: &[],
        };
        shared.answer(self.upstream, &response, platform);
        self.messages = self.messages.wrapping_add(1);
    }
}
