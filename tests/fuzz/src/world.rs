// SPDX-License-Identifier: GPL-2.0

//! The memory of both ends, and the liar in it.
//!
//! Owns what may be accessed and by whom, and when and how the liar changes a word. Knows nothing of
//! rings and lists but where their parts lie.

use crate::{Bug, Call, Reached};
use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fault, Memory};
use idc::ring::PeerFault;

/// Memories: the host's, the sender's, the receiver's, a third member's.
pub const MEMORIES: u16 = 4;
/// Bytes of each.
pub const BYTES: usize = 4096 + 64 * 256;
/// Who sends.
pub const SENDER: u16 = 1;
/// Who receives.
pub const RECEIVER: u16 = 2;
/// The epoch of what is attached.
pub const EPOCH: u32 = 7;
/// Bytes of an entry's trailer, and where from its end it begins (specification, "Trailer").
pub const TRAILER: usize = 12;

/// The member of that number.
#[must_use]
pub fn member(id: u16) -> MemberId {
    MemberId::new(id).expect("a small number")
}

/// Who does not lie: the liar changes only what the other writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Honest {
    /// All words may change.
    Nobody,
    /// The receiver's words may change.
    Sender,
    /// The sender's words may change.
    Receiver,
    /// None may: then no end may find a fault.
    Both,
}

/// A part of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it begins.
    pub at: Location,
    /// Its size.
    pub bytes: u64,
    /// No access may cross a multiple of this.
    pub unit: u64,
    /// The only member that writes it.
    pub writer: u16,
    /// It holds entries.
    pub entries: bool,
}

/// Memory, the bytes that decide, and what was noticed.
pub struct World {
    memories: Vec<Vec<u8>>,
    input: Vec<u8>,
    next: usize,
    parts: Vec<Part>,
    honest: Honest,
    /// Points until the next lie.
    until: u32,
    /// Where the last access was.
    last: Location,
    /// Who accesses now.
    pub actor: u16,
    /// Near what a lie that shall be believed must be.
    pub near: u32,
    /// Accesses of the call.
    pub accesses: u32,
    /// Points at which the liar could act.
    pub states: u64,
    /// Lies told.
    pub lies: u64,
    /// What happened.
    pub reached: Reached,
    /// The first access that must not be.
    pub breach: Option<String>,
    /// What the receiver was given last: an entry's first bytes and its trailer.
    pub given: ([u8; 16], [u8; TRAILER]),
    /// What is planted.
    pub bug: Bug,
}

impl World {
    /// All memory zero.
    #[must_use]
    pub fn new(input: &[u8], bug: Bug) -> Self {
        World {
            memories: vec![vec![0; BYTES]; MEMORIES.into()],
            input: input.to_vec(),
            next: 0,
            parts: Vec::new(),
            honest: Honest::Both,
            until: u32::MAX,
            last: Location::of(member(0), 0),
            actor: 0,
            near: 0,
            accesses: 0,
            states: 0,
            lies: 0,
            reached: Reached::default(),
            breach: None,
            given: ([0; 16], [0; TRAILER]),
            bug,
        }
    }

    /// From now on only these parts are accessed, and the liar is at work.
    pub fn begin(&mut self, parts: Vec<Part>, honest: Honest) {
        self.parts = parts;
        self.honest = honest;
        self.wait();
    }

    /// The next byte that decides; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let byte = self.input.get(self.next).copied();
        self.next += usize::from(byte.is_some());
        byte.unwrap_or(0)
    }

    /// Whether all bytes were used.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.next >= self.input.len()
    }

    /// Bytes of the input that were used.
    #[must_use]
    pub fn used(&self) -> usize {
        self.next
    }

    fn wait(&mut self) {
        self.until = match self.honest {
            Honest::Both => u32::MAX,
            _ => u32::from(self.byte()) % 48,
        };
    }

    /// Notes what a call came to.
    pub(crate) fn note(&mut self, list: bool, call: Call, result: &Result<bool, PeerFault>) {
        let result = match result {
            Ok(false) => 0,
            Ok(true) => 1,
            Err(PeerFault::Credit) => 2,
            Err(PeerFault::Sequence) => 3,
            Err(PeerFault::Entry) => 4,
            Err(PeerFault::Link) => 5,
            Err(PeerFault::Memory(_)) => 6,
            Err(PeerFault::Fenced) => 7,
            Err(_) => 8,
        };
        self.reached
            .note(u8::from(list) << 7 | (call as u8) << 4 | result);
    }

    /// One point at which the liar may act.
    pub fn point(&mut self) {
        self.states += 1;
        if self.until == 0 {
            self.lie();
            self.wait();
        } else if self.until != u32::MAX {
            self.until -= 1;
        }
    }

    fn may_change(&self, part: &Part) -> bool {
        match self.honest {
            Honest::Nobody => true,
            Honest::Sender => part.writer == RECEIVER,
            Honest::Receiver => part.writer == SENDER,
            Honest::Both => false,
        }
    }

    /// Changes one word.
    fn lie(&mut self) {
        if self.is_over() {
            return;
        }
        let choice = usize::from(self.byte());
        let parts = self.parts.iter().filter(|part| self.may_change(part));
        let parts: Vec<Part> = parts.copied().collect();
        let Some(part) = parts.get(choice % parts.len().max(1)) else {
            return;
        };
        let number = u64::from(self.byte());
        let words = part.unit / 8;
        let mut word = number;
        if part.entries && choice & 0x80 != 0 {
            // The last words of a slot matter most.
            word = (number / 2 + 1) * words - 1 - (number & 1);
        }
        let mut offset = word * 8 % part.bytes;
        let last = self.last.offset.wrapping_sub(part.at.offset);
        if choice & 0x40 != 0 && self.last.memory == part.at.memory && last < part.bytes {
            // Where somebody has just looked.
            offset = last / part.unit * part.unit + offset % part.unit;
        }
        let offset = part.at.offset + offset;
        let at = part.at.memory.index();
        let Some(place) = self.memories[at].get_mut(offset as usize..offset as usize + 8) else {
            return;
        };
        let old = u64::from_le_bytes(place.try_into().expect("8 bytes"));
        let epoch = u64::from(EPOCH) << 32;
        let kind = self.byte();
        let argument = self.byte();
        let near = u64::from(self.near.wrapping_add(argument.into()).wrapping_sub(10));
        let shift = u32::from(kind >> 3 & 7) * 8;
        let new = match kind & 7 {
            0 => epoch | near,
            1 => epoch | (near & 0xffff) << 16 | u64::from(argument % 8),
            2 => (epoch - (1 << 32)) | u64::from(argument),
            3 => old ^ 1 << (argument % 64),
            4 => old ^ (u64::from(argument) << shift),
            5 => old & !(0xff << shift) | u64::from(argument % 4) << shift,
            6 => 0,
            _ => u64::from_le_bytes([argument, kind, argument, 0, argument, 1, kind, argument]),
        };
        let Some(place) = self.memories[at].get_mut(offset as usize..offset as usize + 8) else {
            return;
        };
        place.copy_from_slice(&new.to_le_bytes());
        self.lies += u64::from(new != old);
    }

    /// One access: the liar's turn, then whether it may be.
    fn access(&mut self, at: Location, bytes: usize, write: bool) -> Result<usize, Fault> {
        self.point();
        self.accesses += 1;
        let end = at
            .offset
            .checked_add(bytes as u64)
            .ok_or(Fault::OutOfRange)?;
        let actor = self.actor;
        let good = self.parts.iter().any(|part| {
            let from = at.offset.wrapping_sub(part.at.offset);
            at.memory == part.at.memory
                && at.offset >= part.at.offset
                && end <= part.at.offset + part.bytes
                && from / part.unit == (from + bytes as u64 - 1) / part.unit
                && write == (part.writer == actor)
        });
        if !good {
            let what = if write { "writes" } else { "reads" };
            let why = format!("member {actor} {what} {bytes} bytes at {at:?}");
            self.breach.get_or_insert(why);
            return Err(Fault::OutOfRange);
        }
        self.last = at;
        Ok(at.offset as usize)
    }

    /// Keeps what the receiver sees of an entry.
    fn witness(&mut self, at: Location, buf: &mut [u8]) {
        let found = self.parts.iter().find(|part| {
            part.entries && part.at.memory == at.memory && at.offset >= part.at.offset
        });
        let Some(part) = found else { return };
        let from = (at.offset - part.at.offset) % part.unit;
        if let (0, Some(first)) = (from, buf.first_chunk::<16>()) {
            self.given.0 = *first;
        }
        if from + buf.len() as u64 == part.unit {
            if let Some(last) = buf.last_chunk_mut::<TRAILER>() {
                self.given.1 = *last;
                if self.bug == Bug::Gullible {
                    // As if nobody compared it.
                    last[0] = SENDER as u8;
                }
            }
        }
    }
}

impl Memory for World {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        let offset = self.access(at, buf.len(), false)?;
        // A copy may be torn: the liar has a turn within it.
        let memory = at.memory.index();
        let torn = if self.until == 0 { buf.len() / 2 } else { 0 };
        buf[..torn].copy_from_slice(&self.memories[memory][offset..offset + torn]);
        if torn != 0 {
            self.point();
        }
        let rest = offset + torn..offset + buf.len();
        buf[torn..].copy_from_slice(&self.memories[memory][rest]);
        self.witness(at, buf);
        Ok(())
    }

    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        let offset = self.access(at, data.len(), true)?;
        self.memories[at.memory.index()][offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        if at.offset % 8 != 0 {
            self.breach.get_or_insert(format!("not aligned: {at:?}"));
        }
        let offset = self.access(at, 8, false)?;
        let bytes = &self.memories[at.memory.index()][offset..offset + 8];
        Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    }

    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        if at.offset % 8 != 0 {
            self.breach.get_or_insert(format!("not aligned: {at:?}"));
        }
        let offset = self.access(at, 8, true)?;
        let place = &mut self.memories[at.memory.index()][offset..offset + 8];
        place.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn flush(&mut self, _: MemoryId) -> Result<(), Fault> {
        self.point();
        self.accesses += 1;
        Ok(())
    }
}
