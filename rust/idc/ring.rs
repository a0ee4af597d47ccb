// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One ring: a sending end and a receiving end over shared memory.
//!
//! Owns the index arithmetic and what makes an entry, a tail or a credit believable. Each end holds
//! its own index and never trusts the other's. Never interprets entries, and never waits: an end that
//! finds nothing says so. IDC specification, "Rings".

mod end;
mod layout;
mod receiver;
mod sender;

pub use super::entry::slot::Body;
pub use end::End;
pub use layout::{Publish, RingError, RingFlags, RingLayout, MAX_ENTRIES, MIN_ENTRIES};
pub use receiver::{Popped, Receiver, Receiving, Taken};
pub use sender::{Sender, Sending};

use super::entry::slot::ReadError;
use super::memory::Fault;
use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// What one end of a ring has counted.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingCounters {
    /// Entries sent or consumed.
    pub entries: u64,
    /// Of these, requests.
    pub requests: u64,
    /// Bytes of these entries.
    pub bytes: u64,
    /// Sending end: attempts that found no credit.
    pub stalls: u64,
    /// Cells written that give slots back (receiving end), or found to do so (sending end).
    pub credits: u64,
    /// Receiving end: entries, or cells that announce them, of another epoch that were dropped.
    pub stale: u64,
    /// Faults; after the first the end is fenced.
    pub faults: u64,
    /// Sending end: words written that announce entries which do not announce themselves.
    pub announcements: u64,
    /// Sending end: flushes, where entries and what announces them lie in different memories.
    pub flushes: u64,
}

/// Why a peer is not believed any more. The ring is fenced until it is attached anew.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum PeerFault {
    /// The receiver's credit or one of its marks is impossible.
    Credit,
    /// An entry or a tail of this epoch has an impossible sequence.
    Sequence,
    /// An entry is malformed, or changed while it was copied.
    Entry,
    /// More requests are open than the protocol allows.
    TooManyRequests,
    /// A response answers no open request.
    Unmatched,
    /// A link of this epoch leads to a node that it cannot lead to.
    Link,
    /// The memory cannot be reached.
    Memory(Fault),
    /// The end was fenced by an earlier fault.
    Fenced,
    /// It keeps what it must not keep: the lock of a shared buffer, or an entry that the buffer's head
    /// waits for. Only a suspicion: its time may just not have come.
    Silent,
}

impl From<ReadError> for PeerFault {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Memory(fault) => PeerFault::Memory(fault),
            ReadError::Malformed => PeerFault::Entry,
        }
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerFault::Credit => f.write_str("impossible credit"),
            PeerFault::Sequence => f.write_str("impossible sequence"),
            PeerFault::Entry => f.write_str("malformed entry"),
            PeerFault::TooManyRequests => f.write_str("too many open requests"),
            PeerFault::Unmatched => f.write_str("response without request"),
            PeerFault::Link => f.write_str("impossible link"),
            PeerFault::Memory(fault) => fault.fmt(f),
            PeerFault::Fenced => f.write_str("fenced by an earlier fault"),
            PeerFault::Silent => f.write_str("keeps a lock or an entry for too long"),
        }
    }
}

/// Why an entry was not sent. Nothing was written in any case but a memory fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PushError {
    /// No credit.
    Full,
    /// The data does not fit into an entry.
    TooLong,
    /// The receiver is not believed any more.
    Fault(PeerFault),
}
