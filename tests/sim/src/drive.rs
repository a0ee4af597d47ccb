// SPDX-License-Identifier: GPL-2.0

//! One drive: the firmware under test, and what it runs on.
//!
//! Owns the disk, the storage requests in flight, the key slots, the scratch memory and the inbox.
//! Scribbles over the buffer of a read that has not ended, as a DMA in progress may, and takes the
//! data of a write only when it ends, so that a buffer used too early or too late shows.

use crate::map::Place;
use crate::rng::Rng;
use crate::sim::{Port, Sim};
use crate::world::{Event, Ns, Power};
use aes::cipher::{KeyIvInit, StreamCipher};
use idc::firmware::{
    Firmware, Namespace, NoMemory, Platform, StorageError, StorageRequest, STREAMS,
};
use idc::function::{Crypto, CryptoError, Functions};
use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fabric, Fault, Memory};
use idc::ring::PeerFault;
use idc::status::Completion;
use std::collections::BTreeMap;
use zerocopy::FromZeros;

/// Bytes of scratch memory that a stream may ask for.
const MAX_SCRATCH: usize = 700 << 10;

/// What a drive's firmware runs on.
pub struct Hands {
    me: usize,
    /// The namespace.
    pub disk: Vec<u8>,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Key slots.
    pub keys: BTreeMap<u16, [u8; 32]>,
    flying: BTreeMap<u64, StorageRequest>,
    last_id: u64,
    queue_depth: usize,
    latency: Ns,
    /// One in so many storage requests fails; 0: none.
    pub storage_errors: u64,
    /// One in so many storage requests takes longer than any deadline; 0: none.
    pub storage_stalls: u64,
    /// One in so many streams finds no scratch memory; 0: none.
    pub scratch_errors: u64,
    scratch: Vec<Option<Vec<u8>>>,
    inbox: usize,
    inbox_room: usize,
    rng: Rng,
}

/// A drive.
pub struct Drive {
    /// What is tested.
    pub firmware: Box<Firmware>,
    /// What it runs on.
    pub hands: Hands,
}

/// Memory for something that is all zero at first.
pub fn zeroed<T: FromZeros>() -> Box<T> {
    T::new_box_zeroed().unwrap_or_else(|_| panic!("out of memory"))
}

/// The member of that number.
pub fn member(id: usize) -> MemberId {
    u16::try_from(id)
        .ok()
        .and_then(MemberId::new)
        .unwrap_or_default()
}

impl Drive {
    /// A drive with an empty disk.
    #[must_use]
    pub fn new(me: usize, mut rng: Rng) -> Self {
        let mut firmware: Box<Firmware> = zeroed();
        firmware.init(member(me), Functions::ALL);
        Drive {
            firmware,
            hands: Hands {
                me,
                disk: Vec::new(),
                block_bytes: rng.pick(&[512, 512, 4096]),
                keys: BTreeMap::new(),
                flying: BTreeMap::new(),
                last_id: 0,
                queue_depth: rng.pick(&[1, 2, 4, 16]),
                latency: rng.range(2_000, 200_000),
                storage_errors: 0,
                storage_stalls: 0,
                scratch_errors: 0,
                scratch: vec![None; STREAMS],
                inbox: 0,
                inbox_room: rng.pick(&[1, 4, 64]),
                rng,
            },
        }
    }

    /// One poll. Returns when the next is wanted, if at all.
    pub fn poll(&mut self, sim: &Sim, now: Ns) -> idc::firmware::Poll {
        let mut body = Body {
            port: Port::new(sim, self.hands.me),
            hands: &mut self.hands,
        };
        self.firmware.poll(now, &mut body)
    }

    /// Starts a pipeline here.
    ///
    /// # Errors
    /// The firmware's failure.
    pub fn execute(
        &mut self,
        sim: &Sim,
        command: u32,
        descriptor: &[u8],
        now: Ns,
    ) -> Result<(), idc::status::Failure> {
        let mut body = Body {
            port: Port::new(sim, self.hands.me),
            hands: &mut self.hands,
        };
        self.firmware.execute(command, descriptor, now, &mut body)
    }

    /// A storage request ends.
    pub fn end_storage(&mut self, sim: &Sim, id: u64) {
        let Some(request) = self.hands.flying.remove(&id) else {
            return;
        };
        let result = self.hands.carry_out(&request, sim);
        self.firmware.storage_done(request.tag, result);
    }

    /// A user takes the messages.
    pub fn drain(&mut self) {
        self.hands.inbox = 0;
    }

    /// What is still held; empty if nothing is.
    #[must_use]
    pub fn held(&self) -> String {
        let mut held = String::new();
        let firmware = &self.firmware;
        if firmware.active_streams() != 0 {
            held += &format!(" {} streams", firmware.active_streams());
        }
        if firmware.functions_in_use() != 0 {
            held += &format!(" {} functions", firmware.functions_in_use());
        }
        if self.hands.scratch.iter().any(Option::is_some) {
            held += " scratch memory";
        }
        if !self.hands.flying.is_empty() {
            held += &format!(" {} storage requests", self.hands.flying.len());
        }
        held
    }
}

impl Hands {
    fn carry_out(&mut self, request: &StorageRequest, sim: &Sim) -> Result<(), u16> {
        let mut world = sim.world.borrow_mut();
        if self.storage_errors != 0 && self.rng.one_in(self.storage_errors) {
            return Err(0x281);
        }
        let block = u64::from(self.block_bytes);
        let start = (request.lba * block) as usize;
        let len = request.blocks as usize * self.block_bytes as usize;
        self.check_place(request, len, &mut world);
        let at = request.at.offset as usize;
        let memory = &mut world.pcie.own(self.me)[at..at + len];
        if request.write {
            self.disk[start..start + len].copy_from_slice(memory);
        } else {
            memory.copy_from_slice(&self.disk[start..start + len]);
        }
        world.inspect();
        Ok(())
    }

    fn check_place(&self, request: &StorageRequest, len: usize, world: &mut crate::world::World) {
        let me = self.me;
        let place = world.map.find(me, request.at.offset, len as u64);
        let granted = matches!(place, Place::Window(_)) && world.map.allows(me, place);
        if !granted || request.at.memory.index() != me {
            world.violate(|| {
                format!(
                    "storage of member {me} reaches {:?}+{len:#x}, which is not granted",
                    request.at
                )
            });
        }
    }
}

/// A drive's surroundings for the time of one call.
struct Body<'a> {
    port: Port<'a>,
    hands: &'a mut Hands,
}

impl Memory for Body<'_> {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        self.port.read(at, buf)
    }
    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.port.write(at, data)
    }
    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        self.port.load_u64(at)
    }
    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        self.port.store_release_u64(at, value)
    }
    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault> {
        self.port.flush(memory)
    }
    fn publish(&mut self, at: Location, entry: &[u8]) -> Result<(), Fault> {
        self.port.publish(at, entry)
    }
}

impl Fabric for Body<'_> {
    fn notify(&mut self, member: MemberId) {
        self.port.notify(member);
    }
}

impl Crypto for Body<'_> {
    fn aes256_ctr(
        &mut self,
        key_slot: u16,
        counter_block: &[u8; 16],
        data: &mut [u8],
    ) -> Result<(), CryptoError> {
        let key = self.hands.keys.get(&key_slot).ok_or(CryptoError::NoKey)?;
        ctr::Ctr128BE::<aes::Aes256>::new(key.into(), counter_block.into()).apply_keystream(data);
        Ok(())
    }
}

impl Body<'_> {
    fn violate(&self, why: String) {
        self.port.sim.world.borrow_mut().violate(|| why);
    }

    fn is_off(&self) -> bool {
        self.port.sim.world.borrow().agents[self.hands.me].power == Power::Off
    }
}

impl Platform for Body<'_> {
    type Scratch = Vec<u8>;

    fn open_scratch(&mut self, slot: usize, bytes: usize) -> Result<(), NoMemory> {
        if self.hands.scratch[slot].is_some() || bytes > MAX_SCRATCH {
            self.violate(format!(
                "slot {slot} wants {bytes} bytes of scratch memory once more"
            ));
        }
        let errors = self.hands.scratch_errors;
        if errors != 0 && self.hands.rng.one_in(errors) {
            return Err(NoMemory);
        }
        self.hands.scratch[slot] = Some(vec![0; bytes]);
        Ok(())
    }

    fn take_scratch(&mut self, slot: usize) -> Option<Vec<u8>> {
        self.hands.scratch[slot].take()
    }

    fn give_scratch(&mut self, slot: usize, scratch: Vec<u8>) {
        self.hands.scratch[slot] = Some(scratch);
    }

    fn close_scratch(&mut self, slot: usize) {
        if self.hands.scratch[slot].take().is_none() {
            self.violate(format!(
                "slot {slot} gives back scratch memory that it has not"
            ));
        }
    }

    fn namespace(&mut self, nsid: u32) -> Option<Namespace> {
        (nsid == 1).then_some(Namespace {
            block_bytes: self.hands.block_bytes,
            blocks: self.hands.disk.len() as u64 / u64::from(self.hands.block_bytes),
        })
    }

    fn storage(&mut self, request: &StorageRequest) -> Result<(), StorageError> {
        let hands = &mut *self.hands;
        if hands.flying.len() >= hands.queue_depth {
            return Err(StorageError::Busy);
        }
        let mut world = self.port.sim.world.borrow_mut();
        if world.agents[hands.me].power == Power::Off {
            return Err(StorageError::Busy);
        }
        world.tally.events += 1;
        let end = (request.lba + u64::from(request.blocks)) * u64::from(hands.block_bytes);
        let len = request.blocks as usize * hands.block_bytes as usize;
        if end > hands.disk.len() as u64 || request.blocks == 0 || request.nsid != 1 {
            world.violate(|| format!("a storage request outside of the namespace: {request:?}"));
            return Err(StorageError::Busy);
        }
        hands.check_place(request, len, &mut world);
        if !request.write {
            let at = request.at.offset as usize;
            hands.rng.fill(&mut world.pcie.own(hands.me)[at..at + len]);
            world.inspect();
        }
        hands.last_id += 1;
        hands.flying.insert(hands.last_id, *request);
        let mut delay = hands.rng.range(hands.latency / 2, hands.latency * 2);
        if hands.rng.one_in(200) {
            delay += hands.rng.magnitude(5_000_000);
        }
        if hands.storage_stalls != 0 && hands.rng.one_in(hands.storage_stalls) {
            delay += hands.rng.range(500_000_000, 5_000_000_000);
        }
        world.after(delay, Event::Storage(hands.me, hands.last_id));
        Ok(())
    }

    fn complete(&mut self, command: u32, completion: &Completion) {
        if self.is_off() {
            return;
        }
        let me = self.hands.me;
        let sim = self.port.sim;
        sim.completed(me, command, completion);
    }

    fn inbox(&mut self, from: MemberId, message: &[u8]) -> bool {
        if self.is_off() || self.hands.inbox == self.hands.inbox_room {
            return false;
        }
        self.hands.inbox += 1;
        let mut world = self.port.sim.world.borrow_mut();
        world.execute(from.index(), self.hands.me, message);
        true
    }

    fn ring_fault(&mut self, peer: MemberId, fault: PeerFault) {
        let me = self.hands.me;
        self.port
            .sim
            .world
            .borrow_mut()
            .ring_fault(me, peer.index(), fault);
    }
}
