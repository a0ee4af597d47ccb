// SPDX-License-Identifier: GPL-2.0

//! What messages cost on the bus: posted writes, and no reads.

use csd_sim::scenario::Scenario;

const ENTRIES: u64 = 64;

/// The default ring in steady state: one write a message, at most four credits each ring's worth of
/// messages, not one read across the bus.
#[test]
fn a_message_is_one_posted_write() {
    for seed in 0..4 {
        let sim = Scenario::messages(seed, 3000).build();
        csd_sim::drive(&sim, u64::MAX);
        let world = sim.world.borrow();
        assert_eq!(world.violation, None, "seed {seed}");
        let host = sim.host.borrow();
        let mut messages = 0;
        for from in 0..3 {
            for to in (0..3).filter(|to| *to != from) {
                let ends = |me: usize, peer| {
                    let peer = csd_sim::drive::member(peer);
                    let counters = if me == 0 {
                        host.ipc.counters(peer).map(|(out, back)| (*out, *back))
                    } else {
                        let drive = sim.drives[me - 1].borrow();
                        let counters = drive.firmware.ipc().counters(peer);
                        counters.map(|(out, back)| (*out, *back))
                    };
                    counters.unwrap()
                };
                let (sent, taken) = ends(from, to);
                let there = world.pcie.counts(from, to);
                let [entries, cells, data] = there.writes;
                assert_eq!(entries, sent.entries, "{from} to {to}: one write a message");
                assert_eq!(there.bytes[0], sent.entries * 64);
                // The credits for what came back go this way too.
                assert!(
                    cells <= taken.entries * 4 / ENTRIES,
                    "{from} to {to}: {cells} credits"
                );
                assert_eq!(data, 0, "{from} to {to}");
                assert_eq!((there.reads, there.flushes), ([0; 3], 0), "{from} to {to}");
                messages += entries;
            }
        }
        assert!(messages > 2000, "{messages}");
    }
}
