// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Any pipelines over any mesh: whatever is drawn, each ends with what the oracle says or as it was
//! cancelled, and everything comes back.

mod fabric;

use fabric::board::{Board, Job, StageOf, To};
use fabric::oracle::{
    checksum_params, decrypt_params, encrypt, encrypt_params, filter, filter_params, table, KEY,
};
use idc::function::FunctionId;
use idc::status::Status;
use proptest::prelude::*;
use proptest::sample::select;

/// A pipeline as it is drawn.
#[derive(Clone, Debug)]
struct Drawn {
    source: u16,
    skip: u64,
    drop: u64,
    filters: bool,
    /// The drive of each stage, and whether it encrypts, decrypts or sums.
    stages: Vec<(u16, u8)>,
    chunk: u32,
    buffers: u16,
    window: u64,
    sip: usize,
    /// The drive whose disk is the sink.
    disk: Option<u16>,
    cancel_after: Option<u32>,
}

fn drawn(drives: u16) -> impl Strategy<Value = Drawn> {
    let drive = 1..=drives;
    let shape = (
        select(vec![4096_u32, 8192, 12288, 65536]),
        2_u16..=4,
        select(vec![4096_u64, 8192, 65536]),
        1000_usize..20_000,
    );
    let ends = (
        drive.clone(),
        0_u64..2000,
        0_u64..2000,
        any::<bool>(),
        proptest::option::weighted(0.3, drive.clone()),
        proptest::option::weighted(0.2, 0_u32..4000),
    );
    let stages = proptest::collection::vec((drive, 0_u8..3), 1..8);
    (ends, stages, shape).prop_map(
        |((source, skip, drop, filters, disk, cancel_after), stages, shape)| Drawn {
            source,
            skip,
            drop,
            filters,
            stages,
            chunk: shape.0,
            buffers: shape.1,
            window: shape.2,
            sip: shape.3,
            disk,
            cancel_after,
        },
    )
}

/// Where on a disk the sink of pipeline `index` lies; tables end before.
fn sink_offset(index: usize) -> u64 {
    (1 + index as u64) << 18
}

impl Drawn {
    fn job(&self, length: u64, index: usize) -> Job {
        let (first, _) = self.stages[0];
        let filter = (first, FunctionId::Filter, filter_params("col(3) = \"Lu\""));
        let stages = self.stages.iter().map(|(drive, kind)| match kind {
            0 => (*drive, FunctionId::Encrypt, encrypt_params(3)),
            1 => (*drive, FunctionId::Decrypt, decrypt_params(3)),
            _ => (*drive, FunctionId::Checksum, checksum_params()),
        });
        let filters: Option<StageOf> = self.filters.then_some(filter);
        Job {
            source: self.source,
            offset: self.skip,
            length,
            stages: filters.into_iter().chain(stages).collect(),
            chunk: self.chunk,
            buffers: self.buffers,
            to: match self.disk {
                Some(drive) => To::Disk(drive, sink_offset(index), 1 << 18),
                None => To::Host(self.window),
            },
            deadline_ms: 3_600_000,
            sip: self.sip,
        }
    }

    fn expected(&self, input: &[u8]) -> Vec<u8> {
        let mut data = if self.filters {
            filter(input, "Lu")
        } else {
            input.to_vec()
        };
        for (_, kind) in &self.stages {
            // Counter mode decrypts by encrypting.
            if *kind < 2 {
                data = encrypt(&data);
            }
        }
        data
    }
}

fn meshes() -> impl Strategy<Value = (u16, u32, u32, Vec<Drawn>)> {
    (1_u16..=4).prop_flat_map(|drives| {
        let jobs = proptest::collection::vec(drawn(drives), 1..4);
        let entries = select(vec![4_u32, 16, 64]);
        (Just(drives), entries, select(vec![64_u32, 256]), jobs)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_pipelines_come_to_what_the_oracle_says(
        (drives, entries, entry_bytes, jobs) in meshes(),
        seed in any::<u64>(),
        posted in any::<bool>(),
    ) {
        let mut board = Board::with_ring(drives, 8 << 20, seed, entries, entry_bytes);
        board.store.0.borrow_mut().posted = posted;
        let mut tables = Vec::new();
        for id in 1..=drives {
            let data = table(600, seed ^ u64::from(id));
            prop_assert!(data.len() < 1 << 18);
            let mut disk = data.clone();
            disk.resize(1 << 20, 0xee);
            board.set_disk(id, &disk);
            board.drive(id).host.keys.insert(3, KEY);
            tables.push(data);
        }
        let mut runs = Vec::new();
        let mut expected = Vec::new();
        for (index, drawn) in jobs.iter().enumerate() {
            let data = &tables[usize::from(drawn.source) - 1];
            let input = &data[drawn.skip as usize..data.len() - drawn.drop as usize];
            let job = drawn.job(input.len() as u64, index);
            match board.start(&job) {
                Ok(run) => {
                    expected.push((index, drawn.expected(input)));
                    runs.push(run);
                }
                // Three long pipelines may need more slots than a drive has.
                Err(failure) => prop_assert_eq!(failure.status, Status::BUSY),
            }
        }
        let mut cancels: Vec<_> = jobs.iter().zip(&runs).filter_map(|(drawn, run)| {
            drawn.cancel_after.map(|after| (after, run.job.source, run.stream))
        }).collect();
        cancels.sort_unstable();
        let mut step = 0;
        let mut cancelled = Vec::new();
        for (after, source, stream) in cancels {
            while step < after {
                board.step(&mut runs);
                step += 1;
            }
            if board.drive(source).firmware.cancel(stream) {
                cancelled.push(stream);
            }
        }
        board.run(&mut runs);
        for (run, (index, expected)) in runs.iter().zip(&expected) {
            let completion = run.completion.unwrap();
            let status = completion.failure.status;
            if status == Status::BUSY {
                continue;
            }
            if status == Status::CANCELLED {
                prop_assert!(cancelled.contains(&run.stream));
                continue;
            }
            prop_assert_eq!(status, Status::OK);
            prop_assert_eq!(completion.bytes_out, expected.len() as u64);
            if let To::Disk(drive, offset, _) = run.job.to {
                prop_assert_eq!(offset, sink_offset(*index));
                let at = offset as usize;
                let disk = &board.drive(drive).host.disk[at..at + (1 << 18)];
                let padded = expected.len().next_multiple_of(512);
                prop_assert!(disk[..expected.len()] == expected[..], "the disk's data");
                prop_assert!(disk[expected.len()..padded].iter().all(|byte| *byte == 0));
                prop_assert!(disk[padded..].iter().all(|byte| *byte == 0xee));
            } else {
                prop_assert!(run.output == *expected, "the host's data");
            }
        }
        board.finish(&runs);
    }
}
