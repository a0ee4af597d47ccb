// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The receiving end of a linked-list buffer.
//!
//! Owns its place in the list, the head cell and the marks. It follows a link only to a node that it
//! has given back, so that no list, however it is linked, leads it anywhere twice.

use super::super::entry::slot::{self, ReadError};
use super::super::entry::{self, Entry, Expected, Stamp};
use super::super::marks::cell_of;
use super::super::memory::{Fault, Memory};
use super::super::ring::{PeerFault, RingCounters};
use super::word::{low, Link, Nodes, WORDS};
use super::{ListError, ListLayout, ListPopped, ListTaken, MAX_NODES};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// The receiving end.
#[derive(Clone, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
pub struct ListReceiver {
    layout: ListLayout,
    /// The sequence of the next entry.
    head: u32,
    /// The node of the entry before it: its link leads on.
    node: u32,
    /// Nodes that the sender may use.
    lent: u32,
    /// Nodes marked that the sender has not been told of.
    pending: u32,
    /// The mark cells that these are in, one bit each.
    dirty: u32,
    /// The entry in `node` was released.
    released: bool,
    fenced: bool,
    /// The last link of another epoch seen at `node`, so that it is counted once.
    foreign: u64,
    /// Nodes that the sender must not use: `node`, those held, and those it has not been told of.
    busy: Nodes,
    /// Nodes whose entry was taken and not released.
    held: Nodes,
    /// The marks, of which the cells are copies.
    marks: Nodes,
    /// Nodes whose link was followed once, and what it said about the sequence.
    followed: Nodes,
    links: [u16; MAX_NODES as usize],
    counters: RingCounters,
}

impl ListReceiver {
    /// Begins with sequence 0. Nodes, links, head cell and marks must have been zeroed.
    ///
    /// # Errors
    /// [`ListError`]; the end is then detached.
    pub fn attach(&mut self, layout: &ListLayout) -> Result<(), ListError> {
        self.attach_at(layout, 0)
    }

    /// Begins with sequence `index`: how tests reach the 32-bit wrap.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_at(&mut self, layout: &ListLayout, index: u32) -> Result<(), ListError> {
        self.detach();
        layout.check()?;
        self.layout = *layout;
        self.head = index;
        self.node = 0;
        self.lent = layout.capacity();
        self.pending = 0;
        self.dirty = 0;
        self.released = true;
        self.foreign = 0;
        self.busy.clear();
        self.busy.toggle(0);
        self.held.clear();
        self.marks.clear();
        self.followed.clear();
        Ok(())
    }

    /// Ends here; counters stay.
    pub fn detach(&mut self) {
        self.layout = ListLayout::default();
        self.fenced = false;
    }

    /// Whether there is a buffer.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.layout.epoch != 0
    }

    /// Whether an earlier fault ended it.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The buffer.
    #[must_use]
    pub fn layout(&self) -> &ListLayout {
        &self.layout
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }

    /// Counts from zero again.
    pub fn reset_counters(&mut self) {
        self.counters = RingCounters::default();
    }

    /// The sequence of the next entry. All was taken when the sender's tail is the same.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The node whose link leads to the next entry.
    #[must_use]
    pub fn head_node(&self) -> u32 {
        self.node
    }

    /// Nodes taken and not released.
    #[must_use]
    pub fn held(&self) -> u32 {
        (0..WORDS as u32).fold(0, |held, word| {
            self.held.word(word).count_ones().saturating_add(held)
        })
    }

    /// Takes the next entry and releases its node.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn pop<'c, M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        copy: &'c mut [u8],
    ) -> Result<Option<ListPopped<'c>>, PeerFault> {
        let Some(taken) = self.take(memory, copy)? else {
            return Ok(None);
        };
        let credited = self.release(memory, taken.node)? || taken.credited;
        Ok(Some(ListPopped {
            entry: taken.entry,
            credited,
        }))
    }

    /// Whether an entry waits, as far as its link says; [`take`](Self::take) validates the rest.
    ///
    /// # Errors
    /// [`PeerFault`]: the sender is not believed any more; the end is fenced.
    pub fn peek<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        if self.fenced || !self.is_attached() {
            return Err(PeerFault::Fenced);
        }
        match self.look(memory) {
            Ok(node) => Ok(node.is_some()),
            Err(fault) => Err(self.fence(fault)),
        }
    }

    /// Takes the next entry, if there is one: copies it into `copy` and parses the copy. The sender
    /// gets the node back when it has been released and left behind.
    ///
    /// # Errors
    /// [`PeerFault`]: the sender is not believed any more; the end is fenced.
    pub fn take<'c, M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        copy: &'c mut [u8],
    ) -> Result<Option<ListTaken<'c>>, PeerFault> {
        if self.fenced || !self.is_attached() {
            return Err(PeerFault::Fenced);
        }
        let node = match self.look(memory) {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(None),
            Err(fault) => return Err(self.fence(fault)),
        };
        let entry = match self.copy_out(memory, node, copy) {
            Ok(entry) => entry,
            Err(fault) => return Err(self.fence(fault)),
        };
        self.advance(node);
        match self.give_back(memory) {
            Ok(credited) => Ok(Some(ListTaken {
                node,
                entry,
                credited,
            })),
            Err(fault) => Err(self.fence(PeerFault::Memory(fault))),
        }
    }

    /// The node that the link of this one leads to, if the link is there.
    fn look<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<Option<u32>, PeerFault> {
        let place = self.layout.link(self.node).map_err(PeerFault::Memory)?;
        let cell = memory.load_u64(place).map_err(PeerFault::Memory)?;
        let link = Link::from_cell(cell);
        if link.epoch != self.layout.epoch {
            if cell != 0 && cell != self.foreign {
                self.foreign = cell;
                self.counters.stale = self.counters.stale.wrapping_add(1);
            }
            return Ok(None);
        }
        if link.sequence != low(self.head) {
            // What its entry before this one was linked with stays until the new link is written.
            let old = self.links.get(self.node as usize).copied();
            return if self.followed.get(self.node) && old == Some(link.sequence) {
                Ok(None)
            } else {
                Err(PeerFault::Link)
            };
        }
        if link.node >= self.layout.nodes || self.busy.get(link.node) {
            return Err(PeerFault::Link);
        }
        Ok(Some(link.node))
    }

    fn copy_out<'c, M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        node: u32,
        copy: &'c mut [u8],
    ) -> Result<Entry<'c>, PeerFault> {
        let layout = &self.layout;
        let place = layout.node(node).map_err(PeerFault::Memory)?;
        let copy = match slot::read(memory, place, layout.node_bytes, copy) {
            Ok(copy) => copy,
            Err(ReadError::Memory(fault)) => return Err(PeerFault::Memory(fault)),
            Err(ReadError::Malformed) => return Err(PeerFault::Entry),
        };
        let expected = Expected {
            from: Some(layout.from),
            to: Some(layout.to),
            stamp: Stamp {
                sequence: self.head,
                epoch: layout.epoch,
            },
        };
        let Ok((_, entry)) = entry::parse(copy, &expected) else {
            return Err(PeerFault::Entry);
        };
        let counters = &mut self.counters;
        counters.entries = counters.entries.wrapping_add(1);
        counters.bytes = counters.bytes.wrapping_add(copy.len() as u64);
        if matches!(entry, Entry::Request { .. }) {
            counters.requests = counters.requests.wrapping_add(1);
        }
        Ok(entry)
    }

    /// Stands on `node` from now on.
    fn advance(&mut self, node: u32) {
        if let Some(link) = self.links.get_mut(self.node as usize) {
            *link = low(self.head);
        }
        if !self.followed.get(self.node) {
            self.followed.toggle(self.node);
        }
        if self.released {
            self.mark(self.node);
        }
        self.node = node;
        self.released = false;
        self.busy.toggle(node);
        self.held.toggle(node);
        self.lent = self.lent.saturating_sub(1);
        self.head = self.head.wrapping_add(1);
        self.foreign = 0;
    }

    /// Gives up a node that was taken, in any order. A node that is not held stays as it is. Returns
    /// whether nodes were given back: the sender may have waited for them.
    ///
    /// # Errors
    /// [`PeerFault`]: the memory of the marks is out of reach; the end is fenced.
    pub fn release<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        node: u32,
    ) -> Result<bool, PeerFault> {
        if self.fenced || !self.is_attached() {
            return Err(PeerFault::Fenced);
        }
        if !self.held.get(node) {
            return Ok(false);
        }
        self.held.toggle(node);
        if node == self.node {
            // Its link is still to be followed.
            self.released = true;
            return Ok(false);
        }
        self.mark(node);
        self.give_back(memory)
            .map_err(|fault| self.fence(PeerFault::Memory(fault)))
    }

    fn mark(&mut self, node: u32) {
        self.marks.toggle(node);
        self.pending = self.pending.saturating_add(1);
        self.dirty |= 1_u32.checked_shl(cell_of(node)).unwrap_or(0);
    }

    /// Tells the sender what is free, once enough is or it has nothing left.
    fn give_back<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, Fault> {
        let is_due = self.pending >= self.layout.credit_batch() || self.lent == 0;
        if !is_due || self.pending == 0 {
            return Ok(false);
        }
        let epoch = self.layout.epoch;
        let here = Link {
            node: self.node,
            sequence: low(self.head.wrapping_sub(1)),
            epoch,
        };
        // The head first: a sender that sees a mark finds that its node was left.
        memory.store_release_u64(self.layout.credit, here.to_cell())?;
        for cell in 0..self.layout.cells() {
            if self.dirty.checked_shr(cell).unwrap_or(0) & 1 != 0 {
                let place = self.layout.cell(cell)?;
                memory.store_release_u64(place, self.marks.cell(cell, epoch))?;
            }
        }
        self.lent = self.lent.saturating_add(self.pending);
        self.pending = 0;
        self.dirty = 0;
        // What is left: the node that the list goes on from, and those held.
        for word in 0..WORDS as u32 {
            self.busy.set_word(word, self.held.word(word));
        }
        if self.released {
            self.busy.toggle(self.node);
        }
        self.counters.credits = self.counters.credits.wrapping_add(1);
        Ok(true)
    }

    fn fence(&mut self, fault: PeerFault) -> PeerFault {
        self.fenced = true;
        self.counters.faults = self.counters.faults.wrapping_add(1);
        fault
    }

    /// Stops believing the sender for a reason that lies above the buffer.
    pub fn fence_for(&mut self, fault: PeerFault) -> PeerFault {
        self.fence(fault)
    }
}
