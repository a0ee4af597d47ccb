// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The first bytes of a memory that was lent to IDC: whose it is, and which epoch was used last.
//!
//! Owns the format and the rule by which epochs are never reused, also across power loss. Never
//! decides on consent: the module asks the user before it writes one. IDC specification,
//! "Superblock".

use super::function::crc32c;
use core::fmt;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes as _, IntoBytes as _};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 64;
/// Bytes at the start of a lent memory that are kept for it.
pub const RESERVED_BYTES: u64 = 4096;

const MAGIC: [u8; 8] = *b"CSDIDC\x01\0";
const VERSION: u32 = 1;
/// Bytes that the checksum covers: all before it.
const COVERED: usize = SUPERBLOCK_BYTES - size_of::<u32>();

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    version: U32,
    flags: U32,
    nqn_hash: U64,
    last_epoch: U32,
    reserved: [u8; 32],
    crc32c: U32,
}
const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);
const _: () = assert!(offset_of!(RawSuperblock, nqn_hash) == 16);
const _: () = assert!(offset_of!(RawSuperblock, last_epoch) == 24);
const _: () = assert!(offset_of!(RawSuperblock, crc32c) == COVERED);

/// What a superblock says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Superblock {
    /// [`nqn_hash`] of the drive that the memory belongs to.
    pub nqn_hash: u64,
    /// The highest epoch ever used on this memory; 0: none yet.
    pub last_epoch: u32,
}

/// Why bytes are not a superblock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SuperblockError {
    /// Fewer than [`SUPERBLOCK_BYTES`].
    Short,
    /// The magic is another: somebody else's data, or none.
    NotOurs,
    /// A version or flag that this code does not know.
    Version,
    /// The checksum does not match: torn or damaged. The memory is ours, its last epoch unknown.
    Checksum,
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SuperblockError::Short => "too short for a superblock",
            SuperblockError::NotOurs => "no IDC superblock",
            SuperblockError::Version => "superblock of an unknown version",
            SuperblockError::Checksum => "damaged superblock",
        })
    }
}

impl Superblock {
    /// Writes it as it lies in memory.
    pub fn encode(&self, to: &mut [u8; SUPERBLOCK_BYTES]) {
        let raw = RawSuperblock {
            magic: MAGIC,
            version: VERSION.into(),
            flags: U32::ZERO,
            nqn_hash: self.nqn_hash.into(),
            last_epoch: self.last_epoch.into(),
            reserved: [0; 32],
            crc32c: U32::ZERO,
        };
        to.copy_from_slice(raw.as_bytes());
        if let Some((covered, crc)) = to.split_last_chunk_mut::<4>() {
            *crc = crc32c::update(0, covered).to_le_bytes();
        }
    }

    /// Reads it from a copy of the memory's first bytes.
    ///
    /// # Errors
    /// [`SuperblockError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let (raw, _) =
            RawSuperblock::read_from_prefix(bytes).map_err(|_| SuperblockError::Short)?;
        if raw.magic != MAGIC {
            return Err(SuperblockError::NotOurs);
        }
        let covered = bytes.get(..COVERED).ok_or(SuperblockError::Short)?;
        if crc32c::update(0, covered) != raw.crc32c.get() {
            return Err(SuperblockError::Checksum);
        }
        if raw.version.get() != VERSION || raw.flags.get() != 0 {
            return Err(SuperblockError::Version);
        }
        Ok(Superblock {
            nqn_hash: raw.nqn_hash.get(),
            last_epoch: raw.last_epoch.get(),
        })
    }
}

/// The newest epoch that a memory which begins with `bytes` can have seen; 0 if it is not IDC's yet.
/// A torn write leaves either the old value or the new one, so the field counts as it stands.
///
/// # Errors
/// [`SuperblockError::Version`]: the memory must be left alone. [`SuperblockError::Short`].
pub fn newest_epoch(bytes: &[u8]) -> Result<u32, SuperblockError> {
    match Superblock::parse(bytes) {
        Ok(superblock) => Ok(superblock.last_epoch),
        Err(SuperblockError::NotOurs) => Ok(0),
        Err(SuperblockError::Checksum) => {
            let (raw, _) =
                RawSuperblock::read_from_prefix(bytes).map_err(|_| SuperblockError::Short)?;
            Ok(raw.last_epoch.get())
        }
        Err(error) => Err(error),
    }
}

/// Whether a memory that begins with `bytes` carries IDC's signature, valid or damaged.
#[must_use]
pub fn is_ours(bytes: &[u8]) -> bool {
    bytes.first_chunk() == Some(&MAGIC)
}

/// FNV-1a (64 bits) of a subsystem NQN without padding.
#[must_use]
pub fn nqn_hash(nqn: &[u8]) -> u64 {
    nqn.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// All 2^32 - 1 epochs of a memory were used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EpochsSpent;

/// An epoch above all that any of the memories has seen. `volatile` is the highest that the caller
/// remembers of memories that keep no superblock. Store it in every superblock before its first use.
///
/// # Errors
/// [`EpochsSpent`].
pub fn next_epoch(last: impl Iterator<Item = u32>, volatile: u32) -> Result<u32, EpochsSpent> {
    last.fold(volatile, u32::max)
        .checked_add(1)
        .ok_or(EpochsSpent)
}
