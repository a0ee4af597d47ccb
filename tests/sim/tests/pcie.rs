// SPDX-License-Identifier: GPL-2.0

//! The simulated PCI Express does what it may do, and nothing else.

use csd_sim::pcie::{Class, Pcie, Refused};
use csd_sim::rng::Rng;

const FOREVER: u64 = 1 << 40;

fn bus(seed: u64) -> Pcie {
    let mut bus = Pcie::new(Rng::new(seed), 1000);
    for member in 0..3 {
        bus.lend(member, 8192);
    }
    bus
}

fn word(bus: &mut Pcie, reader: usize, memory: usize, at: u64, now: u64) -> u64 {
    let mut bytes = [0; 8];
    bus.read(reader, memory, at, &mut bytes, Class::Data, now)
        .unwrap();
    u64::from_le_bytes(bytes)
}

/// Data and its announcement in two memories: both orders are seen, and only one with a flush.
#[test]
fn writes_to_different_memories_overtake_one_another_unless_flushed() {
    for flushed in [false, true] {
        let (mut early, mut late) = (0, 0);
        for seed in 0..2000 {
            let mut bus = bus(seed);
            bus.write(1, 2, 0, &[7; 8], Class::Data, 0).unwrap();
            if flushed {
                bus.flush(1, 2, 10).unwrap();
            }
            bus.write(1, 0, 0, &[1; 8], Class::Cell, 20).unwrap();
            // Member 0 polls its cell; member 2 looks at its data at that moment.
            let mut now = 20;
            while word(&mut bus, 0, 0, 0, now) != u64::from_le_bytes([1; 8]) {
                now += 10;
            }
            if word(&mut bus, 2, 2, 0, now) == u64::from_le_bytes([7; 8]) {
                early += 1;
            } else {
                late += 1;
            }
        }
        assert!(early > 100, "{early} early, {late} late");
        assert_eq!(late == 0, flushed, "{early} early, {late} late");
    }
}

/// Two writes on one path, and the parts of one write: whoever sees the end sees the beginning.
#[test]
fn one_path_keeps_its_order_down_to_the_bytes() {
    let mut parts = 0;
    for seed in 0..500 {
        let mut bus = bus(seed);
        let entry: Vec<u8> = (1..=64).collect();
        bus.write(1, 2, 4096, &[9; 512], Class::Data, 0).unwrap();
        bus.write(1, 2, 0, &entry, Class::Entry, 0).unwrap();
        for now in 0.. {
            let mut seen = [0; 64];
            bus.read(2, 2, 0, &mut seen, Class::Entry, now).unwrap();
            let there = seen.iter().filter(|byte| **byte != 0).count();
            assert_eq!(seen[..there], entry[..there], "increasing addresses");
            assert_eq!(there % 4, 0);
            parts += usize::from((1..64).contains(&there));
            if there != 0 {
                let mut before = [0; 512];
                bus.read(2, 2, 4096, &mut before, Class::Data, now).unwrap();
                assert_eq!(before, [9; 512], "the write before is there");
            }
            if there == 64 {
                break;
            }
        }
    }
    assert!(parts > 100, "a write is seen in parts: {parts}");
}

#[test]
fn relaxed_ordering_breaks_that() {
    let broken = (0..500).filter(|seed| {
        let mut bus = bus(*seed);
        bus.relax(1);
        bus.write(1, 2, 4096, &[9; 512], Class::Data, 0).unwrap();
        bus.write(1, 2, 0, &[1; 8], Class::Cell, 0).unwrap();
        let mut now = 0;
        while word(&mut bus, 2, 2, 0, now) == 0 {
            now += 5;
        }
        let mut before = [0; 512];
        bus.read(2, 2, 4096, &mut before, Class::Data, now).unwrap();
        before != [9; 512]
    });
    assert!(broken.count() > 100);
}

#[test]
fn an_owner_sees_its_own_stores_before_others_do() {
    let mut later = 0;
    for seed in 0..500 {
        let mut bus = bus(seed);
        bus.write(2, 2, 0, &[5; 8], Class::Data, 100).unwrap();
        let other = word(&mut bus, 0, 2, 0, 100);
        assert_eq!(word(&mut bus, 2, 2, 0, 100), u64::from_le_bytes([5; 8]));
        later += usize::from(other == 0);
        // A flush makes it everybody's.
        bus.write(2, 2, 8, &[6; 8], Class::Data, 100).unwrap();
        bus.flush(2, 2, 100).unwrap();
        assert_eq!(word(&mut bus, 0, 2, 8, 100), u64::from_le_bytes([6; 8]));
    }
    assert!(later > 400, "{later}");
}

#[test]
fn a_cut_leaves_a_beginning_of_what_was_sent() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..500 {
        let mut bus = bus(seed);
        for index in 0..8 {
            bus.write(1, 2, index * 64, &[1; 64], Class::Entry, 0)
                .unwrap();
        }
        bus.cut(1);
        let mut seen = [0; 512];
        bus.read(2, 2, 0, &mut seen, Class::Entry, FOREVER).unwrap();
        let there = seen.iter().filter(|byte| **byte != 0).count();
        assert!(seen[..there].iter().all(|byte| *byte == 1), "no gap");
        lengths.insert(there);
    }
    assert!(lengths.len() > 20, "{lengths:?}");
    assert!(
        lengths.iter().any(|length| length % 64 != 0),
        "also within a write"
    );
}

#[test]
fn what_cannot_be_is_refused_and_not_counted() {
    let mut bus = bus(1);
    assert_eq!(
        bus.write(1, 5, 0, &[0; 8], Class::Data, 0),
        Err(Refused::NoMemory)
    );
    assert_eq!(
        bus.write(1, 2, 8185, &[0; 8], Class::Data, 0),
        Err(Refused::OutOfRange)
    );
    assert_eq!(
        bus.write(1, 2, u64::MAX, &[0; 8], Class::Data, 0),
        Err(Refused::OutOfRange)
    );
    bus.set_gone(2, true);
    assert_eq!(bus.flush(1, 2, 0), Err(Refused::Gone));
    assert_eq!(*bus.counts(1, 2), Default::default());
}
