// SPDX-License-Identifier: GPL-2.0

//! The host: its ends of the rings, the messages that it sends, and what it does about drives that are
//! lost.
//!
//! Owns the messages and what their answers must be. Losses and resets are in `rings`, pipelines in
//! `book`.

mod rings;

use crate::book::Book;
use crate::drive::{member, zeroed};
use crate::pcie::MEMBERS;
use crate::rng::Rng;
use crate::sim::{Port, Sim};
use crate::world::{Event, Message};
use idc::entry::{Opcode, Request, Response};
use idc::ipc::{Arrival, Ipc, SendError};
use idc::mesh::MeshTable;
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
        let number = (self.last_number << 8) | 0xc5;
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
