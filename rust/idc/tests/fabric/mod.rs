// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Memories for tests: vectors that several agents reach, with every access counted, and with
//! writes that arrive late and out of order with other paths, as PCIe's posted writes may.

#![allow(dead_code)]

use idc::member::{Location, MemberId, MemoryId, MAX_MEMBERS};
use idc::memory::{Fabric, Fault, Memory};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

pub mod board;
pub mod drive;
pub mod jobs;
pub mod oracle;
pub mod rng;
pub mod trouble;

/// Accesses of one initiator to one memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Accesses {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
}

type Pending = VecDeque<(u64, Vec<u8>)>;

/// All memories of a mesh.
pub struct Store {
    memories: Vec<Option<Vec<u8>>>,
    gone: Vec<bool>,
    pub counts: Vec<[Accesses; MAX_MEMBERS]>,
    /// Writes of an initiator to a memory that have not arrived yet.
    pending: Vec<Vec<Pending>>,
    /// Whether writes across the bus wait for [`Shared::deliver`].
    pub posted: bool,
    /// Writes by anybody but these ranges' owners panic here.
    pub notified: Vec<bool>,
    /// When set, every write outside these (memory, start, end) ranges is an error of the test.
    pub allowed: Option<Vec<(u16, u64, u64)>>,
}

/// A handle to the store.
#[derive(Clone)]
pub struct Shared(pub Rc<RefCell<Store>>);

impl Shared {
    pub fn new() -> Self {
        Shared(Rc::new(RefCell::new(Store {
            memories: vec![None; MAX_MEMBERS],
            gone: vec![false; MAX_MEMBERS],
            counts: vec![[Accesses::default(); MAX_MEMBERS]; MAX_MEMBERS],
            pending: vec![vec![Pending::new(); MAX_MEMBERS]; MAX_MEMBERS],
            posted: false,
            notified: vec![false; MAX_MEMBERS],
            allowed: None,
        })))
    }

    pub fn add(&self, member: u16, bytes: usize) {
        self.0.borrow_mut().memories[usize::from(member)] = Some(vec![0; bytes]);
    }

    pub fn view(&self, member: u16) -> View {
        View {
            me: MemberId::new(member).unwrap(),
            store: self.clone(),
        }
    }

    pub fn lose(&self, member: u16) {
        self.0.borrow_mut().gone[usize::from(member)] = true;
    }

    pub fn counts(&self, initiator: u16, memory: u16) -> Accesses {
        self.0.borrow().counts[usize::from(initiator)][usize::from(memory)]
    }

    /// Lets up to `writes` posted writes of `initiator` to `memory` arrive.
    pub fn deliver(&self, initiator: usize, memory: usize, writes: usize) {
        self.0.borrow_mut().deliver(initiator, memory, writes);
    }

    pub fn deliver_all(&self) {
        for initiator in 0..MAX_MEMBERS {
            for memory in 0..MAX_MEMBERS {
                self.deliver(initiator, memory, usize::MAX);
            }
        }
    }

    /// What lies there, without counting.
    pub fn peek(&self, memory: u16, offset: u64, len: usize) -> Vec<u8> {
        let store = self.0.borrow();
        let start = usize::try_from(offset).unwrap();
        store.memories[usize::from(memory)].as_ref().unwrap()[start..start + len].to_vec()
    }

    /// Puts bytes there, without counting: what a drive's DMA or a hostile agent does.
    pub fn poke(&self, memory: u16, offset: u64, data: &[u8]) {
        let mut store = self.0.borrow_mut();
        let start = usize::try_from(offset).unwrap();
        let memory = store.memories[usize::from(memory)].as_mut().unwrap();
        memory[start..start + data.len()].copy_from_slice(data);
    }

    pub fn take_notified(&self, member: u16) -> bool {
        std::mem::take(&mut self.0.borrow_mut().notified[usize::from(member)])
    }
}

impl Store {
    fn deliver(&mut self, initiator: usize, memory: usize, writes: usize) {
        for _ in 0..writes {
            let Some((offset, data)) = self.pending[initiator][memory].pop_front() else {
                return;
            };
            let start = usize::try_from(offset).unwrap();
            if let Some(bytes) = self.memories[memory].as_mut() {
                bytes[start..start + data.len()].copy_from_slice(&data);
            }
        }
    }

    fn check(&self, at: Location, len: usize) -> Result<usize, Fault> {
        let index = at.memory.index();
        let memory = self.memories.get(index).and_then(Option::as_ref);
        let memory = memory.ok_or(Fault::NoMemory)?;
        if self.gone[index] {
            return Err(Fault::Gone);
        }
        let start = usize::try_from(at.offset).map_err(|_| Fault::OutOfRange)?;
        let end = start.checked_add(len).ok_or(Fault::OutOfRange)?;
        if end > memory.len() {
            return Err(Fault::OutOfRange);
        }
        Ok(start)
    }
}

/// How one member sees the memories.
#[derive(Clone)]
pub struct View {
    pub me: MemberId,
    pub store: Shared,
}

impl View {
    fn write_counted(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        let mut store = self.store.0.borrow_mut();
        let start = store.check(at, data.len())?;
        if let Some(allowed) = &store.allowed {
            let (from, to) = (at.offset, at.offset + data.len() as u64);
            let inside = allowed.iter().any(|&(memory, start, end)| {
                memory == at.memory.get() && from >= start && to <= end
            });
            assert!(
                inside,
                "{} wrote {at:?}..+{} outside what was granted",
                self.me,
                data.len()
            );
        }
        let (me, to) = (self.me.index(), at.memory.index());
        let count = &mut store.counts[me][to];
        count.writes += 1;
        count.written_bytes += data.len() as u64;
        if store.posted && me != to {
            store.pending[me][to].push_back((at.offset, data.to_vec()));
        } else {
            store.memories[to].as_mut().unwrap()[start..start + data.len()].copy_from_slice(data);
        }
        Ok(())
    }
}

impl Memory for View {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        let mut store = self.store.0.borrow_mut();
        let start = store.check(at, buf.len())?;
        let (me, from) = (self.me.index(), at.memory.index());
        store.deliver(me, from, usize::MAX);
        buf.copy_from_slice(&store.memories[from].as_ref().unwrap()[start..start + buf.len()]);
        let count = &mut store.counts[me][from];
        count.reads += 1;
        count.read_bytes += buf.len() as u64;
        Ok(())
    }

    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.write_counted(at, data)
    }

    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        if at.offset % 8 != 0 {
            return Err(Fault::OutOfRange);
        }
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        if at.offset % 8 != 0 {
            return Err(Fault::OutOfRange);
        }
        self.write_counted(at, &value.to_le_bytes())
    }

    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault> {
        let mut store = self.store.0.borrow_mut();
        let (me, to) = (self.me.index(), memory.index());
        store.check(Location { memory, offset: 0 }, 0)?;
        store.deliver(me, to, usize::MAX);
        store.counts[me][to].flushes += 1;
        Ok(())
    }
}

impl Fabric for View {
    fn notify(&mut self, member: MemberId) {
        self.store.0.borrow_mut().notified[member.index()] = true;
    }
}
