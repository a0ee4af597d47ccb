// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One ring under an honest, a slow and a lying peer.

mod fabric;

use fabric::{Accesses, Shared};
use idc::entry::{Entry, Kind, Request, Response};
use idc::member::{Location, MemberId};
use idc::ring::{Body, PeerFault, PushError, Receiver, RingError, RingLayout, Sender};
use idc::status::Status;
use proptest::prelude::*;
use std::collections::VecDeque;
use zerocopy::{FromZeros, IntoBytes};

const EPOCH: u32 = 7;

struct Pair {
    store: Shared,
    layout: RingLayout,
    sender: Sender,
    receiver: Receiver,
}

fn layout(entries: u32, entry_bytes: u32) -> RingLayout {
    RingLayout {
        entries,
        entry_bytes,
        epoch: EPOCH,
        from: MemberId::new(1).unwrap(),
        to: MemberId::new(2).unwrap(),
        base: Location::of(MemberId::new(2).unwrap(), 4096),
        credit: Location::of(MemberId::new(1).unwrap(), 128),
        ..RingLayout::default()
    }
}

fn pair_at(entries: u32, entry_bytes: u32, index: u32) -> Pair {
    let store = Shared::new();
    store.add(1, 4096);
    store.add(2, 4096 + (entries * entry_bytes) as usize);
    let layout = layout(entries, entry_bytes);
    let mut sender = Sender::new_zeroed();
    let mut receiver = Receiver::new_zeroed();
    sender.attach_at(&layout, index).unwrap();
    receiver.attach_at(&layout, index).unwrap();
    Pair {
        store,
        layout,
        sender,
        receiver,
    }
}

impl Pair {
    fn push(&mut self, cid: u16, data: &[u8]) -> Result<(), PushError> {
        let request = Request::ping(data);
        let header = request.header(cid);
        let body = Body {
            kind: Kind::Request,
            flags: 0,
            header: header.as_bytes().try_into().unwrap(),
            data,
        };
        self.sender.push(&mut self.store.view(1), &body)
    }

    fn pop(&mut self) -> Result<Option<(u16, Vec<u8>)>, PeerFault> {
        let mut copy = vec![0xaa; 4096];
        let popped = self.receiver.pop(&mut self.store.view(2), &mut copy)?;
        Ok(popped.map(|popped| match popped.entry {
            Entry::Request { cid, request, .. } => (cid, request.payload().unwrap().to_vec()),
            Entry::Response(_) => panic!("a response came out of a request"),
        }))
    }
}

#[test]
fn an_entry_arrives_as_it_was_sent() {
    for entry_bytes in [64, 128, 4096] {
        let mut pair = pair_at(4, entry_bytes, 0);
        assert_eq!(pair.pop(), Ok(None));
        let data: Vec<u8> = (0..entry_bytes as usize - 28).map(|i| i as u8).collect();
        pair.push(9, &data).unwrap();
        assert_eq!(pair.pop(), Ok(Some((9, data))));
        assert_eq!(pair.pop(), Ok(None));
    }
}

/// The bytes on the wire, written down from the specification's tables and not from our encoder.
#[test]
fn the_bytes_of_a_request_are_those_of_the_specification() {
    let mut pair = pair_at(4, 64, 5);
    pair.push(0x1234, b"hi").unwrap();
    let mut expected = [0_u8; 64];
    expected[..18].copy_from_slice(&[
        0x01, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, b'h', b'i',
    ]);
    expected[52..].copy_from_slice(&[1, 2, 0x01, 1, 5, 0, 0, 0, EPOCH as u8, 0, 0, 0]);
    assert_eq!(pair.store.peek(2, 4096 + 64, 64), expected);
}

#[test]
fn the_bytes_of_a_response_are_those_of_the_specification() {
    let mut pair = pair_at(4, 64, 0);
    let response = Response {
        cid: 0x0102,
        status: Status::BUSY,
        result: 0x1122_3344_5566_7788,
        inline: b"abc",
    };
    let header = response.header();
    let body = Body {
        kind: Kind::Response,
        flags: 0,
        header: header.as_bytes().try_into().unwrap(),
        data: response.inline,
    };
    pair.sender.push(&mut pair.store.view(1), &body).unwrap();
    let mut expected = [0_u8; 64];
    expected[..19].copy_from_slice(&[
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 3, 0, 0x02, 0x01, 0x05, 0x07, b'a',
        b'b', b'c',
    ]);
    expected[52..].copy_from_slice(&[1, 2, 0x02, 1, 0, 0, 0, 0, EPOCH as u8, 0, 0, 0]);
    assert_eq!(pair.store.peek(2, 4096, 64), expected);
    let mut copy = [0; 64];
    let popped = pair
        .receiver
        .pop(&mut pair.store.view(2), &mut copy)
        .unwrap()
        .unwrap();
    assert_eq!(popped.entry, Entry::Response(response));
}

#[test]
fn a_full_ring_refuses_and_writes_nothing() {
    let mut pair = pair_at(4, 64, 0);
    for cid in 0..4 {
        pair.push(cid, b"x").unwrap();
    }
    let before = pair.store.peek(2, 4096, 256);
    let count = pair.store.counts(1, 2);
    assert_eq!(pair.push(4, b"y"), Err(PushError::Full));
    assert_eq!(pair.store.peek(2, 4096, 256), before);
    assert_eq!(pair.store.counts(1, 2), count);
    assert_eq!(pair.sender.counters().stalls, 1);
    assert_eq!(pair.pop(), Ok(Some((0, b"x".to_vec()))));
    pair.push(4, b"y").unwrap();
}

#[test]
fn too_long_data_is_refused() {
    let mut pair = pair_at(4, 64, 0);
    assert_eq!(pair.push(0, &[0; 37]), Err(PushError::TooLong));
    pair.push(0, &[1; 36]).unwrap();
}

#[test]
fn nobody_reads_across_the_bus_and_credits_are_batched() {
    let mut pair = pair_at(64, 64, 0);
    for round in 0..100_u16 {
        pair.push(round, b"").unwrap();
        assert!(pair.pop().unwrap().is_some());
    }
    assert_eq!(
        pair.store.counts(1, 2).reads,
        0,
        "the sender reads no peer memory"
    );
    assert_eq!(
        pair.store.counts(2, 1).reads,
        0,
        "the receiver reads no peer memory"
    );
    assert_eq!(
        pair.store.counts(2, 1).writes,
        100 / 16,
        "one credit per quarter of the ring"
    );
    let Accesses {
        writes,
        written_bytes,
        ..
    } = pair.store.counts(1, 2);
    assert_eq!(
        (writes, written_bytes),
        (200, 6400),
        "body, then the 8-byte stamp: one line a message"
    );
}

#[test]
fn an_entry_without_its_stamp_is_not_there_yet() {
    let mut pair = pair_at(4, 64, 0);
    pair.store.0.borrow_mut().posted = true;
    pair.push(3, b"late").unwrap();
    assert_eq!(pair.pop(), Ok(None));
    pair.store.deliver(1, 2, 1);
    assert_eq!(pair.pop(), Ok(None));
    pair.store.deliver(1, 2, 1);
    assert_eq!(pair.pop(), Ok(Some((3, b"late".to_vec()))));
}

#[test]
fn a_stale_entry_is_counted_once_and_never_executed() {
    let mut pair = pair_at(4, 64, 0);
    let stale = u64::from(EPOCH - 1) << 32;
    pair.store.poke(2, 4096 + 56, &stale.to_le_bytes());
    for _ in 0..3 {
        assert_eq!(pair.pop(), Ok(None));
    }
    assert_eq!(pair.receiver.counters().stale, 1);
    pair.push(1, b"new").unwrap();
    assert_eq!(pair.pop(), Ok(Some((1, b"new".to_vec()))));
}

#[test]
fn an_impossible_sequence_fences_the_ring() {
    let mut pair = pair_at(4, 64, 0);
    let lie = (u64::from(EPOCH) << 32) | 1;
    pair.store.poke(2, 4096 + 56, &lie.to_le_bytes());
    assert_eq!(pair.pop(), Err(PeerFault::Sequence));
    pair.store.poke(2, 4096, &[0; 64]);
    assert_eq!(pair.pop(), Err(PeerFault::Fenced));
    pair.receiver.attach(&pair.layout.clone()).unwrap();
    assert_eq!(pair.pop(), Ok(None));
}

#[test]
fn a_malformed_entry_fences_the_ring() {
    for (offset, value) in [
        (52, 3),
        (52, 33),
        (53, 1),
        (53, 255),
        (54, 0),
        (54, 3),
        (54, 0x41),
        (54, 0x21),
        (55, 0),
        (55, 2),
        (1, 1),
    ] {
        let mut pair = pair_at(4, 64, 0);
        pair.push(0, b"x").unwrap();
        pair.store.poke(2, 4096 + offset, &[value]);
        assert_eq!(pair.pop(), Err(PeerFault::Entry), "byte {offset} = {value}");
    }
}

#[test]
fn a_credit_ahead_of_the_tail_or_backwards_fences_the_sender() {
    for lie in [5_u32, u32::MAX, 0] {
        let mut pair = pair_at(4, 64, 0);
        for cid in 0..4 {
            pair.push(cid, b"").unwrap();
        }
        for _ in 0..2 {
            pair.pop().unwrap();
        }
        pair.sender.refresh(&mut pair.store.view(1)).unwrap();
        assert_eq!(pair.sender.free(), 2);
        let cell = (u64::from(EPOCH) << 32) | u64::from(lie);
        pair.store.poke(1, 128, &cell.to_le_bytes());
        assert_eq!(
            pair.sender.refresh(&mut pair.store.view(1)),
            Err(PeerFault::Credit),
            "{lie}"
        );
        assert_eq!(pair.push(9, b""), Err(PushError::Fault(PeerFault::Fenced)));
    }
}

#[test]
fn a_credit_of_another_epoch_is_no_news() {
    let mut pair = pair_at(4, 64, 0);
    pair.push(0, b"").unwrap();
    pair.store
        .poke(1, 128, &((u64::from(EPOCH + 1) << 32) | 1).to_le_bytes());
    pair.sender.refresh(&mut pair.store.view(1)).unwrap();
    assert_eq!(pair.sender.free(), 3);
}

#[test]
fn layouts_out_of_range_are_refused() {
    let good = layout(4, 64);
    let bad = |change: fn(&mut RingLayout), error| {
        let mut layout = good;
        change(&mut layout);
        assert_eq!(layout.check(), Err(error));
    };
    good.check().unwrap();
    bad(|l| l.entries = 2, RingError::Entries);
    bad(|l| l.entries = 8192, RingError::Entries);
    bad(|l| l.entries = 6, RingError::Entries);
    bad(|l| l.entry_bytes = 32, RingError::EntryBytes);
    bad(|l| l.entry_bytes = 8192, RingError::EntryBytes);
    bad(|l| l.entry_bytes = 96, RingError::EntryBytes);
    bad(|l| l.epoch = 0, RingError::Epoch);
    bad(|l| l.to = l.from, RingError::Members);
    bad(|l| l.base.offset += 8, RingError::Placement);
    bad(|l| l.base.offset = u64::MAX - 63, RingError::Placement);
    bad(|l| l.credit.offset += 8, RingError::Placement);
}

#[test]
fn a_lost_memory_fences_both_ends() {
    let mut pair = pair_at(4, 64, 0);
    pair.store.lose(2);
    assert!(matches!(
        pair.push(0, b""),
        Err(PushError::Fault(PeerFault::Memory(_)))
    ));
    assert!(matches!(pair.pop(), Err(PeerFault::Memory(_))));
    assert_eq!(pair.pop(), Err(PeerFault::Fenced));
    assert_eq!(pair.receiver.counters().faults, 1);
}

proptest! {
    /// Any interleaving of sends and receives, from any index (the 32-bit wrap included), with
    /// writes that arrive late, behaves as a bounded queue.
    #[test]
    fn a_ring_is_a_bounded_queue(
        log2 in 2_u32..6,
        start in prop_oneof![Just(0_u32), Just(u32::MAX - 3), any::<u32>()],
        wide in any::<bool>(),
        steps in proptest::collection::vec(0_u8..6, 1..400),
    ) {
        let entries = 1 << log2;
        let mut pair = pair_at(entries, if wide { 256 } else { 64 }, start);
        pair.store.0.borrow_mut().posted = true;
        let mut model: VecDeque<(u16, Vec<u8>)> = VecDeque::new();
        let mut next = 0_u16;
        for step in steps {
            match step {
                0..=2 => {
                    let data = vec![next as u8; usize::from(next) % if wide { 229 } else { 37 }];
                    match pair.push(next, &data) {
                        Ok(()) => {
                            model.push_back((next, data));
                            prop_assert!(model.len() <= entries as usize);
                        }
                        // Full may be early by the credits that are batched or on their way.
                        Err(error) => prop_assert_eq!(error, PushError::Full),
                    }
                    next = next.wrapping_add(1);
                }
                3 => pair.store.deliver(1, 2, usize::from(step)),
                4 => pair.store.deliver(2, 1, 1),
                _ => if let Some(got) = pair.pop().unwrap() {
                    prop_assert_eq!(Some(got), model.pop_front());
                }
            }
        }
        pair.store.deliver_all();
        while let Some(expected) = model.pop_front() {
            prop_assert_eq!(pair.pop().unwrap(), Some(expected));
        }
        prop_assert_eq!(pair.pop().unwrap(), None);
        pair.store.deliver_all();
        for cid in 0..entries as u16 - (entries as u16 / 4) + 1 {
            pair.push(cid, b"").unwrap();
        }
    }

    /// Whatever lies in the ring, the receiver returns an entry, nothing or a fault.
    #[test]
    fn random_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 256),
        sequence in 0_u32..4,
        stamped in any::<bool>(),
    ) {
        let mut pair = pair_at(4, 64, 0);
        pair.store.poke(2, 4096, &bytes);
        if stamped {
            for slot in 0..4_u64 {
                let cell = (u64::from(EPOCH) << 32) | (slot + u64::from(sequence));
                pair.store.poke(2, 4096 + slot * 64 + 56, &cell.to_le_bytes());
                pair.store.poke(2, 4096 + slot * 64 + 52, &[1, 2, 1, 1]);
            }
        }
        let mut copy = [0; 64];
        for _ in 0..8 {
            if pair.receiver.pop(&mut pair.store.view(2), &mut copy).is_err() {
                break;
            }
        }
    }
}
