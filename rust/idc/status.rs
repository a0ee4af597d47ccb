// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How things end: NVMe status values, and the record of what failed where.
//!
//! Owns the IDC status codes, their names and their errno. Never decides what an error leads to.

use super::member::MemberId;
use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// An NVMe status: status code type << 8 | status code. 0 is success.
///
/// IDC's own codes are of type 7h (vendor specific); others (a drive's own storage errors) pass
/// through unchanged. NVM Express Base Specification, "Status Field".
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Status(u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $errno:literal, $word:literal, $meaning:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status($code);)*

            /// All IDC codes and success, for tables and tests.
            pub const ALL: &'static [Status] = &[$(Status::$name),*];

            /// A short name in small letters; "storage-status" for codes that are not IDC's.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $word,)*
                    _ => "storage-status",
                }
            }

            /// What it means, as part of a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self.0 {
                    $($code => $meaning,)*
                    _ => "the drive ended a command with this NVMe status",
                }
            }

            /// The Linux errno (positive; 0 for success). Codes that are not IDC's are EIO.
            #[must_use]
            pub const fn errno(self) -> u16 {
                match self.0 {
                    $($code => $errno,)*
                    _ => 5,
                }
            }
        }
    };
}

statuses! {
    /// Success.
    OK = 0x000, 0, "ok", "done";
    /// A message does not have the form that the specification demands.
    BAD_ENTRY = 0x701, 71, "bad-entry", "a message was malformed";
    /// The receiver does not know the opcode.
    UNKNOWN_OPCODE = 0x702, 95, "unknown-opcode", "the drive does not know this request";
    /// The range does not lie in a window that the sender was granted.
    NOT_GRANTED = 0x703, 1, "not-granted", "the memory named was not granted to the sender";
    /// The receiver has no such stream or hop.
    NO_STREAM = 0x704, 2, "no-stream", "the drive has no such stream";
    /// No free slot; try again later.
    BUSY = 0x705, 16, "busy", "the drive has no free slot";
    /// The member ran out of working memory.
    NO_MEMORY = 0x706, 12, "no-memory", "the drive has not enough working memory";
    /// A pipeline descriptor is malformed or contradicts itself.
    BAD_DESCRIPTOR = 0x707, 22, "bad-descriptor", "the pipeline descriptor is malformed";
    /// The member does not offer a function.
    NO_FUNCTION = 0x708, 95, "no-function", "the drive does not offer this function";
    /// No progress within the deadline.
    DEADLINE = 0x709, 110, "deadline", "no progress within the deadline";
    /// Cancelled on request.
    CANCELLED = 0x70a, 125, "cancelled", "cancelled";
    /// A peer left the mesh or its ring is out of order.
    PEER_LOST = 0x70b, 19, "peer-lost", "a drive was lost";
    /// A function refused its data: a record is too long.
    FUNCTION_ERROR = 0x70c, 90, "function-error", "a function refused its data: a record is too long";
    /// A storage command failed.
    STORAGE_ERROR = 0x70d, 5, "storage-error", "a storage command failed";
    /// The sink's limit was reached before the end of the data.
    SINK_FULL = 0x70e, 28, "sink-full", "the result does not fit into the sink";
    /// A stage's parameters are invalid.
    BAD_PARAMETERS = 0x70f, 22, "bad-parameters", "a stage's parameters are invalid";
    /// The key slot is empty.
    NO_KEY = 0x710, 126, "no-key", "the key slot is empty";
    /// An access to a lent memory failed.
    FABRIC_ERROR = 0x711, 5, "fabric-error", "an access to a drive's memory failed";
    /// The range lies outside the namespace.
    RANGE = 0x712, 34, "range", "the range lies outside the namespace";
    /// A member broke its own invariant; the stream was ended rather than continued.
    INTERNAL = 0x713, 117, "internal", "the drive's firmware found itself in an impossible state";
}

impl Status {
    /// The value of a status field; bit 15 (reserved in a response) is dropped.
    #[must_use]
    pub const fn from_wire(status: u16) -> Self {
        Status(status & 0x7fff)
    }

    /// The value of the status field.
    #[must_use]
    pub const fn to_wire(self) -> u16 {
        self.0
    }

    /// Whether it is success.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#05x})", self.meaning(), self.0)
    }
}

/// Where in a pipeline something happened: a stage's number from 0, or one of the constants.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct StageId(pub u16);

impl StageId {
    /// Reading the source.
    pub const SOURCE: StageId = StageId(0xffff);
    /// Delivering the result.
    pub const SINK: StageId = StageId(0xfffe);
    /// No stage in particular.
    pub const NONE: StageId = StageId(0xfffd);
}

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StageId::SOURCE => f.write_str("source"),
            StageId::SINK => f.write_str("sink"),
            StageId::NONE => f.write_str("no stage"),
            StageId(stage) => write!(f, "stage {stage}"),
        }
    }
}

/// What failed, where, and how far the data had come. All zero means "nothing failed".
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Failure {
    /// Why; [`Status::OK`] if nothing failed.
    pub status: Status,
    /// The member at which it failed (with [`Status::PEER_LOST`] and [`Status::DEADLINE`]: the one
    /// that was lost or silent).
    pub member: MemberId,
    /// The stage at which it failed.
    pub stage: StageId,
    reserved: u16,
    /// More about the reason: a storage command's NVMe status, a function's error code, or 0.
    pub code: u32,
    reserved2: u32,
    /// Byte offset in the stream where known, else 0.
    pub offset: u64,
}

impl Failure {
    /// A failure without code and offset.
    #[must_use]
    pub const fn new(status: Status, member: MemberId, stage: StageId) -> Self {
        Failure {
            status,
            member,
            stage,
            reserved: 0,
            code: 0,
            reserved2: 0,
            offset: 0,
        }
    }

    /// The same with a code.
    #[must_use]
    pub const fn with_code(mut self, code: u32) -> Self {
        self.code = code;
        self
    }

    /// The same with an offset.
    #[must_use]
    pub const fn with_offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Bytes of a failure as a response carries it inline.
    pub const WIRE_BYTES: usize = 16;

    /// Member, stage, code, offset as a failing response carries them inline; the status travels in
    /// the response's own field.
    #[must_use]
    pub fn to_wire(self) -> [u8; Self::WIRE_BYTES] {
        let mut wire = [0; Self::WIRE_BYTES];
        let value = u128::from(self.member.get())
            | (u128::from(self.stage.0) << 16)
            | (u128::from(self.code) << 32)
            | (u128::from(self.offset) << 64);
        wire.copy_from_slice(&value.to_le_bytes());
        wire
    }

    /// The failure that a response of `from` with `status` tells; if the inline data is not a
    /// failure's, `from` itself is named.
    #[must_use]
    pub fn from_wire(status: Status, inline: &[u8], from: MemberId) -> Self {
        let parsed = inline
            .first_chunk::<{ Self::WIRE_BYTES }>()
            .and_then(|wire| {
                let value = u128::from_le_bytes(*wire);
                let member = MemberId::new(value as u16)?;
                let stage = StageId((value >> 16) as u16);
                Some(
                    Failure::new(status, member, stage)
                        .with_code((value >> 32) as u32)
                        .with_offset((value >> 64) as u64),
                )
            });
        parsed.unwrap_or(Failure::new(status, from, StageId::NONE))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {}, {}: {}",
            self.status.name(),
            self.member,
            self.stage,
            self.status.meaning()
        )
    }
}

/// The end of a pipeline, as its first drive tells the host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Completion {
    /// What failed; its status is [`Status::OK`] if nothing did.
    pub failure: Failure,
    /// True length of the result in bytes; meaningful only without failure.
    pub bytes_out: u64,
}
