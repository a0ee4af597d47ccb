// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the firmware logic needs from whoever hosts it: a kernel worker, an emulator, a test.
//!
//! Owns the trait. Never knows how a host sleeps, what a memory access is, or where time comes from.

use super::super::function::Crypto;
use super::super::member::{Location, MemberId};
use super::super::memory::Fabric;
use super::super::ring::PeerFault;
use super::super::status::{Completion, Failure};

/// A namespace of the drive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Namespace {
    /// Bytes of a logical block, a power of two, 512..=4096.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
}

impl Namespace {
    /// Bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes as u64)
    }
}

/// A read or write between a namespace and the drive's own memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StorageRequest {
    /// Comes back in `storage_done`.
    pub tag: u32,
    /// From memory to the namespace; else the other way.
    pub write: bool,
    /// The namespace.
    pub nsid: u32,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks; at most a chunk's worth. The host splits at the drive's transfer limit.
    pub blocks: u32,
    /// Bytes in a block when the stream was opened. A namespace that was formatted since must be
    /// refused: its blocks may not fit where the data lies.
    pub block_bytes: u32,
    /// Where the data lies, in the drive's own memory, a multiple of 4096.
    pub at: Location,
}

/// A storage request was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StorageError {
    /// No free slot: it is tried again at the next poll.
    Busy,
    /// It can never be done; the NVMe status, or 0.
    Failed(u16),
}

/// No memory for scratch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoMemory;

/// The host of one member's firmware.
pub trait Platform: Fabric + Crypto {
    /// Private memory of one stream.
    type Scratch: AsMut<[u8]>;

    /// Gives slot `slot` (below [`STREAMS`](super::STREAMS)) `bytes` bytes of zeroed private memory:
    /// at most 700 KiB.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn open_scratch(&mut self, slot: usize, bytes: usize) -> Result<(), NoMemory>;

    /// Moves a slot's memory out for the time of one step; its contents stay.
    fn take_scratch(&mut self, slot: usize) -> Option<Self::Scratch>;

    /// Puts it back.
    fn give_scratch(&mut self, slot: usize, scratch: Self::Scratch);

    /// Frees it. Not called while it is out.
    fn close_scratch(&mut self, slot: usize);

    /// A namespace of this drive, if it has it.
    fn namespace(&mut self, nsid: u32) -> Option<Namespace>;

    /// Starts a read or write; its end comes through `Firmware::storage_done`, never from in here.
    ///
    /// # Errors
    /// [`StorageError`]; no end will come then.
    fn storage(&mut self, request: &StorageRequest) -> Result<(), StorageError>;

    /// The Execute Pipeline command `command` will end with `failure`. Whoever waits for its result
    /// can be told now; its memory stays in use until [`complete`](Self::complete), which may have to
    /// wait for storage requests in flight. Not called if it ends well.
    fn failing(&mut self, command: u32, failure: &Failure) {
        let _ = (command, failure);
    }

    /// The Execute Pipeline command `command` has ended. No member uses its windows any more, unless
    /// the failure names one as lost or silent.
    fn complete(&mut self, command: u32, completion: &Completion);

    /// A message for this member. Returns `false` if there is no room.
    fn inbox(&mut self, from: MemberId, message: &[u8]) -> bool;

    /// `peer` broke the protocol or went out of reach. Its rings are detached, streams over it fail.
    fn ring_fault(&mut self, peer: MemberId, fault: PeerFault);
}
