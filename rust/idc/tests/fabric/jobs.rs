// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Pipelines over a test board: what the host allocates, grants and reads for them.

use super::board::{member, Board};
use idc::function::{FunctionId, Functions};
use idc::member::{Location, MemberId, MemberSet};
use idc::memory::Memory;
use idc::pipeline::descriptor::{Builder, HopSpec, PipelineSpec, Sink, Source};
use idc::pipeline::plan::{hops, PlanRequest, PlanStage};
use idc::pipeline::report::{slots, Report, REPORT_BYTES};
use idc::range::Range;
use idc::status::{Completion, Failure};
use idc::window::{Rights, Window, WindowRef};

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
    pub(super) ring: Location,
    pub consumed: Location,
    pub area: Location,
    /// The host reads nothing.
    pub reader_stopped: bool,
}

impl Board {
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
}
