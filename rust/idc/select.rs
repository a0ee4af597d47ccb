// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Whom a receiver serves next, of those who wait.
//!
//! Owns the order and its bound: nobody waits for more than 2 x members selections, whatever the
//! others send. Never looks at memory: the caller says for whom it saw something ([`Selector::see`]),
//! in *scans* that [`Selector::scan_due`] asks for. IDC specification, "Receiving".
//!
//! Why the bound holds, with *m* members. Everybody has at most one place in the order, and whoever
//! is served gives it up: its next entry gets a place when it is seen, behind all who have one
//! (oldest), or its turn comes after that of all who wait (round robin). So at most *m* - 1 others are
//! served between sight and service. And something that has arrived is seen after at most *m*
//! selections, since a scan is due then.

use super::member::{MemberId, MemberSet, MAX_MEMBERS};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// In which order those are served who wait.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Select {
    /// In the order of their ids, from the last one served.
    #[default]
    RoundRobin = 0,
    /// Whoever was seen waiting first.
    Oldest = 1,
}

impl Select {
    /// The order of that number in the interface to userspace.
    #[must_use]
    pub const fn from_wire(code: u8) -> Option<Self> {
        match code {
            0 => Some(Select::RoundRobin),
            1 => Some(Select::Oldest),
            _ => None,
        }
    }

    /// Its number in the interface to userspace.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        self as u8
    }
}

/// The order of those who wait. All zeros is a round robin over nobody.
#[derive(Clone, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Selector {
    /// When somebody was seen, by id; in force for those in `waiting`.
    seen: [u64; MAX_MEMBERS],
    /// The next number for `seen`.
    sights: u64,
    /// Seen and not served yet.
    waiting: MemberSet,
    /// Selections since the last scan.
    since_scan: u32,
    /// Where the round begins.
    first: u16,
    select: Select,
}

impl Selector {
    /// Nobody waits, and from now on `select` says in which order they are served.
    pub fn init(&mut self, select: Select) {
        self.select = select;
        self.waiting = MemberSet::NONE;
        self.since_scan = 0;
        self.first = 0;
    }

    /// The order.
    #[must_use]
    pub const fn select(&self) -> Select {
        self.select
    }

    /// Those who wait.
    #[must_use]
    pub const fn waiting(&self) -> MemberSet {
        self.waiting
    }

    /// Whether the receiver has to look at all of `members` again before the next selection: nobody
    /// is known to wait, or as many were served as there are members.
    #[must_use]
    pub fn scan_due(&self, members: MemberSet) -> bool {
        self.waiting.is_empty() || self.since_scan >= members.len()
    }

    /// `members` in the order in which a scan looks at them: who is seen in one scan is as old as each
    /// other, and whoever was served last comes last. The scan counts as done.
    pub fn scan(&mut self, members: MemberSet) -> impl Iterator<Item = MemberId> {
        self.since_scan = 0;
        let first = self.first;
        let behind = members.iter().filter(move |member| member.get() >= first);
        let ahead = members.iter().filter(move |member| member.get() < first);
        behind.chain(ahead)
    }

    /// Something of `member` waits. Whoever waits already keeps its place.
    pub fn see(&mut self, member: MemberId) {
        if self.waiting.contains(member) {
            return;
        }
        if let Some(seen) = self.seen.get_mut(member.index()) {
            *seen = self.sights;
            // 2^64 sights do not come to an end.
            self.sights = self.sights.wrapping_add(1);
            self.waiting = self.waiting.with(member);
        }
    }

    /// `member` does not wait any more: it was lost.
    pub fn forget(&mut self, member: MemberId) {
        self.waiting = self.waiting.without(member);
    }

    /// Who is to be served now, if anybody waits: one selection.
    pub fn pick(&mut self) -> Option<MemberId> {
        let picked = match self.select {
            Select::RoundRobin => {
                let mut behind = self.waiting.iter();
                let behind = behind.find(|member| member.get() >= self.first);
                behind.or_else(|| self.waiting.iter().next())
            }
            Select::Oldest => {
                let age = |member: &MemberId| self.seen.get(member.index()).copied();
                self.waiting.iter().min_by_key(age)
            }
        }?;
        self.waiting = self.waiting.without(picked);
        self.first = picked.get().wrapping_add(1);
        self.since_scan = self.since_scan.saturating_add(1);
        Some(picked)
    }
}
