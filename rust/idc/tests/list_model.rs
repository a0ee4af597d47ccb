// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Linked-list buffers against a queue: any interleaving of both ends, any order of releases, writes
//! that arrive late, every placement, and a new epoch on the same memory.

mod fabric;
mod list_pair;

use idc::ring::PushError;
use list_pair::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A queue, and what was taken of it and not given back.
#[derive(Default)]
struct Model {
    queue: VecDeque<Got>,
    held: Vec<u32>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_list_is_a_bounded_queue(
        nodes in prop_oneof![2_u32..12, Just(33), Just(64), Just(256)],
        wide in any::<bool>(),
        place in 0..PLACES.len(),
        start in prop_oneof![Just(0_u32), Just(u32::MAX - 3), Just(0xfffd), any::<u32>()],
        epochs in 1_u32..4,
        steps in proptest::collection::vec((0_u8..12, any::<u16>()), 1..400),
    ) {
        let mut pair = pair_at(nodes, if wide { 256 } else { 64 }, PLACES[place], start);
        pair.store.0.borrow_mut().posted = true;
        let most = if wide { 229 } else { 37 };
        let mut next = 0_u16;
        for epoch in 0..epochs {
            let mut model = Model::default();
            let steps: Vec<_> = steps.iter().map(|(step, pick)| (*step, usize::from(*pick))).collect();
            for (step, pick) in steps {
                match step {
                    0..=3 => {
                        let data = vec![next as u8; usize::from(next) % most];
                        match pair.push(next, &data) {
                            Ok(()) => {
                                model.queue.push_back((next, data));
                                // One node is always stood on.
                                let used = model.queue.len() + model.held.len();
                                prop_assert!(used < nodes as usize + 1);
                            }
                            // Full may be early by what is batched or on its way.
                            Err(error) => prop_assert_eq!(error, PushError::Full),
                        }
                        next = next.wrapping_add(1);
                    }
                    4 => { pair.announce(); }
                    5 => pair.store.deliver(pick % 4, pick / 4 % 4, pick % 3),
                    6..=8 => if let Some((node, got)) = pair.take().unwrap() {
                        prop_assert_eq!(Some(got), model.queue.pop_front());
                        prop_assert!(!model.held.contains(&node), "a node that is held came again");
                        model.held.push(node);
                    },
                    9 | 10 => if !model.held.is_empty() {
                        let node = model.held.swap_remove(pick % model.held.len());
                        pair.release(node);
                    },
                    _ => if let Some(got) = pair.pop().unwrap() {
                        prop_assert_eq!(Some(got), model.queue.pop_front());
                    },
                }
                prop_assert_eq!(pair.receiver.held() as usize, model.held.len());
            }
            pair.announce();
            pair.store.deliver_all();
            while let Some(expected) = model.queue.pop_front() {
                prop_assert_eq!(pair.pop().unwrap(), Some(expected));
            }
            prop_assert_eq!(pair.pop().unwrap(), None);
            prop_assert_eq!(pair.receiver.head(), pair.sender.tail());
            prop_assert_eq!(pair.receiver.head_node(), pair.sender.tail_node());
            for node in std::mem::take(&mut model.held) {
                pair.release(node);
            }
            pair.store.deliver_all();
            // Of all nodes, only the one stood on and what makes no batch are not free.
            for cid in 0..nodes - nodes / 4 - u32::from(nodes < 4) {
                pair.push(cid as u16, b"").unwrap();
            }
            prop_assert!(pair.sender.counters().faults + pair.receiver.counters().faults == 0);

            // The same memory under a new epoch, zeroed or (where nobody could) not.
            pair.store.deliver_all();
            let mut layout = pair.layout;
            layout.epoch += 1;
            pair.layout = layout;
            if epoch % 2 == 0 {
                for (at, bytes) in [
                    (layout.base, layout.bytes()),
                    (layout.links, layout.links_bytes()),
                    (layout.credit, 64),
                    (layout.marks, layout.marks_bytes()),
                ] {
                    pair.store.poke(at.memory.get(), at.offset, &vec![0; bytes as usize]);
                }
            }
            pair.sender.attach_at(&layout, start).unwrap();
            pair.receiver.attach_at(&layout, start).unwrap();
        }
    }
}
