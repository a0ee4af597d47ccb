// SPDX-License-Identifier: GPL-2.0

//! Queue entries, opcodes and status codes (NVM Express Base Specification 2.0, sections 3.3 and 5).

use kernel::prelude::*;
use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::Immutable;

/// A submission queue entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Sqe {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) cid: U16,
    pub(crate) nsid: U32,
    pub(crate) cdw2: U32,
    pub(crate) cdw3: U32,
    pub(crate) mptr: U64,
    pub(crate) prp1: U64,
    pub(crate) prp2: U64,
    pub(crate) cdw10: U32,
    pub(crate) cdw11: U32,
    pub(crate) cdw12: U32,
    pub(crate) cdw13: U32,
    pub(crate) cdw14: U32,
    pub(crate) cdw15: U32,
}
const _: () = assert!(size_of::<Sqe>() == SQE_BYTES);

impl Sqe {
    /// An entry with nothing but an opcode.
    pub(crate) fn new(opcode: u8) -> Self {
        let mut sqe: Self = zerocopy::FromZeros::new_zeroed();
        sqe.opcode = opcode;
        sqe
    }

    /// The entry as it goes to memory.
    pub(crate) fn words(self) -> [u64; 8] {
        zerocopy::transmute!(self)
    }
}

/// Bytes of a submission queue entry; the power of two is what CC.IOSQES wants.
pub(crate) const SQE_BYTES: usize = 1 << SQE_SHIFT;
/// See [`SQE_BYTES`].
pub(crate) const SQE_SHIFT: u32 = 6;
/// Bytes of a completion queue entry; the power of two is what CC.IOCQES wants.
pub(crate) const CQE_BYTES: usize = 1 << CQE_SHIFT;
/// See [`CQE_BYTES`].
pub(crate) const CQE_SHIFT: u32 = 4;

/// The upper eight bytes of a completion queue entry, which hold the phase.
#[derive(Clone, Copy)]
pub(crate) struct CqeTail(pub(crate) u64);

impl CqeTail {
    /// The submission queue whose command this is.
    pub(crate) fn sqid(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The command identifier.
    pub(crate) fn cid(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The phase tag.
    pub(crate) fn phase(self) -> bool {
        self.0 & (1 << 48) != 0
    }

    /// The status field.
    pub(crate) fn status(self) -> Status {
        Status((self.0 >> 49) as u16)
    }
}

/// The status field of a completion: SC in bits 7:0, SCT in bits 10:8, DNR in bit 14.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u16);

impl Status {
    /// Status code type and status code together.
    pub(crate) fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Success, or the errno that says the most.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` invalid opcode, `EINVAL` invalid field, `ERANGE` LBA out of range, `ENOSPC`
    ///   capacity exceeded, `ENOENT` invalid namespace, `EROFS` write protected, `EACCES` access
    ///   denied, `ETIMEDOUT` aborted on request, `EAGAIN` namespace not ready, `ENODATA`
    ///   unrecovered media error, `EIO` anything else.
    pub(crate) fn to_result(self) -> Result {
        Err(match self.code() {
            0x000 => return Ok(()),
            0x001 => EOPNOTSUPP,
            0x002 => EINVAL,
            0x007 | 0x008 => ETIMEDOUT,
            0x00b => ENOENT,
            0x020 => EROFS,
            0x080 => ERANGE,
            0x081 => ENOSPC,
            0x082 => EAGAIN,
            0x280 | 0x281 => ENODATA,
            0x286 => EACCES,
            _ => EIO,
        })
    }
}

/// Opcodes of the NVM command set.
pub(crate) mod nvm {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
}
