// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What IDC asks of memory that several agents share.
//!
//! Owns the trait and its ordering rules. Never touches memory itself: whoever hosts a member
//! supplies the accesses (MMIO in the kernel, a mapping in an emulator, a vector in a test). No
//! reference into shared memory ever exists: all access is by copy.

use super::member::{Location, MemberId, MemoryId};
use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Why an access did not happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Fault {
    /// There is no such memory in this mesh.
    NoMemory,
    /// The range does not lie inside the memory, or an 8-byte access is not aligned.
    OutOfRange,
    /// The drive that the memory belongs to is gone.
    Gone,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::NoMemory => "no such memory",
            Fault::OutOfRange => "outside the memory",
            Fault::Gone => "the memory's drive is gone",
        })
    }
}

/// The memories that a member reaches.
///
/// Other agents read and write at the same time. What [`read`](Memory::read) copies may be torn and
/// must be validated after the copy.
pub trait Memory {
    /// Copies `buf.len()` bytes out, each byte once.
    ///
    /// # Errors
    /// [`Fault`]; what `buf` holds is then undefined.
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault>;

    /// Copies `data` in. Not ordered with other writes but by
    /// [`store_release_u64`](Memory::store_release_u64) and [`flush`](Memory::flush).
    ///
    /// # Errors
    /// [`Fault`]; nothing was written.
    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault>;

    /// One 8-byte load from an 8-byte aligned place, little endian, ordered before later accesses.
    ///
    /// # Errors
    /// [`Fault`].
    fn load_u64(&mut self, at: Location) -> Result<u64, Fault>;

    /// One 8-byte store to an 8-byte aligned place, little endian, ordered after all earlier reads,
    /// and after all earlier writes to the same memory.
    ///
    /// # Errors
    /// [`Fault`]; nothing was written.
    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault>;

    /// Returns when all earlier writes to `memory` have arrived there (a read back on PCIe), so
    /// that what announces them may go another way.
    ///
    /// # Errors
    /// [`Fault`].
    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault>;

    /// Writes `entry` so that its last 8 bytes become visible after all others.
    ///
    /// # Errors
    /// [`Fault`]; the last 8 bytes were not written.
    fn publish(&mut self, at: Location, entry: &[u8]) -> Result<(), Fault> {
        let (body, last) = entry.split_last_chunk::<8>().ok_or(Fault::OutOfRange)?;
        let tail = at.at(body.len() as u64).ok_or(Fault::OutOfRange)?;
        self.write(at, body)?;
        self.store_release_u64(tail, u64::from_le_bytes(*last))
    }

    /// Fills `len` bytes with zeros.
    ///
    /// # Errors
    /// [`Fault`]; a part may have been written.
    fn zero(&mut self, at: Location, len: u64) -> Result<(), Fault> {
        const ZEROS: [u8; 256] = [0; 256];
        let mut done = 0_u64;
        while done < len {
            let left = len.saturating_sub(done);
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
            let piece = ZEROS.get(..part).ok_or(Fault::OutOfRange)?;
            self.write(at.at(done).ok_or(Fault::OutOfRange)?, piece)?;
            done = done.saturating_add(part as u64);
        }
        Ok(())
    }
}

/// Memory, and a way to wake those who poll it.
pub trait Fabric: Memory {
    /// Something was stored for `member` to find (an entry, a credit, a cell). Whoever runs that
    /// member in the same host polls it soon; a drive with its own firmware polls anyway.
    fn notify(&mut self, member: MemberId);
}
