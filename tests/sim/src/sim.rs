// SPDX-License-Identifier: GPL-2.0

//! The run: whose turn it is, and what every access of an agent goes through.
//!
//! Owns the drives, the host and the dispatch of events. An agent is never entered twice; while one is
//! in the middle of a poll, others may have whole turns.

use crate::drive::{member, Drive};
use crate::host::Host;
use crate::map::{Place, Role};
use crate::mutant::Mutant;
use crate::pcie::Refused;
use crate::world::{Event, Ns, Power, World};
use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fabric, Fault, Memory};
use idc::status::Completion;
use std::cell::RefCell;

/// A mesh and everything around it.
pub struct Sim {
    /// What all share.
    pub world: RefCell<World>,
    /// The drives; the first is member 1.
    pub drives: Vec<RefCell<Drive>>,
    /// The host.
    pub host: RefCell<Host>,
}

/// How a member reaches the memories.
pub struct Port<'a> {
    /// Everything.
    pub sim: &'a Sim,
    me: usize,
    announced: bool,
}

fn fault(refused: Refused) -> Fault {
    match refused {
        Refused::NoMemory => Fault::NoMemory,
        Refused::OutOfRange => Fault::OutOfRange,
        Refused::Gone => Fault::Gone,
    }
}

impl<'a> Port<'a> {
    /// The port of member `me`.
    #[must_use]
    pub const fn new(sim: &'a Sim, me: usize) -> Self {
        Port {
            sim,
            me,
            announced: false,
        }
    }

    /// Time passes, and perhaps somebody else has a turn.
    fn before(&self) -> Result<(), Fault> {
        let (due, now) = {
            let mut world = self.sim.world.borrow_mut();
            world.spend(self.me).map_err(fault)?;
            let now = world.now;
            (
                world.depth < world.max_depth && world.next_due().is_some_and(|due| due <= now),
                now,
            )
        };
        if due {
            self.sim.step(now);
            if self.sim.world.borrow().agents[self.me].power == Power::Off {
                return Err(Fault::Gone);
            }
        }
        Ok(())
    }

    fn mutant(&self) -> Option<Mutant> {
        let world = self.sim.world.borrow();
        world.mutant.filter(|_| self.me != 0)
    }

    fn send(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.before()?;
        let mut world = self.sim.world.borrow_mut();
        world
            .write(self.me, at.memory.index(), at.offset, data)
            .map_err(fault)
    }

    /// Where in an entry a place is that this member may take, and the epoch of its buffer.
    fn incoming(&self, at: Location, len: u64) -> Option<(u64, u32)> {
        let world = self.sim.world.borrow();
        match world.map.find(at.memory.index(), at.offset, len) {
            place @ Place::Slot { buffer, within, .. } if world.map.may_read(self.me, place) => {
                Some((within, world.flows[buffer].epoch))
            }
            _ => None,
        }
    }

    /// What a sender that ignores credit believes to see in its credit cell.
    fn all_taken(&self, at: Location) -> Option<u64> {
        let world = self.sim.world.borrow();
        match world.map.find(at.memory.index(), at.offset, 8) {
            Place::Cell {
                buffer,
                role: Role::Credit,
                reader,
                ..
            } if reader == self.me => {
                let flow = &world.flows[buffer];
                let all = flow.start.wrapping_add(flow.sent);
                Some((u64::from(flow.epoch) << 32) | u64::from(all))
            }
            _ => None,
        }
    }
}

impl Memory for Port<'_> {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        self.before()?;
        self.sim
            .world
            .borrow_mut()
            .read(self.me, at.memory.index(), at.offset, buf)
            .map_err(fault)?;
        if self.mutant() == Some(Mutant::AnyEpoch) {
            if let (Some((0, epoch)), Some(end)) = (
                self.incoming(at, buf.len() as u64),
                buf.last_chunk_mut::<4>(),
            ) {
                *end = epoch.to_le_bytes();
            }
        }
        Ok(())
    }

    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.send(at, data)
    }

    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        if at.offset % 8 != 0 {
            return Err(Fault::OutOfRange);
        }
        self.before()?;
        let mut bytes = [0; 8];
        let mut world = self.sim.world.borrow_mut();
        world
            .read(self.me, at.memory.index(), at.offset, &mut bytes)
            .map_err(fault)?;
        drop(world);
        let value = u64::from_le_bytes(bytes);
        match self.mutant() {
            Some(Mutant::AnyEpoch) if value >> 32 != 0 => {
                let epoch = self.incoming(at, 8).map(|(_, epoch)| epoch);
                Ok(epoch.map_or(value, |epoch| {
                    (u64::from(epoch) << 32) | (value & 0xffff_ffff)
                }))
            }
            Some(Mutant::NoCredit) => Ok(self.all_taken(at).unwrap_or(value)),
            _ => Ok(value),
        }
    }

    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        if at.offset % 8 != 0 {
            return Err(Fault::OutOfRange);
        }
        let memory = at.memory.index();
        let place = self.sim.world.borrow().map.find(memory, at.offset, 8);
        self.announced = memory == 0 && matches!(place, Place::Window(_));
        self.send(at, &value.to_le_bytes())
    }

    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault> {
        self.before()?;
        if self.mutant() == Some(Mutant::NoFlush) && memory.index() == self.me {
            return Ok(());
        }
        let mut world = self.sim.world.borrow_mut();
        world.flush(self.me, memory.index()).map_err(fault)
    }

    fn publish(&mut self, at: Location, entry: &[u8]) -> Result<(), Fault> {
        let (body, last) = entry.split_last_chunk::<8>().ok_or(Fault::OutOfRange)?;
        let end = at.at(body.len() as u64).ok_or(Fault::OutOfRange)?;
        if self.mutant() == Some(Mutant::TrailerFirst) {
            self.send(end, last)?;
            return self.send(at, body);
        }
        if self.sim.world.borrow().agents[self.me].dma {
            return self.send(at, entry);
        }
        self.send(at, body)?;
        self.send(end, last)
    }
}

impl Fabric for Port<'_> {
    fn notify(&mut self, member: MemberId) {
        let silent = self.mutant() == Some(Mutant::SilentResult) && self.announced;
        self.announced = false;
        if !silent {
            self.sim.world.borrow_mut().notify(self.me, member.index());
        }
    }
}

impl Sim {
    /// One event that is due by `until` happens. Returns whether there was one.
    pub fn step(&self, until: Ns) -> bool {
        let event = {
            let mut world = self.world.borrow_mut();
            if world.violation.is_some() {
                return false;
            }
            let Some(event) = world.pop(until) else {
                return false;
            };
            world.depth += 1;
            event
        };
        if !self.happen(event) {
            // Whom it concerns is in the middle of something.
            let mut world = self.world.borrow_mut();
            let delay = world.rng.range(50, 500);
            match event {
                Event::Poll(member) | Event::Timer(member) => {
                    let time = world.now + delay;
                    world.wake(member, time);
                }
                Event::Serve => {
                    let time = world.now + delay;
                    world.wake(0, time);
                }
                event => world.after(delay, event),
            }
        }
        self.world.borrow_mut().depth -= 1;
        true
    }

    /// Whether nobody is in the middle of a turn.
    fn is_quiet(&self) -> bool {
        self.world.borrow().depth == 1
    }

    fn drive(&self, member: usize) -> Option<std::cell::RefMut<'_, Drive>> {
        self.drives
            .get(member.wrapping_sub(1))?
            .try_borrow_mut()
            .ok()
    }

    /// Carries out `event`; `false` if it must wait.
    fn happen(&self, event: Event) -> bool {
        match event {
            Event::Timer(0) => self.happen(Event::Serve),
            Event::Poll(member) | Event::Timer(member) => self.poll(member),
            Event::Storage(member, id) => {
                let power = self.world.borrow().agents[member].power;
                let Some(mut drive) = self.drive(member) else {
                    return false;
                };
                if power != Power::Off {
                    drive.end_storage(self, id);
                    let mut world = self.world.borrow_mut();
                    let now = world.now;
                    world.wake(member, now);
                }
                true
            }
            Event::Drain(member) => {
                let Some(mut drive) = self.drive(member) else {
                    return false;
                };
                drive.drain();
                true
            }
            Event::Pause(member) => {
                let mut world = self.world.borrow_mut();
                let until = world.now + world.rng.magnitude(10_000_000);
                world.agents[member].paused = until;
                world.wake(member, until);
                true
            }
            Event::Hang(member) => {
                let mut world = self.world.borrow_mut();
                if world.agents[member].power == Power::On {
                    world.say(member, "hangs".into());
                    world.agents[member].power = Power::Hung;
                    world.tally.faults += 1;
                    // The host finds out before any deadline, or long after.
                    let delay = world.rng.magnitude(8_000_000_000);
                    world.after(delay, Event::Lose(member));
                }
                true
            }
            Event::Crash(member) => {
                let mut world = self.world.borrow_mut();
                if world.agents[member].power == Power::On {
                    let accesses = world.rng.magnitude(2000);
                    world.agents[member].fuse = Some(accesses);
                    world.tally.faults += 1;
                    let delay = 1_000_000 + world.rng.magnitude(1_000_000_000);
                    world.after(delay, Event::Lose(member));
                }
                true
            }
            _ if !self.is_quiet() => false,
            event => {
                let Ok(mut host) = self.host.try_borrow_mut() else {
                    return false;
                };
                host.happen(self, event)
            }
        }
    }

    fn poll(&self, id: usize) -> bool {
        let Some(mut drive) = self.drive(id) else {
            return false;
        };
        let (now, before) = {
            let mut world = self.world.borrow_mut();
            if world.agents[id].power != Power::On {
                return true;
            }
            if world.agents[id].paused > world.now {
                let until = world.agents[id].paused;
                world.wake(id, until);
                return true;
            }
            world.tally.polls += 1;
            world.settle(id);
            let (events, now) = (world.tally.events, world.now);
            world
                .trace
                .note(events, now, id, crate::trace::Happened::Polled);
            let before: Vec<_> = world.traffic.iter().map(|row| row[id]).collect();
            (now, before)
        };
        let poll = drive.poll(self, now);
        let mut world = self.world.borrow_mut();
        if world.agents[id].power != Power::On {
            return true;
        }
        // Nobody waits longer than one turn of this member.
        for (from, before) in before.iter().enumerate() {
            let after = world.traffic[from][id];
            let waited = before.announced.saturating_sub(before.taken).min(16);
            let attached = drive.firmware.ipc().is_attached(member(from));
            let same = after.epoch == before.epoch && attached && !world.agents[from].lies;
            if same && after.taken < before.taken + waited {
                world.violate(|| {
                    format!("member {id} polled and left {waited} entries of member {from} alone")
                });
            }
        }
        if poll.progressed {
            let again = world.now + world.agents[id].gap;
            world.wake(id, again);
            world.set_timer(id, None);
        } else {
            world.set_timer(id, poll.wake_at);
        }
        true
    }

    /// A first drive ends a pipeline's command.
    pub fn completed(&self, me: usize, command: u32, completion: &Completion) {
        let mut world = self.world.borrow_mut();
        world.completed.push((me, command, *completion));
        world.say(me, format!("completes {command}: {}", completion.failure));
        let now = world.now;
        world.wake(0, now);
    }
}
