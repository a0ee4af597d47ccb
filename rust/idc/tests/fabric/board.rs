// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A whole mesh in one process: drives, their disks, the host. Steps in an order that comes from a
//! seed: who polls, which storage request ends, which posted write arrives, when the host reads.

use super::drive::{Drive, BLOCK};
use super::rng::Rng;
use super::Shared;
use idc::function::{FunctionId, Functions};
use idc::ipc::Ipc;
use idc::member::{Location, MemberId, MemberSet};
use idc::memory::Memory;
use idc::mesh::{MeshShape, MeshTable};
use idc::pipeline::descriptor::{Builder, HopSpec, PipelineSpec, Sink, Source};
use idc::pipeline::plan::{hops, PlanRequest, PlanStage};
use idc::pipeline::report::{slots, Report, State, REPORT_BYTES};
use idc::range::{Range, RangeAllocator};
use idc::status::{Completion, Failure};
use idc::window::{Rights, Window, WindowRef};
use zerocopy::FromZeros;

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
    allocators: Vec<Allocator>,
    next_window: u32,
    next_stream: u32,
}

/// A stage: where, what, with which parameters.
pub type StageOf = (u16, FunctionId, Vec<u8>);

#[derive(Clone)]
pub enum To {
    /// A result window of that many bytes.
    Host(u64),
    /// Drive, offset, limit.
    Disk(u16, u64, u64),
}

#[derive(Clone)]
pub struct Job {
    pub source: u16,
    pub offset: u64,
    pub length: u64,
    pub stages: Vec<StageOf>,
    pub chunk: u32,
    pub buffers: u16,
    pub to: To,
    pub deadline_ms: u32,
    /// The host reads at most this much at a time, and not at every chance.
    pub sip: usize,
}

/// A pipeline that was started.
pub struct Run {
    pub stream: u32,
    pub job: Job,
    pub members: Vec<u16>,
    pub windows: Vec<u32>,
    pub ranges: Vec<(u16, Range)>,
    pub output: Vec<u8>,
    pub completion: Option<Completion>,
    ring: Location,
    pub consumed: Location,
    pub area: Location,
    /// The host reads nothing.
    pub reader_stopped: bool,
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

    fn alloc(&mut self, owner: u16, len: u64, ranges: &mut Vec<(u16, Range)>) -> Range {
        let range = self.allocators[usize::from(owner)]
            .alloc(len, 4096)
            .unwrap();
        ranges.push((owner, range));
        range
    }

    fn grant(&mut self, owner: u16, range: Range, grantees: &[u16], ids: &mut Vec<u32>) -> u32 {
        let id = self.next_window;
        self.next_window += 1;
        let set = grantees
            .iter()
            .fold(MemberSet::NONE, |set, id| set.with(member(*id)));
        let window = Window {
            id,
            rights: Rights::READ_WRITE,
            owner: member(owner),
            base: Location::of(member(owner), range.start),
            length: range.len,
            grantees: set,
        };
        let holders = set.with(member(owner));
        for holder in holders.iter().filter(|holder| !holder.is_host()) {
            self.drive(holder.get()).firmware.grant(&window).unwrap();
        }
        ids.push(id);
        id
    }

    /// Allocates, grants and executes.
    pub fn start(&mut self, job: &Job) -> Result<Run, Failure> {
        let (run, descriptor) = self.prepare(job);
        let now = self.now;
        let drive = self.drive(job.source);
        let firmware = &mut drive.firmware;
        match firmware.execute(run.stream, &descriptor, now, &mut drive.host) {
            Ok(()) => Ok(run),
            Err(failure) => {
                self.release(&run);
                Err(failure)
            }
        }
    }

    /// Allocates and grants; returns the descriptor.
    pub fn prepare(&mut self, job: &Job) -> (Run, Vec<u8>) {
        let stages: Vec<_> = job
            .stages
            .iter()
            .map(|(id, function, _)| PlanStage {
                function: *function,
                member: Some(member(*id)),
            })
            .collect();
        let request = PlanRequest {
            source: member(job.source),
            sink: match job.to {
                To::Disk(drive, ..) => Some(member(drive)),
                To::Host(_) => None,
            },
            drives: self.drives.len() as u16,
            functions: &|_| Functions::ALL,
        };
        let plan = hops(&request, &stages).unwrap();
        let members: Vec<u16> = plan.iter().map(|hop| hop.member.get()).collect();
        let (mut windows, mut ranges) = (Vec::new(), Vec::new());
        let input_bytes = u64::from(job.chunk) * u64::from(job.buffers);
        let mut specs = Vec::new();
        for (index, hop) in plan.iter().enumerate() {
            let id = hop.member.get();
            let before = members[index.saturating_sub(1)];
            let range = self.alloc(id, input_bytes, &mut ranges);
            let window = self.grant(id, range, &[before], &mut windows);
            specs.push(HopSpec {
                member: hop.member,
                stage_count: hop.stage_count,
                buffers: job.buffers,
                input: WindowRef { window, offset: 0 },
            });
        }
        let last = *members.last().unwrap();
        let area_bytes = 64 + (slots(stages.len()) * REPORT_BYTES) as u64;
        let area = self.alloc(0, area_bytes, &mut ranges);
        let area_window = self.grant(0, area, &members, &mut windows);
        let area_at = Location::of(MemberId::HOST, area.start);
        self.store.view(0).zero(area_at, area_bytes).unwrap();
        let (sink, ring) = match job.to {
            To::Host(length) => {
                let range = self.alloc(last, length + 64, &mut ranges);
                let window = self.grant(last, range, &[last, 0], &mut windows);
                let at = Location::of(member(last), range.start);
                self.store.view(0).zero(at.at(length).unwrap(), 64).unwrap();
                self.store.view(0).flush(at.memory).unwrap();
                let sink = Sink::HostWindow {
                    ring: WindowRef { window, offset: 0 },
                    length,
                    produced: WindowRef {
                        window: area_window,
                        offset: 0,
                    },
                    consumed: WindowRef {
                        window,
                        offset: length,
                    },
                };
                (sink, at)
            }
            To::Disk(_, offset, limit) => {
                let range = self.alloc(last, input_bytes, &mut ranges);
                let window = self.grant(last, range, &[last], &mut windows);
                let sink = Sink::Namespace {
                    nsid: 1,
                    offset,
                    limit,
                    buffers: WindowRef { window, offset: 0 },
                    count: job.buffers,
                };
                (sink, Location::default())
            }
        };
        let stream = self.next_stream;
        self.next_stream += 1;
        let spec = PipelineSpec {
            stream,
            chunk_bytes: job.chunk,
            deadline_ms: job.deadline_ms,
            source: Source {
                nsid: 1,
                offset: job.offset,
                length: job.length,
            },
            sink,
            report: WindowRef {
                window: area_window,
                offset: 64,
            },
        };
        let mut buffer = vec![0; 16384];
        let mut builder = Builder::new(&mut buffer, &spec).unwrap();
        for hop in &specs {
            builder.hop(hop).unwrap();
        }
        for (_, function, params) in &job.stages {
            builder.stage(*function, params).unwrap();
        }
        let length = builder.finish().unwrap();
        let run = Run {
            stream,
            job: job.clone(),
            members,
            windows,
            ranges,
            output: Vec::new(),
            completion: None,
            ring,
            consumed: ring
                .at(match job.to {
                    To::Host(length) => length,
                    To::Disk(..) => 0,
                })
                .unwrap(),
            area: area_at,
            reader_stopped: false,
        };
        buffer.truncate(length);
        (run, buffer)
    }

    /// Revokes and frees all that a pipeline used.
    pub fn release(&mut self, run: &Run) {
        for drive in &mut self.drives {
            for id in &run.windows {
                drive.firmware.revoke(*id);
            }
        }
        for (owner, range) in &run.ranges {
            self.allocators[usize::from(*owner)].free(*range).unwrap();
        }
    }

    /// The host takes what was announced.
    pub fn read_result(&mut self, run: &mut Run, most: usize) -> bool {
        let To::Host(length) = run.job.to else {
            return false;
        };
        let mut view = self.store.view(0);
        let produced = view.load_u64(run.area).unwrap();
        let taken = run.output.len() as u64;
        assert!(produced >= taken && produced - taken <= length);
        let position = taken % length;
        let part = (produced - taken).min(length - position).min(most as u64);
        if part == 0 {
            return false;
        }
        let mut bytes = vec![0; part as usize];
        view.read(run.ring.at(position).unwrap(), &mut bytes)
            .unwrap();
        run.output.extend_from_slice(&bytes);
        view.store_release_u64(run.consumed, run.output.len() as u64)
            .unwrap();
        true
    }

    pub fn reports(&self, run: &Run) -> Vec<Report> {
        let stages = run.job.stages.len();
        let bytes = self
            .store
            .peek(0, run.area.offset + 64, slots(stages) * REPORT_BYTES);
        bytes
            .chunks(REPORT_BYTES)
            .map(|slot| Report::parse(slot).unwrap())
            .collect()
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

/// Bytes of the disk up to the end of the block that `end` lies in.
pub fn block_end(end: u64) -> u64 {
    end.next_multiple_of(u64::from(BLOCK))
}
