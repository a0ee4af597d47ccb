// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Reports: what each stage has done so far, written by its drive into host memory.
//!
//! Owns the 64-byte format. One slot has one writer. Until a pipeline has ended a reader may see
//! numbers of two moments in one slot; they are for progress displays. IDC specification, "Reports".

use super::super::function::{FunctionId, Outcome};
use super::super::member::MemberId;
use super::super::status::Status;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes as _, IntoBytes as _};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of one slot.
pub const REPORT_BYTES: usize = 64;
/// The slot of the source.
pub const SOURCE_SLOT: usize = 0;

/// Slots of a pipeline of `stages` stages: source, stages, sink.
#[must_use]
pub const fn slots(stages: usize) -> usize {
    stages.saturating_add(2)
}

/// The slot of stage `stage` (from 0).
#[must_use]
pub const fn stage_slot(stage: usize) -> usize {
    stage.saturating_add(1)
}

/// The slot of the sink.
#[must_use]
pub const fn sink_slot(stages: usize) -> usize {
    stages.saturating_add(1)
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReport {
    bytes_in: U64,
    bytes_out: U64,
    result: [U64; 2],
    chunks: U32,
    messages: U32,
    status: U16,
    member: U16,
    function: U16,
    state: u8,
    zero: u8,
    reserved: U64,
    updates: U64,
}
const _: () = assert!(size_of::<RawReport>() == REPORT_BYTES);
const _: () = assert!(offset_of!(RawReport, chunks) == 32);
const _: () = assert!(offset_of!(RawReport, status) == 40);
const _: () = assert!(offset_of!(RawReport, updates) == 56);

/// How far a stage is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// It has not started.
    #[default]
    Idle = 0,
    /// It runs.
    Running = 1,
    /// It has seen the end of its data.
    Done = 2,
    /// It was ended early.
    Failed = 3,
}

/// What one stage, the source or the sink has done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Where it runs.
    pub member: MemberId,
    /// The function's wire value; 0 for source and sink.
    pub function: u16,
    /// How far it is.
    pub state: State,
    /// Why it failed.
    pub status: Status,
    /// Bytes that went in.
    pub bytes_in: u64,
    /// Bytes that came out.
    pub bytes_out: u64,
    /// The function's result ([`Report::outcome`]).
    pub result: [u64; 2],
    /// Chunks taken from upstream (storage reads at the source, chunks delivered at the sink).
    pub chunks: u32,
    /// IDC entries that the hop sent for the pipeline; in the hop's first slot only.
    pub messages: u32,
    /// How often the slot was written; 0: never.
    pub updates: u64,
}

impl Report {
    /// Writes it as it lies in memory.
    pub fn encode(&self, to: &mut [u8; REPORT_BYTES]) {
        let [first, second] = self.result;
        let raw = RawReport {
            bytes_in: self.bytes_in.into(),
            bytes_out: self.bytes_out.into(),
            result: [first.into(), second.into()],
            chunks: self.chunks.into(),
            messages: self.messages.into(),
            status: self.status.to_wire().into(),
            member: self.member.get().into(),
            function: self.function.into(),
            state: self.state as u8,
            zero: 0,
            reserved: U64::ZERO,
            updates: self.updates.into(),
        };
        to.copy_from_slice(raw.as_bytes());
    }

    /// Reads it from a copy; `None` if it is too short or no drive can have written it.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (raw, _) = RawReport::read_from_prefix(bytes).ok()?;
        let [first, second] = raw.result;
        Some(Report {
            member: MemberId::new(raw.member.get())?,
            function: raw.function.get(),
            state: match raw.state {
                0 => State::Idle,
                1 => State::Running,
                2 => State::Done,
                3 => State::Failed,
                _ => return None,
            },
            status: Status::from_wire(raw.status.get()),
            bytes_in: raw.bytes_in.get(),
            bytes_out: raw.bytes_out.get(),
            result: [first.get(), second.get()],
            chunks: raw.chunks.get(),
            messages: raw.messages.get(),
            updates: raw.updates.get(),
        })
    }

    /// What the function found out.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match FunctionId::from_wire(self.function) {
            Some(function) => Outcome::from_wire(function, self.result),
            None => Outcome::None,
        }
    }
}
