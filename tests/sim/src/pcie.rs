// SPDX-License-Identifier: GPL-2.0

//! Memories joined by PCI Express: posted writes that are on their way, reads that push them.
//!
//! Owns what may be seen when. Writes of one initiator to one memory arrive in order, each in
//! increasing address order and possibly in parts of 4 bytes and more; writes to different memories
//! arrive in any order. A read by an initiator pushes its own earlier writes to that memory ahead.
//! With relaxed ordering (which IDC forbids) the packets of one path overtake one another too. Never
//! knows what the bytes mean.
//!
//! A member's stores to its own memory are at once visible to itself; to others only after a while or
//! a flush. Time is the caller's: whatever has arrived by `now` is there at each access.

use crate::rng::Rng;
use std::collections::VecDeque;

/// The most members: the host and 16 drives.
pub const MEMBERS: usize = 17;

/// What an access is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// Entries of rings, lists and shared buffers.
    Entry,
    /// Words with one writer: credits, tails, maps, links, grants, and the cells of results.
    Cell,
    /// Chunks, descriptors, results, reports.
    Data,
}

/// Accesses of one initiator to one memory, by class.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Posted writes (to the own memory: stores).
    pub writes: [u64; 3],
    /// Bytes of these.
    pub bytes: [u64; 3],
    /// Non-posted reads (from the own memory: loads).
    pub reads: [u64; 3],
    /// Reads back whose only use is to flush.
    pub flushes: u64,
    /// Of the writes, those with the relaxed ordering attribute.
    pub relaxed: u64,
}

/// A write on its way.
#[derive(Clone, Debug)]
struct Posted {
    offset: usize,
    data: Vec<u8>,
    /// When its first byte is visible, and when its last.
    begin: u64,
    end: u64,
    /// Bytes that are there already.
    done: usize,
}

/// From one initiator to one memory.
#[derive(Clone, Debug, Default)]
struct Path {
    queue: VecDeque<Posted>,
    /// When the last write that was sent is there.
    last: u64,
    latency: u64,
    relaxed: bool,
}

/// A write that is there completely.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrived {
    /// Who wrote.
    pub initiator: usize,
    /// Into whose memory.
    pub memory: usize,
    /// Where.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// The last four of them.
    pub last: u32,
}

/// An access that cannot be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// There is no such memory.
    NoMemory,
    /// It reaches past the memory.
    OutOfRange,
    /// The memory's owner was removed.
    Gone,
}

/// All memories and the paths between them.
pub struct Pcie {
    memories: Vec<Vec<u8>>,
    gone: [bool; MEMBERS],
    paths: Vec<Path>,
    /// Initiators with writes on their way, by memory.
    waiting: [u32; MEMBERS],
    /// When something is next to arrive, by memory.
    due: [u64; MEMBERS],
    counts: [[Counts; MEMBERS]; MEMBERS],
    arrived: Vec<Arrived>,
    rng: Rng,
    /// Mean of the delays, in ns.
    latency: u64,
}

impl Pcie {
    /// No memory yet; delays around `latency` ns, drawn from `rng`.
    #[must_use]
    pub fn new(rng: Rng, latency: u64) -> Self {
        let mut pcie = Pcie {
            memories: vec![Vec::new(); MEMBERS],
            gone: [false; MEMBERS],
            paths: vec![Path::default(); MEMBERS * MEMBERS],
            waiting: [0; MEMBERS],
            due: [u64::MAX; MEMBERS],
            counts: [[Counts::default(); MEMBERS]; MEMBERS],
            arrived: Vec::new(),
            rng,
            latency,
        };
        for path in &mut pcie.paths {
            path.latency = pcie.rng.range(1, pcie.latency * 2);
        }
        pcie
    }

    /// `member` lends `bytes` bytes, all zero.
    pub fn lend(&mut self, member: usize, bytes: usize) {
        self.memories[member] = vec![0; bytes];
    }

    /// From now on `initiator` sets the relaxed ordering attribute on all its writes.
    pub fn relax(&mut self, initiator: usize) {
        for memory in 0..MEMBERS {
            self.paths[initiator * MEMBERS + memory].relaxed = true;
        }
    }

    /// The memory of `member` is there, or is not.
    pub fn set_gone(&mut self, member: usize, gone: bool) {
        self.gone[member] = gone;
    }

    /// What `initiator` did to `memory`.
    #[must_use]
    pub fn counts(&self, initiator: usize, memory: usize) -> &Counts {
        &self.counts[initiator][memory]
    }

    /// What has arrived since the last call.
    pub fn take_arrived(&mut self, into: &mut Vec<Arrived>) {
        into.append(&mut self.arrived);
    }

    fn check(&self, memory: usize, offset: u64, len: usize) -> Result<usize, Refused> {
        let bytes = self.memories.get(memory).ok_or(Refused::NoMemory)?;
        if bytes.is_empty() {
            return Err(Refused::NoMemory);
        }
        if self.gone[memory] {
            return Err(Refused::Gone);
        }
        let start = usize::try_from(offset).map_err(|_| Refused::OutOfRange)?;
        let end = start.checked_add(len).ok_or(Refused::OutOfRange)?;
        if end > bytes.len() {
            return Err(Refused::OutOfRange);
        }
        Ok(start)
    }

    /// Sends a write. Returns when it will be there.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent.
    pub fn write(
        &mut self,
        initiator: usize,
        memory: usize,
        offset: u64,
        data: &[u8],
        class: Class,
        now: u64,
    ) -> Result<u64, Refused> {
        let start = self.check(memory, offset, data.len())?;
        let counts = &mut self.counts[initiator][memory];
        counts.writes[class as usize] += 1;
        counts.bytes[class as usize] += data.len() as u64;
        if self.paths[initiator * MEMBERS + memory].relaxed {
            counts.relaxed += 1;
            // One packet each; they overtake one another.
            let mut last = now;
            for (index, part) in data.chunks(64).enumerate() {
                let begin = now + self.rng.range(1, self.latency * 2);
                let at = start + index * 64;
                self.enqueue(initiator, memory, at, part, begin, begin + 1);
                last = last.max(begin + 1);
            }
            return Ok(last);
        }
        let delay = self.delay(initiator, memory);
        let path = &self.paths[initiator * MEMBERS + memory];
        let begin = path.last.max(now + delay);
        // 64 bytes take 4 ns; now and then a long write is held up between its packets.
        let mut end = begin + 1 + data.len() as u64 / 16;
        if data.len() > 8 && self.rng.one_in(64) {
            end += self.rng.magnitude(self.latency * 20);
        }
        self.enqueue(initiator, memory, start, data, begin, end);
        Ok(end)
    }

    fn delay(&mut self, initiator: usize, memory: usize) -> u64 {
        let usual = self.paths[initiator * MEMBERS + memory].latency;
        let usual = if initiator == memory {
            usual / 8
        } else {
            usual
        };
        match self.rng.below(400) {
            0 => self.rng.magnitude(self.latency * 400),
            1..=8 => self.rng.magnitude(self.latency * 20),
            _ => usual,
        }
    }

    fn enqueue(
        &mut self,
        initiator: usize,
        memory: usize,
        offset: usize,
        data: &[u8],
        begin: u64,
        end: u64,
    ) {
        let path = &mut self.paths[initiator * MEMBERS + memory];
        path.last = path.last.max(end);
        let posted = Posted {
            offset,
            data: data.to_vec(),
            begin,
            end,
            done: 0,
        };
        if path.relaxed {
            let place = path.queue.partition_point(|other| other.end <= end);
            path.queue.insert(place, posted);
        } else {
            path.queue.push_back(posted);
        }
        self.waiting[memory] |= 1 << initiator;
        self.due[memory] = self.due[memory].min(begin);
    }

    /// Lets everything arrive in `memory` that is due.
    pub fn settle(&mut self, memory: usize, now: u64) {
        if now <= self.due[memory] {
            return;
        }
        loop {
            let mut first: Option<(u64, usize)> = None;
            for initiator in bits(self.waiting[memory]) {
                let path = &self.paths[initiator * MEMBERS + memory];
                let end = path.queue.front().map_or(u64::MAX, |front| front.end);
                if end <= now && first.is_none_or(|(at, _)| end < at) {
                    first = Some((end, initiator));
                }
            }
            let Some((_, initiator)) = first else { break };
            self.arrive(initiator, memory);
        }
        let mut due = u64::MAX;
        for initiator in bits(self.waiting[memory]) {
            let path = &mut self.paths[initiator * MEMBERS + memory];
            let Some(front) = path.queue.front_mut() else {
                continue;
            };
            due = due.min(front.begin.max(now));
            if front.begin < now {
                // A part is there: the lower addresses.
                let passed = (now - front.begin) as usize * front.data.len();
                let part = (passed / (front.end - front.begin) as usize) & !3;
                let part = part.min(front.data.len()).max(front.done);
                if !self.gone[memory] {
                    let to = &mut self.memories[memory][front.offset + front.done..];
                    to[..part - front.done].copy_from_slice(&front.data[front.done..part]);
                }
                front.done = part;
            }
        }
        self.due[memory] = due;
    }

    /// The first write of a path is there as a whole.
    fn arrive(&mut self, initiator: usize, memory: usize) {
        let path = &mut self.paths[initiator * MEMBERS + memory];
        let Some(posted) = path.queue.pop_front() else {
            return;
        };
        if path.queue.is_empty() {
            self.waiting[memory] &= !(1 << initiator);
        }
        // Of a write that was cut at its very beginning nothing comes.
        if self.gone[memory] || posted.data.is_empty() {
            return;
        }
        let to = &mut self.memories[memory][posted.offset..posted.offset + posted.data.len()];
        to[posted.done..].copy_from_slice(&posted.data[posted.done..]);
        self.arrived.push(Arrived {
            initiator,
            memory,
            offset: posted.offset,
            len: posted.data.len(),
            last: posted
                .data
                .last_chunk()
                .map_or(0, |last| u32::from_le_bytes(*last)),
        });
    }

    fn drain(&mut self, initiator: usize, memory: usize) {
        while self.waiting[memory] & (1 << initiator) != 0 {
            self.arrive(initiator, memory);
        }
    }

    /// Reads, which pushes the initiator's own writes to that memory ahead; the owner's own stores only
    /// where it reads them.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(
        &mut self,
        initiator: usize,
        memory: usize,
        offset: u64,
        buffer: &mut [u8],
        class: Class,
        now: u64,
    ) -> Result<(), Refused> {
        let start = self.check(memory, offset, buffer.len())?;
        self.settle(memory, now);
        if self.waiting[memory] & (1 << initiator) != 0 {
            let end = start + buffer.len();
            let path = &self.paths[initiator * MEMBERS + memory];
            let own = initiator == memory;
            let overlaps =
                |posted: &Posted| posted.offset < end && start < posted.offset + posted.data.len();
            if !own || path.queue.iter().any(overlaps) {
                self.drain(initiator, memory);
            }
        }
        buffer.copy_from_slice(&self.memories[memory][start..start + buffer.len()]);
        self.counts[initiator][memory].reads[class as usize] += 1;
        Ok(())
    }

    /// Reads back, so that all of the initiator's writes to that memory are there.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn flush(&mut self, initiator: usize, memory: usize, now: u64) -> Result<(), Refused> {
        self.check(memory, 0, 0)?;
        self.settle(memory, now);
        self.drain(initiator, memory);
        self.counts[initiator][memory].flushes += 1;
        Ok(())
    }

    /// When all that `initiator` has sent to `memory` is there.
    #[must_use]
    pub fn arrival(&self, initiator: usize, memory: usize) -> u64 {
        let path = &self.paths[initiator * MEMBERS + memory];
        if path.queue.is_empty() {
            0
        } else {
            path.last
        }
    }

    /// Whether writes of `initiator` are on their way to `memory`.
    #[must_use]
    pub fn is_waiting(&self, initiator: usize, memory: usize) -> bool {
        self.waiting[memory] & (1 << initiator) != 0
    }

    /// `initiator` has lost its power: of what it sent last, a random part never arrives, and one write
    /// may end in the middle.
    pub fn cut(&mut self, initiator: usize) {
        for memory in 0..MEMBERS {
            let path = &mut self.paths[initiator * MEMBERS + memory];
            let keep = self.rng.index(path.queue.len() + 1);
            path.queue.truncate(keep);
            if self.rng.one_in(2) {
                if let Some(last) = path.queue.back_mut() {
                    let keep = (self.rng.index(last.data.len() + 1) & !3).max(last.done);
                    last.data.truncate(keep);
                }
            }
            path.last = path.queue.back().map_or(0, |last| last.end);
            if path.queue.is_empty() {
                self.waiting[memory] &= !(1 << initiator);
            }
        }
    }

    /// Drops what `initiator` has on its way to `memory` where `unwanted` says so.
    pub fn drop_posted(
        &mut self,
        initiator: usize,
        memory: usize,
        mut unwanted: impl FnMut(usize, usize) -> bool,
    ) {
        let path = &mut self.paths[initiator * MEMBERS + memory];
        path.queue
            .retain(|posted| !unwanted(posted.offset, posted.data.len()));
        if path.queue.is_empty() {
            self.waiting[memory] &= !(1 << initiator);
        }
    }

    /// What lies in a memory, as its owner sees it; not counted.
    #[must_use]
    pub fn peek(&self, memory: usize, offset: usize, len: usize) -> &[u8] {
        &self.memories[memory][offset..offset + len]
    }

    /// A memory as its owner's other engines (storage DMA) reach it, after all of its stores. Not counted.
    pub fn own(&mut self, member: usize) -> &mut [u8] {
        self.drain(member, member);
        &mut self.memories[member]
    }
}

fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let bit = set.trailing_zeros();
        set &= set - 1;
        Some(bit as usize)
    })
}
