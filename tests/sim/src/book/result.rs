// SPDX-License-Identifier: GPL-2.0

//! What a pipeline gives: the host's reader, and the comparison with the oracle.
//!
//! Owns the judgement of results. Never decides how long anything is kept.

use super::Book;
use crate::drive::member;
use crate::job::{ring_location, Expected, Job, Phase, Target};
use crate::sim::{Port, Sim};
use crate::world::{Event, World};
use idc::member::Location;
use idc::memory::{Fabric as _, Memory as _};
use idc::status::Completion;

impl Book {
    pub(super) fn source_disk(sim: &Sim, job: &Job) -> Vec<u8> {
        sim.drives[job.task.source - 1].borrow().hands.disk.clone()
    }

    pub(super) fn is_tainted(sim: &Sim, job: &Job) -> bool {
        let world = sim.world.borrow();
        job.members.iter().any(|who| world.agents[*who].lies)
    }

    /// Everything must be there when the first drive says so.
    pub(super) fn check_done(
        &self,
        sim: &Sim,
        index: usize,
        completion: &Completion,
        expected: &Expected,
        world: &mut World,
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
    pub(super) fn drop_ring(&mut self, sim: &Sim, index: usize) {
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
}
