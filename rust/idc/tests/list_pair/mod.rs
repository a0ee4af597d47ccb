// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Both ends of a linked-list buffer over the tests' memory, with its words by hand.

#![allow(dead_code)]

use super::fabric::Shared;
use idc::entry::{Entry, Kind, Request};
use idc::list::{ListLayout, ListReceiver, ListSender};
use idc::member::{Location, MemberId};
use idc::ring::{Body, PeerFault, PushError};
use zerocopy::{FromZeros, IntoBytes};

pub const EPOCH: u32 = 7;
pub const FROM: u16 = 1;
pub const TO: u16 = 2;
const HUB: u16 = 3;

/// Which memories nodes, links, and the receiver's words lie in.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub nodes: u16,
    pub links: u16,
    pub cells: u16,
}

/// Nodes and links in the receiver's memory, its words in the sender's.
pub const PUSHED: Place = Place {
    nodes: TO,
    links: TO,
    cells: FROM,
};

/// All that make sense and some that do not, but are to work.
pub const PLACES: [Place; 5] = [
    PUSHED,
    Place {
        nodes: FROM,
        links: FROM,
        cells: TO,
    },
    Place {
        nodes: HUB,
        links: HUB,
        cells: HUB,
    },
    Place {
        nodes: HUB,
        links: TO,
        cells: FROM,
    },
    Place {
        nodes: FROM,
        links: TO,
        cells: 0,
    },
];

pub const BASE: u64 = 4096;
pub const LINKS: u64 = 1024;
pub const CREDIT: u64 = 128;
pub const MARKS: u64 = 192;

pub struct Pair {
    pub store: Shared,
    pub layout: ListLayout,
    pub sender: ListSender,
    pub receiver: ListReceiver,
}

pub fn member(id: u16) -> MemberId {
    MemberId::new(id).unwrap()
}

pub fn layout(nodes: u32, node_bytes: u32, place: Place) -> ListLayout {
    ListLayout {
        nodes,
        node_bytes,
        epoch: EPOCH,
        from: member(FROM),
        to: member(TO),
        base: Location::of(member(place.nodes), BASE),
        links: Location::of(member(place.links), LINKS),
        credit: Location::of(member(place.cells), CREDIT),
        marks: Location::of(member(place.cells), MARKS),
    }
}

pub fn pair(nodes: u32, node_bytes: u32) -> Pair {
    pair_at(nodes, node_bytes, PUSHED, 0)
}

pub fn pair_at(nodes: u32, node_bytes: u32, place: Place, index: u32) -> Pair {
    let store = Shared::new();
    for member in 0..=HUB {
        store.add(member, BASE as usize + (nodes * node_bytes) as usize);
    }
    let layout = layout(nodes, node_bytes, place);
    let mut sender = ListSender::new_zeroed();
    let mut receiver = ListReceiver::new_zeroed();
    sender.attach_at(&layout, index).unwrap();
    receiver.attach_at(&layout, index).unwrap();
    Pair {
        store,
        layout,
        sender,
        receiver,
    }
}

pub type Got = (u16, Vec<u8>);

fn content(entry: Entry<'_>) -> Got {
    match entry {
        Entry::Request { cid, request, .. } => (cid, request.payload().unwrap().to_vec()),
        Entry::Response(_) => panic!("a response came out of a request"),
    }
}

impl Pair {
    pub fn push(&mut self, cid: u16, data: &[u8]) -> Result<(), PushError> {
        let request = Request::ping(data);
        let header = request.header(cid);
        let body = Body {
            kind: Kind::Request,
            flags: 0,
            header: header.as_bytes().try_into().unwrap(),
            data,
        };
        self.sender.push(&mut self.store.view(FROM), &body)
    }

    pub fn announce(&mut self) -> bool {
        self.sender.announce(&mut self.store.view(FROM)).unwrap()
    }

    pub fn refresh(&mut self) -> Result<(), PeerFault> {
        self.sender.refresh(&mut self.store.view(FROM))
    }

    pub fn pop(&mut self) -> Result<Option<Got>, PeerFault> {
        let mut copy = vec![0xaa; 4096];
        let popped = self.receiver.pop(&mut self.store.view(TO), &mut copy)?;
        Ok(popped.map(|popped| content(popped.entry)))
    }

    /// The node and what was in it.
    pub fn take(&mut self) -> Result<Option<(u32, Got)>, PeerFault> {
        let mut copy = vec![0xaa; 4096];
        let taken = self.receiver.take(&mut self.store.view(TO), &mut copy)?;
        Ok(taken.map(|taken| (taken.node, content(taken.entry))))
    }

    pub fn release(&mut self, node: u32) -> bool {
        let view = &mut self.store.view(TO);
        self.receiver.release(view, node).unwrap()
    }

    /// Puts a word beside `at`, as its writer or somebody else may.
    pub fn poke(&self, at: Location, index: u64, word: u64) {
        let offset = at.offset + index * 8;
        self.store
            .poke(at.memory.get(), offset, &word.to_le_bytes());
    }

    pub fn word(&self, at: Location, index: u64) -> u64 {
        let bytes = self.store.peek(at.memory.get(), at.offset + index * 8, 8);
        u64::from_le_bytes(bytes.try_into().unwrap())
    }
}

/// A link or head cell, from the specification's table.
pub fn link(epoch: u32, sequence: u16, node: u16) -> u64 {
    u64::from(epoch) << 32 | u64::from(sequence) << 16 | u64::from(node)
}

/// A mark cell.
pub fn marks(epoch: u32, marks: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(marks)
}
