// SPDX-License-Identifier: GPL-2.0 OR MIT

//! One drive of a test board: firmware over the shared memories, a disk that is a vector, a cipher
//! from RustCrypto.

use super::View;
use aes::cipher::{KeyIvInit, StreamCipher};
use idc::firmware::{Firmware, Namespace, NoMemory, Platform, StorageError, StorageRequest};
use idc::function::{Crypto, CryptoError, Functions};
use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fabric, Fault, Memory};
use idc::ring::PeerFault;
use idc::status::{Completion, Failure};
use std::collections::HashMap;
use zerocopy::FromZeros;

pub const BLOCK: u32 = 512;

/// What a drive's firmware runs on.
pub struct Host {
    pub view: View,
    pub disk: Vec<u8>,
    pub block_bytes: u32,
    pub keys: HashMap<u16, [u8; 32]>,
    /// Storage requests in flight.
    pub flying: Vec<StorageRequest>,
    /// More than this many at a time find the drive busy.
    pub queue_depth: usize,
    /// The NVMe status that storage requests end with from now on.
    pub storage_error: Option<u16>,
    pub scratch: Vec<Option<Vec<u8>>>,
    pub failing: Vec<(u32, Failure)>,
    pub completions: Vec<(u32, Completion)>,
    pub inbox: Vec<(u16, Vec<u8>)>,
    pub inbox_room: usize,
    pub faults: Vec<(u16, PeerFault)>,
}

pub struct Drive {
    pub firmware: Box<Firmware>,
    pub host: Host,
    /// It no longer polls: hung, or without power.
    pub stopped: bool,
}

impl Drive {
    pub fn new(view: View, disk: Vec<u8>, functions: Functions) -> Self {
        let mut firmware = Firmware::new_box_zeroed().unwrap();
        firmware.init(view.me, functions);
        let host = Host {
            view,
            disk,
            block_bytes: BLOCK,
            keys: HashMap::new(),
            flying: Vec::new(),
            queue_depth: 4,
            storage_error: None,
            scratch: vec![None; idc::firmware::STREAMS],
            failing: Vec::new(),
            completions: Vec::new(),
            inbox: Vec::new(),
            inbox_room: 4,
            faults: Vec::new(),
        };
        Drive {
            firmware,
            host,
            stopped: false,
        }
    }

    /// Ends the storage request at `index` of those in flight.
    pub fn end_storage(&mut self, index: usize) {
        let request = self.host.flying.remove(index);
        let result = self.host.carry_out(&request);
        self.firmware.storage_done(request.tag, result);
    }
}

impl Host {
    fn carry_out(&mut self, request: &StorageRequest) -> Result<(), u16> {
        if let Some(error) = self.storage_error {
            return Err(error);
        }
        let block = u64::from(self.block_bytes);
        let start = usize::try_from(request.lba * block).unwrap();
        let len = usize::try_from(u64::from(request.blocks) * block).unwrap();
        let memory = request.at.memory.get();
        assert_eq!(
            memory,
            self.view.me.get(),
            "storage reaches only the drive's own memory"
        );
        assert_eq!(request.at.offset % 4096, 0);
        if request.write {
            let data = self.view.store.peek(memory, request.at.offset, len);
            self.disk[start..start + len].copy_from_slice(&data);
        } else {
            let data = self.disk[start..start + len].to_vec();
            self.view.store.poke(memory, request.at.offset, &data);
        }
        Ok(())
    }
}

impl Memory for Host {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        self.view.read(at, buf)
    }
    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.view.write(at, data)
    }
    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        self.view.load_u64(at)
    }
    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        self.view.store_release_u64(at, value)
    }
    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault> {
        self.view.flush(memory)
    }
}

impl Fabric for Host {
    fn notify(&mut self, member: MemberId) {
        self.view.notify(member);
    }
}

impl Crypto for Host {
    fn aes256_ctr(
        &mut self,
        key_slot: u16,
        counter_block: &[u8; 16],
        data: &mut [u8],
    ) -> Result<(), CryptoError> {
        let key = self.keys.get(&key_slot).ok_or(CryptoError::NoKey)?;
        let mut cipher = ctr::Ctr128BE::<aes::Aes256>::new(key.into(), counter_block.into());
        cipher.apply_keystream(data);
        Ok(())
    }
}

impl Platform for Host {
    type Scratch = Vec<u8>;

    fn open_scratch(&mut self, slot: usize, bytes: usize) -> Result<(), NoMemory> {
        assert!(
            self.scratch[slot].is_none(),
            "slot {slot} holds scratch memory already"
        );
        assert!(bytes <= 700 << 10, "{bytes} bytes of scratch");
        self.scratch[slot] = Some(vec![0; bytes]);
        Ok(())
    }
    fn take_scratch(&mut self, slot: usize) -> Option<Vec<u8>> {
        self.scratch[slot].take()
    }
    fn give_scratch(&mut self, slot: usize, scratch: Vec<u8>) {
        self.scratch[slot] = Some(scratch);
    }
    fn close_scratch(&mut self, slot: usize) {
        assert!(
            self.scratch[slot].take().is_some(),
            "slot {slot} held no scratch memory"
        );
    }

    fn namespace(&mut self, nsid: u32) -> Option<Namespace> {
        (nsid == 1).then_some(Namespace {
            block_bytes: self.block_bytes,
            blocks: self.disk.len() as u64 / u64::from(self.block_bytes),
        })
    }

    fn storage(&mut self, request: &StorageRequest) -> Result<(), StorageError> {
        if self.flying.len() >= self.queue_depth {
            return Err(StorageError::Busy);
        }
        let end = request.lba + u64::from(request.blocks);
        assert!(
            end * u64::from(self.block_bytes) <= self.disk.len() as u64,
            "{request:?}"
        );
        self.flying.push(*request);
        Ok(())
    }

    fn failing(&mut self, command: u32, failure: &Failure) {
        self.failing.push((command, *failure));
    }

    fn complete(&mut self, command: u32, completion: &Completion) {
        self.completions.push((command, *completion));
    }

    fn inbox(&mut self, from: MemberId, message: &[u8]) -> bool {
        let room = self.inbox.len() < self.inbox_room;
        if room {
            self.inbox.push((from.get(), message.to_vec()));
        }
        room
    }

    fn ring_fault(&mut self, peer: MemberId, fault: PeerFault) {
        self.faults.push((peer.get(), fault));
    }
}
