// SPDX-License-Identifier: GPL-2.0

//! The host's book of pipelines: their memory, their windows, their results, their ends.
//!
//! Owns what is allocated and granted, and gives back only what no member holds any more, as the
//! module does. How pipelines start is in `start`, what they give in `result`.

mod result;
mod start;

use crate::drive::member;
use crate::job::{Job, Phase, Task};
use crate::rng::Rng;
use crate::sim::Sim;
use crate::world::{Event, Power};
use idc::mesh::MeshTable;
use idc::range::{Range, RangeAllocator};
use idc::status::{Completion, Failure, StageId, Status};

type Allocator = Box<RangeAllocator<64>>;

/// Stages at work at a time on one member, as the reference firmware has room for.
const STAGES: usize = 24;
/// How long a member may hold a stream that has ended, when nobody is lost.
const LET_GO: u64 = 5_000_000_000;

/// All pipelines.
pub struct Book {
    /// In the order of their start.
    pub jobs: Vec<Job>,
    allocators: Vec<Allocator>,
    last_window: u32,
    last_key: u16,
    last_stream: u32,
    memory: u64,
    rng: Rng,
}

fn allocator(memory: u64, block: u64, block_bytes: u64) -> Allocator {
    let mut allocator: Allocator = crate::drive::zeroed();
    let space = Range {
        start: 4096,
        len: memory - 4096,
    };
    let taken = Range {
        start: block,
        len: block_bytes,
    };
    if allocator
        .init(space)
        .and_then(|()| allocator.reserve(taken))
        .is_err()
    {
        panic!("the simulated memory is too small for the rings");
    }
    allocator
}

impl Book {
    /// The book of a mesh whose members lend `memory` bytes each.
    #[must_use]
    pub fn new(table: &MeshTable, memory: u64, tasks: Vec<Task>, rng: Rng) -> Self {
        let block_bytes = table.shape().block_bytes();
        let allocators = (0..=usize::from(table.shape().drives))
            .map(|id| {
                let block = table.block(member(id)).unwrap_or_default().offset;
                allocator(memory, block, block_bytes)
            })
            .collect();
        Book {
            jobs: tasks.into_iter().map(Job::new).collect(),
            allocators,
            last_window: 100,
            last_key: 0,
            last_stream: 0,
            memory,
            rng,
        }
    }

    /// Pipelines that are not over.
    #[must_use]
    pub fn waits_for(&self) -> String {
        let mut waits = String::new();
        for job in &self.jobs {
            if job.phase != Phase::Gone {
                waits += &format!(
                    " pipeline {} ({:?}, {:?})",
                    job.stream, job.phase, job.members
                );
            }
        }
        waits
    }

    /// Whether a pipeline holds anything of `member`.
    #[must_use]
    pub fn uses(&self, member: usize) -> bool {
        self.jobs
            .iter()
            .any(|job| job.is_open() && job.members.contains(&member))
    }

    /// `who` has come back with an empty memory.
    pub fn returned(&mut self, who: usize, table: &MeshTable) {
        let block = table.block(member(who)).unwrap_or_default().offset;
        self.allocators[who] = allocator(self.memory, block, table.shape().block_bytes());
    }

    /// When to look again whether members have let go of what ended.
    #[must_use]
    pub fn look_again(&self, now: u64) -> Option<u64> {
        let ended = self.jobs.iter().filter(|job| job.phase == Phase::Ended);
        ended.map(|job| now + 50_000 + (now - job.ended) / 4).min()
    }

    /// Looks at what ended, and at results.
    pub fn serve(&mut self, sim: &Sim) {
        let completed = std::mem::take(&mut sim.world.borrow_mut().completed);
        for (who, command, completion) in completed {
            let job = self.jobs.iter().position(|job| job.stream == command);
            match job {
                Some(index) if self.jobs[index].task.source == who => {
                    self.end(sim, index, &completion);
                }
                _ => sim.world.borrow_mut().violate(|| {
                    format!("member {who} completes {command}, which it was not given")
                }),
            }
        }
        for index in 0..self.jobs.len() {
            if self.jobs[index].phase == Phase::Ended {
                self.release(sim, index);
            }
            let job = &mut self.jobs[index];
            let reads = matches!(job.phase, Phase::Running | Phase::Ended | Phase::Freed);
            if reads && job.ring.is_some() && !job.read_due && !job.task.reader.never {
                job.read_due = true;
                let mut world = sim.world.borrow_mut();
                let time = world.now.max(job.task.reader.from);
                world.at(time, Event::Read(index));
            }
        }
    }

    /// A pipeline has ended at its first drive.
    fn end(&mut self, sim: &Sim, index: usize, completion: &Completion) {
        let job = &mut self.jobs[index];
        if std::mem::replace(&mut job.told, true) {
            let stream = job.stream;
            sim.world
                .borrow_mut()
                .violate(|| format!("pipeline {stream} is completed twice"));
            return;
        }
        if job.phase != Phase::Running {
            return;
        }
        job.completion = Some(*completion);
        job.phase = Phase::Ended;
        let expected = job.expected(&Self::source_disk(sim, job));
        let tainted = Self::is_tainted(sim, job);
        let mut world = sim.world.borrow_mut();
        job.ended = world.now;
        world.count_end(completion.failure.status);
        if completion.failure.status.is_ok() {
            if !tainted {
                self.check_done(sim, index, completion, &expected, &mut world);
            }
        } else if !tainted && !job.explains(completion, &expected, &world) {
            let (stream, failure) = (job.stream, completion.failure);
            world.violate(|| {
                format!(
                    "pipeline {stream} over {:?} failed without a cause: {failure}",
                    job.members
                )
            });
        }
    }

    /// Gives back what no member holds any more.
    fn release(&mut self, sim: &Sim, index: usize) {
        let job = &mut self.jobs[index];
        let stream = job.stream;
        let mut lost = false;
        let mut active = false;
        for who in &job.members {
            let world = sim.world.borrow();
            if world.lost[*who] {
                lost = true;
                continue;
            }
            // Nobody knows what a drive holds that does not answer.
            let answers = world.agents[*who].power == Power::On;
            active |= !answers || sim.drives[who - 1].borrow().firmware.is_active(stream);
        }
        if active {
            if let Some(status) = job.aborting {
                // An OPEN that was under way may have come since.
                Self::abort(sim, job, status);
            }
            let mut world = sim.world.borrow_mut();
            let lost = lost || world.is_troubled();
            if world.now > job.ended + LET_GO && !lost {
                world.violate(|| format!("pipeline {stream} has ended, and is still held"));
            }
            return;
        }
        for drive in &sim.drives {
            let mut drive = drive.borrow_mut();
            for id in &job.windows {
                drive.firmware.revoke(*id);
            }
        }
        let mut world = sim.world.borrow_mut();
        let produced = world.pcie.peek(0, job.area as usize, 8);
        job.produced = Some(u64::from_le_bytes(produced.try_into().unwrap_or_default()));
        for id in &job.windows {
            world.map.revoke(*id);
        }
        for (owner, range) in &job.ranges {
            if self.allocators[*owner].free(*range).is_ok() {
                world.pcie.own(*owner)[range.start as usize..][..range.len as usize].fill(0xdd);
            }
        }
        world.inspect();
        drop(world);
        job.ranges.clear();
        job.phase = Phase::Freed;
        let wanted = job
            .completion
            .is_some_and(|completion| completion.failure.status.is_ok());
        if job.ring.is_none() || !wanted || job.task.reader.never || job.failed_by_host {
            self.drop_ring(sim, index);
        }
    }

    /// The user closes the result.
    pub fn cancel(&mut self, sim: &Sim, index: usize) {
        let job = &mut self.jobs[index];
        job.task.reader.never = true;
        let source = job.task.source;
        if job.phase == Phase::Freed {
            self.drop_ring(sim, index);
            return;
        }
        if job.phase != Phase::Running || sim.world.borrow().agents[source].power != Power::On {
            return;
        }
        job.cancelled = true;
        if job.task.force {
            sim.world
                .borrow_mut()
                .say(0, format!("aborts pipeline {}", job.stream));
            let failure = Failure::new(Status::CANCELLED, member(0), StageId::NONE);
            self.end_at_once(sim, index, failure);
            return;
        }
        sim.drives[source - 1]
            .borrow_mut()
            .firmware
            .cancel(job.stream);
        let mut world = sim.world.borrow_mut();
        world.say(0, format!("cancels pipeline {}", job.stream));
        let now = world.now;
        world.wake(source, now);
    }

    /// Ends a pipeline for the user, and makes every member drop it without a word to its peers.
    fn end_at_once(&mut self, sim: &Sim, index: usize, failure: Failure) {
        let job = &mut self.jobs[index];
        job.failed_by_host = true;
        let mut world = sim.world.borrow_mut();
        let now = world.now;
        if job.phase == Phase::Running {
            job.completion = Some(Completion {
                failure,
                bytes_out: 0,
            });
            job.phase = Phase::Ended;
            job.ended = now;
            world.count_end(failure.status);
        }
        job.aborting = Some(failure.status);
        world.wake(0, now);
        drop(world);
        Self::abort(sim, job, failure.status);
    }

    fn abort(sim: &Sim, job: &Job, status: Status) {
        let mut world = sim.world.borrow_mut();
        let now = world.now;
        for who in &job.members {
            if !world.lost[*who] {
                let mut drive = sim.drives[who - 1].borrow_mut();
                drive.firmware.abort(job.stream, status);
                world.wake(*who, now);
            }
        }
    }

    /// A member is lost: what it takes part in is ended everywhere.
    pub fn fail_member(&mut self, sim: &Sim, lost: usize) {
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            if job.is_open() && job.members.contains(&lost) {
                let failure = Failure::new(Status::PEER_LOST, member(lost), StageId::NONE);
                self.end_at_once(sim, index, failure);
            }
        }
        let mut world = sim.world.borrow_mut();
        let now = world.now;
        world.wake(0, now);
    }
}
