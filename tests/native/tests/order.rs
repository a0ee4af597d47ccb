// SPDX-License-Identifier: GPL-2.0

//! A ring between two threads: loom tries all orders that the memory model and its bounds allow, and
//! finds what is wrong with an order that is too weak; then two real threads.

use csd_native::{Native, Word};
use idc::entry::{Entry, Kind, Request};
use idc::member::{Location, MemberId};
use idc::ring::{Body, Publish, PushError, Receiver, RingFlags, RingLayout, Sender};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// loom's word; with `WEAK` 1 releases, with 2 acquires, are none.
struct Checked<const WEAK: u8>(loom::sync::atomic::AtomicU64);

impl<const WEAK: u8> Word for Checked<WEAK> {
    fn zero() -> Self {
        Checked(loom::sync::atomic::AtomicU64::new(0))
    }

    fn load(&self, order: Ordering) -> u64 {
        self.0
            .load(if WEAK == 2 { Ordering::Relaxed } else { order })
    }

    fn store(&self, value: u64, order: Ordering) {
        let order = if WEAK == 1 { Ordering::Relaxed } else { order };
        self.0.store(value, order);
    }

    fn fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

fn layout(publish: Publish, flags: RingFlags, entries: u32) -> RingLayout {
    let member = |id| MemberId::new(id).unwrap();
    let at = |offset| Location::of(member(0), offset);
    RingLayout {
        entries,
        entry_bytes: 64,
        epoch: 7,
        from: member(1),
        to: member(2),
        publish,
        flags,
        base: at(128),
        credit: at(0),
        tail: at(64),
        marks: at(0),
        metadata: at(128 + u64::from(entries) * 64),
    }
}

fn bytes(layout: &RingLayout) -> usize {
    128 + layout.bytes() as usize
}

fn push<W: Word>(sender: &mut Sender, memory: &mut Native<W>, number: u32) -> bool {
    let data = [number as u8 + 1; 36];
    let header = Request::ping(&data).header(number as u16);
    let body = Body {
        kind: Kind::Request,
        flags: 0,
        header: header.as_bytes().try_into().unwrap(),
        data: &data,
    };
    match sender.push(memory, &body) {
        Ok(()) => true,
        Err(PushError::Full) => false,
        Err(error) => panic!("{error:?}"),
    }
}

fn pop<W: Word>(receiver: &mut Receiver, memory: &mut Native<W>, due: u32) -> bool {
    let mut copy = [0; 64];
    let Some(popped) = receiver.pop(memory, &mut copy).unwrap() else {
        return false;
    };
    let Entry::Request { cid, request, .. } = popped.entry else {
        panic!("a response");
    };
    assert_eq!(cid, due as u16);
    assert_eq!(request.data, [due as u8 + 1; 36]);
    true
}

/// Each side tries as often as given, then the receiver's thread ends and all that is left is taken.
fn explore<const WEAK: u8>(publish: Publish, flags: RingFlags, begin: u32, sent: u32, tries: u32) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    let executions = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let layout = layout(publish, flags, 4);
        let mut memory = Native::<Checked<WEAK>>::new(1, bytes(&layout));
        let mut sender = Sender::new_box_zeroed().unwrap();
        let mut receiver = Receiver::new_box_zeroed().unwrap();
        sender.attach(&layout).unwrap();
        receiver.attach(&layout).unwrap();
        // A ring that is nearly full, so that the credits are needed.
        for number in 0..begin {
            assert!(push(&mut sender, &mut memory, number));
        }
        sender.announce(&mut memory).unwrap();
        let theirs = memory.clone();
        let receiving = loom::thread::spawn(move || {
            let mut memory = theirs;
            let mut due = 0;
            for _ in 0..tries {
                due += u32::from(pop(&mut receiver, &mut memory, due));
            }
            (receiver, due)
        });
        let mut next = begin;
        for _ in 0..sent {
            next += u32::from(push(&mut sender, &mut memory, next));
            sender.announce(&mut memory).unwrap();
        }
        let (mut receiver, mut due) = receiving.join().unwrap();
        while pop(&mut receiver, &mut memory, due) {
            due += 1;
        }
        assert_eq!(due, next);
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{publish:?} {flags:?}: {executions} executions");
    assert!(executions > 1);
}

const FORMS: [(Publish, RingFlags); 4] = [
    (Publish::Entry, RingFlags::NONE),
    (Publish::Entry, RingFlags::OUT_OF_ORDER),
    (Publish::Index, RingFlags::NONE),
    (Publish::Index, RingFlags::OUT_OF_ORDER),
];

#[test]
fn entries_and_indices_are_published_after_what_they_announce() {
    for (publish, flags) in FORMS {
        explore::<0>(publish, flags, 0, 3, 4);
    }
}

#[test]
fn credits_and_marks_come_after_the_last_look_at_an_entry() {
    for (publish, flags) in FORMS {
        explore::<0>(publish, flags, 4, 3, 4);
    }
}

fn is_found(explore: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(explore).is_err()
}

#[test]
fn a_publication_without_release_or_acquire_is_found() {
    for publish in [Publish::Entry, Publish::Index] {
        assert!(is_found(|| explore::<1>(publish, RingFlags::NONE, 0, 1, 1)));
        assert!(is_found(|| explore::<2>(publish, RingFlags::NONE, 0, 1, 1)));
    }
}

#[test]
fn two_threads_keep_the_order() {
    const MESSAGES: u32 = 200_000;
    for (publish, flags) in FORMS {
        let layout = layout(publish, flags, 16);
        let mut memory = Native::<AtomicU64>::new(1, bytes(&layout));
        let mut sender = Sender::new_box_zeroed().unwrap();
        let mut receiver = Receiver::new_box_zeroed().unwrap();
        sender.attach(&layout).unwrap();
        receiver.attach(&layout).unwrap();
        let mut theirs = memory.clone();
        let receiving = std::thread::spawn(move || {
            let mut due = 0;
            while due < MESSAGES {
                if pop(&mut receiver, &mut theirs, due % 200) {
                    due += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < MESSAGES {
            if push(&mut sender, &mut memory, next % 200) {
                sender.announce(&mut memory).unwrap();
                next += 1;
            } else {
                std::thread::yield_now();
            }
        }
        receiving.join().unwrap();
    }
}
