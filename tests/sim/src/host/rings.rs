// SPDX-License-Identifier: GPL-2.0

//! How rings begin and end: losses, returns, resets.
//!
//! Owns the order of the steps. A step may come any time after the one before, but nobody joins
//! before both have left, and nobody comes back whom others still believe to be there.

use super::{Host, Pair};
use crate::drive::{member, Drive};
use crate::map::Place;
use crate::pcie::MEMBERS;
use crate::sim::{Port, Sim};
use crate::world::{Event, Power};
use idc::member::Location;
use idc::memory::Memory as _;
use idc::ring::RingLayout;

impl Host {
    /// A drive is found to be lost.
    pub(super) fn lose(&mut self, sim: &Sim, lost: usize) {
        let mut world = sim.world.borrow_mut();
        if world.lost[lost] {
            return;
        }
        world.lost[lost] = true;
        world.agents[lost].exposed = true;
        world.say(0, format!("gives up member {lost}"));
        world.agents[lost].power = Power::Off;
        world.agents[lost].fuse = None;
        for memory in 0..MEMBERS {
            world.pcie.drop_posted(lost, memory, |_, _| true);
        }
        let mut last = 0;
        for other in (0..=sim.drives.len()).filter(|other| *other != lost) {
            self.set_pair(other, lost, Pair::Lost);
            let delay = self.rng.magnitude(500_000);
            world.after(delay, Event::Detach(other, lost));
            last = last.max(delay);
        }
        world.after(last + 1, Event::Bury(lost));
    }

    pub(super) fn detach(&mut self, sim: &Sim, who: usize, from: usize) {
        // Unless they have joined again since.
        if matches!(self.broken[who][from], Pair::Whole | Pair::Half) {
            return;
        }
        {
            let mut world = sim.world.borrow_mut();
            if world.agents[who].power == Power::Off {
                return;
            }
            world.say(who, format!("is told to leave member {from}"));
            world.traffic[from][who].epoch = 0;
        }
        if who == 0 {
            self.ipc.detach(member(from));
            self.abandon(sim);
        } else {
            sim.drives[who - 1]
                .borrow_mut()
                .firmware
                .detach_peer(member(from));
        }
        let mut world = sim.world.borrow_mut();
        let now = world.now;
        world.wake(who, now);
    }

    pub(super) fn bury(&mut self, sim: &Sim, lost: usize) {
        self.book.fail_member(sim, lost);
        let mut world = sim.world.borrow_mut();
        if self.rejoin {
            let delay = self.rng.magnitude(50_000_000);
            world.after(delay, Event::Rejoin(lost));
        }
    }

    /// A drive comes back as new: its memory is zero, its rings have epochs of their own.
    pub(super) fn rejoin(&mut self, sim: &Sim, who: usize) {
        // Whoever is off has nothing to forget.
        let powered = |other: usize| sim.world.borrow().agents[other].power != Power::Off;
        let known = |other| other != who && powered(other) && self.is_attached(sim, other, who);
        if self.book.uses(who) || (0..=sim.drives.len()).any(known) {
            sim.world.borrow_mut().after(1_000_000, Event::Rejoin(who));
            return;
        }
        let mut world = sim.world.borrow_mut();
        world.say(who, "comes back".into());
        let map = world.map.clone();
        for initiator in 0..MEMBERS {
            // What was sent to its rings before comes late; the rest the reset has swallowed.
            world.pcie.drop_posted(initiator, who, |offset, len| {
                let place = map.find(who, offset as u64, len as u64);
                matches!(place, Place::Window(_) | Place::Nowhere)
            });
        }
        world.pcie.set_gone(who, false);
        world.pcie.own(who).fill(0);
        // What it said when it lied is still under way: it stays a liar for the checks.
        world.agents[who].power = Power::On;
        drop(world);
        let mut drive = sim.drives[who - 1].borrow_mut();
        let disk = std::mem::take(&mut drive.hands.disk);
        let block_bytes = drive.hands.block_bytes;
        *drive = Drive::new(who, self.rng.fork());
        drive.hands.disk = disk;
        drive.hands.block_bytes = block_bytes;
        drop(drive);
        self.book.returned(who, &self.table);
        let mut world = sim.world.borrow_mut();
        world.lost[who] = false;
        for other in (0..=sim.drives.len()).filter(|other| *other != who) {
            if world.lost[other] {
                continue;
            }
            self.set_pair(other, who, Pair::Apart);
            let delay = self.rng.magnitude(500_000);
            world.after(delay, Event::Join(other, who));
        }
    }

    pub(super) fn set_pair(&mut self, one: usize, other: usize, pair: Pair) {
        self.broken[one][other] = pair;
        self.broken[other][one] = pair;
    }

    /// The rings between two members are to begin anew while all others go on.
    pub(super) fn reset(&mut self, sim: &Sim, one: usize, other: usize) {
        let mut world = sim.world.borrow_mut();
        if self.broken[one][other] != Pair::Whole {
            return;
        }
        self.set_pair(one, other, Pair::Apart);
        world.tally.faults += 1;
        world.resets.push((one, other));
        world.say(one, format!("rings to and from member {other} are reset"));
        let delays = [self.rng.magnitude(500_000), self.rng.magnitude(500_000)];
        world.after(delays[0], Event::Detach(one, other));
        world.after(delays[1], Event::Detach(other, one));
        let quiet = delays[0].max(delays[1]) + self.rng.magnitude(2_000_000);
        world.after(quiet, Event::Join(one, other));
    }

    pub(super) fn layouts(
        &self,
        sim: &Sim,
        one: usize,
        other: usize,
    ) -> Option<(RingLayout, RingLayout)> {
        let world = sim.world.borrow();
        let epoch_of = |from, to| world.map.between(from, to).map(|at| world.flows[at].epoch);
        let epoch = epoch_of(one, other)?;
        let mut to = self.table.ring(member(one), member(other)).ok()?;
        let mut back = self.table.ring(member(other), member(one)).ok()?;
        to.epoch = epoch;
        back.epoch = epoch;
        Some((to, back))
    }

    pub(super) fn is_attached(&self, sim: &Sim, who: usize, to: usize) -> bool {
        if who == 0 {
            self.ipc.is_attached(member(to))
        } else {
            let drive = sim.drives[who - 1].borrow();
            drive.firmware.ipc().is_attached(member(to))
        }
    }

    pub(super) fn join(&mut self, sim: &Sim, one: usize, other: usize) {
        if self.broken[one][other] != Pair::Apart {
            return;
        }
        if self.is_attached(sim, one, other) || self.is_attached(sim, other, one) {
            sim.world
                .borrow_mut()
                .after(10_000, Event::Join(one, other));
            return;
        }
        self.set_pair(one, other, Pair::Half);
        self.last_epoch += 1;
        let mut world = sim.world.borrow_mut();
        let mut parts = Vec::new();
        for (from, to) in [(one, other), (other, one)] {
            if let Some(buffer) = world.map.between(from, to) {
                world.begin(buffer, self.last_epoch, 0);
                parts.extend(world.map.parts(buffer));
            }
        }
        drop(world);
        let mut port = Port::new(sim, 0);
        for (memory, start, len, _) in parts {
            let at = Location::of(member(memory), start);
            let cleared = port.zero(at, len).and_then(|()| port.flush(at.memory));
            if cleared.is_err() {
                return;
            }
        }
        self.attach(sim, one, other);
        let mut world = sim.world.borrow_mut();
        let delay = self.rng.magnitude(200_000);
        world.after(delay, Event::Attach(other, one));
    }

    pub(super) fn attach(&mut self, sim: &Sim, who: usize, to: usize) {
        let Some((out, back)) = self.layouts(sim, who, to) else {
            return;
        };
        {
            let mut world = sim.world.borrow_mut();
            if world.agents[who].power == Power::Off {
                return;
            }
            world.say(who, format!("joins member {to} under epoch {}", out.epoch));
        }
        let attached = if who == 0 {
            self.ipc.attach(member(to), &out, &back)
        } else {
            let mut drive = sim.drives[who - 1].borrow_mut();
            drive.firmware.attach_peer(member(to), &out, &back)
        };
        if who == 0 {
            self.abandon(sim);
        }
        let mut world = sim.world.borrow_mut();
        if let Err(error) = attached {
            world.violate(|| format!("member {who} cannot join member {to}: {error}"));
        }
        let now = world.now;
        world.wake(who, now);
    }

    /// Joins all members at the beginning.
    pub fn attach_all(&mut self, sim: &Sim) {
        let epoch = self.table.epoch();
        let members = sim.drives.len();
        let mut world = sim.world.borrow_mut();
        for buffer in 0..world.map.buffers().len() {
            world.begin(buffer, epoch, 0);
        }
        drop(world);
        for drive in &sim.drives {
            if let Err(error) = drive.borrow_mut().firmware.attach(&self.table) {
                sim.world
                    .borrow_mut()
                    .violate(|| format!("attach: {error}"));
            }
        }
        for other in 1..=members {
            self.attach(sim, 0, other);
        }
    }
}
