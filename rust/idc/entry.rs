// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The entries of a ring: requests in the shape of an NVMe submission queue entry, responses in the
//! shape of a completion queue entry, and the trailer by which an entry validates itself.
//!
//! Owns the byte layout. Never touches a ring: it works on private copies only.

use super::member::MemberId;
use super::status::Status;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes as _, IntoBytes as _};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the smallest entry.
pub const MIN_ENTRY_BYTES: usize = 64;
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

/// Last 12 bytes of every entry. IDC specification, "Trailer".
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Trailer {
    from: U16,
    kind: u8,
    flags: u8,
    sequence: U32,
    epoch: U32,
}
const _: () = assert!(size_of::<Trailer>() == 12);
const _: () = assert!(offset_of!(Trailer, sequence) == 4);
const _: () = assert!(offset_of!(Trailer, epoch) == 8);

/// Bytes 16..52 of OPEN and DATA: where it lies. IDC specification, "DATA".
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataBody {
    window: U32,
    length: U32,
    offset: U64,
    stream_offset: U64,
    sequence: U32,
    zero: [u8; 8],
}
const _: () = assert!(size_of::<DataBody>() == MIN_INLINE);
const _: () = assert!(offset_of!(DataBody, offset) == 8);
const _: () = assert!(offset_of!(DataBody, stream_offset) == 16);
const _: () = assert!(offset_of!(DataBody, sequence) == 24);

impl DataBody {
    /// `length` bytes at `offset` of `window`, which stand at `stream_offset` of the stream in its
    /// chunk `sequence`.
    #[must_use]
    pub fn new(window: u32, offset: u64, length: u32, stream_offset: u64, sequence: u32) -> Self {
        DataBody {
            window: window.into(),
            length: length.into(),
            offset: offset.into(),
            stream_offset: stream_offset.into(),
            sequence: sequence.into(),
            zero: [0; 8],
        }
    }

    /// The bytes as a request's data.
    #[must_use]
    pub fn as_data(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The body in a request's data, or `None` if it is too short or a reserved byte is set.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (body, _) = DataBody::read_from_prefix(data).ok()?;
        (body.zero == [0; 8]).then_some(body)
    }

    /// The window's id.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window.get()
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length.get()
    }

    /// Offset in the window.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// Offset in the stream.
    #[must_use]
    pub fn stream_offset(&self) -> u64 {
        self.stream_offset.get()
    }

    /// The chunk's number in its stream, from 0.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence.get()
    }
}

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

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// A request.
    Request = 1,
    /// A response.
    Response = 2,
}

/// Flag of a request: no response is wanted.
pub const FLAG_NO_RESPONSE: u8 = 1;
/// Flag of a DATA request: more follows.
pub const FLAG_MORE: u8 = 2;

/// The last 8 bytes of an entry as its receiver polls for them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// The entry's index.
    pub sequence: u32,
    /// The ring's epoch.
    pub epoch: u32,
}

impl Stamp {
    /// The stamp in a loaded cell.
    #[must_use]
    pub const fn from_cell(cell: u64) -> Self {
        Stamp {
            sequence: cell as u32,
            epoch: (cell >> 32) as u32,
        }
    }

    /// The cell of this stamp.
    #[must_use]
    pub const fn to_cell(self) -> u64 {
        ((self.epoch as u64) << 32) | self.sequence as u64
    }
}

impl Trailer {
    /// The trailer of an entry.
    #[must_use]
    pub fn new(from: MemberId, kind: Kind, flags: u8, stamp: Stamp) -> Self {
        Trailer {
            from: from.get().into(),
            kind: kind as u8,
            flags,
            sequence: stamp.sequence.into(),
            epoch: stamp.epoch.into(),
        }
    }
}

/// Takes the private copy of an entry apart.
///
/// # Errors
/// [`Malformed`] if the trailer is not what `from` and `stamp` demand, the kind or a flag is
/// unknown, a reserved field is set, or the inline length exceeds the entry.
pub fn parse(copy: &[u8], from: MemberId, stamp: Stamp) -> Result<Entry<'_>, Malformed> {
    let (body, trailer) = Trailer::read_from_suffix(copy).map_err(|_| Malformed)?;
    if trailer.from.get() != from.get()
        || trailer.sequence.get() != stamp.sequence
        || trailer.epoch.get() != stamp.epoch
    {
        return Err(Malformed);
    }
    if trailer.kind == Kind::Request as u8 {
        let (header, data) = RequestHeader::read_from_prefix(body).map_err(|_| Malformed)?;
        let more = trailer.flags & FLAG_MORE != 0;
        let known = trailer.flags & !(FLAG_NO_RESPONSE | FLAG_MORE) == 0;
        if !known || header.zero != 0 || (more && header.opcode != Opcode::DATA.0) {
            return Err(Malformed);
        }
        Ok(Entry::Request {
            cid: header.cid.get(),
            wants_response: trailer.flags & FLAG_NO_RESPONSE == 0,
            request: Request {
                opcode: Opcode(header.opcode),
                stream: header.stream.get(),
                hop: header.hop.get(),
                arg16: header.arg16.get(),
                arg32: header.arg32.get(),
                more,
                data,
            },
        })
    } else if trailer.kind == Kind::Response as u8 {
        let (header, data) = ResponseHeader::read_from_prefix(body).map_err(|_| Malformed)?;
        let inline = data
            .get(..usize::from(header.inline_length.get()))
            .ok_or(Malformed)?;
        if trailer.flags != 0 || header.sqhd.get() != 0 || header.status.get() & 0x8000 != 0 {
            return Err(Malformed);
        }
        Ok(Entry::Response(Response {
            cid: header.cid.get(),
            status: Status::from_wire(header.status.get()),
            result: header.result.get(),
            inline,
        }))
    } else {
        Err(Malformed)
    }
}
