// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A whole mesh in one process: drives, their disks, the host. Steps in an order that comes from a
//! seed: who polls, which storage request ends, which posted write arrives, when the host reads.

use super::drive::Drive;
use super::rng::Rng;
use super::Shared;
use idc::function::Functions;
use idc::ipc::Ipc;
use idc::member::{Location, MemberId};
use idc::mesh::{MeshShape, MeshTable};
use idc::pipeline::report::{slots, Report, State, REPORT_BYTES};
use idc::range::{Range, RangeAllocator};
use zerocopy::FromZeros;

pub use super::jobs::{Job, Run, StageOf, To};

type Allocator = Box<RangeAllocator<64>>;

pub fn member(id: u16) -> MemberId {
    MemberId::new(id).unwrap()
}

pub struct Board {
    pub store: Shared,
    pub drives: Vec<Drive>,
    pub table: Box<MeshTable>,
    pub host: Box<Ipc>,
    pub now: u64,
    pub rng: Rng,
    pub(super) allocators: Vec<Allocator>,
    pub(super) next_window: u32,
    pub(super) next_stream: u32,
}

impl Board {
    pub fn new(drives: u16, memory: usize, seed: u64) -> Self {
        Self::with_ring(drives, memory, seed, 64, 64)
    }

    pub fn with_ring(
        drives: u16,
        memory: usize,
        seed: u64,
        entries: u32,
        entry_bytes: u32,
    ) -> Self {
        let store = Shared::new();
        let shape = MeshShape {
            drives,
            entries,
            entry_bytes,
        };
        let mut table = MeshTable::new_box_zeroed().unwrap();
        table.init(&shape, 9).unwrap();
        let mut allocators = Vec::new();
        for member in MemberId::all(drives) {
            store.add(member.get(), memory);
            let mut allocator: Allocator = RangeAllocator::new_box_zeroed().unwrap();
            allocator
                .init(Range {
                    start: 4096,
                    len: memory as u64 - 4096,
                })
                .unwrap();
            let block = allocator.alloc(shape.block_bytes(), 4096).unwrap();
            table
                .place(member, Location::of(member, block.start))
                .unwrap();
            table.clear(member, &mut store.view(0)).unwrap();
            allocators.push(allocator);
        }
        let mut host = Ipc::new_box_zeroed().unwrap();
        host.init(MemberId::HOST);
        let mut all = Vec::new();
        for id in 1..=drives {
            let mut drive = Drive::new(store.view(id), Vec::new(), Functions::ALL);
            drive.firmware.attach(&table).unwrap();
            let to = table.ring(MemberId::HOST, member(id)).unwrap();
            let from = table.ring(member(id), MemberId::HOST).unwrap();
            host.attach(member(id), &to, &from).unwrap();
            all.push(drive);
        }
        Board {
            store,
            drives: all,
            table,
            host,
            now: 1,
            rng: Rng::new(seed),
            allocators,
            next_window: 100,
            next_stream: 1,
        }
    }

    pub fn drive(&mut self, id: u16) -> &mut Drive {
        &mut self.drives[usize::from(id) - 1]
    }

    pub fn set_disk(&mut self, id: u16, data: &[u8]) {
        let mut disk = data.to_vec();
        disk.resize(disk.len().next_multiple_of(4096), 0);
        self.drive(id).host.disk = disk;
    }

    /// One thing happens somewhere. Returns when the polled drive wants to be woken, if it idles.
    pub fn step(&mut self, runs: &mut [Run]) -> bool {
        self.now += 1000;
        let drives = self.drives.len();
        match self.rng.below(8) {
            0 | 1 => {
                let (from, to) = (self.rng.below(drives + 1), self.rng.below(drives + 1));
                let writes = 1 + self.rng.below(8);
                self.store.deliver(from, to, writes);
                true
            }
            2 | 3 => {
                let id = self.rng.below(drives);
                let flying = self.drives[id].host.flying.len();
                if flying != 0 && !self.drives[id].stopped {
                    let index = self.rng.below(flying);
                    self.drives[id].end_storage(index);
                }
                true
            }
            4 => {
                if !runs.is_empty() {
                    let index = self.rng.below(runs.len());
                    let run = &mut runs[index];
                    let sip = run.job.sip;
                    if !run.reader_stopped {
                        self.read_result(run, sip);
                    }
                }
                true
            }
            _ => {
                let id = self.rng.below(drives);
                self.poll(id)
            }
        }
    }

    pub fn poll(&mut self, index: usize) -> bool {
        let now = self.now;
        let drive = &mut self.drives[index];
        !drive.stopped && drive.firmware.poll(now, &mut drive.host).progressed
    }

    pub fn collect(&mut self, runs: &mut [Run]) {
        for drive in &mut self.drives {
            for (command, completion) in drive.host.completions.drain(..) {
                // Whatever fails was announced once, before it ended.
                let announced = drive.host.failing.iter().filter(|(at, _)| *at == command);
                let announced: Vec<_> = announced.map(|(_, failure)| *failure).collect();
                if completion.failure.status.is_ok() {
                    assert_eq!(announced, []);
                } else {
                    assert_eq!(announced, [completion.failure]);
                }
                let run = runs.iter_mut().find(|run| run.stream == command).unwrap();
                assert!(
                    run.completion.replace(completion).is_none(),
                    "completed twice"
                );
                // What the completion stands for has arrived before it, however late other
                // writes are.
                if completion.failure.status.is_ok() {
                    let area = self.store.peek(0, run.area.offset, 64);
                    let produced = u64::from_le_bytes(area[..8].try_into().unwrap());
                    if matches!(run.job.to, To::Host(_)) {
                        assert_eq!(produced, completion.bytes_out);
                    }
                    let stages = run.job.stages.len();
                    let at = run.area.offset + 64;
                    let bytes = self.store.peek(0, at, slots(stages) * REPORT_BYTES);
                    for slot in bytes.chunks(REPORT_BYTES) {
                        let report = Report::parse(slot).unwrap();
                        assert_eq!(report.state, State::Done);
                    }
                }
            }
        }
    }

    /// Everything that can happen now happens, until nothing more does. Returns the earliest time
    /// that anyone wants to be woken at.
    pub fn settle(&mut self, runs: &mut [Run]) -> Option<u64> {
        loop {
            self.now += 1000;
            let mut any = false;
            let mut wake: Option<u64> = None;
            self.store.deliver_all();
            for index in 0..self.drives.len() {
                let now = self.now;
                let drive = &mut self.drives[index];
                if drive.stopped {
                    continue;
                }
                while !drive.host.flying.is_empty() {
                    drive.end_storage(0);
                    any = true;
                }
                let poll = drive.firmware.poll(now, &mut drive.host);
                any |= poll.progressed;
                wake = [wake, poll.wake_at].into_iter().flatten().min();
            }
            for run in runs.iter_mut().filter(|run| !run.reader_stopped) {
                any |= self.read_result(run, usize::MAX);
            }
            self.collect(runs);
            if !any {
                return wake;
            }
        }
    }

    /// As [`settle`](Self::settle), but storage does not end.
    pub fn settle_without_storage(&mut self, runs: &mut [Run]) {
        for _ in 0..200 {
            self.now += 1000;
            self.store.deliver_all();
            for index in 0..self.drives.len() {
                self.poll(index);
            }
        }
        self.collect(runs);
    }

    /// Steps in random order until all pipelines have completed; then lets the rest settle.
    pub fn run(&mut self, runs: &mut [Run]) {
        let mut idle = 0;
        while runs.iter().any(|run| run.completion.is_none()) {
            for _ in 0..32 {
                self.step(runs);
            }
            self.collect(runs);
            idle += 1;
            if idle == 20_000 {
                let states: Vec<_> = runs.iter().map(|run| self.reports(run)).collect();
                panic!("no end in sight: {states:#?}");
            }
        }
        self.settle(runs);
    }

    /// Nothing is held any more: no slot, function, scratch memory, request or storage request.
    pub fn assert_idle(&self) {
        for drive in &self.drives {
            let me = drive.host.view.me;
            assert_eq!(drive.firmware.active_streams(), 0, "{me}");
            assert_eq!(drive.firmware.functions_in_use(), 0, "{me}");
            assert!(drive.host.scratch.iter().all(Option::is_none), "{me}");
            assert!(drive.host.flying.is_empty(), "{me}");
            let ipc = drive.firmware.ipc();
            for peer in ipc.peers().iter() {
                assert_eq!(ipc.open_requests(peer), 0, "{me} still waits for {peer}");
                assert_eq!(ipc.unanswered(peer), 0, "{me} still owes {peer}");
            }
        }
    }

    /// As [`assert_idle`](Self::assert_idle), and all memory comes back.
    pub fn finish(&mut self, runs: &[Run]) {
        self.assert_idle();
        for run in runs {
            self.release(run);
        }
        for allocator in &self.allocators {
            assert_eq!(allocator.len(), 1, "only the rings are left");
        }
    }
}
