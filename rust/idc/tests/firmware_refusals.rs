// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a member refuses or cannot do: storage errors, sinks that are full, stages that do not like
//! their data, slots that are taken. Each is named with its place, and everything comes back.

mod fabric;

use fabric::board::{member, Board, Job, Run, To};
use fabric::oracle::{checksum_params, table};
use fabric::trouble::{board, checksum_at, encrypt_at, failure, filter_at, job, wait};
use idc::function::{FunctionId, Functions};
use idc::pipeline::report::State;
use idc::status::{Failure, StageId, Status};

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
