// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What tests of failing pipelines have in common: small jobs with a short deadline, and a clock that
//! runs until they have ended.

use super::board::{Board, Job, Run, StageOf, To};
use super::oracle::{checksum_params, encrypt_params, filter_params, KEY};
use idc::function::FunctionId;
use idc::status::Failure;

pub const MS: u64 = 1_000_000;

pub fn checksum_at(drive: u16) -> StageOf {
    (drive, FunctionId::Checksum, checksum_params())
}

pub fn encrypt_at(drive: u16) -> StageOf {
    (drive, FunctionId::Encrypt, encrypt_params(3))
}

pub fn filter_at(drive: u16) -> StageOf {
    (drive, FunctionId::Filter, filter_params("col(3) = \"Lu\""))
}

pub fn job(length: u64, stages: Vec<StageOf>) -> Job {
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

pub fn board(drives: u16, disk: &[u8], seed: u64) -> Board {
    let mut board = Board::new(drives, 1 << 20, seed);
    board.set_disk(1, disk);
    for id in 1..=drives {
        board.drive(id).host.keys.insert(3, KEY);
    }
    board.store.0.borrow_mut().posted = true;
    board
}

/// Lets time pass until the pipelines have ended; returns how much passed.
pub fn wait(board: &mut Board, runs: &mut [Run]) -> u64 {
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

pub fn failure(run: &Run) -> Failure {
    run.completion.unwrap().failure
}
