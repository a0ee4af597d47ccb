// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Who takes part and where things lie: members, their memories, places in a memory.
//!
//! Owns the names and their valid ranges. Never knows what a memory is made of or how it is reached.

use core::fmt;
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The most drives that one mesh holds.
pub const MAX_DRIVES: usize = 32;
/// The most members of one mesh: its drives and the host.
pub const MAX_MEMBERS: usize = 33;

/// A member of a mesh: 0 is the host, drives are 1..=32 in the order of the mesh.
///
/// IDC specification, "Members". Every value of this type is in range.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    FromZeros,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct MemberId(u16);

impl MemberId {
    /// The host.
    pub const HOST: MemberId = MemberId(0);

    /// The member of that number, or `None` above [`MAX_DRIVES`].
    #[must_use]
    pub const fn new(id: u16) -> Option<Self> {
        if id < MAX_MEMBERS as u16 {
            Some(MemberId(id))
        } else {
            None
        }
    }

    /// The drive at position `index` (from 0) of the mesh.
    #[must_use]
    pub fn drive(index: usize) -> Option<Self> {
        let id = u16::try_from(index.checked_add(1)?).ok()?;
        Self::new(id)
    }

    /// The number, 0..=32.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index into tables of [`MAX_MEMBERS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this is the host.
    #[must_use]
    pub const fn is_host(self) -> bool {
        self.0 == 0
    }

    /// The host and the first `drives` drives, in order.
    pub fn all(drives: u16) -> impl Iterator<Item = MemberId> + Clone {
        (0..=drives.min(MAX_DRIVES as u16)).map(MemberId)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            f.write_str("host")
        } else {
            write!(f, "member {}", self.0)
        }
    }
}

/// A memory that lends itself to the mesh.
///
/// A member lends at most one today, so the number is its owner's; only [`MemoryId::of`] relies on that.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    FromZeros,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct MemoryId(u16);

impl MemoryId {
    /// The memory of that number, or `None` if no mesh can have it.
    #[must_use]
    pub const fn new(id: u16) -> Option<Self> {
        if id < MAX_MEMBERS as u16 {
            Some(MemoryId(id))
        } else {
            None
        }
    }

    /// The memory that `member` lends.
    #[must_use]
    pub const fn of(member: MemberId) -> Self {
        MemoryId(member.0)
    }

    /// The number, 0..=32.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index into tables of [`MAX_MEMBERS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A place: an offset in bytes into a memory.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Location {
    /// Which memory.
    pub memory: MemoryId,
    /// Bytes from its start.
    pub offset: u64,
}

impl Location {
    /// The place `offset` bytes into `member`'s memory.
    #[must_use]
    pub const fn of(member: MemberId, offset: u64) -> Self {
        Location {
            memory: MemoryId::of(member),
            offset,
        }
    }

    /// The place `delta` bytes further, or `None` past the 64-bit end.
    #[must_use]
    pub const fn at(self, delta: u64) -> Option<Self> {
        match self.offset.checked_add(delta) {
            Some(offset) => Some(Location {
                memory: self.memory,
                offset,
            }),
            None => None,
        }
    }
}

/// A set of members.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct MemberSet(u64);

impl MemberSet {
    /// Nobody.
    pub const NONE: MemberSet = MemberSet(0);
    const KNOWN: u64 = (1 << MAX_MEMBERS) - 1;

    /// `member` alone.
    #[must_use]
    pub const fn of(member: MemberId) -> Self {
        MemberSet(1 << member.0)
    }

    /// This set and `member`.
    #[must_use]
    pub const fn with(self, member: MemberId) -> Self {
        MemberSet(self.0 | (1 << member.0))
    }

    /// This set less `member`.
    #[must_use]
    pub const fn without(self, member: MemberId) -> Self {
        MemberSet(self.0 & !(1 << member.0))
    }

    /// This set less all members of `other`.
    #[must_use]
    pub const fn without_all(self, other: MemberSet) -> Self {
        MemberSet(self.0 & !other.0)
    }

    /// All that are in this set or in `other`.
    #[must_use]
    pub const fn with_all(self, other: MemberSet) -> Self {
        MemberSet(self.0 | other.0)
    }

    /// Whether `member` is in it.
    #[must_use]
    pub const fn contains(self, member: MemberId) -> bool {
        self.0 & (1 << member.0) != 0
    }

    /// Whether nobody is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many members are in it.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Its members in order.
    pub fn iter(self) -> impl Iterator<Item = MemberId> {
        (0..MAX_MEMBERS as u16)
            .map(MemberId)
            .filter(move |member| self.contains(*member))
    }

    /// Bit N is member N; `None` if a bit above the last member is set.
    #[must_use]
    pub const fn from_wire(bits: u64) -> Option<Self> {
        if bits & !Self::KNOWN == 0 {
            Some(MemberSet(bits))
        } else {
            None
        }
    }

    /// Bit N is member N.
    #[must_use]
    pub const fn to_wire(self) -> u64 {
        self.0
    }
}
