// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What goes wrong in a mesh: cancel, loss, silence, refusal, lies. Whatever it is, the pipeline ends
//! with the right name on it and everything comes back.

mod fabric;

use fabric::board::{member, Board, Job, Run, StageOf, To};
use fabric::oracle::{checksum_params, encrypt_params, filter_params, table, KEY};
use idc::entry::{Opcode, Request};
use idc::function::{FunctionId, Functions};
use idc::ipc::Arrival;
use idc::member::MemberId;
use idc::pipeline::report::State;
use idc::ring::PeerFault;
use idc::status::{Failure, StageId, Status};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn checksum_at(drive: u16) -> StageOf {
    (drive, FunctionId::Checksum, checksum_params())
}

fn encrypt_at(drive: u16) -> StageOf {
    (drive, FunctionId::Encrypt, encrypt_params(3))
}

fn filter_at(drive: u16) -> StageOf {
    (drive, FunctionId::Filter, filter_params("col(3) = \"Lu\""))
}

fn job(length: u64, stages: Vec<StageOf>) -> Job {
    Job {
        source: 1,
        offset: 0,
        length,
        stages,
        chunk: 4096,
        buffers: 3,
        to: To::Host(16384),
        deadline_ms: 400,
        sip: 3000,
    }
}

fn board(drives: u16, disk: &[u8], seed: u64) -> Board {
    let mut board = Board::new(drives, 1 << 20, seed);
    board.set_disk(1, disk);
    for id in 1..=drives {
        board.drive(id).host.keys.insert(3, KEY);
    }
    board.store.0.borrow_mut().posted = true;
    board
}

/// Lets time pass until the pipelines have ended; returns how much passed.
fn wait(board: &mut Board, runs: &mut [Run]) -> u64 {
    let start = board.now;
    for _ in 0..100 {
        let wake = board.settle(runs);
        if runs.iter().all(|run| run.completion.is_some()) {
            return board.now - start;
        }
        let wake = wake.expect("nobody wants to be woken, and nothing has ended");
        assert!(wake < board.now + 3_600_000 * MS);
        board.now = board.now.max(wake);
    }
    panic!("time passes and nothing ends");
}

fn failure(run: &Run) -> Failure {
    run.completion.unwrap().failure
}

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
fn storage_errors_carry_their_status_and_place() {
    let data = table(3000, 7);
    let mut board = board(3, &data, 7);
    board.drive(1).host.storage_error = Some(0x281);
    let mut runs = [board
        .start(&job(data.len() as u64, vec![checksum_at(2)]))
        .unwrap()];
    wait(&mut board, &mut runs);
    let expected = Failure::new(Status::STORAGE_ERROR, member(1), StageId::SOURCE).with_code(0x281);
    assert_eq!(failure(&runs[0]), expected);
    assert_eq!(board.reports(&runs[0])[0].status, Status::STORAGE_ERROR);
    assert_eq!(board.reports(&runs[0])[0].state, State::Failed);
    board.finish(&runs);

    board.drive(1).host.storage_error = None;
    board.set_disk(3, &vec![0; 1 << 20]);
    board.drive(3).host.storage_error = Some(0x180);
    let mut job = job(data.len() as u64, vec![checksum_at(2)]);
    job.to = To::Disk(3, 0, 1 << 20);
    let mut runs = [board.start(&job).unwrap()];
    wait(&mut board, &mut runs);
    let expected = Failure::new(Status::STORAGE_ERROR, member(3), StageId::SINK).with_code(0x180);
    assert_eq!(failure(&runs[0]), expected);
    board.finish(&runs);
}

#[test]
fn a_sink_that_is_too_small_is_full_and_nothing_is_written_behind_it() {
    let data = table(1000, 8);
    let mut board = board(2, &data, 8);
    board.set_disk(2, &vec![0xee; 64 << 10]);
    let mut job = job(data.len() as u64, vec![checksum_at(2)]);
    job.to = To::Disk(2, 4096, 10_000);
    let mut runs = [board.start(&job).unwrap()];
    wait(&mut board, &mut runs);
    let expected = Failure::new(Status::SINK_FULL, member(2), StageId::SINK).with_offset(10_000);
    assert_eq!(failure(&runs[0]), expected);
    let disk = &board.drive(2).host.disk;
    assert!(disk[..4096]
        .iter()
        .chain(&disk[4096 + 10_240..])
        .all(|byte| *byte == 0xee));
    board.finish(&runs);
}

#[test]
fn a_stage_that_refuses_its_data_is_named_with_the_offset() {
    let mut data = table(100, 9);
    let start = data.len() as u64;
    data.extend(vec![b'y'; 70_000]);
    data.push(b'\n');
    let mut board = board(3, &data, 9);
    let stages = vec![checksum_at(1), filter_at(2), encrypt_at(3)];
    let mut runs = [board.start(&job(data.len() as u64, stages)).unwrap()];
    wait(&mut board, &mut runs);
    let failure = failure(&runs[0]);
    let expected = Failure::new(Status::FUNCTION_ERROR, member(2), StageId(1))
        .with_code(failure.code)
        .with_offset(start);
    assert_eq!(failure, expected);
    assert_ne!(failure.code, 0);
    board.finish(&runs);
}

#[test]
fn what_a_drive_cannot_do_is_refused_at_the_start() {
    let data = table(100, 10);
    let length = data.len() as u64;
    let mut board = board(3, &data, 10);
    // Far away: told through the hops between.
    board.drive(3).host.keys.clear();
    let mut runs = [board
        .start(&job(
            length,
            vec![checksum_at(1), checksum_at(2), encrypt_at(3)],
        ))
        .unwrap()];
    wait(&mut board, &mut runs);
    let known = failure(&runs[0]).with_code(0);
    assert_eq!(known, Failure::new(Status::NO_KEY, member(3), StageId(2)));
    board.finish(&runs);

    board
        .drive(3)
        .firmware
        .init(member(3), Functions::NONE.with(FunctionId::Filter));
    let mut runs = [board
        .start(&job(
            length,
            vec![checksum_at(1), checksum_at(2), encrypt_at(3)],
        ))
        .unwrap()];
    wait(&mut board, &mut runs);
    assert_eq!(
        failure(&runs[0]),
        Failure::new(Status::NO_FUNCTION, member(3), StageId(2))
    );
    board.finish(&runs);

    // At the first drive: at once.
    let refused = |board: &mut Board, job: &Job| {
        let refused = board.start(job).map(|_| ()).unwrap_err();
        board.assert_idle();
        (refused.status, refused.member, refused.stage)
    };
    let end = board.drive(1).host.disk.len() as u64;
    let beyond = job(end + 1, vec![checksum_at(2)]);
    assert_eq!(
        refused(&mut board, &beyond),
        (Status::RANGE, member(1), StageId::SOURCE)
    );
    let wrong = job(10, vec![(1, FunctionId::Encrypt, checksum_params())]);
    assert_eq!(
        refused(&mut board, &wrong),
        (Status::BAD_PARAMETERS, member(1), StageId(0))
    );
    board.drive(1).firmware.detach_peer(member(2));
    let lost = job(10, vec![checksum_at(1), checksum_at(2)]);
    assert_eq!(
        refused(&mut board, &lost),
        (Status::PEER_LOST, member(2), StageId(1))
    );
}

#[test]
fn a_drive_whose_slots_are_taken_says_busy() {
    let data = table(3000, 11);
    let mut board = board(2, &data, 11);
    let job = job(data.len() as u64, vec![checksum_at(1), checksum_at(2)]);
    let mut runs: Vec<Run> = Vec::new();
    for _ in 0..8 {
        runs.push(board.start(&job).unwrap());
    }
    let refused = board.start(&job).map(|_| ()).unwrap_err();
    assert_eq!(refused.status, Status::BUSY);
    wait(&mut board, &mut runs);
    assert!(runs.iter().all(|run| run.output == data));
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

/// Takes all that came to the host.
fn host_receives(board: &mut Board, from: u16) -> Vec<(u64, Status, Vec<u8>)> {
    let mut got = Vec::new();
    let mut buffer = vec![0; 4096];
    let mut view = board.store.view(0);
    while let Some(arrival) = board
        .host
        .receive(member(from), &mut view, &mut buffer)
        .unwrap()
    {
        if let Arrival::Response { tag, response, .. } = arrival {
            got.push((tag, response.status, response.inline.to_vec()));
        }
    }
    got
}

#[test]
fn messages_are_answered_relayed_and_kept() {
    let mut board = board(2, &[], 13);
    let mut view = board.store.view(0);
    let host = &mut board.host;
    let requests = [
        (Request::ping(b"hello"), Status::OK, b"hello".to_vec()),
        (Request::send(b"one"), Status::OK, vec![]),
        (
            Request::relay(Opcode::PING, member(2), b"over there"),
            Status::OK,
            b"over there".to_vec(),
        ),
        (
            Request::relay(Opcode::SEND, member(2), b"for you"),
            Status::OK,
            vec![],
        ),
    ];
    for (tag, (request, ..)) in (0..).zip(&requests) {
        host.request(member(1), request, tag, &mut view).unwrap();
    }
    board.settle(&mut []);
    let mut answers = host_receives(&mut board, 1);
    answers.sort_by_key(|answer| answer.0);
    let expected: Vec<_> = (0..)
        .zip(requests)
        .map(|(tag, (_, status, inline))| (tag, status, inline))
        .collect();
    assert_eq!(answers, expected);
    assert_eq!(board.drive(1).host.inbox, [(0, b"one".to_vec())]);
    assert_eq!(board.drive(2).host.inbox, [(1, b"for you".to_vec())]);
}

#[test]
fn messages_that_cannot_be_done_are_refused_by_name() {
    let mut board = board(3, &[], 14);
    board.drive(1).host.inbox_room = 0;
    board.drive(1).firmware.detach_peer(member(3));
    let mut view = board.store.view(0);
    let mut longer = Request::ping(b"x");
    longer.arg16 = 37;
    let mut to_nobody = Request::relay(Opcode::PING, member(2), b"");
    to_nobody.arg32 = 99;
    let mut unknown = Request::ping(b"");
    unknown.opcode = Opcode(0x77);
    let requests = [
        (Request::send(b"x"), Status::BUSY),
        (longer, Status::BAD_ENTRY),
        (to_nobody, Status::BAD_ENTRY),
        (
            Request::relay(Opcode::PING, member(1), b""),
            Status::BAD_ENTRY,
        ),
        (
            Request::relay(Opcode::OPEN, member(2), b""),
            Status::BAD_ENTRY,
        ),
        (
            Request::relay(Opcode::PING, member(3), b""),
            Status::PEER_LOST,
        ),
        (unknown, Status::UNKNOWN_OPCODE),
        (Request::stream(Opcode::CANCEL, 5, 1, &[]), Status::OK),
        (Request::stream(Opcode::DATA, 5, 1, &[]), Status::NO_STREAM),
        (
            Request::stream(Opcode::OPEN, 5, 1, &[]),
            Status::NOT_GRANTED,
        ),
    ];
    for (tag, (request, _)) in (0..).zip(&requests) {
        board
            .host
            .request(member(1), request, tag, &mut view)
            .unwrap();
    }
    board.settle(&mut []);
    let mut answers = host_receives(&mut board, 1);
    answers.sort_by_key(|answer| answer.0);
    let expected: Vec<_> = requests.iter().map(|(_, status)| *status).collect();
    assert_eq!(
        answers.iter().map(|answer| answer.1).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(board.drive(1).firmware.stats().refused, 9);
}

/// A relayed message whose target is lost is answered all the same.
#[test]
fn a_relay_to_a_drive_that_goes_is_answered() {
    let mut board = board(2, &[], 15);
    let mut view = board.store.view(0);
    board.drive(2).stopped = true;
    let request = Request::relay(Opcode::PING, member(2), b"x");
    board
        .host
        .request(member(1), &request, 7, &mut view)
        .unwrap();
    board.settle(&mut []);
    assert_eq!(host_receives(&mut board, 1), []);
    board.drive(1).firmware.detach_peer(member(2));
    board.settle(&mut []);
    let answers = host_receives(&mut board, 1);
    assert_eq!(answers, [(7, Status::PEER_LOST, vec![])]);
}

/// What a lying peer may have put into a request.
fn lies() -> impl Strategy<Value = (u8, u32, u16, u16, u32, bool, Vec<u8>)> {
    let opcode = prop_oneof![
        Just(0x10_u8),
        Just(0x11),
        Just(0x12),
        Just(0x13),
        any::<u8>()
    ];
    let stream = prop_oneof![Just(1_u32), any::<u32>()];
    let window = prop_oneof![100_u32..110, any::<u32>()];
    let offset = prop_oneof![0_u64..20_000, any::<u64>()];
    let length = prop_oneof![0_u32..9000, any::<u32>()];
    let body = (window, length, offset, 0_u64..9000, 0_u32..4).prop_map(
        |(window, length, offset, stream_offset, sequence)| {
            let body = idc::entry::DataBody::new(window, offset, length, stream_offset, sequence);
            body.as_data().to_vec()
        },
    );
    (
        opcode,
        stream,
        0_u16..4,
        any::<u16>(),
        any::<u32>(),
        any::<bool>(),
        body,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A member of the mesh that sends whatever it likes, while a pipeline runs through its
    /// neighbours, makes nobody panic or write where the host granted nothing; the pipeline ends.
    #[test]
    fn lies_do_no_harm(
        lies in proptest::collection::vec(lies(), 1..40),
        noise in proptest::collection::vec((0_u64..8192, any::<[u8; 8]>()), 0..20),
        seed in any::<u64>(),
    ) {
        let data = table(200, 1);
        let mut board = board(3, &data, seed);
        board.store.0.borrow_mut().posted = false;
        let stages = vec![filter_at(1), encrypt_at(2), checksum_at(1)];
        let mut runs = [board.start(&job(data.len() as u64, stages)).unwrap()];
        let mut allowed = Vec::new();
        for member in MemberId::all(3) {
            let block = board.table.block(member).unwrap().offset;
            allowed.push((member.get(), block, block + board.table.shape().block_bytes()));
        }
        allowed.extend(runs[0].ranges.iter().map(|(id, range)| (*id, range.start, range.start + range.len)));
        board.store.0.borrow_mut().allowed = Some(allowed);
        // Drive 3 lies.
        board.drive(3).stopped = true;
        let mut liar = zerocopy::FromZeros::new_box_zeroed().unwrap();
        let ipc: &mut idc::ipc::Ipc = &mut liar;
        ipc.init(member(3));
        for peer in [0, 1, 2] {
            let out = board.table.ring(member(3), member(peer)).unwrap();
            let into = board.table.ring(member(peer), member(3)).unwrap();
            ipc.attach(member(peer), &out, &into).unwrap();
        }
        let mut buffer = vec![0; 4096];
        for (opcode, stream, hop, arg16, arg32, more, data) in &lies {
            for peer in [1, 2] {
                let request = Request {
                    opcode: Opcode(*opcode),
                    stream: *stream,
                    hop: *hop,
                    arg16: *arg16,
                    arg32: *arg32,
                    more: *more,
                    data,
                };
                let mut view = board.store.view(3);
                let _ = ipc.request(member(peer), &request, 0, &mut view);
                while let Ok(Some(_)) = ipc.receive(member(peer), &mut view, &mut buffer) {}
            }
            for _ in 0..60 {
                board.step(&mut runs);
            }
        }
        // Then it writes noise into its rings to the others.
        for (at, bytes) in noise {
            for to in [1, 2] {
                let ring = board.table.ring(member(3), member(to)).unwrap();
                board.store.poke(to, ring.base.offset + at % ring.bytes(), &bytes[..]);
            }
            for _ in 0..20 {
                board.step(&mut runs);
            }
        }
        board.drive(1).firmware.detach_peer(member(3));
        board.drive(2).firmware.detach_peer(member(3));
        wait(&mut board, &mut runs);
        prop_assert_eq!(failure(&runs[0]).status, Status::OK);
        board.drive(3).firmware.detach_peer(member(1));
        board.drive(3).firmware.detach_peer(member(2));
        board.finish(&runs);
    }
}

/// The hop before may name only what the host granted to it.
#[test]
fn a_descriptor_that_names_foreign_windows_is_refused() {
    let data = table(100, 16);
    let mut board = board(2, &data, 16);
    let mut runs = [board
        .start(&job(
            data.len() as u64,
            vec![checksum_at(1), checksum_at(2)],
        ))
        .unwrap()];
    // The second drive loses its grant of the host's report area before OPEN comes.
    let area = runs[0].windows[2];
    board.drive(2).firmware.revoke(area);
    wait(&mut board, &mut runs);
    let failure = failure(&runs[0]);
    assert_eq!(
        (failure.status, failure.member),
        (Status::NOT_GRANTED, member(2))
    );
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
