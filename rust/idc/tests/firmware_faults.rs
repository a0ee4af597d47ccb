// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What goes wrong in a mesh on its own: cancel, loss, silence, rings that break. Whatever it is, the
//! pipeline ends with the right name on it and everything comes back.

mod fabric;

use fabric::board::{member, Board};
use fabric::oracle::table;
use fabric::trouble::{board, checksum_at, encrypt_at, failure, filter_at, job, wait, MS};
use idc::ring::PeerFault;
use idc::status::{Failure, StageId, Status};

#[test]
fn a_pipeline_can_be_cancelled_at_any_step() {
    let data = table(300, 1);
    let stages = || vec![filter_at(1), encrypt_at(2), checksum_at(3), checksum_at(1)];
    let mut cancelled = 0;
    for step in 0..600 {
        let mut board = board(3, &data, step);
        let mut runs = [board.start(&job(data.len() as u64, stages())).unwrap()];
        for _ in 0..step * 3 {
            board.step(&mut runs);
        }
        let was_running = board.drive(1).firmware.cancel(runs[0].stream);
        wait(&mut board, &mut runs);
        if was_running {
            assert_eq!(failure(&runs[0]).status, Status::CANCELLED, "step {step}");
            cancelled += 1;
        }
        assert!(!board.drive(1).firmware.cancel(runs[0].stream));
        board.finish(&runs);
    }
    assert!(cancelled > 200, "{cancelled}");
}

#[test]
fn a_peer_can_be_lost_at_any_step() {
    let data = table(300, 2);
    for lost in [2, 3] {
        let mut failed = 0;
        for step in 0..400 {
            let mut board = board(3, &data, step);
            let stages = vec![filter_at(1), encrypt_at(2), checksum_at(3), checksum_at(1)];
            let mut runs = [board.start(&job(data.len() as u64, stages)).unwrap()];
            for _ in 0..step * 4 {
                board.step(&mut runs);
            }
            // The drive vanishes: its memory faults, it does nothing more, and the host tells all.
            board.drive(lost).stopped = true;
            board.store.lose(lost);
            runs[0].reader_stopped = true;
            for id in (1..=3).filter(|id| *id != lost) {
                board.drive(id).firmware.detach_peer(member(lost));
            }
            wait(&mut board, &mut runs);
            let failure = failure(&runs[0]);
            if !failure.status.is_ok() {
                failed += 1;
                assert_eq!(failure.status, Status::PEER_LOST, "step {step}: {failure}");
                assert_eq!(failure.member, member(lost), "step {step}: {failure}");
            }
            for id in (1..=3).filter(|id| *id != lost) {
                let drive = board.drive(id);
                assert_eq!(
                    drive.firmware.active_streams(),
                    0,
                    "step {step}, drive {id}"
                );
                assert_eq!(drive.firmware.functions_in_use(), 0);
                assert!(drive.host.scratch.iter().all(Option::is_none));
            }
        }
        assert!(failed > 150, "{failed}");
    }
}

/// A peer whose memory is gone without anybody saying so is found out by the first access.
#[test]
fn a_drive_that_vanishes_unnoticed_is_named() {
    let data = table(3000, 3);
    let stages = || vec![checksum_at(1), checksum_at(2), checksum_at(3)];
    let mut statuses = Vec::new();
    for steps in (0..2000).step_by(100) {
        let mut board = board(3, &data, steps);
        let mut job = job(data.len() as u64, stages());
        job.sip = 100;
        let mut runs = [board.start(&job).unwrap()];
        for _ in 0..steps {
            board.step(&mut runs);
        }
        board.drive(2).stopped = true;
        board.store.lose(2);
        wait(&mut board, &mut runs);
        let failure = failure(&runs[0]);
        assert_eq!(failure.member, member(2), "{failure}");
        statuses.push(failure.status);
    }
    // By the next write into its memory, or if there was none to do, by its silence.
    let known = [Status::PEER_LOST, Status::DEADLINE];
    assert!(statuses.iter().all(|status| known.contains(status)));
    assert!(statuses.contains(&Status::PEER_LOST), "{statuses:?}");
}

#[test]
fn a_silent_hop_is_named_by_the_deadline() {
    let data = table(3000, 4);
    for (silent, stage) in [(2, 1), (3, 2), (4, 3)] {
        for steps in [0, 40, 3000] {
            let mut board = board(4, &data, steps);
            let stages = vec![
                checksum_at(1),
                checksum_at(2),
                checksum_at(3),
                checksum_at(4),
            ];
            let mut job = job(data.len() as u64, stages);
            job.sip = 1000;
            let mut runs = [board.start(&job).unwrap()];
            for _ in 0..steps {
                board.step(&mut runs);
            }
            assert!(runs[0].completion.is_none());
            board.drive(silent).stopped = true;
            let passed = wait(&mut board, &mut runs);
            let failure = failure(&runs[0]);
            let expected = Failure::new(Status::DEADLINE, member(silent), StageId(stage));
            let known = failure.with_offset(0);
            assert_eq!(known, expected, "silent {silent} after {steps}: {failure}");
            // Once for the deadline, once for the cancel that is not answered.
            assert!((400 * MS..1600 * MS).contains(&passed), "{passed} ns");
            // The host ends what the silent drive left hanging, everywhere.
            for id in 1..=4 {
                let firmware = &mut board.drive(id).firmware;
                firmware.abort(runs[0].stream, Status::DEADLINE);
            }
            board.drive(silent).stopped = false;
            board.settle(&mut runs);
            board.finish(&runs);
        }
    }
}

#[test]
fn silent_storage_is_named_as_source_or_sink() {
    let data = table(3000, 5);
    let mut board = board(2, &data, 5);
    let mut runs = [board
        .start(&job(data.len() as u64, vec![checksum_at(2)]))
        .unwrap()];
    board.settle_without_storage(&mut runs);
    board.now += 2000 * MS;
    for _ in 0..100 {
        board.poll(0);
        board.poll(1);
        board.store.deliver_all();
    }
    // Its reads are still in flight: it may not complete before they end.
    board.collect(&mut runs);
    assert!(runs[0].completion.is_none());
    assert!(!board.drive(1).host.flying.is_empty());
    let expected = Failure::new(Status::DEADLINE, member(1), StageId::SOURCE);
    let stream = runs[0].stream;
    assert_eq!(
        board.drive(1).host.failing,
        [(stream, expected)],
        "the host can be told at once"
    );
    wait(&mut board, &mut runs);
    assert_eq!(
        failure(&runs[0]),
        Failure::new(Status::DEADLINE, member(1), StageId::SOURCE)
    );
    board.finish(&runs);
}

#[test]
fn a_slow_consumer_is_no_failure() {
    let data = table(3000, 6);
    let mut board = board(3, &data, 6);
    let stages = vec![checksum_at(1), checksum_at(2), checksum_at(3)];
    let mut runs = [board.start(&job(data.len() as u64, stages)).unwrap()];
    runs[0].reader_stopped = true;
    // Ten deadlines pass while the host reads nothing.
    let until = board.now + 4000 * MS;
    while board.now < until {
        let wake = board
            .settle(&mut runs)
            .expect("a hop that waits for the host sends HOLD");
        board.now = board.now.max(wake);
        assert!(runs[0].completion.is_none(), "{}", failure(&runs[0]));
    }
    for (from, to) in [(3, 2), (2, 1)] {
        let ipc = board.drive(from).firmware.ipc();
        let holds = ipc.counters(member(to)).unwrap().0.requests;
        assert!(
            (36..=44).contains(&holds),
            "one each quarter of a deadline, not {holds}"
        );
    }
    runs[0].reader_stopped = false;
    wait(&mut board, &mut runs);
    assert_eq!(failure(&runs[0]).status, Status::OK);
    assert_eq!(runs[0].output, data);
    board.finish(&runs);
}

#[test]
fn an_aborted_stream_goes_without_its_peers() {
    let data = table(3000, 12);
    let mut board = board(3, &data, 12);
    let stages = vec![checksum_at(1), checksum_at(2), checksum_at(3)];
    let mut runs = [board.start(&job(data.len() as u64, stages)).unwrap()];
    for _ in 0..2000 {
        board.step(&mut runs);
    }
    for id in 1..=3 {
        board
            .drive(id)
            .firmware
            .abort(runs[0].stream, Status::CANCELLED);
    }
    wait(&mut board, &mut runs);
    assert_eq!(failure(&runs[0]).status, Status::CANCELLED);
    board.finish(&runs);
}

/// With one request credit for two streams, the one that holds none is not forgotten either.
#[test]
fn a_silent_hop_fails_even_streams_that_had_no_credit_to_ask_it() {
    let data = table(3000, 17);
    for steps in [0, 100, 400] {
        let mut board = Board::with_ring(2, 1 << 20, steps, 4, 64);
        board.set_disk(1, &data);
        let job = job(data.len() as u64, vec![checksum_at(1), checksum_at(2)]);
        let mut runs = [board.start(&job).unwrap(), board.start(&job).unwrap()];
        for _ in 0..steps {
            board.step(&mut runs);
        }
        board.drive(2).stopped = true;
        wait(&mut board, &mut runs);
        for run in &runs {
            let failure = failure(run).with_offset(0);
            let expected = Failure::new(Status::DEADLINE, member(2), StageId(1));
            assert_eq!(failure, expected, "after {steps}");
        }
    }
}

/// A ring that is written over is a fault, which is told at once and names the peer.
#[test]
fn a_ring_fault_ends_the_streams_over_that_peer_and_no_others() {
    let data = table(3000, 18);
    let mut board = board(3, &data, 18);
    let length = data.len() as u64;
    let mut runs = [
        board
            .start(&job(length, vec![checksum_at(1), checksum_at(2)]))
            .unwrap(),
        board
            .start(&job(length, vec![checksum_at(1), checksum_at(3)]))
            .unwrap(),
    ];
    for _ in 0..500 {
        board.step(&mut runs);
    }
    let ring = board.table.ring(member(2), member(1)).unwrap();
    let lie = (u64::from(ring.epoch) << 32) | 0x7fff_0000;
    for slot in 0..u64::from(ring.entries) {
        let at = ring.base.offset + slot * u64::from(ring.entry_bytes) + 56;
        board.store.poke(1, at, &lie.to_le_bytes());
    }
    let passed = wait(&mut board, &mut runs);
    assert!(passed < 400 * MS, "told at once, not by the deadline");
    let expected = Failure::new(Status::PEER_LOST, member(2), StageId(1));
    assert_eq!(failure(&runs[0]), expected);
    assert_eq!(failure(&runs[1]).status, Status::OK);
    assert_eq!(runs[1].output, data);
    assert_eq!(board.drive(1).host.faults, [(2, PeerFault::Sequence)]);
    assert_eq!(board.drive(1).firmware.stats().ring_faults, 1);
}
