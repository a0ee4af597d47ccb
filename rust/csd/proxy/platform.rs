// SPDX-License-Identifier: GPL-2.0

//! What `idc::firmware` runs on when the module stands in for a drive's own processor.
//!
//! Owns a member's key slots, its scratch memory, its storage commands and the count of data bytes
//! that the host's processor touches. Everything that concerns others (pipelines that ended, rings
//! that broke, the host's bell) is noted in [`Effects`] and done by the caller after the member's
//! lock is dropped; never here.

use super::storage::{
    Refused,
    Storage, //
};
use crate::{
    idc::{
        firmware::{
            Namespace,
            NoMemory,
            Platform,
            StorageError,
            StorageRequest,
            STREAMS, //
        },
        function::{
            Crypto,
            CryptoError, //
        },
        member::{
            Location,
            MemberId,
            MemoryId, //
        },
        memory::{
            Fabric,
            Fault,
            Memory, //
        },
        ring::PeerFault,
        status::{
            Completion,
            Failure, //
        }, //
    },
    mesh::{
        bus::Bus,
        inbox::Inbox,
        slot::Slot, //
    },
    sys::crypto::Cipher, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Keys that one member holds at once: one for each stage of each stream.
pub(crate) const KEY_SLOTS: usize = 64;

/// RAM of one stream.
pub(crate) struct Scratch(KVVec<u8>);

impl AsMut<[u8]> for Scratch {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Data bytes in one window are counted for one pipeline.
struct Account {
    window: u32,
    memory: MemoryId,
    start: u64,
    end: u64,
    touched: Arc<Atomic<u64>>,
}

/// A pipeline that a first drive has ended.
pub(crate) struct Ended {
    /// Its stream.
    pub(crate) command: u32,
    /// How it went.
    pub(crate) completion: Completion,
}

/// What a turn of the firmware means to others.
pub(crate) struct Effects {
    /// Something was stored for the host.
    pub(crate) host_rung: bool,
    /// Pipelines that ended; there are as many places as streams, and each ends once.
    pub(crate) ended: [Option<Ended>; STREAMS],
    /// Rings that broke the protocol.
    pub(crate) faults: KVec<(MemberId, PeerFault)>,
}

const _: () = assert!(size_of::<Effects>() <= 512);

impl Effects {
    fn new() -> Self {
        Self {
            host_rung: false,
            ended: [const { None }; STREAMS],
            faults: KVec::new(),
        }
    }
}

/// One proxied member's surroundings.
pub(crate) struct Hands {
    bus: Arc<Bus>,
    slot: Arc<Slot>,
    inbox: Arc<Inbox>,
    pub(super) storage: Storage,
    keys: KVec<Option<Cipher>>,
    scratch: [Option<Scratch>; STREAMS],
    /// Bytes of all scratch memory, lent out or not.
    scratch_bytes: [usize; STREAMS],
    accounts: KVec<Account>,
    effects: Effects,
}

impl Hands {
    /// The surroundings of the member that proxies `slot`'s drive.
    pub(super) fn new(
        bus: Arc<Bus>,
        slot: Arc<Slot>,
        inbox: Arc<Inbox>,
        storage: Storage,
    ) -> Result<Self> {
        let mut keys = KVec::with_capacity(KEY_SLOTS, GFP_KERNEL)?;
        for _ in 0..KEY_SLOTS {
            keys.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            bus,
            slot,
            inbox,
            storage,
            keys,
            scratch: [const { None }; STREAMS],
            scratch_bytes: [0; STREAMS],
            accounts: KVec::new(),
            effects: Effects::new(),
        })
    }

    /// Takes what has to be done for others.
    pub(super) fn take_effects(&mut self) -> Effects {
        core::mem::replace(&mut self.effects, Effects::new())
    }

    /// Puts a key into a free key slot and returns its number.
    ///
    /// # Errors
    ///
    /// - EBUSY if all are taken.
    pub(crate) fn set_key(&mut self, cipher: Cipher) -> Result<u16> {
        let index = self.keys.iter().position(Option::is_none).ok_or(EBUSY)?;
        *self.keys.get_mut(index).ok_or(EBUSY)? = Some(cipher);
        u16::try_from(index).map_err(|_| EBUSY)
    }

    /// Empties a key slot; the key is zeroed.
    pub(crate) fn clear_key(&mut self, slot: u16) {
        if let Some(key) = self.keys.get_mut(usize::from(slot)) {
            *key = None;
        }
    }

    /// Counts what is touched in `len` bytes from `at` in `touched` until window `window` goes.
    pub(crate) fn open_account(
        &mut self,
        window: u32,
        at: Location,
        len: u64,
        touched: Arc<Atomic<u64>>,
    ) -> Result {
        let account = Account {
            window,
            memory: at.memory,
            start: at.offset,
            end: at.offset.saturating_add(len),
            touched,
        };
        Ok(self.accounts.push(account, GFP_KERNEL)?)
    }

    /// The window is gone.
    pub(crate) fn close_account(&mut self, window: u32) {
        self.accounts.retain(|account| account.window != window);
    }

    fn count(&self, at: Location, len: usize) {
        let account = self.accounts.iter().find(|account| {
            account.memory == at.memory && account.start <= at.offset && at.offset < account.end
        });
        if let Some(account) = account {
            account.touched.fetch_add(len as u64, Relaxed);
            self.slot.totals.touched.fetch_add(len as u64, Relaxed);
        }
    }

    /// Host memory that the surroundings take, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let scratch: usize = self
            .scratch_bytes
            .iter()
            .fold(0, |a, b| a.saturating_add(*b));
        (scratch as u64)
            .saturating_add(size_of_val(self.keys.as_slice()) as u64)
            .saturating_add(size_of_val(self.accounts.as_slice()) as u64)
    }
}

impl Memory for Hands {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        self.count(at, buf.len());
        self.bus.read(at, buf)
    }

    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.count(at, data.len());
        self.bus.write(at, data)
    }

    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        self.bus.load_u64(at)
    }

    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        self.bus.store_release_u64(at, value)
    }

    fn flush(&mut self, memory: MemoryId) -> Result<(), Fault> {
        self.bus.flush(memory)
    }
}

impl Fabric for Hands {
    fn notify(&mut self, member: MemberId) {
        if member.is_host() {
            self.effects.host_rung = true;
        } else {
            self.bus.kick(member);
        }
    }
}

impl Crypto for Hands {
    fn aes256_ctr(
        &mut self,
        key_slot: u16,
        counter_block: &[u8; 16],
        data: &mut [u8],
    ) -> Result<(), CryptoError> {
        let cipher = self
            .keys
            .get(usize::from(key_slot))
            .and_then(Option::as_ref)
            .ok_or(CryptoError::NoKey)?;
        cipher.ctr(counter_block, data);
        Ok(())
    }
}

impl Platform for Hands {
    type Scratch = Scratch;

    fn open_scratch(&mut self, slot: usize, bytes: usize) -> Result<(), NoMemory> {
        let place = self.scratch.get_mut(slot).ok_or(NoMemory)?;
        let memory = KVVec::from_elem(0u8, bytes, GFP_KERNEL).map_err(|_| NoMemory)?;
        *place = Some(Scratch(memory));
        if let Some(count) = self.scratch_bytes.get_mut(slot) {
            *count = bytes;
        }
        Ok(())
    }

    fn take_scratch(&mut self, slot: usize) -> Option<Scratch> {
        self.scratch.get_mut(slot)?.take()
    }

    fn give_scratch(&mut self, slot: usize, scratch: Scratch) {
        if let Some(place) = self.scratch.get_mut(slot) {
            *place = Some(scratch);
        }
    }

    fn close_scratch(&mut self, slot: usize) {
        if let Some(place) = self.scratch.get_mut(slot) {
            *place = None;
        }
        if let Some(count) = self.scratch_bytes.get_mut(slot) {
            *count = 0;
        }
    }

    fn namespace(&mut self, nsid: u32) -> Option<Namespace> {
        let namespace = self.slot.drive.namespace(nsid).ok()?;
        Some(Namespace {
            block_bytes: namespace.block_size,
            blocks: namespace.blocks,
        })
    }

    fn storage(&mut self, request: &StorageRequest) -> Result<(), StorageError> {
        self.storage
            .start(request)
            .map_err(|refused| match refused {
                Refused::Busy => StorageError::Busy,
                Refused::Failed(status) => StorageError::Failed(status.to_wire()),
            })
    }

    fn failing(&mut self, command: u32, failure: &Failure) {
        // For the host it has ended; the end itself, when no drive's memory is touched any more,
        // shows in `Firmware::is_active`.
        let completion = Completion {
            failure: *failure,
            ..Completion::default()
        };
        self.complete(command, &completion);
    }

    fn complete(&mut self, command: u32, completion: &Completion) {
        let mut told = self.effects.ended.iter().flatten();
        if told.any(|ended| ended.command == command) {
            return;
        }
        let ended = Ended {
            command,
            completion: *completion,
        };
        if let Some(place) = self.effects.ended.iter_mut().find(|place| place.is_none()) {
            *place = Some(ended);
        }
    }

    fn inbox(&mut self, from: MemberId, message: &[u8]) -> bool {
        self.inbox.push(from, message)
    }

    fn ring_fault(&mut self, peer: MemberId, fault: PeerFault) {
        // A pair is fenced at its first fault, so there is at most one for each peer.
        let _ = self.effects.faults.push((peer, fault), GFP_KERNEL);
    }
}
