// SPDX-License-Identifier: GPL-2.0

//! One pipeline as the host knows it: what it is to do, what it holds, what must come of it.
//!
//! Owns the descriptor's making and the judgement of an end. Never touches shared memory: that is
//! `book`'s work.

use crate::drive::member;
use crate::oracle::{Predicate, Work};
use crate::rng::Rng;
use crate::world::World;
use idc::function::{CipherParameters, FilterParameters, FunctionId, Parameters};
use idc::member::Location;
use idc::pipeline::descriptor::{Builder, HopSpec, PipelineSpec, Sink, Source};
use idc::pipeline::report::{Report, State};
use idc::range::Range;
use idc::status::{Completion, StageId, Status};
use idc::window::WindowRef;

/// Where the result goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Target {
    /// A window of so many bytes.
    Window(u64),
    /// The disk of a member: offset and limit.
    Disk(usize, u64, u64),
}

/// How the result is read.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Bytes at a time.
    pub sip: u64,
    /// Time between two.
    pub pace: u64,
    /// It reads not before this time.
    pub from: u64,
    /// It never reads.
    pub never: bool,
}

/// What a pipeline is to do.
#[derive(Clone, Debug)]
pub struct Task {
    /// Where the source is.
    pub source: usize,
    /// What is read.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Stages with their places.
    pub stages: Vec<(usize, Work)>,
    /// Where the result goes.
    pub target: Target,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Input buffers by hop, as far as it has hops.
    pub buffers: Vec<u16>,
    /// The deadline.
    pub deadline_ms: u32,
    /// How the result is read.
    pub reader: Reader,
    /// The host cancels it so long after its start.
    pub cancel: Option<u64>,
    /// Then every member is to drop it at once.
    pub force: bool,
}

/// How far a pipeline is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// It has not started.
    Planned,
    /// It runs.
    Running,
    /// Its first drive has ended it; members may still hold it.
    Ended,
    /// Nobody holds it; its result may still be read.
    Freed,
    /// It is over.
    Gone,
}

/// A pipeline.
pub struct Job {
    /// What it is to do.
    pub task: Task,
    /// How far it is.
    pub phase: Phase,
    /// Its number.
    pub stream: u32,
    /// Members by hop.
    pub members: Vec<usize>,
    /// Windows that it was granted.
    pub windows: Vec<u32>,
    /// Memory that it holds, and the result window.
    pub ranges: Vec<(usize, Range)>,
    /// The result window.
    pub ring: Option<(usize, Range)>,
    /// Where the host's area is: the produced cell, then the reports at 64.
    pub area: u64,
    /// What was read so far.
    pub output: Vec<u8>,
    /// How it ended.
    pub completion: Option<Completion>,
    /// When it ended.
    pub ended: u64,
    /// The host cancelled it.
    pub cancelled: bool,
    /// The host ended it because of a loss.
    pub failed_by_host: bool,
    /// Its members are to drop it without a word to one another.
    pub aborting: Option<Status>,
    /// Its first drive has told its end.
    pub told: bool,
    /// Bytes of the result, once nobody writes it any more.
    pub produced: Option<u64>,
    /// A read is due.
    pub read_due: bool,
    /// Attempts to start it.
    pub tries: u32,
}

/// What must come of a pipeline.
pub struct Expected {
    /// The result, if no stage refuses its data.
    pub output: Option<Vec<u8>>,
    /// Bytes in and out and results of each stage.
    pub stages: Vec<(u64, u64, [u64; 2])>,
    /// Stages that may refuse their data, and the offsets.
    pub refusals: Vec<(u16, u64)>,
}

impl Job {
    /// A pipeline that has not started.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Job {
            task,
            phase: Phase::Planned,
            stream: 0,
            members: Vec::new(),
            windows: Vec::new(),
            ranges: Vec::new(),
            ring: None,
            area: 0,
            output: Vec::new(),
            completion: None,
            ended: 0,
            cancelled: false,
            failed_by_host: false,
            aborting: None,
            told: false,
            produced: None,
            read_due: false,
            tries: 0,
        }
    }

    /// Whether it holds anything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Planned | Phase::Gone)
    }

    /// Whether a hop hands on to another over the rings of these two.
    #[must_use]
    pub fn crosses(&self, one: usize, other: usize) -> bool {
        self.members
            .windows(2)
            .any(|pair| pair == [one, other] || pair == [other, one])
    }

    /// What must come of it when `disk` is the source's.
    #[must_use]
    pub fn expected(&self, disk: &[u8]) -> Expected {
        let start = self.task.offset as usize;
        let mut data = disk[start..start + self.task.length as usize].to_vec();
        let mut expected = Expected {
            output: None,
            stages: Vec::new(),
            refusals: Vec::new(),
        };
        for ((_, work), number) in self.task.stages.iter().zip(0..) {
            let made = work.apply(&data);
            if let Some(offset) = made.too_long {
                expected.refusals.push((number, offset));
            }
            let sizes = (data.len() as u64, made.output.len() as u64, made.results);
            expected.stages.push(sizes);
            data = made.output;
        }
        if expected.refusals.is_empty() {
            expected.output = Some(data);
        }
        expected
    }

    /// Checks the reports of a pipeline that ended well, as they lie in host memory at `at`.
    pub fn check_reports(&self, expected: &Expected, world: &mut World) {
        let slots = self.task.stages.len() + 2;
        for slot in 0..slots {
            let at = self.area as usize + 64 + slot * 64;
            let Some(report) = Report::parse(world.pcie.peek(0, at, 64)) else {
                world.violate(|| format!("pipeline {}: report {slot} is none", self.stream));
                continue;
            };
            let (bytes_in, bytes_out, results) = if slot == 0 {
                (self.task.length, self.task.length, [0; 2])
            } else if let Some(stage) = expected.stages.get(slot - 1) {
                *stage
            } else {
                let bytes = expected.output.as_ref().map_or(0, Vec::len) as u64;
                (bytes, bytes, [0; 2])
            };
            let said = (report.bytes_in, report.bytes_out, report.result);
            if said != (bytes_in, bytes_out, results) || report.state != State::Done {
                world.violate(|| {
                    format!(
                        "pipeline {}: report {slot} says {said:?} {:?}, it was {:?}",
                        self.stream,
                        report.state,
                        (bytes_in, bytes_out, results)
                    )
                });
            }
        }
    }

    /// Whether it may have ended with this failure.
    #[must_use]
    pub fn explains(&self, completion: &Completion, expected: &Expected, world: &World) -> bool {
        let failure = &completion.failure;
        let named = failure.member.index();
        let reset = |pair: &(usize, usize)| {
            self.crosses(pair.0, pair.1) && (pair.0 == named || pair.1 == named)
        };
        let at_storage = [StageId::SOURCE, StageId::SINK].contains(&failure.stage);
        let stalled = world.storage_stalls && at_storage && self.members.contains(&named);
        // A drive that came back joins the others one by one.
        let troubled_beside = (1..world.troubled.len())
            .any(|other| world.troubled[other] && self.crosses(other, named));
        match failure.status {
            Status::CANCELLED => self.cancelled,
            Status::STORAGE_ERROR => world.storage_errors,
            Status::DEADLINE if stalled => true,
            Status::NO_MEMORY => world.scratch_errors,
            Status::SINK_FULL => matches!(self.task.target, Target::Disk(_, _, limit)
                if expected.output.as_ref().is_none_or(|output| output.len() as u64 > limit)),
            Status::FUNCTION_ERROR => expected
                .refusals
                .contains(&(failure.stage.0, failure.offset)),
            Status::PEER_LOST if world.resets.iter().any(reset) => true,
            Status::PEER_LOST if troubled_beside => true,
            Status::PEER_LOST | Status::DEADLINE => world.troubled[named],
            _ => false,
        }
    }
}

/// The parameters of `work` with its key in `key_slot`.
#[must_use]
pub fn parameters(work: &Work, key_slot: u16) -> (FunctionId, Vec<u8>) {
    let text;
    let parameters = match work {
        Work::Filter {
            delimiter,
            predicate,
        } => {
            text = predicate.to_string();
            Parameters::Filter(FilterParameters::lines(*delimiter, text.as_bytes()))
        }
        Work::Cipher {
            decrypt,
            iv,
            offset,
            ..
        } => {
            let cipher = CipherParameters {
                key_slot,
                offset: *offset,
                iv: *iv,
            };
            if *decrypt {
                Parameters::Decrypt(cipher)
            } else {
                Parameters::Encrypt(cipher)
            }
        }
        Work::Checksum => Parameters::Checksum,
    };
    let mut bytes = vec![0; parameters.encoded_len()];
    let encoded = parameters.encode(&mut bytes);
    debug_assert!(encoded.is_ok(), "{encoded:?}");
    (parameters.function(), bytes)
}

/// A stage that does anything.
pub fn random_work(rng: &mut Rng) -> Work {
    match rng.below(4) {
        0 => Work::Checksum,
        1 => {
            let predicate = loop {
                let predicate = Predicate::random(rng, 3);
                if predicate.to_string().len() <= 1024 {
                    break predicate;
                }
            };
            Work::Filter {
                delimiter: b';',
                predicate,
            }
        }
        _ => {
            let (mut key, mut iv) = ([0; 32], [0; 16]);
            rng.fill(&mut key);
            rng.fill(&mut iv);
            if rng.one_in(4) {
                iv = [0xff; 16];
            }
            Work::Cipher {
                decrypt: rng.one_in(2),
                key,
                iv,
                offset: 0,
            }
        }
    }
}

/// The hops of `task`: members and how many stages each runs, as IDC-PIPE and the descriptor demand.
#[must_use]
pub fn hops(task: &Task) -> Vec<(usize, u16)> {
    let mut hops = vec![(task.source, 0)];
    for (place, _) in &task.stages {
        match hops.last_mut() {
            Some((last, count)) if last == place => *count += 1,
            _ => hops.push((*place, 1)),
        }
    }
    if let Target::Disk(drive, ..) = task.target {
        if hops.last().is_some_and(|(last, _)| *last != drive) {
            hops.push((drive, 0));
        }
    }
    hops
}

/// Where the parts of a pipeline are, by window.
pub struct Places {
    /// Input buffers by hop.
    pub inputs: Vec<u32>,
    /// The result window or the write buffers.
    pub sink: u32,
    /// The host's area.
    pub area: u32,
}

/// The descriptor of `task`.
#[must_use]
pub fn descriptor(task: &Task, stream: u32, places: &Places, keys: &[u16]) -> Vec<u8> {
    let start = |window| WindowRef { window, offset: 0 };
    let sink = match task.target {
        Target::Window(length) => Sink::HostWindow {
            ring: start(places.sink),
            length,
            produced: start(places.area),
            consumed: WindowRef {
                window: places.sink,
                offset: length,
            },
        },
        Target::Disk(_, offset, limit) => Sink::Namespace {
            nsid: 1,
            offset,
            limit,
            buffers: start(places.sink),
            count: task.buffers[0],
        },
    };
    let spec = PipelineSpec {
        stream,
        chunk_bytes: task.chunk,
        deadline_ms: task.deadline_ms,
        source: Source {
            nsid: 1,
            offset: task.offset,
            length: task.length,
        },
        sink,
        report: WindowRef {
            window: places.area,
            offset: 64,
        },
    };
    let mut buffer = vec![0; idc::pipeline::MAX_DESCRIPTOR];
    let built = (|| {
        let mut builder = Builder::new(&mut buffer, &spec)?;
        for (((place, count), input), buffers) in
            hops(task).iter().zip(&places.inputs).zip(&task.buffers)
        {
            builder.hop(&HopSpec {
                member: member(*place),
                stage_count: *count,
                buffers: *buffers,
                input: start(*input),
            })?;
        }
        for ((_, work), key) in task.stages.iter().zip(keys) {
            let (function, bytes) = parameters(work, *key);
            builder.stage(function, &bytes)?;
        }
        builder.finish()
    })();
    match built {
        Ok(length) => buffer.truncate(length),
        Err(error) => panic!("the simulator made a descriptor that is none: {error}"),
    }
    buffer
}

/// The place of the result window.
#[must_use]
pub fn ring_location(ring: (usize, Range)) -> Location {
    Location::of(member(ring.0), ring.1.start)
}
