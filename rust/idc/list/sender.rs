// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The sending end of a linked-list buffer.
//!
//! Owns the links and which nodes are free: it believes the receiver's head only if it moves along
//! the list, and a mark only of a node that the head has left. Never writes a node that is not free.

use super::super::entry::slot::{self, Body};
use super::super::entry::{Kind, Label, Stamp};
use super::super::marks::{word_of, CELL_BITS};
use super::super::memory::{Fault, Memory};
use super::super::ring::{PeerFault, PushError, RingCounters};
use super::word::{low, Link, Nodes, WORDS};
use super::{ListError, ListLayout, MAX_NODES};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// Nodes by the low bits of their entry's sequence: all from the receiver's head on fit in.
const ORDER: usize = MAX_NODES as usize;

/// The sending end.
#[derive(Clone, Debug, Eq, Hash, PartialEq, FromZeros, Immutable, KnownLayout)]
pub struct ListSender {
    layout: ListLayout,
    /// The sequence of the next entry.
    tail: u32,
    /// The sequence up to which links lead the receiver.
    announced: u32,
    /// The sequence in the node that the receiver stood on when it last told.
    head: u32,
    /// The node of the last entry, whose link is written next.
    last: u32,
    /// Where the search for a free node begins.
    cursor: u32,
    /// Nodes that may be written.
    free: u32,
    /// A link that waits for a flush (not 0), and the node that it belongs to.
    withheld: u64,
    anchor: u32,
    fenced: bool,
    used: Nodes,
    /// Used nodes whose link the receiver has followed.
    left: Nodes,
    /// The marks as they were last seen.
    marks: Nodes,
    /// The nodes of the entries from `head` to before `tail`.
    order: [u8; ORDER],
    /// What the link word of each node says about the sequence.
    linked: [u16; ORDER],
    counters: RingCounters,
}

impl ListSender {
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
        self.tail = index;
        self.announced = index;
        self.head = index.wrapping_sub(1);
        self.last = 0;
        self.cursor = 1;
        self.free = layout.capacity();
        self.used.clear();
        self.used.toggle(0);
        self.left.clear();
        self.marks.clear();
        self.linked = [0; ORDER];
        self.enter(self.head, 0);
        Ok(())
    }

    /// Ends here; counters stay.
    pub fn detach(&mut self) {
        self.layout = ListLayout::default();
        self.fenced = false;
        self.withheld = 0;
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

    /// Entries that may be sent now, as far as the end knows without looking.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// The sequence of the next entry. All was taken when the receiver's head is the same.
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// The sequence up to which the receiver can see entries.
    #[must_use]
    pub fn announced(&self) -> u32 {
        self.announced
    }

    /// The node of the last entry.
    #[must_use]
    pub fn tail_node(&self) -> u32 {
        self.last
    }

    /// Looks at the marks and at the head cell.
    ///
    /// # Errors
    /// [`PeerFault`]: an impossible head or mark; the end is fenced.
    pub fn refresh<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<(), PeerFault> {
        if self.fenced || !self.is_attached() {
            return Err(PeerFault::Fenced);
        }
        self.learn(memory).map_err(|fault| self.fence(fault))
    }

    fn learn<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<(), PeerFault> {
        // The marks first: a head that is read after them has left all nodes that they are of.
        let mut news = [0_u64; WORDS];
        for cell in 0..self.layout.cells() {
            let place = self.layout.cell(cell).map_err(PeerFault::Memory)?;
            let value = memory.load_u64(place).map_err(PeerFault::Memory)?;
            let word = word_of(cell.wrapping_mul(CELL_BITS)) as usize;
            if let Some(word) = news.get_mut(word) {
                *word |= self.marks.news(cell, self.layout.epoch, value);
            }
        }
        let cell = memory.load_u64(self.layout.credit);
        self.follow(Link::from_cell(cell.map_err(PeerFault::Memory)?))?;
        let words = (0_u32..).zip(news);
        if (words.clone())
            .any(|(word, new)| new & !(self.used.word(word) & self.left.word(word)) != 0)
        {
            return Err(PeerFault::Credit);
        }
        let mut freed = 0_u32;
        for (word, new) in words.filter(|(_, new)| *new != 0) {
            for map in [&mut self.used, &mut self.left, &mut self.marks] {
                map.set_word(word, map.word(word) ^ new);
            }
            freed = freed.saturating_add(new.count_ones());
        }
        if freed != 0 {
            self.free = self.free.saturating_add(freed);
            self.counters.credits = self.counters.credits.wrapping_add(1);
        }
        Ok(())
    }

    /// Moves along the list to where the receiver says it stands.
    fn follow(&mut self, told: Link) -> Result<(), PeerFault> {
        if told.epoch != self.layout.epoch {
            return Ok(());
        }
        let steps = u32::from(told.sequence.wrapping_sub(low(self.head)));
        let head = self.head.wrapping_add(steps);
        // At most as far as links lead, which bounds the walk below by the number of nodes.
        let is_ahead = steps >= self.announced.wrapping_sub(self.head);
        if is_ahead || self.at(head) != told.node {
            return Err(PeerFault::Credit);
        }
        while self.head != head {
            self.left.toggle(self.at(self.head));
            self.head = self.head.wrapping_add(1);
        }
        Ok(())
    }

    fn at(&self, sequence: u32) -> u32 {
        let node = self.order.get(sequence as usize % ORDER);
        node.copied().map_or(MAX_NODES, u32::from)
    }

    fn enter(&mut self, sequence: u32, node: u32) {
        if let Some(entry) = self.order.get_mut(sequence as usize % ORDER) {
            *entry = node as u8;
        }
    }

    /// Sends one entry. Where nodes and links lie in one memory the receiver can see it at once, else
    /// after [`announce`](Self::announce).
    ///
    /// # Errors
    /// - [`PushError::Full`]: no free node; what was not announced is. Try again later.
    /// - [`PushError::TooLong`]: `data` exceeds a node.
    /// - [`PushError::Fault`]: the receiver's head or a mark is impossible, or a memory out of reach.
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
        if self.free == 0 {
            self.refresh(memory).map_err(PushError::Fault)?;
        }
        let Some(node) = self.pick() else {
            self.announce(memory).map_err(PushError::Fault)?;
            self.counters.stalls = self.counters.stalls.wrapping_add(1);
            return Err(PushError::Full);
        };
        match self.store(memory, node, body) {
            Ok(bytes) => self.account(node, body.kind, bytes),
            Err(fault) => return Err(PushError::Fault(self.fence(PeerFault::Memory(fault)))),
        }
        Ok(())
    }

    /// A free node, taking turns, so that marks of nodes used together share a cell.
    fn pick(&self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let nodes = (self.cursor..self.layout.nodes).chain(0..self.cursor);
        nodes.into_iter().find(|node| !self.used.get(*node))
    }

    fn store<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        node: u32,
        body: &Body<'_>,
    ) -> Result<u32, Fault> {
        let layout = &self.layout;
        let sequence = self.tail;
        // A node that was kept for 65,536 entries: its old link must not pass for the new one.
        let stale = self.linked.get(node as usize).copied();
        if stale == Some(low(sequence.wrapping_add(1))) {
            memory.store_release_u64(layout.link(node)?, 0)?;
        }
        let label = Label {
            from: layout.from,
            to: layout.to,
            stamp: Stamp {
                sequence,
                epoch: layout.epoch,
            },
        };
        let bytes = slot::place(memory, layout.node(node)?, layout.node_bytes, &label, body)?;
        let link = Link {
            node,
            sequence: low(sequence),
            epoch: layout.epoch,
        };
        let is_first = self.announced == sequence;
        if layout.is_split() && is_first {
            self.withheld = link.to_cell();
            self.anchor = self.last;
        } else {
            // Behind a withheld link nobody gets here yet.
            memory.store_release_u64(layout.link(self.last)?, link.to_cell())?;
        }
        Ok(bytes)
    }

    fn account(&mut self, node: u32, kind: Kind, bytes: u32) {
        if let Some(linked) = self.linked.get_mut(self.last as usize) {
            *linked = low(self.tail);
        }
        self.enter(self.tail, node);
        self.used.toggle(node);
        self.free = self.free.saturating_sub(1);
        self.cursor = node.wrapping_add(1);
        self.last = node;
        self.tail = self.tail.wrapping_add(1);
        if self.withheld == 0 {
            self.announced = self.tail;
        }
        let counters = &mut self.counters;
        counters.entries = counters.entries.wrapping_add(1);
        counters.bytes = counters.bytes.wrapping_add(bytes.into());
        if kind == Kind::Request {
            counters.requests = counters.requests.wrapping_add(1);
        }
    }

    /// Makes visible what is not: makes sure that the nodes have arrived, then links them. Returns
    /// whether there was anything.
    ///
    /// # Errors
    /// [`PeerFault`]: a memory is out of reach; the end is fenced.
    pub fn announce<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Result<bool, PeerFault> {
        if self.fenced || !self.is_attached() {
            return Err(PeerFault::Fenced);
        }
        if self.withheld == 0 {
            return Ok(false);
        }
        let linked = memory
            .flush(self.layout.base.memory)
            .and_then(|()| memory.store_release_u64(self.layout.link(self.anchor)?, self.withheld));
        if let Err(fault) = linked {
            return Err(self.fence(PeerFault::Memory(fault)));
        }
        self.withheld = 0;
        self.announced = self.tail;
        let counters = &mut self.counters;
        counters.flushes = counters.flushes.wrapping_add(1);
        counters.announcements = counters.announcements.wrapping_add(1);
        Ok(true)
    }

    fn fence(&mut self, fault: PeerFault) -> PeerFault {
        self.fenced = true;
        self.counters.faults = self.counters.faults.wrapping_add(1);
        fault
    }
}
