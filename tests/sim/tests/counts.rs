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

/// Pipelines without trouble: a drive never reads a peer's memory, not even to flush; results are
/// flushed where they lie before they are announced, and the host's memory once at the end of a hop.
#[test]
fn a_pipeline_needs_no_reads_across_the_bus() {
    let (mut pipelines, mut announced) = (0, 0);
    for seed in 0..60 {
        let sim = Scenario::new(seed).healthy().build();
        csd_sim::drive(&sim, u64::MAX);
        let world = sim.world.borrow();
        assert_eq!(world.violation, None, "seed {seed}");
        let ends = &world.tally.ends;
        if ends.keys().any(|status| *status != "ok") {
            continue;
        }
        pipelines += ends.values().sum::<u64>();
        let drives = sim.drives.len();
        let host = sim.host.borrow();
        let hops: usize = host.book.jobs.iter().map(|job| job.members.len()).sum();
        let mut at_the_end = 0;
        for from in 1..=drives {
            for to in (1..=drives).filter(|to| *to != from) {
                let there = world.pcie.counts(from, to);
                assert_eq!((there.reads, there.flushes), ([0; 3], 0), "{from} to {to}");
            }
            let to_host = world.pcie.counts(from, 0);
            assert_eq!(to_host.reads, [0; 3], "{from} to the host");
            at_the_end += to_host.flushes;
            announced += world.pcie.counts(from, from).flushes;
        }
        assert_eq!(
            at_the_end, hops as u64,
            "one flush of the host's memory a hop"
        );
    }
    assert!(pipelines > 50 && announced > 50, "{pipelines}, {announced}");
}
