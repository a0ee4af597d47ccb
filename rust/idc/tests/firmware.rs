// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Pipelines over whole meshes, from seeds, against plain oracles.

mod fabric;

use fabric::board::{Board, Job, Run, StageOf, To};
use fabric::oracle::{
    checksum_params, decrypt_params, encrypt, encrypt_params, filter, filter_params, table, KEY,
};
use idc::function::{FunctionId, Outcome};
use idc::pipeline::report::State;
use idc::status::Status;

use FunctionId::{Checksum, Decrypt, Encrypt, Filter};

const WHERE: &str = "col(3) = \"Lu\"";

fn filter_at(drive: u16) -> StageOf {
    (drive, Filter, filter_params(WHERE))
}

fn encrypt_at(drive: u16) -> StageOf {
    (drive, Encrypt, encrypt_params(3))
}

fn decrypt_at(drive: u16) -> StageOf {
    (drive, Decrypt, decrypt_params(3))
}

fn checksum_at(drive: u16) -> StageOf {
    (drive, Checksum, checksum_params())
}

fn job(length: u64, stages: Vec<StageOf>) -> Job {
    Job {
        source: 1,
        offset: 0,
        length,
        stages,
        chunk: 4096,
        buffers: 4,
        to: To::Host(65536),
        deadline_ms: 30_000,
        sip: usize::MAX,
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

fn run(board: &mut Board, job: &Job) -> Run {
    let mut runs = [board.start(job).unwrap()];
    board.run(&mut runs);
    let [run] = runs;
    let completion = run.completion.unwrap();
    assert_eq!(
        completion.failure.status,
        Status::OK,
        "{}",
        completion.failure
    );
    if matches!(job.to, To::Host(_)) {
        assert_eq!(completion.bytes_out, run.output.len() as u64);
    }
    board.finish(std::slice::from_ref(&run));
    run
}

#[test]
fn filter_then_encrypt_on_two_drives_is_what_awk_and_openssl_would_give() {
    for seed in 0..10 {
        let data = table(2000, seed);
        let mut board = board(3, &data, seed);
        let run = run(
            &mut board,
            &job(data.len() as u64, vec![filter_at(1), encrypt_at(2)]),
        );
        assert_eq!(run.output, encrypt(&filter(&data, "Lu")), "seed {seed}");
    }
}

#[test]
fn the_stages_may_stand_anywhere() {
    let data = table(700, 5);
    let expected = encrypt(&filter(&data, "Lu"));
    let shapes: &[&[u16]] = &[
        &[1, 1],
        &[1, 2],
        &[2, 1],
        &[2, 2],
        &[2, 3],
        &[3, 2],
        &[4, 1],
    ];
    for (seed, places) in shapes.iter().enumerate() {
        let mut board = board(4, &data, seed as u64);
        let stages = vec![filter_at(places[0]), encrypt_at(places[1])];
        let run = run(&mut board, &job(data.len() as u64, stages));
        assert_eq!(run.output, expected, "{places:?}");
    }
}

#[test]
fn data_goes_there_and_back_again_and_through_many_hops() {
    let data = table(900, 6);
    let filtered = filter(&data, "Lu");
    let mut board = board(4, &data, 1);
    let there_and_back = vec![filter_at(1), encrypt_at(2), checksum_at(1)];
    let result = run(&mut board, &job(data.len() as u64, there_and_back));
    assert_eq!(result.output, encrypt(&filtered));
    let ping_pong = vec![
        checksum_at(1),
        filter_at(2),
        encrypt_at(1),
        decrypt_at(2),
        checksum_at(3),
        encrypt_at(4),
        decrypt_at(1),
        checksum_at(4),
    ];
    let result = run(&mut board, &job(data.len() as u64, ping_pong));
    assert_eq!(result.output, filtered);
}

#[test]
fn any_offset_and_length_are_read_to_the_byte() {
    let data = table(800, 7);
    let all = data.len() as u64;
    for (offset, length) in [
        (0, 0),
        (0, 1),
        (1, 1),
        (511, 2),
        (512, 512),
        (3, 4096),
        (4095, 4097),
        (13, all - 13),
        (all, 0),
        (777, 20_000),
    ] {
        let mut board = board(2, &data, offset);
        let mut job = job(length, vec![encrypt_at(2)]);
        job.offset = offset;
        let run = run(&mut board, &job);
        let part = &data[offset as usize..(offset + length) as usize];
        assert_eq!(run.output, encrypt(part), "{offset}+{length}");
    }
}

#[test]
fn large_blocks_are_trimmed_too() {
    let data = table(800, 8);
    let mut board = board(2, &data, 3);
    board.drive(1).host.block_bytes = 4096;
    let mut job = job(9000, vec![checksum_at(1)]);
    job.offset = 4000;
    assert_eq!(run(&mut board, &job).output, data[4000..13000]);
}

#[test]
fn data_much_larger_than_memory_streams_through_a_slow_reader() {
    let data = table(200_000, 9);
    assert!(data.len() > 8 << 20);
    let mut board = board(2, &data, 4);
    for chunk in [4096, 65536] {
        let mut job = job(data.len() as u64, vec![checksum_at(1), encrypt_at(2)]);
        job.chunk = chunk;
        job.buffers = 2;
        job.to = To::Host(8192);
        job.sip = 5000;
        let run = run(&mut board, &job);
        assert!(run.output == encrypt(&data), "chunk {chunk}");
    }
}

#[test]
fn the_sink_may_be_a_namespace_with_its_last_block_zeroed() {
    let data = table(1500, 10);
    let expected = encrypt(&filter(&data, "Lu"));
    for (drive, stages) in [
        (2, vec![filter_at(1), encrypt_at(2)]),
        (3, vec![filter_at(1), encrypt_at(2)]),
        (1, vec![filter_at(1), encrypt_at(1)]),
        (1, vec![filter_at(2), encrypt_at(3)]),
    ] {
        let mut board = board(3, &data, 11);
        let room = expected.len().next_multiple_of(512) as u64 + 512;
        let at = data.len().next_multiple_of(4096) as u64;
        let mut disk = if drive == 1 { data.clone() } else { Vec::new() };
        disk.resize((at + room) as usize, 0xee);
        board.set_disk(drive, &disk);
        let mut job = job(data.len() as u64, stages);
        job.to = To::Disk(drive, at, room);
        let run = run(&mut board, &job);
        assert_eq!(run.completion.unwrap().bytes_out, expected.len() as u64);
        let disk = &board.drive(drive).host.disk[at as usize..];
        assert_eq!(disk[..expected.len()], expected);
        let padded = expected.len().next_multiple_of(512);
        assert!(disk[expected.len()..padded].iter().all(|byte| *byte == 0));
        assert!(disk[padded..room as usize].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn two_pipelines_on_the_same_drives_do_not_mix() {
    for seed in 0..6 {
        let data = table(3000, seed);
        let mut board = board(2, &data, seed);
        let length = data.len() as u64;
        let mut other = job(
            length - 100,
            vec![checksum_at(2), filter_at(1), encrypt_at(2)],
        );
        other.offset = 100;
        let mut runs = [
            board
                .start(&job(length, vec![filter_at(1), encrypt_at(2)]))
                .unwrap(),
            board.start(&other).unwrap(),
        ];
        board.run(&mut runs);
        assert_eq!(runs[0].output, encrypt(&filter(&data, "Lu")));
        assert_eq!(runs[1].output, encrypt(&filter(&data[100..], "Lu")));
        board.finish(&runs);
    }
}

#[test]
fn a_ring_of_four_entries_is_enough() {
    let data = table(1000, 12);
    let mut board = Board::with_ring(3, 1 << 20, 2, 4, 64);
    board.set_disk(1, &data);
    board.drive(2).host.keys.insert(3, KEY);
    let run = run(
        &mut board,
        &job(
            data.len() as u64,
            vec![filter_at(1), encrypt_at(2), checksum_at(3)],
        ),
    );
    assert_eq!(run.output, encrypt(&filter(&data, "Lu")));
}

/// Each hop between the same two drives has credits of its own: the answer to one hop's last chunk
/// waits for the hops behind it, which must not wait for its credit.
#[test]
fn hops_over_the_same_ring_do_not_wait_for_each_other() {
    let data = table(1000, 15);
    for buffers in [2, 8] {
        let mut board = Board::with_ring(2, 1 << 20, 2, 4, 64);
        board.set_disk(1, &data);
        let stages = (0..8).map(|stage| checksum_at(1 + stage % 2)).collect();
        let mut job = job(data.len() as u64, stages);
        job.buffers = buffers;
        job.to = To::Host(4096);
        job.sip = 500;
        assert_eq!(run(&mut board, &job).output, data);
    }
}

#[test]
fn the_reports_add_up() {
    let data = table(2000, 13);
    let mut board = board(3, &data, 13);
    let mut runs = [board
        .start(&job(
            data.len() as u64,
            vec![filter_at(1), encrypt_at(2), checksum_at(3)],
        ))
        .unwrap()];
    board.run(&mut runs);
    let filtered = filter(&data, "Lu");
    let result = encrypt(&filtered);
    let reports = board.reports(&runs[0]);
    let sizes: Vec<_> = reports
        .iter()
        .map(|r| (r.member.get(), r.bytes_in, r.bytes_out))
        .collect();
    let (all, some) = (data.len() as u64, filtered.len() as u64);
    assert_eq!(
        sizes,
        [
            (1, all, all),
            (1, all, some),
            (2, some, some),
            (3, some, some),
            (3, some, some)
        ]
    );
    assert!(reports
        .iter()
        .all(|report| report.state == State::Done && report.status.is_ok()));
    let records = |data: &[u8]| data.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(
        reports[1].outcome(),
        Outcome::Filter {
            records_in: records(&data),
            records_out: records(&filtered)
        }
    );
    assert_eq!(reports[2].outcome(), Outcome::Cipher { bytes: some });
    let Outcome::Checksum { crc32c, bytes } = reports[3].outcome() else {
        panic!()
    };
    assert_eq!((crc32c, bytes), (by_division(&result), some));
    assert_eq!(reports[0].chunks, all.div_ceil(4096) as u32);
    let mut entries = 0;
    for (from, to) in [(1, 2), (2, 1), (2, 3), (3, 2)] {
        let ipc = board.drive(from).firmware.ipc();
        entries += ipc.counters(fabric::board::member(to)).unwrap().0.entries;
    }
    let messages: u64 = reports.iter().map(|r| u64::from(r.messages)).sum();
    assert_eq!(
        messages, entries,
        "every entry between the drives is counted once"
    );
    board.finish(&runs);
}

/// CRC-32C, a bit at a time.
fn by_division(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 != 0 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            }
        })
    })
}

/// What goes over the bus: each byte of data once from drive to drive, never a read from a peer.
#[test]
fn data_crosses_the_bus_once_and_nobody_reads_a_peer() {
    let data = table(2000, 14);
    let mut board = board(2, &data, 14);
    let before = board.store.counts(1, 2);
    let length = data.len() as u64;
    let run = run(
        &mut board,
        &job(length, vec![checksum_at(1), checksum_at(2)]),
    );
    assert_eq!(run.output, data);
    let pushed = board.store.counts(1, 2);
    assert_eq!((pushed.reads, board.store.counts(2, 1).reads), (0, 0));
    let entries = board
        .drive(1)
        .firmware
        .ipc()
        .counters(fabric::board::member(2))
        .unwrap()
        .0
        .bytes;
    let extra = pushed.written_bytes - before.written_bytes - length - entries;
    assert!(extra < 1024, "descriptor and credits: {extra} bytes");
    assert!(board.store.counts(2, 0).flushes <= 1 + board.store.counts(2, 2).flushes);
}
