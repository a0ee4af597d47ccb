// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The entries of a ring: requests in the shape of an NVMe submission queue entry, responses in the
//! shape of a completion queue entry, and the trailer by which an entry validates itself.
//!
//! Owns the byte layout. Never touches a ring: it works on private copies only; how they get into a
//! slot and out of it is [`slot`]'s.

mod data;
pub mod slot;
mod trailer;

pub use data::DataBody;
pub use trailer::{Expected, Kind, Label, Metadata, Stamp, Trailer, FLAG_MORE, FLAG_NO_RESPONSE};

use super::member::MemberId;
use super::status::Status;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::FromBytes as _;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the size of an entry is a multiple of.
pub const UNIT_BYTES: usize = 64;
/// Bytes of the smallest entry.
pub const MIN_ENTRY_BYTES: usize = UNIT_BYTES;
/// Bytes of the largest entry.
pub const MAX_ENTRY_BYTES: usize = 4096;
/// Bytes of a request's or a response's header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of an entry that do not carry data: header and trailer.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + size_of::<Trailer>();
/// Data bytes of the smallest entry.
pub const MIN_INLINE: usize = MIN_ENTRY_BYTES - OVERHEAD_BYTES;

/// What a request asks for. Unknown values are kept, so that they can be answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Send the inline data back.
    pub const PING: Opcode = Opcode(0x01);
    /// Put the inline data into the receiver's inbox.
    pub const SEND: Opcode = Opcode(0x02);
    /// From the host: send the inline data on to another member, and report its answer.
    pub const RELAY: Opcode = Opcode(0x03);
    /// A pipeline's hop: its descriptor lies in a window of the receiver.
    pub const OPEN: Opcode = Opcode(0x10);
    /// A chunk of a stream lies in a window of the receiver.
    pub const DATA: Opcode = Opcode(0x11);
    /// Drop a stream and everything after it.
    pub const CANCEL: Opcode = Opcode(0x12);
    /// The consumer of the result is slow; nobody is hung.
    pub const HOLD: Opcode = Opcode(0x13);

    /// Whether it is a message, which is answered at once, rather than about a stream.
    #[must_use]
    pub const fn is_message(self) -> bool {
        self.0 < 0x10
    }
}

/// First 16 bytes of a request. IDC specification, "Requests".
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    opcode: u8,
    zero: u8,
    cid: U16,
    stream: U32,
    hop: U16,
    arg16: U16,
    arg32: U32,
}
const _: () = assert!(size_of::<RequestHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(RequestHeader, stream) == 4);
const _: () = assert!(offset_of!(RequestHeader, hop) == 8);
const _: () = assert!(offset_of!(RequestHeader, arg32) == 12);

/// First 16 bytes of a response. IDC specification, "Responses".
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ResponseHeader {
    result: U64,
    sqhd: U16,
    inline_length: U16,
    cid: U16,
    status: U16,
}
const _: () = assert!(size_of::<ResponseHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(ResponseHeader, inline_length) == 10);
const _: () = assert!(offset_of!(ResponseHeader, status) == 14);

/// A request as it is sent and as it is found valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'a> {
    /// What is asked.
    pub opcode: Opcode,
    /// The stream it belongs to, or 0.
    pub stream: u32,
    /// The hop of the stream; RELAY: the opcode to send on.
    pub hop: u16,
    /// PING, SEND, RELAY: bytes of payload in `data`.
    pub arg16: u16,
    /// RELAY: the member to send to.
    pub arg32: u32,
    /// DATA: more follows.
    pub more: bool,
    /// Inline data; a received request has all that its entry holds.
    pub data: &'a [u8],
}

impl<'a> Request<'a> {
    const fn plain(opcode: Opcode, data: &'a [u8]) -> Self {
        Request {
            opcode,
            stream: 0,
            hop: 0,
            arg16: if data.len() <= MAX_ENTRY_BYTES {
                data.len() as u16
            } else {
                u16::MAX
            },
            arg32: 0,
            more: false,
            data,
        }
    }

    /// PING with `payload` (at most the ring's inline capacity).
    #[must_use]
    pub const fn ping(payload: &'a [u8]) -> Self {
        Self::plain(Opcode::PING, payload)
    }

    /// SEND of `payload` (at most the ring's inline capacity).
    #[must_use]
    pub const fn send(payload: &'a [u8]) -> Self {
        Self::plain(Opcode::SEND, payload)
    }

    /// RELAY: have the receiver send `payload` with `opcode` (PING or SEND) to `to`.
    #[must_use]
    pub const fn relay(opcode: Opcode, to: MemberId, payload: &'a [u8]) -> Self {
        let mut request = Self::plain(Opcode::RELAY, payload);
        request.hop = opcode.0 as u16;
        request.arg32 = to.get() as u32;
        request
    }

    /// A request about `hop` of `stream`.
    #[must_use]
    pub const fn stream(opcode: Opcode, stream: u32, hop: u16, data: &'a [u8]) -> Self {
        Request {
            opcode,
            stream,
            hop,
            arg16: 0,
            arg32: 0,
            more: false,
            data,
        }
    }

    /// The `arg16` bytes of payload of a PING, SEND or RELAY; `None` if the entry is not so long.
    #[must_use]
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.data.get(..usize::from(self.arg16))
    }

    /// The header that travels for this request.
    #[must_use]
    pub fn header(&self, cid: u16) -> RequestHeader {
        RequestHeader {
            opcode: self.opcode.0,
            zero: 0,
            cid: cid.into(),
            stream: self.stream.into(),
            hop: self.hop.into(),
            arg16: self.arg16.into(),
            arg32: self.arg32.into(),
        }
    }
}

/// A response as it is sent and as it is found valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Response<'a> {
    /// The request that it answers.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
    /// The opcode's result.
    pub result: u64,
    /// Inline data.
    pub inline: &'a [u8],
}

impl Response<'_> {
    /// A response with neither result nor data.
    #[must_use]
    pub const fn status(cid: u16, status: Status) -> Response<'static> {
        Response {
            cid,
            status,
            result: 0,
            inline: &[],
        }
    }

    /// The header that travels for this response.
    #[must_use]
    pub fn header(&self) -> ResponseHeader {
        ResponseHeader {
            result: self.result.into(),
            sqhd: U16::ZERO,
            inline_length: u16::try_from(self.inline.len()).unwrap_or(u16::MAX).into(),
            cid: self.cid.into(),
            status: self.status.to_wire().into(),
        }
    }
}

/// A valid entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Entry<'a> {
    /// Somebody asks.
    Request {
        /// By which its response names it.
        cid: u16,
        /// Whether a response is wanted.
        wants_response: bool,
        /// What is asked.
        request: Request<'a>,
    },
    /// Somebody answers.
    Response(Response<'a>),
}

/// The entry is malformed; its ring can no longer be believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed;

/// Takes the private copy of an entry apart: its first bytes and, right behind them, its trailer.
///
/// # Errors
/// [`Malformed`] if the trailer is not what is `expected`, says another size than that of the copy,
/// the kind or a flag is unknown, a reserved field is set, or the inline length exceeds the entry.
pub fn parse<'c>(copy: &'c [u8], expected: &Expected) -> Result<(Label, Entry<'c>), Malformed> {
    let (body, trailer) = Trailer::read_from_suffix(copy).map_err(|_| Malformed)?;
    let label = trailer.label(expected)?;
    if trailer.bytes(MAX_ENTRY_BYTES as u32) != Some(copy.len()) {
        return Err(Malformed);
    }
    match trailer.kind()? {
        (Kind::Request, flags) => {
            let (header, data) = RequestHeader::read_from_prefix(body).map_err(|_| Malformed)?;
            let more = flags & FLAG_MORE != 0;
            if header.zero != 0 || (more && header.opcode != Opcode::DATA.0) {
                return Err(Malformed);
            }
            let entry = Entry::Request {
                cid: header.cid.get(),
                wants_response: flags & FLAG_NO_RESPONSE == 0,
                request: Request {
                    opcode: Opcode(header.opcode),
                    stream: header.stream.get(),
                    hop: header.hop.get(),
                    arg16: header.arg16.get(),
                    arg32: header.arg32.get(),
                    more,
                    data,
                },
            };
            Ok((label, entry))
        }
        (Kind::Response, _) => {
            let (header, data) = ResponseHeader::read_from_prefix(body).map_err(|_| Malformed)?;
            let inline = data
                .get(..usize::from(header.inline_length.get()))
                .ok_or(Malformed)?;
            if header.sqhd.get() != 0 || header.status.get() & 0x8000 != 0 {
                return Err(Malformed);
            }
            let entry = Entry::Response(Response {
                cid: header.cid.get(),
                status: Status::from_wire(header.status.get()),
                result: header.result.get(),
                inline,
            });
            Ok((label, entry))
        }
    }
}

/// The metadata word of the entry in a private copy; `None` if it is too short for one.
#[must_use]
pub fn metadata_of(copy: &[u8]) -> Option<u64> {
    let (_, trailer) = Trailer::read_from_suffix(copy).ok()?;
    Some(trailer.metadata())
}
