// SPDX-License-Identifier: GPL-2.0

//! The host: its ends of the rings, the messages that it sends, and what it does about drives that are
//! lost.
//!
//! Owns the order of the steps of a loss, a return and a reset, as the module takes them; each step
//! may come any time after the one before. Pipelines are in `book`.

use crate::book::Book;
use crate::drive::{member, zeroed, Drive};
use crate::pcie::MEMBERS;
use crate::rng::Rng;
use crate::sim::{Port, Sim};
use crate::world::{Event, Message, Power};
use idc::entry::{Opcode, Request, Response};
use idc::ipc::{Arrival, Ipc, SendError};
use idc::member::Location;
use idc::memory::Memory as _;
use idc::mesh::MeshTable;
use idc::ring::RingLayout;
use idc::status::Status;
use std::collections::BTreeMap;

/// A message whose answer the host waits for.
struct Call {
    to: usize,
    cid: u16,
    /// Bytes that must come back, if it is a PING.
    echo: Option<Vec<u8>>,
    /// The number of the message, if it is to be executed once.
    number: Option<u64>,
    relayed: bool,
}

/// How the rings between two members are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Pair {
    /// Joined.
    #[default]
    Whole,
    /// To be joined again.
    Apart,
    /// Cleared; the first of the two has joined.
    Half,
    /// One of them is lost.
    Lost,
}

/// The host.
pub struct Host {
    /// Its ends of the rings.
    pub ipc: Box<Ipc>,
    /// The mesh.
    pub table: Box<MeshTable>,
    /// Pipelines.
    pub book: Book,
    entry: Vec<u8>,
    calls: BTreeMap<u64, Call>,
    last_tag: u64,
    last_number: u64,
    last_epoch: u32,
    /// Messages still to be sent.
    pub calls_left: u64,
    /// The mean time between two.
    pub call_gap: u64,
    /// Pairs whose rings are not in force, and why.
    broken: [[Pair; MEMBERS]; MEMBERS],
    /// Lost drives come back.
    pub rejoin: bool,
    rng: Rng,
}

impl Host {
    /// The host of the mesh `table`.
    #[must_use]
    pub fn new(table: Box<MeshTable>, book: Book, rng: Rng) -> Self {
        let mut ipc: Box<Ipc> = zeroed();
        ipc.init(member(0));
        let last_epoch = table.epoch();
        let entry = vec![0; table.shape().entry_bytes as usize];
        Host {
            ipc,
            table,
            book,
            entry,
            calls: BTreeMap::new(),
            last_tag: 0,
            last_number: 0,
            last_epoch,
            calls_left: 0,
            call_gap: 10_000,
            broken: Default::default(),
            rejoin: false,
            rng,
        }
    }

    /// What the host still waits for; empty if nothing.
    #[must_use]
    pub fn waits_for(&self) -> String {
        let mut waits = self.book.waits_for();
        for (tag, call) in &self.calls {
            waits += &format!(" call {tag} to member {}", call.to);
        }
        waits
    }

    /// Carries out `event`; `false` if it must wait.
    pub fn happen(&mut self, sim: &Sim, event: Event) -> bool {
        match event {
            Event::Serve => self.serve(sim),
            Event::Call => self.call(sim),
            Event::GiveUp(tag) => {
                if let Some(call) = self.calls.remove(&tag) {
                    self.ipc.forget(member(call.to), call.cid);
                }
            }
            Event::Lose(lost) => self.lose(sim, lost),
            Event::Detach(who, from) => self.detach(sim, who, from),
            Event::Bury(lost) => self.bury(sim, lost),
            Event::Rejoin(who) => self.rejoin(sim, who),
            Event::Reset(one, other) => self.reset(sim, one, other),
            Event::Join(one, other) => self.join(sim, one, other),
            Event::Attach(one, other) if self.broken[one][other] == Pair::Half => {
                self.set_pair(one, other, Pair::Whole);
                self.attach(sim, one, other);
            }
            Event::Lie(liar) => crate::lie::lie(sim, &mut self.rng, &self.book, liar),
            Event::Start(index) => self.book.start(sim, index, &self.ipc),
            Event::Read(index) => self.book.read(sim, index),
            Event::Cancel(index) => self.book.cancel(sim, index),
            _ => {}
        }
        true
    }

    /// Looks at everything that may have come.
    fn serve(&mut self, sim: &Sim) {
        for peer in self
            .ipc
            .peers()
            .iter()
            .map(|peer| peer.index())
            .collect::<Vec<_>>()
        {
            while self.receive(sim, peer) {}
        }
        self.ipc.service(&mut Port::new(sim, 0));
        self.book.serve(sim);
        let mut world = sim.world.borrow_mut();
        let now = world.now;
        let again = self.book.look_again(now);
        world.set_timer(0, again);
    }

    /// Takes one message of `from`, if there is one.
    fn receive(&mut self, sim: &Sim, from: usize) -> bool {
        let Host {
            ipc, entry, calls, ..
        } = self;
        let mut port = Port::new(sim, 0);
        match ipc.receive(member(from), &mut port, entry) {
            Ok(None) => return false,
            Ok(Some(Arrival::Late)) => {}
            Ok(Some(Arrival::Response { tag, response, .. })) => {
                if let Some(call) = calls.remove(&tag) {
                    answered(sim, &call, &response);
                }
            }
            Ok(Some(Arrival::Request {
                cid,
                wants_response,
                request,
                ..
            })) => {
                let payload = request.payload().unwrap_or_default();
                let inline = if request.opcode == Opcode::PING {
                    payload
                } else {
                    &[]
                };
                let status = match request.opcode {
                    Opcode::PING => Status::OK,
                    Opcode::SEND => {
                        sim.world.borrow_mut().execute(from, 0, payload);
                        Status::OK
                    }
                    _ => Status::UNKNOWN_OPCODE,
                };
                if wants_response {
                    let response = Response {
                        inline,
                        ..Response::status(cid, status)
                    };
                    let _ = ipc.respond(member(from), &response, &mut port);
                }
            }
            Err(fault) => {
                sim.world.borrow_mut().ring_fault(0, from, fault);
                ipc.detach(member(from));
                self.abandon(sim);
                return false;
            }
        }
        true
    }

    /// Sends a message to somebody.
    fn call(&mut self, sim: &Sim) {
        if self.calls_left == 0 {
            return;
        }
        self.calls_left -= 1;
        let drives = sim.drives.len();
        let to = 1 + self.rng.index(drives);
        let room = self.ipc.inline_capacity(member(to)).min(36);
        let mut payload = vec![0; self.rng.range(8, room.max(8) as u64) as usize];
        self.rng.fill(&mut payload);
        self.last_number += 1;
        let number = self.last_number << 8 | 0xc5;
        payload[..8].copy_from_slice(&number.to_le_bytes());
        let ping = self.rng.one_in(2);
        let target = self.rng.index(drives + 1);
        let relayed = target != to && self.rng.one_in(2);
        let request = match (relayed, ping) {
            (true, true) => Request::relay(Opcode::PING, member(target), &payload),
            (true, false) => Request::relay(Opcode::SEND, member(target), &payload),
            (false, true) => Request::ping(&payload),
            (false, false) => Request::send(&payload),
        };
        if !ping {
            sim.world
                .borrow_mut()
                .messages
                .insert(number, Message::default());
        }
        self.last_tag += 1;
        let tag = self.last_tag;
        let sent = self
            .ipc
            .request(member(to), &request, tag, &mut Port::new(sim, 0));
        let mut world = sim.world.borrow_mut();
        match sent {
            Ok(cid) => {
                world.tally.calls += 1;
                let call = Call {
                    to,
                    cid,
                    echo: ping.then_some(payload),
                    number: (!ping).then_some(number),
                    relayed,
                };
                self.calls.insert(tag, call);
                if self.rng.one_in(50) {
                    let patience = self.rng.magnitude(1_000_000);
                    world.after(patience, Event::GiveUp(tag));
                }
            }
            Err(SendError::NoCredit | SendError::NotAttached) => {}
            Err(SendError::Fault(fault)) => world.ring_fault(0, to, fault),
            Err(SendError::TooLong) => world.violate(|| "a short message is too long".into()),
        }
        if self.calls_left != 0 {
            let gap = self.rng.magnitude(self.call_gap);
            world.after(gap, Event::Call);
        }
    }

    /// Tells callers of the requests that nobody will answer.
    fn abandon(&mut self, sim: &Sim) {
        let mut world = sim.world.borrow_mut();
        while let Some(abandoned) = self.ipc.take_abandoned() {
            if let Some(Call {
                number: Some(number),
                ..
            }) = self.calls.remove(&abandoned.tag)
            {
                let executed = world
                    .messages
                    .get(&number)
                    .map_or(0, |message| message.executed);
                if executed > 1 {
                    world.violate(|| format!("message {number} was executed {executed} times"));
                }
            }
        }
    }

    /// A drive is found to be lost.
    fn lose(&mut self, sim: &Sim, lost: usize) {
        let mut world = sim.world.borrow_mut();
        if world.lost[lost] {
            return;
        }
        world.lost[lost] = true;
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

    fn detach(&mut self, sim: &Sim, who: usize, from: usize) {
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
            world.rings[from][who].epoch = 0;
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

    fn bury(&mut self, sim: &Sim, lost: usize) {
        self.book.fail_member(sim, lost);
        let mut world = sim.world.borrow_mut();
        if self.rejoin {
            let delay = self.rng.magnitude(50_000_000);
            world.after(delay, Event::Rejoin(lost));
        }
    }

    /// A drive comes back as new: its memory is zero, its rings have epochs of their own.
    fn rejoin(&mut self, sim: &Sim, who: usize) {
        let known = |other| other != who && self.is_attached(sim, other, who);
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
                matches!(
                    place,
                    crate::map::Place::Window(_) | crate::map::Place::Nowhere
                )
            });
        }
        world.pcie.set_gone(who, false);
        world.pcie.own(who).fill(0);
        let agent = &mut world.agents[who];
        agent.power = Power::On;
        agent.lies = false;
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

    fn set_pair(&mut self, one: usize, other: usize, pair: Pair) {
        self.broken[one][other] = pair;
        self.broken[other][one] = pair;
    }

    /// The rings between two members are to begin anew while all others go on.
    fn reset(&mut self, sim: &Sim, one: usize, other: usize) {
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

    fn layouts(&self, sim: &Sim, one: usize, other: usize) -> Option<(RingLayout, RingLayout)> {
        let epoch = sim.world.borrow().rings[one][other].epoch;
        let mut to = self.table.ring(member(one), member(other)).ok()?;
        let mut back = self.table.ring(member(other), member(one)).ok()?;
        to.epoch = epoch;
        back.epoch = epoch;
        Some((to, back))
    }

    fn is_attached(&self, sim: &Sim, who: usize, to: usize) -> bool {
        if who == 0 {
            self.ipc.is_attached(member(to))
        } else {
            let drive = sim.drives[who - 1].borrow();
            drive.firmware.ipc().is_attached(member(to))
        }
    }

    fn join(&mut self, sim: &Sim, one: usize, other: usize) {
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
        world.begin_rings(one, other, self.last_epoch);
        let map = world.map.clone();
        drop(world);
        let mut port = Port::new(sim, 0);
        for (from, to) in [(one, other), (other, one)] {
            let ring = Location::of(member(to), map.ring(from, to));
            let cell = Location::of(member(from), map.credit(from, to));
            let cleared = port
                .zero(ring, map.ring_bytes())
                .and_then(|()| port.zero(cell, 64))
                .and_then(|()| port.flush(ring.memory))
                .and_then(|()| port.flush(cell.memory));
            if cleared.is_err() {
                return;
            }
        }
        self.attach(sim, one, other);
        let mut world = sim.world.borrow_mut();
        let delay = self.rng.magnitude(200_000);
        world.after(delay, Event::Attach(other, one));
    }

    fn attach(&mut self, sim: &Sim, who: usize, to: usize) {
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
        for one in 0..=members {
            for other in one + 1..=members {
                sim.world.borrow_mut().begin_rings(one, other, epoch);
            }
        }
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

/// Checks an answer.
fn answered(sim: &Sim, call: &Call, response: &Response<'_>) {
    let mut world = sim.world.borrow_mut();
    if world.agents[call.to].lies {
        return;
    }
    let disturbed = world.is_troubled();
    let status = response.status;
    let busy = status == Status::BUSY;
    let lost = status == Status::PEER_LOST && call.relayed && disturbed;
    if !(status.is_ok() || busy || lost) {
        world.violate(|| format!("member {} answers a message: {status}", call.to));
    }
    if let Some(echo) = &call.echo {
        if status.is_ok() && response.inline != &echo[..] {
            world.violate(|| format!("member {} echoes something else", call.to));
        }
    }
    if let Some(number) = call.number {
        let executed = world
            .messages
            .get(&number)
            .map_or(0, |message| message.executed);
        let expected = if lost {
            executed.min(1)
        } else {
            u32::from(status.is_ok())
        };
        if executed != expected && !world.agents.iter().any(|agent| agent.lies) {
            world.violate(|| {
                format!("message {number} ended with {status} and was executed {executed} times")
            });
        }
    }
}
