// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One ring: a sending end and a receiving end over shared memory.
//!
//! Owns the index arithmetic and what makes an entry or a credit believable. Each end holds its own
//! index and never trusts the other's. Never interprets entries, and never waits: an end that finds
//! nothing says so. IDC specification, "Rings".

mod layout;

pub use super::entry::slot::Body;
pub use layout::{Publish, RingError, RingFlags, RingLayout, MAX_ENTRIES, MIN_ENTRIES};

use super::entry::slot::{self, ReadError};
use super::entry::{self, Entry, Expected, Kind, Label, Stamp};
use super::memory::{Fault, Memory};
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
    /// Credits written (receiving end) or newly learnt (sending end).
    pub credits: u64,
    /// Receiving end: entries of another epoch that were dropped.
    pub stale: u64,
    /// Faults; after the first the end is fenced.
    pub faults: u64,
    /// Sending end: words written that announce entries which do not announce themselves.
    pub announcements: u64,
    /// Sending end: flushes, where entries and what announces them lie in different memories.
    pub flushes: u64,
}

/// Why a peer is not believed any more. The ring is fenced until it is attached anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerFault {
    /// The receiver's credit is impossible.
    Credit,
    /// An entry of this epoch has an impossible sequence.
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

/// The sending end. Owns `tail`; learns the receiver's head from its credit cell and believes it
/// only if it moved forward and not past `tail`.
#[derive(FromZeros, Immutable, KnownLayout)]
pub struct Sender {
    layout: RingLayout,
    tail: u32,
    acknowledged: u32,
    fenced: bool,
    counters: RingCounters,
}

impl Sender {
    /// Begins at index 0. The ring and its credit cell must have been zeroed.
    ///
    /// # Errors
    /// [`RingError`]; the end is then detached.
    pub fn attach(&mut self, layout: &RingLayout) -> Result<(), RingError> {
        self.attach_at(layout, 0)
    }

    /// Begins at `index`: how tests reach the 32-bit wrap.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_at(&mut self, layout: &RingLayout, index: u32) -> Result<(), RingError> {
        self.detach();
        layout.check()?;
        self.layout = *layout;
        self.tail = index;
        self.acknowledged = index;
        Ok(())
    }

    /// Ends here; counters stay.
    pub fn detach(&mut self) {
        self.layout = RingLayout::default();
        self.fenced = false;
    }

    /// Whether there is a ring.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.layout.epoch != 0
    }

    /// Whether an earlier fault ended it.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The ring.
    #[must_use]
    pub fn layout(&self) -> &RingLayout {
        &self.layout
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }

    /// Entries that may be sent now, as far as the end knows without looking.
    #[must_use]
    pub fn free(&self) -> u32 {
        let used = self.tail.wrapping_sub(self.acknowledged);
        self.layout.entries.saturating_sub(used)
    }

    /// Looks at the credit cell.
    ///
    /// # Errors
    /// [`PeerFault`]: an impossible credit; the end is fenced.
    pub fn refresh<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<(), PeerFault> {
        if self.fenced || !self.is_attached() {
            return Err(PeerFault::Fenced);
        }
        let cell = match memory.load_u64(self.layout.credit) {
            Ok(cell) => Stamp::from_cell(cell),
            Err(fault) => return Err(self.fence(PeerFault::Memory(fault))),
        };
        if cell.epoch != self.layout.epoch {
            return Ok(());
        }
        // Both distances are taken back from the tail, so that neither a head ahead of it nor one
        // that goes backwards passes.
        let unread = self.tail.wrapping_sub(cell.sequence);
        let known = self.tail.wrapping_sub(self.acknowledged);
        if unread > known {
            return Err(self.fence(PeerFault::Credit));
        }
        if unread < known {
            self.acknowledged = cell.sequence;
            self.counters.credits = self.counters.credits.wrapping_add(1);
        }
        Ok(())
    }

    /// Sends one entry.
    ///
    /// # Errors
    /// - [`PushError::Full`]: no credit; try again after the receiver gave some.
    /// - [`PushError::TooLong`]: `data` exceeds the entry.
    /// - [`PushError::Fault`]: the receiver's credit is impossible or its memory out of reach.
    pub fn push<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        body: &Body<'_>,
    ) -> Result<(), PushError> {
        if self.fenced || !self.is_attached() {
            return Err(PushError::Fault(PeerFault::Fenced));
        }
        if body.data.len() > self.layout.inline_capacity() {
            return Err(PushError::TooLong);
        }
        if self.free() == 0 {
            self.refresh(memory).map_err(PushError::Fault)?;
            if self.free() == 0 {
                self.counters.stalls = self.counters.stalls.wrapping_add(1);
                return Err(PushError::Full);
            }
        }
        let bytes = match self.store(memory, body) {
            Ok(bytes) => bytes,
            Err(fault) => return Err(PushError::Fault(self.fence(PeerFault::Memory(fault)))),
        };
        self.tail = self.tail.wrapping_add(1);
        let counters = &mut self.counters;
        counters.entries = counters.entries.wrapping_add(1);
        counters.bytes = counters.bytes.wrapping_add(bytes.into());
        if body.kind == Kind::Request {
            counters.requests = counters.requests.wrapping_add(1);
        }
        Ok(())
    }

    fn store<M: Memory + ?Sized>(&mut self, memory: &mut M, body: &Body<'_>) -> Result<u32, Fault> {
        let label = Label {
            from: self.layout.from,
            to: self.layout.to,
            stamp: Stamp {
                sequence: self.tail,
                epoch: self.layout.epoch,
            },
        };
        let place = self.layout.slot(self.tail)?;
        slot::write(memory, place, self.layout.entry_bytes, &label, body)
    }

    fn fence(&mut self, fault: PeerFault) -> PeerFault {
        self.fenced = true;
        self.counters.faults = self.counters.faults.wrapping_add(1);
        fault
    }
}

/// The receiving end. Owns `head` and the credit cell; believes an entry only if epoch and sequence
/// are the ones expected, and only in its private copy.
#[derive(FromZeros, Immutable, KnownLayout)]
pub struct Receiver {
    layout: RingLayout,
    head: u32,
    credited: u32,
    fenced: bool,
    /// The last foreign stamp seen at `head`, so that it is counted once.
    foreign: u64,
    counters: RingCounters,
}

impl Receiver {
    /// Begins at index 0. The ring and its credit cell must have been zeroed.
    ///
    /// # Errors
    /// [`RingError`]; the end is then detached.
    pub fn attach(&mut self, layout: &RingLayout) -> Result<(), RingError> {
        self.attach_at(layout, 0)
    }

    /// Begins at `index`: how tests reach the 32-bit wrap.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_at(&mut self, layout: &RingLayout, index: u32) -> Result<(), RingError> {
        self.detach();
        layout.check()?;
        self.layout = *layout;
        self.head = index;
        self.credited = index;
        self.foreign = 0;
        Ok(())
    }

    /// Ends here; counters stay.
    pub fn detach(&mut self) {
        self.layout = RingLayout::default();
        self.fenced = false;
    }

    /// Whether there is a ring.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.layout.epoch != 0
    }

    /// Whether an earlier fault ended it.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The ring.
    #[must_use]
    pub fn layout(&self) -> &RingLayout {
        &self.layout
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }

    /// Takes the next entry, if there is one: copies it into `copy`, frees its slot and parses the
    /// copy. `credited` in the result says that a credit was written for the sender to find.
    ///
    /// # Errors
    /// [`PeerFault`]: the sender is not believed any more; the end is fenced.
    pub fn pop<'c, M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        copy: &'c mut [u8],
    ) -> Result<Option<Popped<'c>>, PeerFault> {
        if self.fenced || !self.is_attached() {
            return Err(PeerFault::Fenced);
        }
        match self.look(memory) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(fault) => return Err(self.fence(fault)),
        }
        let expected = Expected {
            from: Some(self.layout.from),
            to: Some(self.layout.to),
            stamp: self.expected(),
        };
        let read = self
            .layout
            .slot(self.head)
            .map_err(ReadError::Memory)
            .and_then(|place| slot::read(memory, place, self.layout.entry_bytes, copy));
        let copy = match read {
            Ok(copy) => copy,
            Err(error) => return Err(self.fence(error.into())),
        };
        let Ok((_, entry)) = entry::parse(copy, &expected) else {
            return Err(self.fence(PeerFault::Entry));
        };
        self.head = self.head.wrapping_add(1);
        self.foreign = 0;
        let counters = &mut self.counters;
        counters.entries = counters.entries.wrapping_add(1);
        counters.bytes = counters.bytes.wrapping_add(copy.len() as u64);
        if matches!(entry, Entry::Request { .. }) {
            counters.requests = counters.requests.wrapping_add(1);
        }
        match self.give_credit(memory) {
            Ok(credited) => Ok(Some(Popped { entry, credited })),
            Err(fault) => Err(self.fence(PeerFault::Memory(fault))),
        }
    }

    fn expected(&self) -> Stamp {
        Stamp {
            sequence: self.head,
            epoch: self.layout.epoch,
        }
    }

    /// Whether the next entry is there.
    fn look<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        let place = self
            .layout
            .slot(self.head)
            .and_then(|place| slot::end_of(place, self.layout.entry_bytes, 8))
            .map_err(PeerFault::Memory)?;
        let cell = memory.load_u64(place).map_err(PeerFault::Memory)?;
        let stamp = Stamp::from_cell(cell);
        if stamp == self.expected() {
            return Ok(true);
        }
        if stamp.epoch == self.layout.epoch {
            let last_lap = self.head.wrapping_sub(self.layout.entries);
            return if stamp.sequence == last_lap {
                Ok(false)
            } else {
                Err(PeerFault::Sequence)
            };
        }
        if cell != 0 && cell != self.foreign {
            self.foreign = cell;
            self.counters.stale = self.counters.stale.wrapping_add(1);
        }
        Ok(false)
    }

    fn give_credit<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, Fault> {
        if self.head.wrapping_sub(self.credited) < self.layout.credit_batch() {
            return Ok(false);
        }
        memory.store_release_u64(self.layout.credit, self.expected().to_cell())?;
        self.credited = self.head;
        self.counters.credits = self.counters.credits.wrapping_add(1);
        Ok(true)
    }

    fn fence(&mut self, fault: PeerFault) -> PeerFault {
        self.fenced = true;
        self.counters.faults = self.counters.faults.wrapping_add(1);
        fault
    }

    /// Stops believing the sender for a reason that lies above the ring.
    pub fn fence_for(&mut self, fault: PeerFault) -> PeerFault {
        self.fence(fault)
    }
}

/// An entry that was taken.
#[derive(Clone, Copy, Debug)]
pub struct Popped<'c> {
    /// The entry, in the caller's copy.
    pub entry: Entry<'c>,
    /// A credit was written: the sender may have waited for it.
    pub credited: bool,
}
