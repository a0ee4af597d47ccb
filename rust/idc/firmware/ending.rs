// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How a stream ends: well, or early and in order, so that nobody writes into memory that was
//! given back. And what it reports on the way.
//!
//! Owns the order of an early end: requests of the hop before are refused at once, the next hop is
//! cancelled, storage is waited for, and only then the hop before has its CANCEL answered, or the
//! host its command. So an answered CANCEL means that nothing behind it touches memory any more.

use super::super::entry::{Opcode, Request};
use super::super::function::Function as _;
use super::super::memory::Fault;
use super::super::pipeline::report::{
    sink_slot, stage_slot, Report, State, REPORT_BYTES, SOURCE_SLOT,
};
use super::super::status::{Completion, StageId, Status};
use super::chain::Pool;
use super::inlet::Inlet;
use super::outlet::{Outlet, NO_OUTLET};
use super::platform::Platform;
use super::shared::{Purpose, Sent, Shared, Tag};
use super::stream::{Stream, FAILED, FREE, NEXT_GONE, NEXT_UNASKED};

impl Stream {
    /// All is delivered: tells whoever waits, and frees the slot.
    pub(super) fn finish<P: Platform>(
        &mut self,
        shared: &mut Shared,
        pool: &mut Pool,
        platform: &mut P,
    ) {
        let bytes_out = self.outlet.result_bytes;
        // The answer that follows is in the reports already.
        let answers = u32::from(self.last_data.is_due());
        self.messages = self.messages.wrapping_add(answers);
        // The reports and the announcement of the result lie in host memory, the answer goes another
        // way: they must be there first. If they cannot be, the host notices by itself.
        let _ = self.write_reports(shared, pool, platform);
        let _ = platform.flush(self.report.memory);
        if self.is_source() {
            let completion = Completion {
                bytes_out,
                ..Completion::default()
            };
            platform.complete(self.command, &completion);
        } else if let Some(cid) = self.last_data.take() {
            self.answer(cid, bytes_out, shared, platform);
        }
        shared.stats.streams_done = shared.stats.streams_done.wrapping_add(1);
        self.free(pool, platform);
    }

    /// One step of an early end. Returns whether anything happened.
    pub(super) fn wind_down<P: Platform>(
        &mut self,
        shared: &mut Shared,
        pool: &mut Pool,
        now: u64,
        platform: &mut P,
    ) -> bool {
        let mut any = false;
        if !self.winding_down {
            self.winding_down = true;
            self.progress_at = now;
            any = true;
            if self.is_source() {
                platform.failing(self.command, &self.failure);
            }
        }
        if let Some(cid) = self.open.take() {
            self.refuse(cid, shared, platform);
        }
        while let Some(cid) = self.inlet.drop_chunk() {
            self.refuse(cid, shared, platform);
        }
        if let Some(cid) = self.last_data.take() {
            self.refuse(cid, shared, platform);
        }
        any |= self.cancel_next(shared, now, platform);
        if self.next != NEXT_GONE || self.uses_storage() {
            return any;
        }
        let awaited = self.is_source() || self.cancel.is_due();
        if !awaited && !self.upstream_lost && !self.aborted {
            // The hop before was told by the answer to OPEN or to its data, or will be by the
            // answer to its next data; then it cancels.
            return any;
        }
        self.settle(platform);
        let answers = u32::from(self.cancel.is_due());
        self.messages = self.messages.wrapping_add(answers);
        let _ = self.write_reports(shared, pool, platform);
        let _ = platform.flush(self.report.memory);
        if self.is_source() {
            let completion = Completion {
                failure: self.failure,
                bytes_out: self.outlet.written,
            };
            platform.complete(self.command, &completion);
        }
        if let Some(cid) = self.cancel.take() {
            self.answer(cid, 0, shared, platform);
        }
        shared.stats.streams_failed = shared.stats.streams_failed.wrapping_add(1);
        self.free(pool, platform);
        true
    }

    /// Has what this hop wrote arrive: into the next hop's buffers, the result's ring or the sink's
    /// buffers. A next hop that answers vouches for it; one that was never asked or is silent does
    /// not, and whoever hears of the end may give the memory to somebody else.
    pub(super) fn settle<P: Platform>(&self, platform: &mut P) {
        if self.outlet.kind != NO_OUTLET {
            // An error means that the memory is gone, and then nothing can arrive there.
            let _ = platform.flush(self.outlet.base.memory);
        }
    }

    /// Has the next hop drop the stream. A next hop that was never asked is gone already; one that
    /// does not answer within the deadline counts as gone.
    fn cancel_next<P: Platform>(
        &mut self,
        shared: &mut Shared,
        now: u64,
        platform: &mut P,
    ) -> bool {
        if self.next == NEXT_GONE {
            return false;
        }
        if !self.has_next() || self.next == NEXT_UNASKED || self.aborted {
            self.next = NEXT_GONE;
            return true;
        }
        let next = self.outlet.member;
        if now.saturating_sub(self.progress_at) >= self.deadline {
            shared.ipc.forget(next, self.asked_open);
            if self.cancel_sent {
                shared.ipc.forget(next, self.asked_cancel);
            }
            self.next = NEXT_GONE;
            return true;
        }
        if self.cancel_sent {
            return false;
        }
        let (stream, hop) = (self.key.stream, self.outlet.hop);
        let request = Request::stream(Opcode::CANCEL, stream, hop, &[]);
        let tag = Tag::of(&self.key, Purpose::Cancel, 0);
        match shared.ask(next, &request, tag, platform) {
            Sent::Yes(cid) => {
                self.cancel_sent = true;
                self.asked_cancel = cid;
                self.messages = self.messages.wrapping_add(1);
                true
            }
            Sent::NotNow => false,
            Sent::Lost => {
                self.next = NEXT_GONE;
                true
            }
        }
    }

    /// Answers a request of the hop before with the failure.
    pub(super) fn refuse<P: Platform>(&mut self, cid: u16, shared: &mut Shared, platform: &mut P) {
        if !self.upstream_lost {
            shared.refuse(self.upstream, cid, &self.failure, platform);
            self.messages = self.messages.wrapping_add(1);
        }
    }

    /// Frees the slot.
    pub(super) fn free<P: Platform>(&mut self, pool: &mut Pool, platform: &mut P) {
        self.chain.clear(pool);
        platform.close_scratch(self.key.slot.into());
        self.inlet = Inlet::default();
        self.outlet = Outlet::default();
        self.phase = FREE;
        self.key.generation = self.key.generation.wrapping_add(1);
    }

    /// Writes the slots of what runs here.
    pub(super) fn write_reports<P: Platform>(
        &mut self,
        shared: &Shared,
        pool: &mut Pool,
        platform: &mut P,
    ) -> Result<(), Fault> {
        self.reported = self.inlet.chunks.wrapping_add(self.outlet.chunks);
        self.updates = self.updates.wrapping_add(1);
        // The hop's messages are counted once, in the first of its slots.
        let mut messages = self.messages.wrapping_add(self.outlet.messages);
        let mut report = Report {
            member: shared.me,
            updates: self.updates,
            ..Report::default()
        };
        if self.is_source() {
            report.bytes_in = self.inlet.taken;
            report.bytes_out = self.inlet.taken;
            report.chunks = self.inlet.chunks;
            report.messages = core::mem::take(&mut messages);
            let done = self.inlet.is_drained();
            self.write_report(SOURCE_SLOT, StageId::SOURCE, done, &mut report, platform)?;
        }
        for (stage, number) in self.chain.stages().iter().zip(self.first_stage..) {
            if let Some(state) = pool.get(stage.state.into()) {
                report.function = state.id().map_or(0, |id| id.to_wire());
                report.result = state.result().to_wire();
            }
            report.bytes_in = stage.bytes_in;
            report.bytes_out = stage.bytes_out;
            report.chunks = self.inlet.chunks;
            report.messages = core::mem::take(&mut messages);
            let slot = stage_slot(number.into());
            self.write_report(slot, StageId(number), stage.done, &mut report, platform)?;
        }
        if !self.has_next() {
            report.function = 0;
            report.result = [0; 2];
            report.bytes_in = self.outlet.written;
            report.bytes_out = self.outlet.written;
            report.chunks = self.outlet.chunks;
            report.messages = core::mem::take(&mut messages);
            let slot = sink_slot(self.all_stages.into());
            self.write_report(slot, StageId::SINK, self.outlet.done, &mut report, platform)?;
        }
        Ok(())
    }

    fn write_report<P: Platform>(
        &self,
        slot: usize,
        stage: StageId,
        done: bool,
        report: &mut Report,
        platform: &mut P,
    ) -> Result<(), Fault> {
        report.state = if done {
            State::Done
        } else if self.phase == FAILED {
            State::Failed
        } else {
            State::Running
        };
        let here = self.failure.member == report.member && self.failure.stage == stage;
        report.status = if here {
            self.failure.status
        } else {
            Status::OK
        };
        let mut bytes = [0; REPORT_BYTES];
        report.encode(&mut bytes);
        let offset = slot.saturating_mul(REPORT_BYTES) as u64;
        let at = self.report.at(offset).ok_or(Fault::OutOfRange)?;
        platform.publish(at, &bytes)
    }
}
