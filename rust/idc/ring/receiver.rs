// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The receiving end of a ring.
//!
//! Owns the head, the credit cell and the marks. It believes an entry only if epoch and sequence are
//! the ones expected, and only in its private copy; a tail only if it is within the ring; a doorbell
//! never: it only says where to look.

use super::super::entry::slot::{self, ReadError};
use super::super::entry::{self, Entry, Expected, Metadata, Stamp};
use super::super::marks::{cell_of, Marks};
use super::super::memory::{Fault, Memory};
use super::end::{End, Role};
use super::sender::MAP_WORDS;
use super::{PeerFault, Publish};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The receiving end.
pub type Receiver = End<Receiving>;

/// What a [`Receiver`] keeps.
#[derive(Clone, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
pub struct Receiving {
    /// The index of the next entry to take.
    head: u32,
    /// In order: the index of the next entry to release.
    released: u32,
    /// The index that the sender has been told of.
    credited: u32,
    /// The last tail or doorbell that was found.
    tail: u32,
    /// The last foreign stamp seen where the next one is expected, so that it is counted once.
    foreign: u64,
    /// Out of order: slots whose entry was taken and not released.
    held: Marks<MAP_WORDS>,
    /// Out of order: what the sender is told by the marks.
    consumed: Marks<MAP_WORDS>,
}

impl Role for Receiving {
    fn begin(&mut self, index: u32) {
        self.head = index;
        self.released = index;
        self.credited = index;
        self.tail = index;
        self.foreign = 0;
        self.held.clear();
        self.consumed.clear();
    }
}

/// An entry that was taken, and its slot released.
#[derive(Clone, Copy, Debug)]
pub struct Popped<'c> {
    /// The entry, in the caller's copy.
    pub entry: Entry<'c>,
    /// Slots were given back: the sender may have waited for them.
    pub credited: bool,
}

/// An entry that was taken; its slot is still held.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'c> {
    /// What [`Receiver::release`] gives back.
    pub index: u32,
    /// The entry, in the caller's copy.
    pub entry: Entry<'c>,
}

impl Receiver {
    /// The index of the next entry to take.
    #[must_use]
    pub const fn head(&self) -> u32 {
        self.role.head
    }

    /// Whether the next entry is there. One look, without taking it.
    ///
    /// # Errors
    /// [`PeerFault`]: the sender is not believed any more; the end is fenced.
    pub fn peek<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        self.check()?;
        let found = self.look(memory);
        self.guard(found)
    }

    /// What the sender says of the next entry, if it is there and the ring has metadata, so that
    /// nobody need copy an entry to know whom it is for and how long it is. A hint: only
    /// [`take`](Self::take) checks it against the entry.
    ///
    /// # Errors
    /// [`PeerFault`]: the sender is not believed any more; the end is fenced.
    pub fn metadata<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
    ) -> Result<Option<Metadata>, PeerFault> {
        if !self.layout.has_metadata() || !self.peek(memory)? {
            return Ok(None);
        }
        let loaded = self.load_metadata(memory);
        let word = self.guard(loaded)?;
        let metadata = Metadata::parse(word).ok_or(PeerFault::Entry);
        self.guard(metadata).map(Some)
    }

    /// Takes the next entry, if there is one, and frees its slot: [`take`](Self::take), then
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// [`PeerFault`]: the sender is not believed any more; the end is fenced.
    pub fn pop<'c, M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        copy: &'c mut [u8],
    ) -> Result<Option<Popped<'c>>, PeerFault> {
        let Some(Taken { index, entry }) = self.take(memory, copy)? else {
            return Ok(None);
        };
        let credited = self.release(memory, index)?;
        Ok(Some(Popped { entry, credited }))
    }

    /// Takes the next entry, if there is one: copies it into `copy` and parses the copy. The slot is
    /// held until it is released.
    ///
    /// # Errors
    /// [`PeerFault`]: the sender is not believed any more; the end is fenced.
    pub fn take<'c, M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        copy: &'c mut [u8],
    ) -> Result<Option<Taken<'c>>, PeerFault> {
        if !self.peek(memory)? {
            return Ok(None);
        }
        let read = self.copy_out(memory, copy);
        let copy = self.guard(read)?;
        let expected = Expected {
            from: Some(self.layout.from),
            to: Some(self.layout.to),
            stamp: self.expected(),
        };
        let parsed = entry::parse(copy, &expected).map_err(|_| PeerFault::Entry);
        let (_, entry) = self.guard(parsed)?;
        if self.layout.has_metadata() {
            let loaded = self.load_metadata(memory);
            let said = self.guard(loaded)?;
            if entry::metadata_of(copy) != Some(said) {
                return Err(self.fence_for(PeerFault::Entry));
            }
        }
        let index = self.role.head;
        if self.layout.out_of_order() {
            let slot = self.layout.slot_number(index);
            self.role.held.toggle(slot);
        }
        self.role.head = index.wrapping_add(1);
        self.role.foreign = 0;
        let counters = &mut self.counters;
        counters.entries = counters.entries.wrapping_add(1);
        counters.bytes = counters.bytes.wrapping_add(copy.len() as u64);
        if matches!(entry, Entry::Request { .. }) {
            counters.requests = counters.requests.wrapping_add(1);
        }
        Ok(Some(Taken { index, entry }))
    }

    /// Gives the slot of a taken entry back: any one with
    /// [`OUT_OF_ORDER`](super::RingFlags::OUT_OF_ORDER), else this and all before it. An index that is
    /// not held is left alone. Returns whether the sender was told of free slots.
    ///
    /// # Errors
    /// [`PeerFault`]: the memory is out of reach; the end is fenced.
    pub fn release<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        index: u32,
    ) -> Result<bool, PeerFault> {
        self.check()?;
        let told = if self.layout.out_of_order() {
            self.mark(memory, index)
        } else {
            self.give_credit(memory, index)
        };
        if self.guard(told)? {
            self.counters.credits = self.counters.credits.wrapping_add(1);
            return Ok(true);
        }
        Ok(false)
    }

    /// Entries taken and not released.
    #[must_use]
    pub fn held(&self) -> u32 {
        if self.layout.out_of_order() {
            let words = 0..MAP_WORDS as u32;
            return words
                .map(|word| self.role.held.word(word).count_ones())
                .fold(0, u32::wrapping_add);
        }
        self.role.head.wrapping_sub(self.role.released)
    }

    fn expected(&self) -> Stamp {
        Stamp {
            sequence: self.role.head,
            epoch: self.layout.epoch,
        }
    }

    fn copy_out<'c, M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        copy: &'c mut [u8],
    ) -> Result<&'c [u8], ReadError> {
        let place = self.layout.slot(self.role.head)?;
        slot::read(memory, place, self.layout.entry_bytes, copy)
    }

    fn load_metadata<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<u64, Fault> {
        memory.load_u64(self.layout.metadata_at(self.role.head)?)
    }

    /// Whether the next slot is still held: an honest sender cannot have filled it.
    fn is_blocked(&self) -> bool {
        let role = &self.role;
        if self.layout.out_of_order() {
            return role.held.get(self.layout.slot_number(role.head));
        }
        role.head.wrapping_sub(role.released) >= self.layout.entries
    }

    /// Whether the next entry is there.
    fn look<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        let blocked = self.is_blocked();
        if self.layout.publish == Publish::Index {
            let announced = self.look_at_tail(memory)?;
            return if announced && blocked {
                Err(PeerFault::Sequence)
            } else {
                Ok(announced)
            };
        }
        if blocked || (self.layout.has_tail() && !self.look_at_doorbell(memory)?) {
            return Ok(false);
        }
        self.look_at_stamp(memory)
    }

    fn look_at_tail<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        if self.role.tail != self.role.head {
            return Ok(true);
        }
        let cell = memory.load_u64(self.layout.tail)?;
        let tail = Stamp::from_cell(cell);
        if tail.epoch != self.layout.epoch {
            self.count_foreign(cell);
            return Ok(false);
        }
        // A tail that goes backwards is as far away as one that is too far ahead.
        if tail.sequence.wrapping_sub(self.role.head) > self.layout.entries {
            return Err(PeerFault::Sequence);
        }
        self.role.tail = tail.sequence;
        Ok(self.role.tail != self.role.head)
    }

    /// Whether the doorbell, as it was last seen, asks for a look. Wrong or not, the next look at an
    /// entry costs no more than without it.
    fn look_at_doorbell<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        if self.role.tail == self.role.head {
            let tail = Stamp::from_cell(memory.load_u64(self.layout.tail)?);
            if tail.epoch == self.layout.epoch {
                self.role.tail = tail.sequence;
            }
        }
        Ok(self.role.tail != self.role.head)
    }

    fn look_at_stamp<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        let slot = self.layout.slot(self.role.head)?;
        let cell = memory.load_u64(slot::end_of(slot, self.layout.entry_bytes, 8)?)?;
        let stamp = Stamp::from_cell(cell);
        if stamp == self.expected() {
            return Ok(true);
        }
        if stamp.epoch == self.layout.epoch {
            let last_lap = self.role.head.wrapping_sub(self.layout.entries);
            return if stamp.sequence == last_lap {
                Ok(false)
            } else {
                Err(PeerFault::Sequence)
            };
        }
        self.count_foreign(cell);
        Ok(false)
    }

    fn count_foreign(&mut self, cell: u64) {
        if cell != 0 && cell != self.role.foreign {
            self.role.foreign = cell;
            self.counters.stale = self.counters.stale.wrapping_add(1);
        }
    }

    /// Releases all up to `index`, and says so if a quarter of the ring has come together.
    fn give_credit<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        index: u32,
    ) -> Result<bool, Fault> {
        let role = &mut self.role;
        let held = role.head.wrapping_sub(role.released);
        if index.wrapping_sub(role.released) >= held {
            return Ok(false);
        }
        role.released = index.wrapping_add(1);
        if role.released.wrapping_sub(role.credited) < self.layout.credit_batch() {
            return Ok(false);
        }
        let credit = Stamp {
            sequence: role.released,
            epoch: self.layout.epoch,
        };
        memory.store_release_u64(self.layout.credit, credit.to_cell())?;
        role.credited = role.released;
        Ok(true)
    }

    /// Releases `index` alone.
    fn mark<M: Memory + ?Sized>(&mut self, memory: &mut M, index: u32) -> Result<bool, Fault> {
        let slot = self.layout.slot_number(index);
        // Of the indices of a slot the one that is held is less than a lap behind.
        let behind = self.role.head.wrapping_sub(index);
        if !self.role.held.get(slot) || behind == 0 || behind > self.layout.entries {
            return Ok(false);
        }
        self.role.held.toggle(slot);
        self.role.consumed.toggle(slot);
        let cell = cell_of(slot);
        let value = self.role.consumed.cell(cell, self.layout.epoch);
        memory.store_release_u64(self.layout.marks_at(cell)?, value)?;
        Ok(true)
    }
}
