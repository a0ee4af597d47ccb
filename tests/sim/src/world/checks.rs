// SPDX-License-Identifier: GPL-2.0

//! What every access goes through, and the checks that hold there.
//!
//! Owns what is right and wrong on the bus: who may write where and until when, who may read, which
//! entries may be taken. Never decides whose turn it is.

use super::{Event, Message, Power, Traffic, World};
use crate::map::{Map, Place};
use crate::pcie::{Arrived, Refused, MEMBERS};
use crate::trace::Happened;
use idc::ring::PeerFault;

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
        let Place::Entry { from, within, .. } = place else {
            return;
        };
        if initiator != from
            || within + len as u64 != self.map.entry_bytes
            || self.agents[from].lies
        {
            return;
        }
        let ring = &mut self.rings[from][memory];
        if epoch != ring.epoch || epoch == 0 {
            self.tally.stale += u64::from(epoch != 0);
            return;
        }
        ring.arrived += 1;
        let backlog = ring.arrived.saturating_sub(ring.taken);
        // Who gives credit that was not earned gets what it deserves.
        if backlog > self.map.entries && !self.agents[memory].lies {
            self.violate(|| {
                format!("member {from} has overwritten an entry that member {memory} has not taken")
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
        if let Place::Entry { from, within, .. } = place {
            if within + data.len() as u64 == self.map.entry_bytes && from == member {
                self.rings[from][memory].sent += 1;
                self.watch_message(from, memory, data);
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
            if member != 0 {
                self.violate(|| format!("member {member} reads the memory of member {memory}"));
            }
        } else if let Place::Entry {
            from, within: 0, ..
        } = place
        {
            if buffer.len() as u64 == self.map.entry_bytes {
                let happened = Happened::Read(memory, offset, buffer.len());
                self.trace
                    .note(self.tally.events, self.now, member, happened);
                self.take_entry(from, memory, buffer);
            }
        }
        Ok(())
    }

    /// Remembers in which ring, under which epoch, a message was sent.
    pub(super) fn watch_message(&mut self, from: usize, to: usize, entry: &[u8]) {
        // Opcode SEND in a request of 64 bytes that is written as a whole.
        if entry.len() != 64 || entry[54] != 1 || entry[0] != 2 {
            return;
        }
        let number = u64::from_le_bytes(entry[16..24].try_into().unwrap_or_default());
        let epoch = u32::from_le_bytes(entry[60..64].try_into().unwrap_or_default());
        if let Some(message) = self.messages.get_mut(&number) {
            message.ring = (from, to, epoch);
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
        let now = self.rings[from][to].epoch;
        let Some(message) = self.messages.get_mut(&number) else {
            self.violate(|| {
                format!("member {to} got a message from member {from} that nobody sent")
            });
            return;
        };
        message.executed += 1;
        let Message { executed, ring } = *message;
        if executed != 1 {
            self.violate(|| format!("message {number} was executed {executed} times"));
        }
        if (ring.0, ring.1) == (from, to) && ring.2 != now {
            self.violate(|| {
                format!(
                    "message {number} of epoch {} was executed in epoch {now}",
                    ring.2
                )
            });
        }
    }

    pub(super) fn take_entry(&mut self, from: usize, to: usize, entry: &[u8]) {
        let ring = &mut self.rings[from][to];
        ring.taken += 1;
        let expected = ring.epoch;
        let epoch = entry
            .last_chunk::<4>()
            .map_or(0, |epoch| u32::from_le_bytes(*epoch));
        if epoch != expected && !self.agents[from].lies {
            self.violate(|| {
                format!("member {to} takes an entry of epoch {epoch} from member {from}, their epoch is {expected}")
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

    /// The rings between two members begin anew.
    pub fn begin_rings(&mut self, one: usize, other: usize, epoch: u32) {
        for (from, to) in [(one, other), (other, one)] {
            self.rings[from][to] = Traffic {
                epoch,
                ..Traffic::default()
            };
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
