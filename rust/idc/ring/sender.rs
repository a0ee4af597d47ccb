// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The sending end of a ring.
//!
//! Owns the tail, the entries, their metadata and the tail cell. It learns what the receiver has
//! consumed from the credit cell or the marks, and believes it only if nothing comes back twice and
//! nothing that was not sent.

use super::super::entry::slot::{self, Body};
use super::super::entry::{Kind, Label, Stamp, Trailer};
use super::super::marks::{cell_of, word_of, Marks};
use super::super::memory::{Fault, Memory};
use super::end::{End, Role};
use super::{PeerFault, Publish, PushError, MAX_ENTRIES};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Words of a map with one bit for each slot.
pub(super) const MAP_WORDS: usize = (MAX_ENTRIES / 64) as usize;

/// The sending end.
pub type Sender = End<Sending>;

/// What a [`Sender`] keeps.
#[derive(Clone, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
pub struct Sending {
    tail: u32,
    /// The first index whose slot is not known to be free.
    acknowledged: u32,
    /// The tail that the receiver has been told of.
    announced: u32,
    /// A bit changes when its slot is filled, and the other's when it is found consumed: where they
    /// differ, the slot is in use. Out of order only.
    filled: Marks<MAP_WORDS>,
    consumed: Marks<MAP_WORDS>,
}

impl Role for Sending {
    fn begin(&mut self, index: u32) {
        self.tail = index;
        self.acknowledged = index;
        self.announced = index;
        self.filled.clear();
        self.consumed.clear();
    }
}

impl Sender {
    /// The index of the next entry.
    #[must_use]
    pub const fn tail(&self) -> u32 {
        self.role.tail
    }

    /// The tail that the receiver can know: that of [`tail`](Self::tail), unless entries wait for
    /// [`announce`](Self::announce).
    #[must_use]
    pub const fn announced(&self) -> u32 {
        match self.layout.publish {
            Publish::Entry => self.role.tail,
            Publish::Index => self.role.announced,
        }
    }

    /// The first index that the receiver is not known to have consumed: its head, as far as the end
    /// has looked.
    #[must_use]
    pub const fn acknowledged(&self) -> u32 {
        self.role.acknowledged
    }

    /// Entries that may be sent now, as far as the end knows without looking.
    #[must_use]
    pub const fn free(&self) -> u32 {
        let used = self.role.tail.wrapping_sub(self.role.acknowledged);
        self.layout.entries.saturating_sub(used)
    }

    /// Looks at the credit cell, or at the marks of the oldest entries.
    ///
    /// # Errors
    /// [`PeerFault`]: an impossible credit; the end is fenced.
    pub fn refresh<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<(), PeerFault> {
        self.check()?;
        let before = self.role.acknowledged;
        let learnt = if self.layout.out_of_order() {
            self.read_marks(memory)
        } else {
            self.read_credit(memory)
        };
        self.guard(learnt)?;
        if self.role.acknowledged != before {
            self.counters.credits = self.counters.credits.wrapping_add(1);
        }
        Ok(())
    }

    fn read_credit<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<(), PeerFault> {
        let cell = Stamp::from_cell(memory.load_u64(self.layout.credit)?);
        if cell.epoch != self.layout.epoch {
            return Ok(());
        }
        // Both distances are taken back from the tail, so that neither a head ahead of it nor one
        // that goes backwards passes.
        let unread = self.role.tail.wrapping_sub(cell.sequence);
        let known = self.role.tail.wrapping_sub(self.role.acknowledged);
        if unread > known {
            return Err(PeerFault::Credit);
        }
        self.role.acknowledged = cell.sequence;
        Ok(())
    }

    /// Moves over the slots that were consumed, from the oldest on: at most once around the ring.
    fn read_marks<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<(), PeerFault> {
        let mut seen = None;
        while self.role.acknowledged != self.role.tail {
            let slot = self.layout.slot_number(self.role.acknowledged);
            if seen != Some(cell_of(slot)) {
                seen = Some(cell_of(slot));
                self.read_cell(memory, cell_of(slot))?;
            }
            if self.role.filled.get(slot) != self.role.consumed.get(slot) {
                break;
            }
            self.role.acknowledged = self.role.acknowledged.wrapping_add(1);
        }
        Ok(())
    }

    fn read_cell<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        cell: u32,
    ) -> Result<(), PeerFault> {
        let value = memory.load_u64(self.layout.marks_at(cell)?)?;
        let role = &mut self.role;
        let word = word_of(cell.wrapping_mul(super::super::marks::CELL_BITS));
        let news = role.consumed.news(cell, self.layout.epoch, value);
        if news & !role.filled.xor(&role.consumed, word) != 0 {
            return Err(PeerFault::Credit);
        }
        role.consumed
            .set_word(word, role.consumed.word(word) ^ news);
        Ok(())
    }

    /// Sends one entry. With [`Publish::Index`] or a doorbell the receiver does not hear of it before
    /// the next [`announce`](Self::announce).
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
        self.check().map_err(PushError::Fault)?;
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
        let stored = self.store(memory, body);
        let bytes = self.guard(stored).map_err(PushError::Fault)?;
        if self.layout.out_of_order() {
            let slot = self.layout.slot_number(self.role.tail);
            self.role.filled.toggle(slot);
        }
        self.role.tail = self.role.tail.wrapping_add(1);
        let counters = &mut self.counters;
        counters.entries = counters.entries.wrapping_add(1);
        counters.bytes = counters.bytes.wrapping_add(bytes.into());
        if body.kind == Kind::Request {
            counters.requests = counters.requests.wrapping_add(1);
        }
        Ok(())
    }

    fn store<M: Memory + ?Sized>(&mut self, memory: &mut M, body: &Body<'_>) -> Result<u32, Fault> {
        let layout = &self.layout;
        let label = Label {
            from: layout.from,
            to: layout.to,
            stamp: self.stamp(),
        };
        let tail = self.role.tail;
        if layout.has_metadata() {
            // Before the entry, and in its memory: there when the entry is.
            let units = slot::units_for(body.data.len()).ok_or(Fault::OutOfRange)?;
            let metadata = Trailer::new(&label, body.kind, body.flags, units).metadata();
            memory.store_release_u64(layout.metadata_at(tail)?, metadata)?;
        }
        let place = layout.slot(tail)?;
        match layout.publish {
            Publish::Entry => slot::write(memory, place, layout.entry_bytes, &label, body),
            Publish::Index => slot::place(memory, place, layout.entry_bytes, &label, body),
        }
    }

    const fn stamp(&self) -> Stamp {
        Stamp {
            sequence: self.role.tail,
            epoch: self.layout.epoch,
        }
    }

    /// Tells the receiver of what was sent since the last call, if the entries do not do so
    /// themselves. Returns whether anything was written.
    ///
    /// # Errors
    /// [`PeerFault`]: the memory is out of reach; the end is fenced.
    pub fn announce<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        self.check()?;
        if !self.layout.has_tail() || self.role.announced == self.role.tail {
            return Ok(false);
        }
        // A doorbell is a hint: the receiver looks again if the entry is not there yet.
        if self.layout.publish == Publish::Index && self.layout.is_split() {
            let flushed = memory.flush(self.layout.base.memory);
            self.guard(flushed)?;
            self.counters.flushes = self.counters.flushes.wrapping_add(1);
        }
        let stored = memory.store_release_u64(self.layout.tail, self.stamp().to_cell());
        self.guard(stored)?;
        self.role.announced = self.role.tail;
        self.counters.announcements = self.counters.announcements.wrapping_add(1);
        Ok(true)
    }
}
