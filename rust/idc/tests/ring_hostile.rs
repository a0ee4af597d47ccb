// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Rings whose cells and entries a liar changes between any two calls: each end ends in a fault and
//! a fence at worst, after a bounded number of accesses.

mod fabric;
mod rings;

use idc::member::Location;
use idc::ring::{PeerFault, Publish, PushError, RingLayout};
use proptest::prelude::*;
use rings::{layout, Pair, Places, DEFAULT, EPOCH, MEMORIES, RECEIVER, SENDER};

const OUT_OF_ORDER: u8 = 1;
const DOORBELL: u8 = 2;
const METADATA: u8 = 4;

/// What the liar writes: like a cell of this ring but for a little, like one of another epoch, or
/// anything.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Near(u32),
    Old(u32),
    Any(u64),
    /// These bits of what is there, changed.
    Flip(u64),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u8),
    Announce,
    Refresh,
    Peek,
    Take,
    Metadata,
    Release(u32),
    /// In the `n`th cell of all that the ring has.
    Lie(usize, Lie),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lie = prop_oneof![
        (0_u32..20).prop_map(Lie::Near),
        (0_u32..20).prop_map(Lie::Old),
        any::<u64>().prop_map(Lie::Any),
        (0_u32..64, 0_u32..64).prop_map(|(a, b)| Lie::Flip(1 << a | 1 << b)),
    ];
    let step = prop_oneof![
        4 => (0_u8..40).prop_map(Step::Push),
        2 => Just(Step::Announce),
        1 => Just(Step::Refresh),
        1 => Just(Step::Peek),
        4 => Just(Step::Take),
        1 => Just(Step::Metadata),
        3 => (0_u32..20).prop_map(Step::Release),
        1 => (any::<usize>(), lie).prop_map(|(at, lie)| Step::Lie(at, lie)),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Every 8-byte word that the ring has anywhere.
fn words(layout: &RingLayout) -> Vec<Location> {
    let run = |at: Location, bytes: u64| (0..bytes / 8).map(move |word| at.at(word * 8).unwrap());
    let mut all = vec![layout.credit, layout.tail];
    all.extend(run(layout.marks, layout.marks_bytes()));
    all.extend(run(layout.metadata, layout.metadata_bytes()));
    all.extend(run(layout.base, layout.bytes()));
    // The words that matter most come more often.
    let stamps = all.iter().filter(|at| at.offset % 64 == 56).copied();
    let stamps: Vec<_> = stamps.collect();
    all.extend(stamps.iter().cycle().take(3 * stamps.len()));
    all.extend([layout.credit, layout.tail, layout.marks].repeat(stamps.len()));
    all
}

/// More accesses than this no call makes: marks of all 32 slots, an entry in three parts, a tail.
const MOST_ACCESSES: u64 = 8;

fn fenced<T>(result: &Result<T, PeerFault>) -> bool {
    matches!(result, Err(PeerFault::Fenced))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_liar_achieves_a_fence_at_most(
        log2 in 2_u32..6,
        wide in any::<bool>(),
        index_publication in any::<bool>(),
        flags in 0_u8..8,
        place in 0..MEMORIES.pow(3),
        start in prop_oneof![Just(0_u32), Just(u32::MAX - 3)],
        steps in steps(),
    ) {
        let publish = if index_publication { Publish::Index } else { Publish::Entry };
        let places = Places {
            base: place % MEMORIES,
            tail: place / MEMORIES % MEMORIES,
            back: place / MEMORIES / MEMORIES,
        };
        let layout = layout(1 << log2, if wide { 256 } else { 64 }, publish, flags, places);
        let words = words(&layout);
        let mut pair = Pair::new(layout, start);
        let (mut sent_fault, mut received_fault) = (false, false);
        for step in steps {
            let before = pair.accesses();
            let (sender, receiver) = (pair.sender.clone(), pair.receiver.clone());
            match step {
                Step::Push(length) => {
                    let result = match pair.push(7, &vec![1; length.min(36).into()]) {
                        Err(PushError::Fault(fault)) => Err(fault),
                        Err(PushError::TooLong) => panic!("it fits"),
                        Ok(()) | Err(PushError::Full) => Ok(()),
                    };
                    prop_assert_eq!(fenced(&result), sent_fault);
                    sent_fault |= result.is_err();
                }
                Step::Announce | Step::Refresh => {
                    let mut view = pair.store.view(SENDER);
                    let result = match step {
                        Step::Announce => pair.sender.announce(&mut view).map(drop),
                        _ => pair.sender.refresh(&mut view),
                    };
                    prop_assert_eq!(fenced(&result), sent_fault);
                    sent_fault |= result.is_err();
                }
                Step::Peek | Step::Take | Step::Metadata | Step::Release(_) => {
                    let mut view = pair.store.view(RECEIVER);
                    let result = match step {
                        Step::Peek => pair.receiver.peek(&mut view).map(drop),
                        Step::Take => pair.take().map(drop),
                        Step::Metadata => pair.receiver.metadata(&mut view).map(drop),
                        Step::Release(behind) => {
                            let index = pair.receiver.head().wrapping_sub(behind);
                            pair.release(index).map(drop)
                        }
                        _ => Ok(()),
                    };
                    // Without metadata nobody looks for it.
                    let asked = !matches!(step, Step::Metadata) || flags & METADATA != 0;
                    prop_assert_eq!(fenced(&result), received_fault && asked);
                    received_fault |= result.is_err();
                }
                Step::Lie(at, lie) => {
                    let at = words[at % words.len()];
                    let head = pair.receiver.head();
                    let epoch = u64::from(EPOCH) << 32;
                    let value = match lie {
                        Lie::Near(offset) => epoch | u64::from(head.wrapping_add(offset).wrapping_sub(10)),
                        Lie::Old(offset) => (epoch - (1 << 32)) | u64::from(offset),
                        Lie::Any(value) => value,
                        Lie::Flip(bits) => pair.peek_cell(at) ^ bits,
                    };
                    pair.poke_cell(at, value);
                }
            }
            prop_assert!(pair.accesses() - before <= MOST_ACCESSES, "{:?}", step);
            // A fenced end stands still.
            if sender.is_fenced() {
                prop_assert_eq!(sender, pair.sender.clone());
            }
            if receiver.is_fenced() {
                prop_assert_eq!(receiver, pair.receiver.clone());
            }
            prop_assert_eq!(pair.sender.is_fenced(), sent_fault);
            prop_assert_eq!(pair.receiver.is_fenced(), received_fault);
            let used = pair.sender.tail().wrapping_sub(pair.sender.acknowledged());
            prop_assert!(used <= pair.layout.entries);
            prop_assert!(pair.receiver.held() <= pair.layout.entries);
        }
    }
}

fn pair(publish: Publish, flags: u8) -> Pair {
    let mut pair = Pair::new(layout(8, 64, publish, flags, DEFAULT), 0);
    for cid in 0..4 {
        pair.push(cid, b"").unwrap();
    }
    pair.announce().unwrap();
    pair
}

fn cell(low: u32) -> u64 {
    u64::from(EPOCH) << 32 | u64::from(low)
}

#[test]
fn a_tail_too_far_ahead_or_backwards_fences_the_receiver() {
    for lie in [3, 13, u32::MAX, 1 << 31] {
        let mut pair = pair(Publish::Index, 0);
        for cid in 0..4 {
            assert_eq!(pair.pop(), Ok(Some((cid, Vec::new()))));
        }
        pair.poke_cell(pair.layout.tail, cell(lie));
        assert_eq!(pair.pop(), Err(PeerFault::Sequence), "{lie}");
        assert_eq!(pair.pop(), Err(PeerFault::Fenced));
    }
}

#[test]
fn a_tail_ahead_of_the_entries_fences_the_receiver_at_the_first_that_is_not_there() {
    let mut pair = pair(Publish::Index, 0);
    pair.poke_cell(pair.layout.tail, cell(6));
    for cid in 0..4 {
        assert_eq!(pair.pop(), Ok(Some((cid, Vec::new()))));
    }
    assert_eq!(pair.pop(), Err(PeerFault::Entry));
}

#[test]
fn a_doorbell_is_never_believed() {
    for lie in [0, 3, 13, u32::MAX] {
        let mut pair = pair(Publish::Entry, DOORBELL);
        pair.poke_cell(pair.layout.tail, cell(lie));
        let seen = (0..5).map(|_| pair.pop().unwrap()).filter(Option::is_some);
        assert_eq!(seen.count(), if lie == 0 { 0 } else { lie.min(4) as usize });
        pair.push(4, b"").unwrap();
        pair.announce().unwrap();
        while let Some((cid, _)) = pair.pop().unwrap() {
            assert!(cid <= 4);
        }
        assert_eq!(pair.receiver.head(), 5, "{lie}: none was lost");
    }
}

#[test]
fn a_mark_that_was_not_earned_or_is_taken_back_fences_the_sender() {
    // Of a slot that is empty; of one that no ring of 8 has; of one that was consumed, again.
    for lie in [0x10, 0x100, 0x1] {
        let mut pair = pair(Publish::Entry, OUT_OF_ORDER);
        pair.pop().unwrap().unwrap();
        let mut view = pair.store.view(SENDER);
        pair.sender.refresh(&mut view).unwrap();
        assert_eq!(pair.sender.free(), 5);
        pair.poke_cell(pair.layout.marks, cell(1 ^ lie));
        assert_eq!(pair.sender.refresh(&mut view), Err(PeerFault::Credit));
        assert_eq!(pair.sender.refresh(&mut view), Err(PeerFault::Fenced));
    }
}

#[test]
fn an_entry_in_a_slot_that_is_held_is_not_looked_at() {
    for publish in [Publish::Entry, Publish::Index] {
        for flags in [0, OUT_OF_ORDER] {
            let mut pair = pair(publish, flags);
            for cid in 4..8 {
                pair.push(cid, b"").unwrap();
            }
            pair.announce().unwrap();
            for _ in 0..8 {
                pair.take().unwrap().unwrap();
            }
            // As if the sender had been told that slot 0 is free.
            let at = pair.layout.base.at(56).unwrap();
            pair.poke_cell(at, cell(8));
            pair.poke_cell(pair.layout.tail, cell(9));
            let expected = match publish {
                Publish::Entry => Ok(None),
                Publish::Index => Err(PeerFault::Sequence),
            };
            assert_eq!(pair.take(), expected);
        }
    }
}

#[test]
fn metadata_that_does_not_fit_its_entry_fences_the_receiver() {
    for byte in 0..8 {
        let mut pair = pair(Publish::Entry, METADATA);
        let word = pair.peek_cell(pair.layout.metadata);
        pair.poke_cell(pair.layout.metadata, word ^ (4 << (byte * 8)));
        assert_eq!(pair.take(), Err(PeerFault::Entry), "byte {byte}");
    }
    let mut pair = pair(Publish::Entry, METADATA);
    pair.poke_cell(pair.layout.metadata, u64::MAX);
    let mut view = pair.store.view(RECEIVER);
    assert_eq!(pair.receiver.metadata(&mut view), Err(PeerFault::Entry));
}
