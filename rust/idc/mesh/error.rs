// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Why a mesh cannot be: one error for each thing that is impossible or cannot be combined, with the
//! reason in words and a number for interfaces.
//!
//! Owns the numbers and the words. Never decides: that is `check` and `table`.

use super::super::list::ListError;
use super::super::ring::RingError;
use core::fmt;

/// Defines [`MeshError`]: name, code, the reason in words.
macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $reason:literal;)*) => {
        /// Why a mesh, or a channel of it, cannot be.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum MeshError {
            $($(#[$doc])* $name,)*
            /// A ring's layout is impossible. Code 100h + 1..=5.
            Ring(RingError),
            /// A list's layout is impossible. Code 200h + 1..=5.
            List(ListError),
        }

        impl MeshError {
            /// Every error without a payload.
            const PLAIN: &'static [MeshError] = &[$(MeshError::$name,)*];

            /// The number that stands for it in interfaces, never 0. It never changes.
            #[must_use]
            pub const fn code(self) -> u32 {
                match self {
                    $(MeshError::$name => $code,)*
                    MeshError::Ring(error) => RING | ring_code(error),
                    MeshError::List(error) => LIST | list_code(error),
                }
            }
        }

        impl fmt::Display for MeshError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(MeshError::$name => f.write_str($reason),)*
                    MeshError::Ring(error) => error.fmt(f),
                    MeshError::List(error) => error.fmt(f),
                }
            }
        }
    };
}

errors! {
    /// Not 1..=32 drives.
    Drives = 1, "a mesh has 1 to 32 drives";
    /// The member is not in this mesh, or a channel from a member to itself was asked for.
    Member = 2, "no such member in the mesh";
    /// The member's block has not been placed, or not at a multiple of 4096.
    Placement = 3, "the member's buffers have no valid place";
    /// Whoever establishes the buffer has not said where it lies.
    NotEstablished = 4, "the buffer has not been laid out yet";
    /// The channel is not a ring of its own.
    NotRing = 5, "there is no ring of its own between these members";
    /// The hub lends no memory.
    HubMemory = 6, "the drive that all buffers are to lie in lends no memory";
    /// [`Place::Member`](super::Place::Member) of a member that is not in the mesh.
    HubMember = 7, "the drive that buffers are to lie in is not in the mesh";
    /// [`Establish::Member`](super::Establish::Member) of a member that is not in the mesh.
    EstablishMember = 8, "the drive that is to establish the buffers is not in the mesh";
    /// An override of a pair that is none.
    PairMember = 9, "an override is for two different members of the mesh";
    /// Two overrides of one ordered pair.
    PairTwice = 10, "a pair has more than one override";
    /// Overrides of pairs in a mesh of shared buffers.
    PairShared = 11, "shared buffers are the same for all pairs: no override for one";
    /// A linked list that several share.
    ListShared = 12, "a linked list has one sender and one receiver: it cannot be shared";
    /// A linked list with index publication.
    ListIndex = 13, "a linked list is published by its links: there is no index";
    /// A linked list with the out-of-order flag.
    ListOutOfOrder = 14, "nodes of a linked list are freed in any order as it is";
    /// A linked list with a doorbell.
    ListDoorbell = 15, "a linked list is found by its links: a doorbell would say nothing";
    /// A linked list with a metadata array.
    ListMetadata = 16, "a linked list has links beside its nodes and no metadata array";
    /// A linked list of fewer than 2 or more than 256 nodes.
    ListEntries = 17, "a linked list has 2 to 256 nodes";
    /// A shared buffer with index publication.
    ShareIndex = 18, "a shared buffer is published by bitmaps: there is no one index";
    /// A shared buffer with the out-of-order flag.
    ShareOutOfOrder = 19, "a shared buffer is consumed in any order as it is";
    /// A shared buffer with a doorbell.
    ShareDoorbell = 20, "the bitmaps of a shared buffer are its doorbells";
    /// A shared buffer with a metadata array.
    ShareMetadata = 21, "entries of a shared buffer name their members: no metadata array";
    /// A shared buffer of more than 256 entries.
    ShareEntries = 22, "a shared buffer has 4 to 256 entries, a power of two";
    /// Several receivers, placed in the receiver's memory.
    SharePlaceReceiver = 23, "a buffer with several receivers has no one receiver to lie with";
    /// Several senders, placed in the sender's memory.
    SharePlaceSender = 24, "a buffer with several senders has no one sender to lie with";
    /// Several receivers, established by the receiver.
    ShareEstablishReceiver = 25, "a buffer with several receivers has no one receiver to establish it";
    /// Several senders, established by the sender.
    ShareEstablishSender = 26, "a buffer with several senders has no one sender to establish it";
    /// A doorbell beside index publication.
    IndexDoorbell = 27, "the index is a doorbell already";
}

// Codes of errors of a layout: this and the number of the error in it.
const RING: u32 = 0x100;
const LIST: u32 = 0x200;

const RING_ERRORS: [RingError; 5] = [
    RingError::Entries,
    RingError::EntryBytes,
    RingError::Epoch,
    RingError::Placement,
    RingError::Members,
];

const fn ring_code(error: RingError) -> u32 {
    match error {
        RingError::Entries => 1,
        RingError::EntryBytes => 2,
        RingError::Epoch => 3,
        RingError::Placement => 4,
        RingError::Members => 5,
    }
}

const LIST_ERRORS: [ListError; 5] = [
    ListError::Nodes,
    ListError::NodeBytes,
    ListError::Epoch,
    ListError::Placement,
    ListError::Members,
];

const fn list_code(error: ListError) -> u32 {
    match error {
        ListError::Nodes => 1,
        ListError::NodeBytes => 2,
        ListError::Epoch => 3,
        ListError::Placement => 4,
        ListError::Members => 5,
    }
}

impl MeshError {
    /// The error of that code.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        let plain = Self::PLAIN.iter().copied();
        let rings = RING_ERRORS.iter().copied().map(MeshError::Ring);
        let lists = LIST_ERRORS.iter().copied().map(MeshError::List);
        plain
            .chain(rings)
            .chain(lists)
            .find(|error| error.code() == code)
    }
}

impl core::error::Error for MeshError {}
