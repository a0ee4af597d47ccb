// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One linked-list buffer between honest ends: what lies on the wire, what is free when, what it costs.

mod fabric;
mod list_pair;

use fabric::Accesses;
use idc::list::{ListError, ListLayout, ListReceiver, ListSender};
use idc::ring::{PeerFault, PushError};
use list_pair::*;

#[test]
fn an_entry_arrives_as_it_was_sent() {
    for node_bytes in [64, 128, 4096] {
        for place in PLACES {
            let mut pair = pair_at(4, node_bytes, place, 0);
            assert_eq!(pair.pop(), Ok(None));
            let data: Vec<u8> = (0..node_bytes as usize - 28).map(|i| i as u8).collect();
            pair.push(9, &data).unwrap();
            pair.announce();
            assert_eq!(pair.pop(), Ok(Some((9, data))), "{place:?}");
            assert_eq!(pair.pop(), Ok(None));
        }
    }
}

/// The bytes on the wire, written down from the specification's tables and not from our encoder.
#[test]
fn the_bytes_are_those_of_the_specification() {
    let mut pair = pair_at(4, 64, PUSHED, 0x0001_fffe);
    pair.push(0x1234, b"hi").unwrap();
    pair.push(0x1235, b"").unwrap();
    let mut expected = [0_u8; 64];
    expected[..18].copy_from_slice(&[
        0x01, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, b'h', b'i',
    ]);
    expected[52..].copy_from_slice(&[1, 2, 1, 1, 0xfe, 0xff, 1, 0, EPOCH as u8, 0, 0, 0]);
    assert_eq!(pair.store.peek(TO, BASE + 64, 64), expected, "node 1");
    let links = [
        [1, 0, 0xfe, 0xff, EPOCH as u8, 0, 0, 0], // 0 leads to 1
        [2, 0, 0xff, 0xff, EPOCH as u8, 0, 0, 0], // 1 leads to 2
        [0; 8],
    ];
    assert_eq!(pair.store.peek(TO, LINKS, 24), links.concat());
    pair.pop().unwrap().unwrap();
    pair.pop().unwrap().unwrap();
    // Node 0 was left with the first entry, node 1 with the second; the receiver stands on 2.
    let head = [2, 0, 0xff, 0xff, EPOCH as u8, 0, 0, 0];
    assert_eq!(pair.store.peek(FROM, CREDIT, 8), head);
    let marks = [0b11, 0, 0, 0, EPOCH as u8, 0, 0, 0];
    assert_eq!(pair.store.peek(FROM, MARKS, 8), marks);
}

#[test]
fn a_full_pool_refuses_and_writes_nothing() {
    for nodes in [2, 3, 4, 33, 64, 255, 256] {
        let mut pair = pair(nodes, 64);
        for cid in 0..nodes as u16 - 1 {
            pair.push(cid, b"x").unwrap();
        }
        assert_eq!(pair.sender.free(), 0);
        let before = pair.store.peek(TO, 0, 4096 + nodes as usize * 64);
        assert_eq!(pair.push(999, b"y"), Err(PushError::Full));
        let after = pair.store.peek(TO, 0, 4096 + nodes as usize * 64);
        assert_eq!(after, before);
        assert_eq!(pair.sender.counters().stalls, 1);
        for cid in 0..nodes as u16 - 1 {
            assert_eq!(pair.pop(), Ok(Some((cid, b"x".to_vec()))));
        }
        pair.push(999, b"y").unwrap();
        assert_eq!(pair.pop(), Ok(Some((999, b"y".to_vec()))));
    }
}

/// One entry that is never released holds up nobody, however long.
#[test]
fn a_slow_node_holds_up_no_other() {
    for place in PLACES {
        let mut pair = pair_at(4, 64, place, 0);
        pair.push(0xffff, b"slow").unwrap();
        pair.announce();
        let (slow, _) = pair.take().unwrap().unwrap();
        // Beyond 65,536 entries, so that what links say of sequences comes round.
        for cid in 0..140_000_u32 {
            let cid = cid as u16;
            pair.push(cid, b"fast").unwrap();
            pair.announce();
            assert_eq!(pair.pop(), Ok(Some((cid, b"fast".to_vec()))));
        }
        assert_eq!(pair.receiver.held(), 1);
        assert!(!pair.release(99));
        pair.release(slow);
        assert_eq!(pair.receiver.held(), 0);
        assert!(!pair.release(slow), "a second release is none");
        for cid in 0..1000 {
            pair.push(cid, b"").unwrap();
            pair.announce();
            assert_eq!(pair.pop(), Ok(Some((cid, vec![]))));
        }
    }
}

/// A node that was kept for 65,536 entries comes back with a link that says the right low half of a
/// sequence. It must not be taken for the new link.
#[test]
fn an_old_link_is_not_taken_for_the_new_one() {
    let mut came_round = 0;
    for (nodes, kept_for) in (3..6).flat_map(|nodes| (65_530..65_540).map(move |n| (nodes, n))) {
        let mut pair = pair(nodes, 64);
        pair.push(0, b"slow").unwrap();
        let (slow, _) = pair.take().unwrap().unwrap();
        for _ in 0..kept_for {
            pair.push(1, b"").unwrap();
            pair.pop().unwrap().unwrap();
        }
        pair.release(slow);
        for _ in 0..nodes {
            pair.push(2, b"").unwrap();
            assert_eq!(pair.pop(), Ok(Some((2, vec![]))));
            came_round +=
                u32::from((pair.sender.tail_node(), pair.sender.tail()) == (slow, 65_537));
            // Nothing more was sent, whatever the link of this node once said.
            assert_eq!(pair.pop(), Ok(None), "{nodes} nodes, kept for {kept_for}");
        }
    }
    assert_ne!(came_round, 0, "the old link never was the expected one");
}

#[test]
fn nodes_come_back_in_any_order() {
    let mut pair = pair(8, 64);
    for cid in 0..7 {
        pair.push(cid, b"").unwrap();
    }
    let nodes: Vec<u32> = (0..7).map(|_| pair.take().unwrap().unwrap().0).collect();
    assert_eq!(pair.push(7, b""), Ok(()), "node 0 was left");
    assert_eq!(pair.push(8, b""), Err(PushError::Full));
    let (stood_on, _) = pair.take().unwrap().unwrap();
    for (cid, node) in [(8, nodes[3]), (9, nodes[6]), (10, nodes[0])] {
        // The sender is out of nodes, so that it is told of one at once.
        assert!(pair.release(node));
        pair.push(cid, b"").unwrap();
        assert_eq!(pair.push(99, b""), Err(PushError::Full));
        assert_eq!(
            pair.take(),
            Ok(Some((node, (cid, vec![])))),
            "the one released"
        );
    }
    assert_eq!(pair.receiver.held(), 8);
    assert!(pair.release(stood_on), "left long ago");
}

/// Released or not, the node that the receiver stands on is not free: its link is still to come.
#[test]
fn the_last_node_is_not_free() {
    let mut pair = pair(2, 64);
    for round in 0..10 {
        pair.push(round, b"").unwrap();
        assert_eq!(pair.push(99, b""), Err(PushError::Full));
        assert_eq!(pair.pop(), Ok(Some((round, vec![]))));
        assert_eq!(pair.receiver.head_node(), pair.sender.tail_node());
        assert_eq!(pair.receiver.head(), pair.sender.tail());
    }
}

#[test]
fn too_long_data_is_refused() {
    let mut pair = pair(4, 64);
    assert_eq!(pair.push(0, &[0; 37]), Err(PushError::TooLong));
    pair.push(0, &[1; 36]).unwrap();
}

/// What a message costs: the entry and a link, no read across the bus, and what the receiver tells
/// is batched.
#[test]
fn nobody_reads_across_the_bus() {
    for (nodes, rounds) in [(64, 6400_u64), (32, 3200), (256, 25_600)] {
        let mut pair = pair(nodes, 64);
        for round in 0..rounds {
            pair.push(round as u16, b"").unwrap();
            assert!(pair.pop().unwrap().is_some());
        }
        let Accesses {
            reads,
            writes,
            written_bytes,
            flushes,
            ..
        } = pair.store.counts(FROM, TO);
        assert_eq!((reads, flushes), (0, 0), "the sender reads no peer memory");
        // A line, and the link.
        assert_eq!((writes, written_bytes), (rounds * 2, rounds * 72));
        let back = pair.store.counts(TO, FROM);
        assert_eq!(back.reads, 0, "the receiver reads no peer memory");
        // The head and the one or two mark cells that a quarter of the nodes lie in.
        let batches = rounds * 4 / u64::from(nodes);
        let cells = u64::from(nodes / 4).div_ceil(32) + 1;
        assert!(back.writes >= batches * 2 - 2, "{} writes", back.writes);
        assert!(
            back.writes <= batches * (1 + cells),
            "{} writes",
            back.writes
        );
        assert_eq!(pair.receiver.counters().credits, batches);
        // Each end reads its own memory: two accesses for a message, and one for none.
        let own = pair.store.counts(TO, TO).reads;
        assert_eq!(own, rounds * 2);
    }
}

/// With nodes and links apart, a batch takes one flush, before the link that leads to it.
#[test]
fn apart_from_its_links_a_batch_is_flushed_once() {
    let place = PLACES[3];
    let mut pair = pair_at(16, 64, place, 0);
    pair.store.0.borrow_mut().posted = true;
    let mut cid = 0;
    for batch in 1..=5_u16 {
        for _ in 0..batch {
            pair.push(cid, b"b").unwrap();
            cid += 1;
        }
        pair.store
            .deliver(usize::from(FROM), usize::from(TO), usize::MAX);
        assert_eq!(pair.pop(), Ok(None), "not announced");
        assert!(pair.announce());
        assert!(!pair.announce(), "nothing more to announce");
        assert_eq!(pair.sender.announced(), pair.sender.tail());
        // Links may overtake all but what was flushed.
        pair.store
            .deliver(usize::from(FROM), usize::from(TO), usize::MAX);
        for back in (0..batch).rev() {
            assert_eq!(pair.pop(), Ok(Some((cid - 1 - back, b"b".to_vec()))));
        }
        pair.store
            .deliver(usize::from(TO), usize::from(FROM), usize::MAX);
        let counters = *pair.sender.counters();
        assert_eq!(counters.flushes, u64::from(batch));
        assert_eq!(counters.announcements, u64::from(batch));
        assert_eq!(
            pair.store.counts(FROM, place.nodes).flushes,
            u64::from(batch)
        );
    }
}

/// A pool that is full of what was not announced announces it: nobody else would free it.
#[test]
fn a_full_pool_announces() {
    let mut pair = pair_at(4, 64, PLACES[3], 0);
    for cid in 0..3 {
        pair.push(cid, b"").unwrap();
    }
    assert_eq!(pair.pop(), Ok(None));
    assert_eq!(pair.push(3, b""), Err(PushError::Full));
    assert_eq!(pair.pop(), Ok(Some((0, vec![]))));
}

#[test]
fn layouts_out_of_range_are_refused() {
    let good = layout(4, 64, PUSHED);
    let bad = |change: fn(&mut ListLayout), error| {
        let mut layout = good;
        change(&mut layout);
        assert_eq!(layout.check(), Err(error));
    };
    good.check().unwrap();
    bad(|l| l.nodes = 1, ListError::Nodes);
    bad(|l| l.nodes = 257, ListError::Nodes);
    bad(|l| l.node_bytes = 32, ListError::NodeBytes);
    bad(|l| l.node_bytes = 96, ListError::NodeBytes);
    bad(|l| l.node_bytes = 8192, ListError::NodeBytes);
    bad(|l| l.epoch = 0, ListError::Epoch);
    bad(|l| l.to = l.from, ListError::Members);
    bad(|l| l.base.offset += 8, ListError::Placement);
    bad(|l| l.base.offset = u64::MAX - 63, ListError::Placement);
    bad(|l| l.links.offset += 8, ListError::Placement);
    bad(|l| l.links.offset = u64::MAX - 63, ListError::Placement);
    bad(|l| l.credit.offset += 8, ListError::Placement);
    bad(|l| l.marks.offset += 8, ListError::Placement);
    bad(|l| l.marks.memory = l.base.memory, ListError::Placement);
}

/// The bytes of the parts, by hand: a link of 8 bytes a node, a cell of 8 bytes for 32 nodes.
#[test]
fn the_parts_are_as_long_as_the_specification_says() {
    for (nodes, links, marks) in [(2, 64, 64), (8, 64, 64), (9, 128, 64), (256, 2048, 64)] {
        let layout = layout(nodes, 128, PUSHED);
        assert_eq!(layout.links_bytes(), links);
        assert_eq!(layout.marks_bytes(), marks);
        assert_eq!(layout.bytes(), u64::from(nodes) * 128);
    }
}

#[test]
fn a_lost_memory_fences_both_ends() {
    let mut pair = pair(4, 64);
    pair.store.lose(TO);
    assert!(matches!(
        pair.push(0, b""),
        Err(PushError::Fault(PeerFault::Memory(_)))
    ));
    assert!(matches!(pair.pop(), Err(PeerFault::Memory(_))));
    assert_eq!(pair.pop(), Err(PeerFault::Fenced));
    assert_eq!(pair.receiver.counters().faults, 1);
    assert_eq!(pair.push(0, b""), Err(PushError::Fault(PeerFault::Fenced)));
}

/// Both ends of each pair are built in place in the memory of a drive's controller.
#[test]
fn an_end_is_small() {
    assert!(
        size_of::<ListSender>() <= 1152,
        "{}",
        size_of::<ListSender>()
    );
    assert!(
        size_of::<ListReceiver>() <= 1152,
        "{}",
        size_of::<ListReceiver>()
    );
}
