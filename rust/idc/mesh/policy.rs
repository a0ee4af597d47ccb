// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a mesh is asked to be: form, sharing, placement, publication, who establishes its buffers
//! and who tells. IDC specification, "Mesh".
//!
//! Owns the choices and their numbers, which are those of the interface to userspace. What cannot be
//! combined is in `check`.

use super::super::member::MemberId;
use super::super::ring::{Publish, RingFlags};
use super::super::select::Select;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// What a buffer is made of.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Form {
    /// Slots in a circle.
    #[default]
    Ring = 0,
    /// Nodes from a pool, linked to their successors.
    List = 1,
}

/// Who has a buffer together.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Share {
    /// One buffer for each ordered pair.
    #[default]
    None = 0,
    /// One for each receiver: all others write it.
    Writers = 1,
    /// One for each sender: all others read it.
    Readers = 2,
    /// One for all members.
    Both = 3,
    /// One for each pair: both directions. Its member of the lower id counts as its sender, the
    /// other one as its receiver, where a choice speaks of either.
    Pair = 4,
}

/// In whose memory the entries lie. A member that lends none is stood in for by the host.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Place {
    /// The receiver's.
    #[default]
    Receiver = 0,
    /// The sender's.
    Sender = 1,
    /// The host's.
    Host = 2,
    /// This member's, a hub. It must lend memory.
    Member(MemberId) = 3,
}

/// Who decides where in the memories a buffer lies.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Establish {
    /// The host, for all.
    #[default]
    Host = 0,
    /// The buffer's receiver.
    Receiver = 1,
    /// The buffer's sender.
    Sender = 2,
    /// This member, for all.
    Member(MemberId) = 3,
    /// The member of the buffer that advertises most free memory; of equals its receiver, and of a
    /// buffer for all the lowest id.
    Discover = 4,
}

/// Who tells the members what was established.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Notify {
    /// The host collects it and tells all.
    #[default]
    Host = 0,
    /// Members read each other's statements.
    Peer = 1,
}

/// Numbers of a choice in the interface to userspace.
macro_rules! wire {
    ($($name:ident: $($code:literal => $value:ident),*;)*) => {$(
        impl $name {
            /// The choice of that number in the interface to userspace.
            #[must_use]
            pub const fn from_wire(code: u8) -> Option<Self> {
                match code {
                    $($code => Some($name::$value),)*
                    _ => None,
                }
            }

            /// Its number in the interface to userspace.
            #[must_use]
            pub const fn to_wire(self) -> u8 {
                self as u8
            }
        }
    )*};
}

wire! {
    Form: 0 => Ring, 1 => List;
    Share: 0 => None, 1 => Writers, 2 => Readers, 3 => Both, 4 => Pair;
    Notify: 0 => Host, 1 => Peer;
}

impl Place {
    /// The choice of that number in the interface to userspace; `member` counts for 3 only.
    #[must_use]
    pub const fn from_wire(code: u8, member: MemberId) -> Option<Self> {
        match code {
            0 => Some(Place::Receiver),
            1 => Some(Place::Sender),
            2 => Some(Place::Host),
            3 => Some(Place::Member(member)),
            _ => None,
        }
    }

    /// Its number in the interface to userspace.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        match self {
            Place::Receiver => 0,
            Place::Sender => 1,
            Place::Host => 2,
            Place::Member(_) => 3,
        }
    }
}

impl Establish {
    /// The choice of that number in the interface to userspace; `member` counts for 3 only.
    #[must_use]
    pub const fn from_wire(code: u8, member: MemberId) -> Option<Self> {
        match code {
            0 => Some(Establish::Host),
            1 => Some(Establish::Receiver),
            2 => Some(Establish::Sender),
            3 => Some(Establish::Member(member)),
            4 => Some(Establish::Discover),
            _ => None,
        }
    }

    /// Its number in the interface to userspace.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        match self {
            Establish::Host => 0,
            Establish::Receiver => 1,
            Establish::Sender => 2,
            Establish::Member(_) => 3,
            Establish::Discover => 4,
        }
    }
}

impl Share {
    /// A placement that goes with it, for who has no other wish: where all receivers are one, with
    /// the receiver; else where all senders are one, with the sender; else with the host.
    #[must_use]
    pub const fn usual_place(self) -> Place {
        match self {
            Share::None | Share::Writers | Share::Pair => Place::Receiver,
            Share::Readers => Place::Sender,
            Share::Both => Place::Host,
        }
    }
}

/// What the buffers of a mesh are to be. All zero is one ring for each ordered pair, in the
/// receiver's memory, published by its entries, established and told by the host.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Policy {
    /// Entries of a buffer; 0: the shape's. Rings: a power of two, 4..=4096; lists: 2..=256 nodes,
    /// of which one holds no message; shared: a power of two, 4..=256.
    pub entries: u32,
    /// Bytes of an entry, a power of two, 64..=4096; 0: the shape's.
    pub entry_bytes: u32,
    /// What a buffer is made of.
    pub form: Form,
    /// Who has one together.
    pub share: Share,
    /// How entries of a ring are published.
    pub publish: Publish,
    /// What a ring has besides.
    pub flags: RingFlags,
    /// Where entries lie.
    pub place: Place,
    /// Who establishes.
    pub establish: Establish,
    /// Who tells.
    pub notify: Notify,
    /// Whom a receiver serves next.
    pub select: Select,
}

/// How the buffer of one ordered pair differs from the mesh's [`Policy`]. `None`: it does not.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct PairPolicy {
    /// The sender.
    pub from: MemberId,
    /// The receiver.
    pub to: MemberId,
    /// Where its entries lie.
    pub place: Option<Place>,
    /// How they are published.
    pub publish: Option<Publish>,
    /// How many; as in [`Policy`], but not 0.
    pub entries: Option<u32>,
    /// Bytes of each; as in [`Policy`], but not 0.
    pub entry_bytes: Option<u32>,
    /// What the buffer is made of.
    pub form: Option<Form>,
    /// What a ring has besides.
    pub flags: Option<RingFlags>,
}

impl PairPolicy {
    /// `policy` with what differs for this pair.
    #[must_use]
    pub fn over(&self, policy: &Policy) -> Policy {
        Policy {
            entries: self.entries.unwrap_or(policy.entries),
            entry_bytes: self.entry_bytes.unwrap_or(policy.entry_bytes),
            form: self.form.unwrap_or(policy.form),
            publish: self.publish.unwrap_or(policy.publish),
            flags: self.flags.unwrap_or(policy.flags),
            place: self.place.unwrap_or(policy.place),
            ..*policy
        }
    }
}
