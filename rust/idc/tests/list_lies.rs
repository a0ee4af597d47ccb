// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Linked-list buffers whose words lie: another epoch, no such node, a node twice, marks that cannot be.

mod fabric;
mod list_pair;

use idc::ring::{PeerFault, PushError};
use list_pair::*;
use proptest::prelude::*;

#[test]
fn a_link_of_another_epoch_is_counted_once_and_not_followed() {
    let mut pair = pair(4, 64);
    pair.poke(pair.layout.links, 0, link(EPOCH - 1, 0, 1));
    for _ in 0..3 {
        assert_eq!(pair.pop(), Ok(None));
    }
    assert_eq!(pair.receiver.counters().stale, 1);
    pair.push(1, b"new").unwrap();
    assert_eq!(pair.pop(), Ok(Some((1, b"new".to_vec()))));
}

#[test]
fn a_link_that_leads_nowhere_is_a_fault() {
    // To no node, to the node itself, to the wrong place in the order.
    for lie in [
        link(EPOCH, 0, 4),
        link(EPOCH, 0, 0xffff),
        link(EPOCH, 0, 0),
        link(EPOCH, 1, 1),
    ] {
        let mut pair = pair(4, 64);
        pair.push(0, b"").unwrap();
        pair.poke(pair.layout.links, 0, lie);
        assert_eq!(pair.pop(), Err(PeerFault::Link), "{lie:x}");
        assert_eq!(pair.pop(), Err(PeerFault::Fenced));
        assert_eq!(pair.receiver.counters().faults, 1);
        pair.receiver.attach(&pair.layout.clone()).unwrap();
        pair.poke(pair.layout.links, 0, 0);
        assert_eq!(pair.pop(), Ok(None));
    }
}

#[test]
fn a_cycle_is_not_followed() {
    let mut pair = pair(8, 64);
    for cid in 0..3 {
        pair.push(cid, b"").unwrap();
    }
    for _ in 0..3 {
        pair.take().unwrap().unwrap();
    }
    // From node 3 back to each that is held or not given back.
    let honest = pair.receiver.clone();
    for node in 0..=3 {
        pair.poke(pair.layout.links, 3, link(EPOCH, 3, node));
        pair.receiver = honest.clone();
        assert_eq!(pair.take(), Err(PeerFault::Link), "node {node}");
    }
}

#[test]
fn a_link_ahead_of_its_entry_is_a_fault() {
    let mut pair = pair(4, 64);
    pair.poke(pair.layout.links, 0, link(EPOCH, 0, 3));
    assert_eq!(pair.pop(), Err(PeerFault::Entry));
}

#[test]
fn a_malformed_entry_is_a_fault() {
    for (offset, value) in [
        (52, 3),
        (53, 1),
        (54, 0),
        (54, 3),
        (54, 0x41),
        (55, 0),
        (55, 2),
        (56, 1),
        (60, 1),
        (1, 1),
    ] {
        let mut pair = pair(4, 64);
        pair.push(0, b"x").unwrap();
        pair.store.poke(TO, BASE + 64 + offset, &[value]);
        assert_eq!(pair.pop(), Err(PeerFault::Entry), "byte {offset} = {value}");
    }
}

#[test]
fn a_mark_of_a_node_in_use_is_a_fault() {
    // Nodes 1 to 3 wait, the receiver stands on 0, 4 to 6 are free; there is no node 7.
    for bit in 0..8 {
        let mut pair = pair(7, 64);
        for cid in 0..3 {
            pair.push(cid, b"").unwrap();
        }
        pair.poke(pair.layout.credit, 0, link(EPOCH, 0xffff, 0));
        pair.poke(pair.layout.marks, 0, marks(EPOCH, 1 << bit));
        assert_eq!(pair.refresh(), Err(PeerFault::Credit), "node {bit}");
        assert_eq!(pair.push(9, b""), Err(PushError::Fault(PeerFault::Fenced)));
    }
}

#[test]
fn a_head_off_the_list_is_a_fault() {
    let heads = [
        (0xffff, 1), // the right sequence at another node
        (0, 2),
        (3, 0), // beyond the last entry
        (3, 4),
        (0xfffe, 0), // back
        (0x8000, 0),
    ];
    for (sequence, node) in heads {
        let mut pair = pair(8, 64);
        for cid in 0..3 {
            pair.push(cid, b"").unwrap();
        }
        pair.poke(pair.layout.credit, 0, link(EPOCH, sequence, node));
        assert_eq!(
            pair.refresh(),
            Err(PeerFault::Credit),
            "{sequence:x} at {node}"
        );
        assert!(pair.sender.is_fenced());
    }
    // A head that goes back to where it once was.
    let mut pair = pair(4, 64);
    for cid in 0..3 {
        pair.push(cid, b"").unwrap();
        pair.pop().unwrap().unwrap();
    }
    pair.refresh().unwrap();
    pair.poke(pair.layout.credit, 0, link(EPOCH, 0, 1));
    assert_eq!(pair.refresh(), Err(PeerFault::Credit));
}

#[test]
fn words_of_another_epoch_are_no_news() {
    let mut pair = pair(4, 64);
    pair.push(0, b"").unwrap();
    pair.poke(pair.layout.credit, 0, link(EPOCH + 1, 0x4444, 3));
    pair.poke(pair.layout.marks, 0, marks(EPOCH + 1, 0xffff_ffff));
    pair.refresh().unwrap();
    assert_eq!(pair.sender.free(), 2);
}

/// A batch that is not announced is not reached: a head on it is a lie.
#[test]
fn a_head_beyond_what_was_announced_is_a_fault() {
    let mut pair = pair_at(8, 64, PLACES[3], 0);
    pair.push(0, b"").unwrap();
    pair.poke(pair.layout.credit, 0, link(EPOCH, 0, 1));
    assert_eq!(pair.refresh(), Err(PeerFault::Credit));
}

proptest! {
    /// Whatever the receiver's memory holds, each call ends with at most as many accesses as an
    /// entry takes, and what is taken bears the sender's name.
    #[test]
    fn random_words_never_lead_astray(
        entries in proptest::collection::vec((any::<u32>(), 0_u8..4, 1_u8..4), 8),
        links in proptest::collection::vec((0_u16..10, 0_u16..4, any::<bool>()), 8),
        cells in proptest::collection::vec(any::<u32>(), 2),
    ) {
        let mut pair = pair(8, 64);
        for cid in 0..4 {
            pair.push(cid, b"honest").unwrap();
        }
        for (node, (sequence, from, to)) in (0_u64..).zip(entries) {
            if node % 2 == 0 {
                let trailer = [from, to, 1, 1, sequence as u8 % 8, 0, 0, 0, EPOCH as u8, 0, 0, 0];
                pair.store.poke(TO, BASE + node * 64 + 52, &trailer);
            }
        }
        for (at, (node, sequence, lie)) in (0_u64..).zip(links) {
            if lie {
                pair.poke(pair.layout.links, at, link(EPOCH, sequence, node));
            }
        }
        for step in 0..40 {
            let before = pair.store.counts(TO, TO).reads;
            let mut copy = [0; 64];
            let taken = pair.receiver.take(&mut pair.store.view(TO), &mut copy);
            prop_assert!(pair.store.counts(TO, TO).reads - before <= 2);
            match taken {
                Ok(Some(taken)) => {
                    prop_assert!(taken.node < 8);
                    let node = taken.node;
                    prop_assert_eq!(&copy[52..54], &[FROM as u8, TO as u8]);
                    if step % 3 != 0 {
                        pair.release(node);
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    prop_assert!(pair.receiver.is_fenced());
                    break;
                }
            }
        }
        prop_assert!(pair.receiver.counters().entries <= 8);
        pair.poke(pair.layout.credit, 0, marks(EPOCH, cells[0]));
        pair.poke(pair.layout.marks, 0, marks(EPOCH, cells[1]));
        let before = pair.store.counts(FROM, FROM).reads;
        let _ = pair.refresh();
        prop_assert_eq!(pair.store.counts(FROM, FROM).reads - before, 2);
    }
}
