// SPDX-License-Identifier: GPL-2.0

//! What every access goes through, and the checks that hold there.
//!
//! Owns what is right and wrong on the bus: who may write where and until when, who may read, which
//! entries may be taken. Never decides whose turn it is.

use super::{Event, Flow, Message, Power, Slot, Traffic, World};
use crate::map::{members, Buffer, Map, Place};
use crate::pcie::{Arrived, Refused, MEMBERS};
use crate::trace::Happened;
use idc::ring::PeerFault;

/// Bytes of an entry's end: from, to, kind, units, sequence, epoch.
const TRAILER: usize = 12;
/// The kind of a request.
const REQUEST: u8 = 1;
/// Its opcode, if it puts a message into an inbox.
const SEND: u8 = 2;

impl World {
    /// Lets arrive what is due in `memory`, and checks it.
    pub fn settle(&mut self, memory: usize) {
        self.pcie.settle(memory, self.now);
        self.inspect();
    }

    /// Checks what arrived.
    pub fn inspect(&mut self) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.pcie.take_arrived(&mut arrived);
        for arrival in arrived.drain(..) {
            self.check_arrival(arrival);
        }
        self.arrived = arrived;
    }

    pub(super) fn check_arrival(&mut self, arrival: Arrived) {
        let Arrived {
            initiator,
            memory,
            offset,
            len,
            last: epoch,
        } = arrival;
        self.tally.events += 1;
        self.tally.arrivals += 1;
        let place = self.map.find(memory, offset as u64, len as u64);
        let counts = !self.agents[initiator].lies && initiator != 0;
        let counts = counts && self.agents[memory].power != Power::Off;
        if counts && !self.map.allows(initiator, place) {
            self.violate(|| {
                format!("a write of member {initiator} arrives at {memory}:{offset:#x}+{len:#x}, which is not granted any more")
            });
        }
        match place {
            Place::Slot {
                buffer,
                slot,
                within,
            } => {
                if within + len as u64 == self.map.buffers()[buffer].entry_bytes {
                    self.entry_arrived(initiator, buffer, slot, epoch);
                }
            }
            Place::Cell {
                role,
                writer,
                reader,
                ..
            } if role.announces() => {
                let traffic = &mut self.traffic[writer][reader];
                traffic.announced = traffic.arrived;
            }
            _ => {}
        }
    }

    /// The last bytes of an entry are there, and so is the rest.
    fn entry_arrived(&mut self, initiator: usize, buffer: usize, slot: u64, epoch: u32) {
        let Buffer {
            memory,
            base,
            entry_bytes,
            is_self_announcing,
            ..
        } = self.map.buffers()[buffer];
        let at = (base + slot * entry_bytes) as usize;
        let flow = &mut self.flows[buffer];
        let state = &mut flow.slots[slot as usize];
        if self.agents[initiator].lies {
            state.held = None;
            return;
        }
        if epoch != flow.epoch || epoch == 0 {
            self.tally.stale += u64::from(epoch != 0);
            return;
        }
        let end = at + entry_bytes as usize - TRAILER;
        let trailer = self.pcie.peek(memory, end, TRAILER);
        let Some((from, to)) = self.map.pair(buffer, trailer[0], trailer[1]) else {
            let trailer = trailer.to_vec();
            self.violate(|| format!("member {initiator} writes an entry for nobody: {trailer:?}"));
            return;
        };
        let is_send = trailer[2] & 0xf == REQUEST && self.pcie.peek(memory, at, 1) == [SEND];
        let number = self.pcie.peek(memory, at + 16, 8).try_into();
        let traffic = &mut self.traffic[from][to];
        traffic.arrived += 1;
        let before = if std::mem::take(&mut state.early) {
            traffic.taken += 1;
            None
        } else {
            state.held.replace((from, to))
        };
        if is_self_announcing {
            traffic.announced = traffic.arrived;
        }
        if is_send {
            let number = u64::from_le_bytes(number.unwrap_or_default());
            if let Some(message) = self.messages.get_mut(&number) {
                message.sent = (from, to, epoch);
            }
        }
        if from != initiator {
            self.violate(|| format!("member {initiator} writes an entry of member {from}"));
        }
        // Who gives credit that was not earned gets what it deserves.
        if let Some((_, lost)) = before.filter(|_| !self.has_liar(buffer)) {
            self.violate(|| {
                format!("member {from} has overwritten an entry that member {lost} has not taken")
            });
        }
    }

    /// A write of `member`, sent.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn write(
        &mut self,
        member: usize,
        memory: usize,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Refused> {
        if data.is_empty() {
            return Ok(());
        }
        let place = if memory < MEMBERS {
            self.map.find(memory, offset, data.len() as u64)
        } else {
            Place::Nowhere
        };
        let class = Map::class(place, data.len());
        let there = self
            .pcie
            .write(member, memory, offset, data, class, self.now)?;
        let mut first = [0; 8];
        let known = data.len().min(8);
        first[..known].copy_from_slice(&data[..known]);
        let happened = Happened::Wrote(memory, offset, data.len(), u64::from_le_bytes(first));
        self.trace
            .note(self.tally.events, self.now, member, happened);
        if member != 0 && !self.map.allows(member, place) {
            self.violate(|| {
                format!(
                    "member {member} writes {} bytes to {memory}:{offset:#x}, which it may not",
                    data.len()
                )
            });
        }
        if let Place::Slot { buffer, within, .. } = place {
            if within + data.len() as u64 == self.map.buffers()[buffer].entry_bytes
                && !self.agents[member].lies
            {
                self.flows[buffer].sent = self.flows[buffer].sent.wrapping_add(1);
            }
        }
        if !self.by_notice && memory != member {
            let reaction = self.reaction();
            self.wake(memory, there + reaction);
        }
        Ok(())
    }

    /// A read of `member`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(
        &mut self,
        member: usize,
        memory: usize,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), Refused> {
        let place = if memory < MEMBERS {
            self.map.find(memory, offset, buffer.len() as u64)
        } else {
            Place::Nowhere
        };
        let class = Map::class(place, buffer.len());
        self.pcie
            .read(member, memory, offset, buffer, class, self.now)?;
        self.inspect();
        if member != memory {
            let happened = Happened::Read(memory, offset, buffer.len());
            self.trace
                .note(self.tally.events, self.now, member, happened);
            if member != 0 && !self.map.may_read(member, place) {
                self.violate(|| {
                    format!("member {member} reads {memory}:{offset:#x}, which is not its to read")
                });
            }
        }
        if let Place::Slot {
            buffer: number,
            slot,
            within: 0,
        } = place
        {
            self.copied(member, number, slot, buffer);
        }
        Ok(())
    }

    /// Whether a member that may write or read entries there lies.
    #[must_use]
    pub fn has_liar(&self, buffer: usize) -> bool {
        let known = self.map.buffers()[buffer];
        members(known.writers | known.readers).any(|member| self.agents[member].lies)
    }

    /// `member` has copied a slot, from its beginning.
    fn copied(&mut self, member: usize, buffer: usize, slot: u64, copy: &[u8]) {
        let known = self.map.buffers()[buffer];
        if member == known.memory {
            let at = known.base + slot * known.entry_bytes;
            let happened = Happened::Read(known.memory, at, copy.len());
            self.trace
                .note(self.tally.events, self.now, member, happened);
        }
        let end = known.base + (slot + 1) * known.entry_bytes;
        let trailer = self
            .pcie
            .peek(known.memory, end as usize - TRAILER, TRAILER);
        let word = |at: usize| trailer[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let (sequence, epoch) = (word(4), word(8));
        let pair = self.map.pair(buffer, trailer[0], trailer[1]);
        let flow = &mut self.flows[buffer];
        let state = &mut flow.slots[slot as usize];
        if let Some((from, _)) = state.held.take_if(|(_, to)| *to == member) {
            state.taken = Some(sequence);
            self.traffic[from][member].taken += 1;
            return;
        }
        let Some((from, to)) = pair.filter(|(_, to)| *to == member) else {
            return;
        };
        if epoch == flow.epoch && state.taken != Some(sequence) && !state.early {
            state.taken = Some(sequence);
            state.early = true;
            return;
        }
        // Whoever waits for the stamp of an entry copies nothing else.
        let liars = self.agents[from].lies || self.agents[to].lies;
        if known.is_self_announcing && !liars {
            self.violate(|| {
                format!("member {member} takes what is no entry of member {from} in force")
            });
        }
    }

    /// A message came to an inbox.
    pub fn execute(&mut self, from: usize, to: usize, message: &[u8]) {
        if self.agents[from].lies || self.agents[to].lies {
            return;
        }
        let number = message
            .first_chunk()
            .map_or(0, |number| u64::from_le_bytes(*number));
        let now = self.traffic[from][to].epoch;
        let Some(message) = self.messages.get_mut(&number) else {
            self.violate(|| {
                format!("member {to} got a message from member {from} that nobody sent")
            });
            return;
        };
        message.executed += 1;
        let Message { executed, sent } = *message;
        if executed != 1 {
            self.violate(|| format!("message {number} was executed {executed} times"));
        }
        if (sent.0, sent.1) == (from, to) && sent.2 != now {
            self.violate(|| {
                format!(
                    "message {number} of epoch {} was executed in epoch {now}",
                    sent.2
                )
            });
        }
    }

    /// A flush by `member`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn flush(&mut self, member: usize, memory: usize) -> Result<(), Refused> {
        self.pcie.flush(member, memory, self.now)?;
        self.trace.note(
            self.tally.events,
            self.now,
            member,
            Happened::Flushed(memory),
        );
        self.inspect();
        Ok(())
    }

    /// A buffer begins anew, at index `start`.
    pub fn begin(&mut self, buffer: usize, epoch: u32, start: u32) {
        let known = self.map.buffers()[buffer];
        self.flows[buffer] = Flow {
            epoch,
            start,
            sent: 0,
            slots: vec![Slot::default(); known.entries as usize],
        };
        for from in members(known.writers) {
            for to in members(known.readers).filter(|to| *to != from) {
                self.traffic[from][to] = Traffic {
                    epoch,
                    ..Traffic::default()
                };
            }
        }
    }

    /// `member` does not believe `peer` any more: right only if that lies, or is off.
    pub fn ring_fault(&mut self, member: usize, peer: usize, fault: PeerFault) {
        if self.agents[member].power == Power::Off {
            return;
        }
        self.say(member, format!("leaves member {peer}: {fault}"));
        let agents = [self.agents[member], self.agents[peer]];
        if agents
            .iter()
            .any(|agent| agent.lies || agent.power == Power::Off)
        {
            let delay = self.rng.magnitude(5_000_000);
            self.after(
                delay,
                Event::Lose(if agents[0].lies { member } else { peer }),
            );
        } else {
            self.violate(|| format!("member {member} finds a fault of member {peer}: {fault}"));
        }
    }
}
