// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A ring of any form over the memories of four members, for tests: member 1 sends, member 2
//! receives, and any part may lie with the host (0), either of them, or a third (3).

#![allow(dead_code)]

use super::fabric::{Shared, View};
use idc::entry::{Entry, Kind, Request};
use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fault, Memory};
use idc::ring::{
    Body, PeerFault, Publish, PushError, Receiver, RingFlags, RingLayout, Sender, Taken,
};
use zerocopy::{FromZeros, IntoBytes};

pub const EPOCH: u32 = 7;
pub const SENDER: u16 = 1;
pub const RECEIVER: u16 = 2;
pub const MEMORIES: u16 = 4;

pub const CREDIT: u64 = 64;
pub const TAIL: u64 = 128;
pub const MARKS: u64 = 192;
pub const METADATA: u64 = 512;
pub const BASE: u64 = 4096;

/// In which memory each part lies.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub base: u16,
    pub tail: u16,
    /// Credit cell or marks.
    pub back: u16,
}

pub const DEFAULT: Places = Places {
    base: RECEIVER,
    tail: RECEIVER,
    back: SENDER,
};

pub fn member(id: u16) -> MemberId {
    MemberId::new(id).unwrap()
}

pub fn layout(
    entries: u32,
    entry_bytes: u32,
    publish: Publish,
    flags: u8,
    places: Places,
) -> RingLayout {
    let at = |memory, offset| Location::of(member(memory), offset);
    RingLayout {
        entries,
        entry_bytes,
        epoch: EPOCH,
        from: member(SENDER),
        to: member(RECEIVER),
        publish,
        flags: RingFlags::from_wire(flags).unwrap(),
        base: at(places.base, BASE),
        credit: at(places.back, CREDIT),
        tail: at(places.tail, TAIL),
        marks: at(places.back, MARKS),
        metadata: at(places.base, METADATA),
    }
}

/// How a drive's DMA sees the memories: an entry of 64 bytes is one write.
pub struct Dma(pub View);

impl Memory for Dma {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        self.0.read(at, buf)
    }

    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.0.write(at, data)
    }

    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        self.0.load_u64(at)
    }

    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        self.0.store_release_u64(at, value)
    }

    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault> {
        self.0.flush(memory)
    }

    fn publish(&mut self, at: Location, entry: &[u8]) -> Result<(), Fault> {
        self.0.write(at, entry)
    }
}

pub type Message = (u16, Vec<u8>);

/// Both ends of one ring.
pub struct Pair {
    pub store: Shared,
    pub layout: RingLayout,
    pub sender: Sender,
    pub receiver: Receiver,
    /// Entries are written in one go.
    pub dma: bool,
}

impl Pair {
    pub fn new(layout: RingLayout, start: u32) -> Self {
        let store = Shared::new();
        for id in 0..MEMORIES {
            store.add(id, BASE as usize + layout.bytes() as usize);
        }
        let mut sender = Sender::new_zeroed();
        let mut receiver = Receiver::new_zeroed();
        sender.attach_at(&layout, start).unwrap();
        receiver.attach_at(&layout, start).unwrap();
        Pair {
            store,
            layout,
            sender,
            receiver,
            dma: false,
        }
    }

    pub fn push(&mut self, cid: u16, data: &[u8]) -> Result<(), PushError> {
        let request = Request::ping(data);
        let header = request.header(cid);
        let body = Body {
            kind: Kind::Request,
            flags: 0,
            header: header.as_bytes().try_into().unwrap(),
            data,
        };
        let view = self.store.view(SENDER);
        if self.dma {
            self.sender.push(&mut Dma(view), &body)
        } else {
            self.sender.push(&mut { view }, &body)
        }
    }

    pub fn announce(&mut self) -> Result<bool, PeerFault> {
        self.sender.announce(&mut self.store.view(SENDER))
    }

    pub fn take(&mut self) -> Result<Option<(u32, Message)>, PeerFault> {
        let mut copy = vec![0xaa; self.layout.entry_bytes as usize];
        let mut view = self.store.view(RECEIVER);
        let taken = self.receiver.take(&mut view, &mut copy)?;
        Ok(taken.map(|Taken { index, entry }| (index, message(&entry))))
    }

    pub fn release(&mut self, index: u32) -> Result<bool, PeerFault> {
        self.receiver.release(&mut self.store.view(RECEIVER), index)
    }

    pub fn pop(&mut self) -> Result<Option<Message>, PeerFault> {
        let mut copy = vec![0xaa; self.layout.entry_bytes as usize];
        let mut view = self.store.view(RECEIVER);
        let popped = self.receiver.pop(&mut view, &mut copy)?;
        Ok(popped.map(|popped| message(&popped.entry)))
    }

    /// Writes a cell as whoever can.
    pub fn poke_cell(&self, at: Location, value: u64) {
        self.store
            .poke(at.memory.get(), at.offset, &value.to_le_bytes());
    }

    pub fn peek_cell(&self, at: Location) -> u64 {
        let bytes = self.store.peek(at.memory.get(), at.offset, 8);
        u64::from_le_bytes(bytes.try_into().unwrap())
    }

    /// Accesses by both ends so far.
    pub fn accesses(&self) -> u64 {
        let mut all = 0;
        for initiator in [SENDER, RECEIVER] {
            for memory in 0..MEMORIES {
                let counts = self.store.counts(initiator, memory);
                all += counts.reads + counts.writes + counts.flushes;
            }
        }
        all
    }
}

/// The payload of a PING; of anything else that a liar may have made of it, the data.
fn message(entry: &Entry<'_>) -> Message {
    match entry {
        Entry::Request { cid, request, .. } => {
            let data = request.payload().unwrap_or(request.data);
            (*cid, data.to_vec())
        }
        Entry::Response(response) => (response.cid, response.inline.to_vec()),
    }
}
