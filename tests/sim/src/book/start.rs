// SPDX-License-Identifier: GPL-2.0

//! How a pipeline starts: memory, windows and keys, all or none.
//!
//! Owns what the host does before Execute Pipeline. Never looks at what a pipeline gives.

use super::{Book, STAGES};
use crate::drive::member;
use crate::job::{descriptor, hops, Phase, Places, Target, Task};
use crate::map::Lent;
use crate::pcie::MEMBERS;
use crate::sim::{Port, Sim};
use crate::world::{Event, Power};
use idc::firmware::STREAMS;
use idc::ipc::Ipc;
use idc::member::{Location, MemberSet};
use idc::memory::Memory as _;
use idc::range::Range;
use idc::status::Completion;
use idc::window::{Rights, Window};

impl Book {
    pub(super) fn has_room(&self, task: &Task) -> bool {
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

    pub(super) fn alloc(
        &mut self,
        owner: usize,
        len: u64,
        ranges: &mut Vec<(usize, Range)>,
    ) -> Option<Range> {
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

    pub(super) fn grant(
        &mut self,
        sim: &Sim,
        owner: usize,
        range: Range,
        grantees: &[usize],
    ) -> u32 {
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

    pub(super) fn open(&mut self, sim: &Sim, index: usize, plan: &[(usize, u16)]) -> bool {
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
}
