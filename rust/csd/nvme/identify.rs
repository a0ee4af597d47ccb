// SPDX-License-Identifier: GPL-2.0

//! What a controller says of itself and of its namespaces (NVM Express Base Specification 2.0, section 5.17).
//!
//! Owns the layouts and what is believed of them. The structures come from the drive: text is
//! reduced to printable ASCII, numbers are checked, and what cannot be used says why.

use kernel::{
    fmt,
    prelude::*, //
};
use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    Immutable,
    KnownLayout, //
};

/// Identify Controller, as far as it is read.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawController {
    vid: U16,
    ssvid: U16,
    sn: [u8; 20],
    mn: [u8; 40],
    fr: [u8; 8],
    rab: u8,
    ieee: [u8; 3],
    cmic: u8,
    mdts: u8,
    cntlid: U16,
    ver: U32,
    rtd3r: U32,
    rtd3e: U32,
    oaes: U32,
    ctratt: U32,
    unread_1: [u8; 156],
    oacs: U16,
    acl: u8,
    aerl: u8,
    unread_2: [u8; 252],
    sqes: u8,
    cqes: u8,
    maxcmd: U16,
    nn: U32,
    oncs: U16,
    fuses: U16,
    fna: u8,
    vwc: u8,
    unread_3: [u8; 242],
    subnqn: [u8; 256],
    unread_4: [u8; 3072],
}
const _: () = assert!(size_of::<RawController>() == 4096);
const _: () = assert!(core::mem::offset_of!(RawController, oacs) == 256);
const _: () = assert!(core::mem::offset_of!(RawController, sqes) == 512);
const _: () = assert!(core::mem::offset_of!(RawController, subnqn) == 768);

/// Identify Namespace of the NVM command set, as far as it is read.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawNamespace {
    nsze: U64,
    ncap: U64,
    nuse: U64,
    nsfeat: u8,
    nlbaf: u8,
    flbas: u8,
    mc: u8,
    dpc: u8,
    dps: u8,
    unread_1: [u8; 98],
    lbaf: [U32; 64],
    unread_2: [u8; 3712],
}
const _: () = assert!(size_of::<RawNamespace>() == 4096);
const _: () = assert!(core::mem::offset_of!(RawNamespace, lbaf) == 128);

/// Printable ASCII of at most `N` bytes.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// Takes bytes up to a NUL or the end, without trailing blanks; replaces unprintable ones by `?`.
    pub(crate) fn new(raw: &[u8]) -> Self {
        let mut bytes = [0; N];
        let mut len = 0;
        for (index, (to, &from)) in bytes.iter_mut().zip(raw).enumerate() {
            if from == 0 {
                break;
            }
            *to = if (0x20..0x7f).contains(&from) {
                from
            } else {
                b'?'
            };
            if from != b' ' {
                len = index.saturating_add(1);
            }
        }
        Self { bytes, len }
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or(&[]);
        core::str::from_utf8(bytes).unwrap_or("")
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What Identify Controller says, checked.
#[derive(Clone, Copy)]
pub(crate) struct ControllerInfo {
    /// Controller identifier within its subsystem.
    pub(crate) cntlid: u16,
    /// Version of the specification: major, minor and tertiary in bits 31:16, 15:8 and 7:0.
    pub(crate) version: u32,
    pub(crate) serial: Text<20>,
    pub(crate) model: Text<40>,
    pub(crate) firmware: Text<8>,
    /// Name of the subsystem; empty if the controller gives none.
    pub(crate) subnqn: Text<223>,
    /// Most bytes of one data transfer; `u32::MAX` if the controller sets no limit.
    pub(crate) max_transfer: u32,
    /// Time that a normal shutdown may take, in milliseconds.
    pub(crate) shutdown_ms: u32,
    /// Asynchronous events that the controller can send, in the layout of the feature that enables them.
    pub(crate) async_events: u32,
    /// Asynchronous Event Requests that may be outstanding.
    pub(crate) async_event_limit: u16,
}
const _: () = assert!(size_of::<ControllerInfo>() <= 512);

impl ControllerInfo {
    /// Reads Identify Controller data.
    ///
    /// # Errors
    ///
    /// - `EPROTO` if the data is short or the entry sizes are not those of the NVM command set.
    pub(super) fn parse(data: &[u8]) -> Result<Self> {
        let raw = RawController::ref_from_bytes(data).map_err(|_| EPROTO)?;
        if raw.sqes & 0xf > 6 || raw.sqes >> 4 < 6 || raw.cqes & 0xf > 4 || raw.cqes >> 4 < 4 {
            return Err(EPROTO);
        }
        // MDTS counts in units of the smallest page, 4 KiB here; shifts that say nothing say "no limit".
        let max_transfer = match raw.mdts {
            0 => u32::MAX,
            n => 4096u32
                .checked_shl(n.into())
                .filter(|&bytes| bytes >= 4096)
                .unwrap_or(u32::MAX),
        };
        let shutdown_ms = match raw.rtd3e.get() {
            0 => 5000,
            us => (us / 1000).clamp(1000, 60_000),
        };
        Ok(Self {
            cntlid: raw.cntlid.get(),
            version: raw.ver.get(),
            serial: Text::new(&raw.sn),
            model: Text::new(&raw.mn),
            firmware: Text::new(&raw.fr),
            subnqn: Text::new(&raw.subnqn),
            max_transfer,
            shutdown_ms,
            // Critical warnings (bits 7:0) are mandatory; the others as OAES says.
            async_events: raw.oaes.get() & 0x300 | 0x3f,
            async_event_limit: u16::from(raw.aerl).saturating_add(1),
        })
    }
}

/// A namespace of the NVM command set.
#[derive(Clone, Copy)]
pub(crate) struct Namespace {
    /// Namespace identifier.
    pub(crate) nsid: u32,
    /// Logical blocks.
    pub(crate) blocks: u64,
    /// Bytes of a logical block.
    pub(crate) block_size: u32,
    /// Why it cannot be used, if so.
    pub(crate) refused: Option<&'static str>,
}

impl Namespace {
    /// Reads Identify Namespace data; `None` for an inactive namespace.
    ///
    /// # Errors
    ///
    /// - `EPROTO` if the data is short.
    pub(super) fn parse(nsid: u32, data: &[u8]) -> Result<Option<Self>> {
        let raw = RawNamespace::ref_from_bytes(data).map_err(|_| EPROTO)?;
        if raw.nsze.get() == 0 {
            return Ok(None);
        }
        let index = usize::from(raw.flbas & 0xf | (raw.flbas >> 1) & 0x30);
        let format = raw.lbaf.get(index).map_or(0, |format| format.get());
        let metadata = format & 0xffff;
        let shift = format >> 16 & 0xff;
        let (block_size, refused) = match shift {
            9..=16 if index > usize::from(raw.nlbaf) => (0, Some("its LBA format does not exist")),
            9..=16 if raw.nsze.get().checked_mul(1 << shift).is_none() => {
                (0, Some("its size overflows"))
            }
            9..=16 if metadata != 0 => (1 << shift, Some("it is formatted with metadata")),
            9..=16 => (1 << shift, None),
            _ => (0, Some("its LBA size is not supported")),
        };
        Ok(Some(Self {
            nsid,
            blocks: raw.nsze.get(),
            block_size,
            refused,
        }))
    }
}

/// The namespace identifiers of an active namespace list: ascending, ended by zero.
///
/// # Errors
///
/// - `EPROTO` if the order is broken.
pub(super) fn active_namespaces(data: &[u8], mut each: impl FnMut(u32) -> Result) -> Result {
    let mut last = 0;
    for entry in data.chunks_exact(4) {
        let nsid = u32::from_le_bytes(entry.try_into().map_err(|_| EPROTO)?);
        if nsid == 0 {
            return Ok(());
        }
        if nsid <= last {
            return Err(EPROTO);
        }
        last = nsid;
        each(nsid)?;
    }
    Ok(())
}
