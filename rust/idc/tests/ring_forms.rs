// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Rings of every form and placement: each is a bounded queue, and costs what it should.

mod fabric;
mod rings;

use fabric::rng::Rng;
use idc::entry::Kind;
use idc::ring::{Publish, PushError, RingError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rings::{layout, member, Message, Pair, Places, DEFAULT, EPOCH, MEMORIES, RECEIVER, SENDER};
use std::collections::VecDeque;

const OUT_OF_ORDER: u8 = 1;
const DOORBELL: u8 = 2;
const METADATA: u8 = 4;
const ALL_FLAGS: u8 = 8;

fn pair(entries: u32, publish: Publish, flags: u8, places: Places) -> Pair {
    Pair::new(layout(entries, 64, publish, flags, places), 0)
}

/// A run of both ends against a queue, with writes that arrive late and, between memories, in any
/// order.
struct Model {
    pair: Pair,
    /// Sent and not taken.
    queue: VecDeque<Message>,
    /// Taken and not released.
    held: Vec<u32>,
    in_use: usize,
    next: u16,
}

impl Model {
    fn push(&mut self) -> Result<(), TestCaseError> {
        let entries = self.pair.layout.entries as usize;
        let room = self.pair.layout.inline_capacity() + 1;
        let data = vec![self.next as u8; usize::from(self.next) * 7 % room];
        match self.pair.push(self.next, &data) {
            Ok(()) => {
                self.queue.push_back((self.next, data));
                self.in_use += 1;
                prop_assert!(self.in_use <= entries, "a slot in use was overwritten");
            }
            // Full may be early by what is batched or on its way.
            Err(error) => prop_assert_eq!(error, PushError::Full),
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    fn take(&mut self) -> Result<bool, TestCaseError> {
        let Some((index, message)) = self.pair.take().unwrap() else {
            return Ok(false);
        };
        prop_assert_eq!(Some(message), self.queue.pop_front());
        self.held.push(index);
        Ok(true)
    }

    fn release(&mut self, at: usize) -> Result<(), TestCaseError> {
        let any = self.pair.layout.out_of_order();
        if let Some(at) = at.checked_rem(self.held.len()) {
            let index = self.held.remove(if any { at } else { 0 });
            self.pair.release(index).unwrap();
            self.in_use -= 1;
        }
        prop_assert_eq!(self.pair.receiver.held() as usize, self.held.len());
        Ok(())
    }

    fn deliver(&mut self, way: u8, writes: usize) {
        let initiator = [SENDER, RECEIVER][usize::from(way & 1)];
        let memory = u16::from(way >> 1) % MEMORIES;
        self.pair
            .store
            .deliver(initiator.into(), memory.into(), writes);
    }

    fn run(&mut self, steps: &[(u8, u8)]) -> Result<(), TestCaseError> {
        for &(step, with) in steps {
            match step {
                0..=3 => self.push()?,
                4 => drop(self.pair.announce().unwrap()),
                5 | 6 => self.deliver(with, usize::from(step) - 4),
                7 | 8 => drop(self.take()?),
                _ => self.release(with.into())?,
            }
        }
        self.pair.announce().unwrap();
        self.pair.store.deliver_all();
        while self.take()? {}
        prop_assert!(self.queue.is_empty(), "{} lost", self.queue.len());
        while !self.held.is_empty() {
            self.release(self.next.into())?;
        }
        self.pair.store.deliver_all();
        let entries = self.pair.layout.entries;
        let batched = match self.pair.layout.out_of_order() {
            true => 0,
            false => self.pair.layout.credit_batch() - 1,
        };
        for _ in 0..entries - batched {
            let before = self.in_use;
            self.push()?;
            prop_assert_eq!(self.in_use, before + 1);
        }
        Ok(())
    }
}

/// All forms in all placements, each in several interleavings, from any index, the 32-bit wrap
/// included.
#[test]
fn every_ring_is_a_bounded_queue() {
    let starts = prop_oneof![Just(0_u32), Just(u32::MAX - 3), any::<u32>()];
    let sizes = prop_oneof![Just(64_u32), Just(128), Just(512)];
    let steps = proptest::collection::vec((0_u8..11, any::<u8>()), 1..200);
    let strategy = (2_u32..7, sizes, starts, steps);
    let mut combinations = 0;
    for publish in [Publish::Entry, Publish::Index] {
        for flags in 0..ALL_FLAGS {
            for place in 0..MEMORIES.pow(3) {
                let places = Places {
                    base: place % MEMORIES,
                    tail: place / MEMORIES % MEMORIES,
                    back: place / MEMORIES / MEMORIES,
                };
                let mut runner = TestRunner::new(Config {
                    cases: 16,
                    failure_persistence: None,
                    ..Config::default()
                });
                let result = runner.run(&strategy, |(log2, bytes, start, steps)| {
                    let layout = layout(1 << log2, bytes, publish, flags, places);
                    let pair = Pair::new(layout, start);
                    pair.store.0.borrow_mut().posted = true;
                    let mut model = Model {
                        pair,
                        queue: VecDeque::new(),
                        held: Vec::new(),
                        in_use: 0,
                        next: 0,
                    };
                    model.run(&steps)
                });
                if let Err(error) = result {
                    panic!("{publish:?}, flags {flags}, {places:?}: {error}");
                }
                combinations += 1;
            }
        }
    }
    assert_eq!(combinations, 2 * 8 * 64);
}

/// Messages one by one through a ring of 64 entries, announced in batches.
fn steady(publish: Publish, flags: u8, places: Places, batch: u16) -> Pair {
    let mut pair = pair(64, publish, flags, places);
    pair.dma = true;
    for round in 0..960 / batch {
        for number in 0..batch {
            pair.push(round * batch + number, b"x").unwrap();
        }
        pair.announce().unwrap();
        for number in 0..batch {
            let got = pair.pop().unwrap().expect("it was announced");
            assert_eq!(got.0, round * batch + number);
        }
        assert_eq!(pair.pop(), Ok(None));
    }
    pair
}

#[test]
fn an_entry_that_announces_itself_costs_one_write_and_no_read() {
    let pair = steady(Publish::Entry, 0, DEFAULT, 1);
    assert_eq!(pair.store.counts(SENDER, RECEIVER).writes, 960);
    assert_eq!(pair.store.counts(SENDER, RECEIVER).reads, 0);
    assert_eq!(pair.store.counts(RECEIVER, SENDER).reads, 0);
    assert_eq!(
        pair.store.counts(RECEIVER, SENDER).writes,
        960 / 16,
        "4 credits per 64 messages"
    );
    assert_eq!(pair.sender.counters().announcements, 0);
    assert_eq!(pair.sender.counters().flushes, 0);
}

#[test]
fn an_entry_announced_by_a_tail_costs_a_share_of_a_second_write() {
    for batch in [1, 8, 32] {
        let pair = steady(Publish::Index, 0, DEFAULT, batch);
        let announced = u64::from(960 / batch);
        assert_eq!(
            pair.store.counts(SENDER, RECEIVER).writes,
            960 + announced,
            "batches of {batch}"
        );
        assert_eq!(pair.store.counts(SENDER, RECEIVER).reads, 0);
        assert_eq!(pair.store.counts(RECEIVER, SENDER).reads, 0);
        assert_eq!(pair.store.counts(RECEIVER, SENDER).writes, 60);
        assert_eq!(pair.sender.counters().announcements, announced);
        assert_eq!(pair.sender.counters().flushes, 0);
    }
}

#[test]
fn a_flush_goes_where_tail_and_entries_part_ways_and_only_there() {
    for base in 0..MEMORIES {
        for tail in 0..MEMORIES {
            let places = Places {
                base,
                tail,
                back: SENDER,
            };
            let pair = steady(Publish::Index, 0, places, 8);
            let expected = if base == tail { 0 } else { 120 };
            assert_eq!(pair.store.counts(SENDER, base).flushes, expected);
            assert_eq!(pair.sender.counters().flushes, expected);
            // An entry that announces itself needs none.
            let pair = steady(Publish::Entry, DOORBELL, places, 8);
            assert_eq!(pair.store.counts(SENDER, base).flushes, 0);
        }
    }
}

#[test]
fn an_idle_receiver_with_doorbells_looks_at_no_entries() {
    let places = Places { base: 3, ..DEFAULT };
    let mut pair = pair(64, Publish::Entry, DOORBELL, places);
    for _ in 0..100 {
        assert_eq!(pair.pop(), Ok(None));
    }
    assert_eq!(pair.store.counts(RECEIVER, 3).reads, 0);
    pair.push(1, b"x").unwrap();
    assert_eq!(pair.pop(), Ok(None));
    assert_eq!(pair.announce(), Ok(true));
    assert_eq!(pair.announce(), Ok(false));
    assert_eq!(pair.pop(), Ok(Some((1, b"x".to_vec()))));
    assert_eq!(pair.pop(), Ok(None));
    assert_eq!(pair.store.counts(RECEIVER, 3).reads, 2);
}

#[test]
fn metadata_costs_one_more_write_and_tells_without_the_entry() {
    let pair = steady(Publish::Entry, METADATA, DEFAULT, 1);
    assert_eq!(pair.store.counts(SENDER, RECEIVER).writes, 2 * 960);

    let mut pair = Pair::new(layout(4, 512, Publish::Entry, METADATA, DEFAULT), 9);
    let mut view = pair.store.view(RECEIVER);
    assert_eq!(pair.receiver.metadata(&mut view), Ok(None));
    pair.push(1, &[5; 101]).unwrap();
    let said = pair.receiver.metadata(&mut view).unwrap().unwrap();
    assert_eq!((said.from, said.to), (member(SENDER), member(RECEIVER)));
    assert_eq!((said.bytes, said.sequence), (192, 9), "101 + 28, in 64s");
    assert_eq!(said.kind, Kind::Request);
    assert_eq!(pair.pop(), Ok(Some((1, vec![5; 101]))));

    let mut plain = Pair::new(layout(4, 512, Publish::Entry, 0, DEFAULT), 9);
    plain.push(1, b"x").unwrap();
    assert_eq!(
        plain.receiver.metadata(&mut plain.store.view(RECEIVER)),
        Ok(None)
    );
}

#[test]
fn only_what_an_entry_uses_of_its_slot_is_written_and_read() {
    for (data, bytes) in [(36, 64), (37, 128), (100, 128), (101, 192), (484, 512)] {
        let mut pair = Pair::new(layout(4, 512, Publish::Entry, 0, DEFAULT), 0);
        pair.push(1, &vec![9; data]).unwrap();
        let written = pair.store.counts(SENDER, RECEIVER).written_bytes;
        assert!(written <= bytes, "{data}: {written}");
        let slot = pair.store.peek(RECEIVER, rings::BASE, 512);
        assert!(slot[16 + data.max(36)..500].iter().all(|byte| *byte == 0));
        assert_eq!(u64::from(slot[503]) * 64, bytes);
        pair.pop().unwrap().unwrap();
        // The look at the stamp, the trailer, and the rest of the entry.
        let read = pair.store.counts(RECEIVER, RECEIVER).read_bytes;
        assert_eq!(read, 8 + bytes);
        assert_eq!(pair.sender.counters().bytes, bytes);
        assert_eq!(pair.receiver.counters().bytes, bytes);
    }
}

#[test]
fn the_head_moves_over_consumed_slots() {
    let mut pair = pair(8, Publish::Entry, OUT_OF_ORDER, DEFAULT);
    for cid in 0..8 {
        pair.push(cid, b"").unwrap();
    }
    let indices: Vec<u32> = (0..8).map(|_| pair.take().unwrap().unwrap().0).collect();
    assert_eq!(indices, (0..8).collect::<Vec<_>>());
    // All but the oldest and one more.
    for index in [7, 3, 1, 6, 2, 5] {
        assert_eq!(pair.release(index), Ok(true));
    }
    assert_eq!(pair.release(5), Ok(false), "once is enough");
    assert_eq!(pair.release(8), Ok(false), "never taken");
    assert_eq!(pair.receiver.held(), 2);
    assert_eq!(pair.push(8, b""), Err(PushError::Full));
    assert_eq!(pair.release(0), Ok(true));
    for cid in 8..12 {
        pair.push(cid, b"").unwrap();
    }
    assert_eq!(pair.push(12, b""), Err(PushError::Full), "4 is still held");
    assert_eq!(pair.release(4), Ok(true));
    pair.push(12, b"").unwrap();
    assert_eq!(pair.sender.acknowledged(), 8);
    // One cell for each: marks are not batched, and the bits have toggled once.
    assert_eq!(pair.receiver.counters().credits, 8);
    assert_eq!(
        pair.peek_cell(pair.layout.marks),
        u64::from(EPOCH) << 32 | 0xff
    );
}

#[test]
fn entries_in_order_are_released_up_to_the_one_that_is_named() {
    let mut pair = pair(8, Publish::Entry, 0, DEFAULT);
    for cid in 0..8 {
        pair.push(cid, b"").unwrap();
        pair.take().unwrap().unwrap();
    }
    assert_eq!(pair.release(8), Ok(false), "never taken");
    assert_eq!(pair.release(0), Ok(false), "a quarter is two");
    assert_eq!(pair.release(6), Ok(true));
    assert_eq!(pair.release(3), Ok(false), "released before");
    assert_eq!(pair.receiver.held(), 1);
    for cid in 8..15 {
        pair.push(cid, b"").unwrap();
    }
    assert_eq!(pair.push(15, b""), Err(PushError::Full));
}

#[test]
fn what_is_not_announced_is_not_there() {
    let mut pair = pair(8, Publish::Index, 0, DEFAULT);
    for cid in 0..3 {
        pair.push(cid, b"").unwrap();
    }
    assert_eq!((pair.sender.tail(), pair.sender.announced()), (3, 0));
    assert_eq!(pair.pop(), Ok(None));
    assert_eq!(pair.announce(), Ok(true));
    assert_eq!(pair.sender.announced(), 3);
    let reads = pair.store.counts(RECEIVER, RECEIVER).reads;
    for cid in 0..3 {
        assert_eq!(pair.pop(), Ok(Some((cid, Vec::new()))));
    }
    let reads = pair.store.counts(RECEIVER, RECEIVER).reads - reads;
    assert_eq!(reads, 4, "one look at the tail for all three");
    assert_eq!(pair.receiver.head(), 3);
}

#[test]
fn a_tail_or_a_mark_of_another_epoch_is_no_news() {
    let mut pair = pair(8, Publish::Index, OUT_OF_ORDER, DEFAULT);
    let old = u64::from(EPOCH - 1) << 32;
    pair.poke_cell(pair.layout.tail, old | 3);
    for _ in 0..3 {
        assert_eq!(pair.pop(), Ok(None));
    }
    assert_eq!(pair.receiver.counters().stale, 1);
    for cid in 0..8 {
        pair.push(cid, b"").unwrap();
    }
    pair.poke_cell(pair.layout.marks, old | 0xff);
    assert_eq!(pair.push(8, b""), Err(PushError::Full));
    assert_eq!(pair.announce(), Ok(true));
    assert_eq!(pair.pop(), Ok(Some((0, Vec::new()))));
    pair.push(8, b"").unwrap();
}

#[test]
fn parts_that_are_used_must_be_in_place() {
    let wrong = |publish, flags, change: fn(&mut idc::ring::RingLayout)| {
        let mut layout = layout(64, 64, publish, flags, DEFAULT);
        layout.check().unwrap();
        change(&mut layout);
        layout.check()
    };
    let bad = Err(RingError::Placement);
    let entry = Publish::Entry;
    assert_eq!(wrong(entry, 0, |l| l.tail.offset = 8), Ok(()));
    assert_eq!(wrong(Publish::Index, 0, |l| l.tail.offset = 8), bad);
    assert_eq!(wrong(entry, DOORBELL, |l| l.tail.offset = 8), bad);
    assert_eq!(wrong(entry, 0, |l| l.marks.offset = 8), Ok(()));
    assert_eq!(wrong(entry, OUT_OF_ORDER, |l| l.marks.offset = 8), bad);
    assert_eq!(wrong(entry, OUT_OF_ORDER, |l| l.credit.offset = 8), Ok(()));
    assert_eq!(wrong(entry, METADATA, |l| l.metadata.offset = 8), bad);
    let elsewhere = |l: &mut idc::ring::RingLayout| l.metadata.memory = l.credit.memory;
    assert_eq!(wrong(entry, METADATA, elsewhere), bad);
    assert_eq!(wrong(entry, 0, elsewhere), Ok(()));
}

/// Whoever is attached anew knows nothing of before.
#[test]
fn an_end_attached_anew_begins_anew() {
    let mut rng = Rng::new(3);
    for flags in 0..ALL_FLAGS {
        for publish in [Publish::Entry, Publish::Index] {
            let mut pair = pair(8, publish, flags, DEFAULT);
            for cid in 0..5 {
                pair.push(cid, b"").unwrap();
            }
            pair.announce().unwrap();
            for _ in 0..rng.below(5) {
                let (index, _) = pair.take().unwrap().unwrap();
                if rng.below(2) == 0 {
                    pair.release(index).unwrap();
                }
            }
            let fresh = Pair::new(pair.layout, 77);
            pair.sender.attach_at(&pair.layout, 77).unwrap();
            pair.receiver.attach_at(&pair.layout, 77).unwrap();
            pair.sender.reset_counters();
            pair.receiver.reset_counters();
            assert_eq!(pair.sender, fresh.sender);
            assert_eq!(pair.receiver, fresh.receiver);
        }
    }
}
