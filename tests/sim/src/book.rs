// SPDX-License-Identifier: GPL-2.0

//! The host's book of pipelines: their memory, their windows, their results, their ends.
//!
//! Owns what is allocated and granted, and gives back only what no member holds any more, as the
//! module does. Reads results, and checks everything that a pipeline leaves behind.

use crate::drive::member;
use crate::job::{descriptor, hops, ring_location, Job, Phase, Places, Target, Task};
use crate::map::Lent;
use crate::pcie::MEMBERS;
use crate::rng::Rng;
use crate::sim::{Port, Sim};
use crate::world::{Event, Power};
use idc::firmware::STREAMS;
use idc::ipc::Ipc;
use idc::member::{Location, MemberSet};
use idc::memory::{Fabric as _, Memory as _};
use idc::mesh::MeshTable;
use idc::range::{Range, RangeAllocator};
use idc::status::{Completion, Failure, StageId, Status};
use idc::window::{Rights, Window};

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

    fn has_room(&self, task: &Task) -> bool {
        let mut slots = [0; MEMBERS];
        let mut stages = [0; MEMBERS];
        let open = self.jobs.iter().filter(|job| job.is_open());
        for task in open.map(|job| &job.task).chain([task]) {
            for (place, count) in hops(task) {
                slots[place] += 1;
                stages[place] += usize::from(count);
            }
        }
        slots.iter().all(|used| *used <= STREAMS) && stages.iter().all(|used| *used <= STAGES)
    }

    fn alloc(&mut self, owner: usize, len: u64, ranges: &mut Vec<(usize, Range)>) -> Option<Range> {
        match self.allocators[owner].alloc(len, 4096) {
            Ok(range) => {
                ranges.push((owner, range));
                Some(range)
            }
            Err(_) => {
                for (owner, range) in ranges.drain(..) {
                    let _ = self.allocators[owner].free(range);
                }
                None
            }
        }
    }

    fn grant(&mut self, sim: &Sim, owner: usize, range: Range, grantees: &[usize]) -> u32 {
        self.last_window += 1;
        let id = self.last_window;
        let mut set = MemberSet::NONE;
        let mut bits = 0;
        for grantee in grantees {
            set = set.with(member(*grantee));
            bits |= 1 << grantee;
        }
        let window = Window {
            id,
            rights: Rights::READ_WRITE,
            owner: member(owner),
            base: Location::of(member(owner), range.start),
            length: range.len,
            grantees: set,
        };
        for holder in set
            .with(member(owner))
            .iter()
            .filter(|holder| !holder.is_host())
        {
            let mut drive = sim.drives[holder.index() - 1].borrow_mut();
            if let Err(error) = drive.firmware.grant(&window) {
                sim.world
                    .borrow_mut()
                    .violate(|| format!("a window is not taken: {error}"));
            }
        }
        sim.world.borrow_mut().map.grant(Lent {
            id,
            memory: owner,
            start: range.start,
            end: range.end().unwrap_or(range.start),
            grantees: bits,
        });
        id
    }

    /// Starts pipeline `index`, now or later.
    pub fn start(&mut self, sim: &Sim, index: usize, ipc: &Ipc) {
        if self.jobs[index].phase != Phase::Planned {
            return;
        }
        self.jobs[index].tries += 1;
        if self.jobs[index].tries > 200 {
            self.jobs[index].phase = Phase::Gone;
            return;
        }
        let task = self.jobs[index].task.clone();
        let plan = hops(&task);
        let ready = plan.iter().all(|(place, _)| {
            sim.world.borrow().agents[*place].power != Power::Off && ipc.is_attached(member(*place))
        });
        if !ready || !self.has_room(&task) || !self.open(sim, index, &plan) {
            let delay = self.rng.magnitude(2_000_000);
            sim.world.borrow_mut().after(delay, Event::Start(index));
        }
    }

    fn open(&mut self, sim: &Sim, index: usize, plan: &[(usize, u16)]) -> bool {
        let task = self.jobs[index].task.clone();
        let mut ranges = Vec::new();
        let mut inputs = Vec::new();
        for ((place, _), buffers) in plan.iter().zip(&task.buffers) {
            let bytes = u64::from(task.chunk) * u64::from(*buffers);
            let Some(range) = self.alloc(*place, bytes, &mut ranges) else {
                return false;
            };
            inputs.push(range);
        }
        let members: Vec<usize> = plan.iter().map(|(place, _)| *place).collect();
        let last = members[members.len() - 1];
        let area_bytes = 64 + 64 * (task.stages.len() as u64 + 2);
        let Some(area) = self.alloc(0, area_bytes, &mut ranges) else {
            return false;
        };
        let sink_bytes = match task.target {
            Target::Window(length) => length + 64,
            Target::Disk(..) => u64::from(task.chunk) * u64::from(task.buffers[0]),
        };
        let Some(sink) = self.alloc(last, sink_bytes, &mut ranges) else {
            return false;
        };
        let mut windows = Vec::new();
        for (hop, range) in inputs.iter().enumerate() {
            let before = members[hop.saturating_sub(1)];
            windows.push(self.grant(sim, members[hop], *range, &[before]));
        }
        let inputs = windows.clone();
        let area_window = self.grant(sim, 0, area, &members);
        let is_ring = matches!(task.target, Target::Window(_));
        let grantees = if is_ring { vec![last, 0] } else { vec![last] };
        let sink_window = self.grant(sim, last, sink, &grantees);
        windows.extend([area_window, sink_window]);
        let places = Places {
            inputs,
            sink: sink_window,
            area: area_window,
        };
        let mut port = Port::new(sim, 0);
        let area_at = Location::of(member(0), area.start);
        let _ = port
            .zero(area_at, area_bytes)
            .and_then(|()| port.flush(area_at.memory));
        if let Target::Window(length) = task.target {
            ranges.pop();
            let cell = Location::of(member(last), sink.start + length);
            let _ = port.zero(cell, 64).and_then(|()| port.flush(cell.memory));
        }
        let mut keys = Vec::new();
        for (place, work) in &task.stages {
            self.last_key = self.last_key.wrapping_add(1);
            keys.push(self.last_key);
            if let crate::oracle::Work::Cipher { key, .. } = work {
                let mut drive = sim.drives[place - 1].borrow_mut();
                drive.hands.keys.insert(self.last_key, *key);
            }
        }
        self.last_stream += 1;
        let stream = self.last_stream;
        let bytes = descriptor(&task, stream, &places, &keys);
        let job = &mut self.jobs[index];
        job.stream = stream;
        job.members = members;
        job.windows = windows;
        job.ranges = ranges;
        job.ring = is_ring.then_some((last, sink));
        job.area = area.start;
        job.phase = Phase::Running;
        let now = sim.world.borrow().now;
        let executed = sim.drives[task.source - 1]
            .borrow_mut()
            .execute(sim, stream, &bytes, now);
        let mut world = sim.world.borrow_mut();
        world.say(
            0,
            format!(
                "starts pipeline {stream} over {:?}: {executed:?}",
                job.members
            ),
        );
        match executed {
            Ok(()) => {
                let now = world.now;
                world.wake(task.source, now);
                if let Some(delay) = task.cancel {
                    world.after(delay, Event::Cancel(index));
                }
            }
            Err(failure) => {
                drop(world);
                let completion = Completion {
                    failure,
                    bytes_out: 0,
                };
                self.end(sim, index, &completion);
                let mut world = sim.world.borrow_mut();
                let now = world.now;
                world.wake(0, now);
            }
        }
        true
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

    fn source_disk(sim: &Sim, job: &Job) -> Vec<u8> {
        sim.drives[job.task.source - 1].borrow().hands.disk.clone()
    }

    fn is_tainted(sim: &Sim, job: &Job) -> bool {
        let world = sim.world.borrow();
        job.members.iter().any(|who| world.agents[*who].lies)
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
        } else {
            if !tainted && !job.explains(completion, &expected, &world) {
                let (stream, failure) = (job.stream, completion.failure);
                world.violate(|| {
                    format!(
                        "pipeline {stream} over {:?} failed without a cause: {failure}",
                        job.members
                    )
                });
            }
        }
    }

    /// Everything must be there when the first drive says so.
    fn check_done(
        &self,
        sim: &Sim,
        index: usize,
        completion: &Completion,
        expected: &crate::job::Expected,
        world: &mut crate::world::World,
    ) {
        let job = &self.jobs[index];
        let stream = job.stream;
        let Some(output) = &expected.output else {
            world.violate(|| format!("pipeline {stream} ended well, though a record is too long"));
            return;
        };
        if completion.bytes_out != output.len() as u64 {
            world.violate(|| {
                format!(
                    "pipeline {stream} says {} bytes, it is {}",
                    completion.bytes_out,
                    output.len()
                )
            });
        }
        world.settle(0);
        job.check_reports(expected, world);
        match job.task.target {
            Target::Window(_) => {
                let produced = world.pcie.peek(0, job.area as usize, 8);
                let produced = u64::from_le_bytes(produced.try_into().unwrap_or_default());
                if produced != output.len() as u64 {
                    world.violate(|| {
                        format!(
                            "pipeline {stream} has ended, {produced} of {} bytes are announced",
                            output.len()
                        )
                    });
                }
            }
            Target::Disk(place, offset, _) => {
                let drive = sim.drives[place - 1].borrow();
                let start = offset as usize;
                let block = drive.hands.block_bytes as usize;
                let end = output.len().next_multiple_of(block);
                let disk = &drive.hands.disk[start..start + end];
                let same = disk
                    .iter()
                    .zip(output)
                    .take_while(|(one, other)| one == other)
                    .count();
                if same != output.len() {
                    world.violate(|| {
                        format!(
                            "pipeline {stream}: the disk differs from byte {same} of {} on",
                            output.len()
                        )
                    });
                }
                if disk[output.len()..].iter().any(|byte| *byte != 0) {
                    world.violate(|| {
                        format!("pipeline {stream}: the end of the last block is not zero")
                    });
                }
            }
        }
    }

    /// The host takes a part of a result.
    pub fn read(&mut self, sim: &Sim, index: usize) {
        let job = &mut self.jobs[index];
        job.read_due = false;
        let (Some(ring), Target::Window(length)) = (job.ring, job.task.target) else {
            return;
        };
        let ok = job
            .completion
            .is_none_or(|completion| completion.failure.status.is_ok());
        if !ok || job.failed_by_host {
            self.drop_ring(sim, index);
            return;
        }
        let tainted = Self::is_tainted(sim, job);
        let mut port = Port::new(sim, 0);
        let cell = Location::of(member(0), job.area);
        let Some(produced) = job.produced.or_else(|| port.load_u64(cell).ok()) else {
            return;
        };
        let taken = job.output.len() as u64;
        let ready = produced.wrapping_sub(taken);
        if ready > length {
            if !tainted {
                let stream = job.stream;
                sim.world.borrow_mut().violate(|| {
                    format!("pipeline {stream} has produced {produced}, {taken} were taken")
                });
            }
            job.task.reader.never = true;
            self.drop_ring(sim, index);
            return;
        }
        let position = taken % length;
        let part = ready.min(length - position).min(job.task.reader.sip);
        if part != 0 {
            let mut bytes = vec![0; part as usize];
            let at = ring_location(ring);
            let place = |offset| Location {
                offset: at.offset + offset,
                ..at
            };
            if port.read(place(position), &mut bytes).is_err() {
                // Its memory is gone, the result with it.
                job.failed_by_host = true;
                self.drop_ring(sim, index);
                return;
            }
            job.output.extend_from_slice(&bytes);
            let _ = port.store_release_u64(place(length), job.output.len() as u64);
            port.notify(member(ring.0));
            if part != ready {
                job.read_due = true;
                let pace = job.task.reader.pace;
                sim.world.borrow_mut().after(pace, Event::Read(index));
            }
        }
        if job.phase == Phase::Freed && part == ready {
            self.drop_ring(sim, index);
        }
    }

    /// The result is read, or will not be.
    fn drop_ring(&mut self, sim: &Sim, index: usize) {
        let job = &mut self.jobs[index];
        if job.phase != Phase::Freed {
            return;
        }
        job.phase = Phase::Gone;
        let done = job
            .completion
            .is_some_and(|completion| completion.failure.status.is_ok());
        if let Some((owner, range)) = job.ring.take() {
            // The last consumed count must not come when the memory is somebody else's.
            let _ = Port::new(sim, 0).flush(ring_location((owner, range)).memory);
            let _ = self.allocators[owner].free(range);
            sim.world.borrow_mut().pcie.own(owner)[range.start as usize..][..range.len as usize]
                .fill(0xdd);
            let job = &self.jobs[index];
            if done && !job.task.reader.never && !job.failed_by_host && !Self::is_tainted(sim, job)
            {
                let expected = job
                    .expected(&Self::source_disk(sim, job))
                    .output
                    .unwrap_or_default();
                if job.output != expected {
                    let same = job
                        .output
                        .iter()
                        .zip(&expected)
                        .take_while(|(one, other)| one == other)
                        .count();
                    let (stream, len) = (job.stream, job.output.len());
                    sim.world.borrow_mut().violate(|| {
                        format!("pipeline {stream}: the result differs from byte {same} on ({len} of {} bytes)", expected.len())
                    });
                }
            }
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
