// SPDX-License-Identifier: GPL-2.0

//! Storage commands whose data lie in the drive's own memory.
//!
//! Owns the checks that a request needs before it becomes a command: no block outside the namespace
//! and no byte outside the memory is ever named to a drive. Never waits.

use super::{
    controller::Controller,
    prp,
    queue::{
        Complete,
        Queue, //
    },
    slots::Waiter,
    spec::{
        nvm,
        Sqe, //
    }, //
};
use crate::sys::region::MemoryKind;
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// What a storage command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StorageOp {
    /// From the medium into the drive's memory.
    Read,
    /// From the drive's memory to the medium.
    Write,
    /// Volatile cache to the medium; block range and memory are ignored.
    Flush,
}

/// One storage command. Its data lie in the drive's own memory, never behind another's BAR.
pub(crate) struct StorageRequest {
    pub(crate) op: StorageOp,
    pub(crate) nsid: u32,
    /// First logical block.
    pub(crate) lba: u64,
    /// Logical blocks, 1 to 65536.
    pub(crate) blocks: u32,
    /// Bytes that the submitter takes a block to be, for which it has room.
    pub(crate) block_size: u32,
    /// Which memory of the drive holds the data.
    pub(crate) memory: MemoryKind,
    /// Byte offset of the data there, a multiple of 4.
    pub(crate) offset: u64,
    /// Given back with the completion.
    pub(crate) tag: u64,
    /// Told of the completion.
    pub(crate) done: Arc<dyn Complete>,
}

impl Controller {
    /// Submits a storage command; `request.done` hears of its end. Never sleeps.
    ///
    /// # Errors
    ///
    /// Nothing was submitted, and `request.done` will not be called:
    /// - `EAGAIN` queue full, `EBUSY` resetting, `EIO` failed, `ENODEV` gone.
    /// - `ENOENT` no such namespace, `EOPNOTSUPP` it or the memory cannot be used that way.
    /// - `ESTALE` the namespace has other blocks by now.
    /// - `EINVAL` no blocks or a misaligned offset, `ERANGE` outside namespace or memory,
    ///   `EMSGSIZE` more than [`Self::max_transfer`].
    pub(crate) fn submit(&self, request: StorageRequest) -> Result {
        self.check_ready()?;
        let namespace = self.namespace(request.nsid)?;
        let queue = self.pick_queue()?;
        if request.op == StorageOp::Flush {
            let waiter = Waiter::Callback {
                done: request.done,
                tag: request.tag,
                bytes: 0,
                write: true,
            };
            queue.submit(waiter, |_, _| {
                let mut sqe = Sqe::new(nvm::FLUSH);
                sqe.nsid = request.nsid.into();
                Ok(sqe)
            })?;
            return Ok(());
        }

        if request.block_size != namespace.block_size {
            return Err(ESTALE);
        }
        if request.blocks == 0 || request.blocks > 1 << 16 {
            return Err(EINVAL);
        }
        let end = request
            .lba
            .checked_add(request.blocks.into())
            .ok_or(ERANGE)?;
        if end > namespace.blocks {
            return Err(ERANGE);
        }
        let bytes = request
            .blocks
            .checked_mul(namespace.block_size)
            .ok_or(EMSGSIZE)?;
        if bytes > self.max_transfer() {
            return Err(EMSGSIZE);
        }
        let info = self.memory.info(request.memory);
        let write = request.op == StorageOp::Write;
        if !(if write {
            info.to_drive
        } else {
            info.from_drive
        }) {
            return Err(EOPNOTSUPP);
        }
        let region = self.memory.region(request.memory).ok_or(EOPNOTSUPP)?;
        if request
            .offset
            .checked_add(bytes.into())
            .is_none_or(|end| end > region.len())
        {
            return Err(ERANGE);
        }
        let base = region.bus_address().ok_or(EOPNOTSUPP)?;
        let address = base.checked_add(request.offset).ok_or(ERANGE)?;
        let waiter = Waiter::Callback {
            done: request.done,
            tag: request.tag,
            bytes,
            write,
        };
        queue.submit(waiter, |page, put| {
            let (prp1, prp2) = prp::build(address, bytes, page, put)?;
            let mut sqe = Sqe::new(if write { nvm::WRITE } else { nvm::READ });
            sqe.nsid = request.nsid.into();
            sqe.prp1 = prp1.into();
            sqe.prp2 = prp2.into();
            sqe.cdw10 = (request.lba as u32).into();
            sqe.cdw11 = ((request.lba >> 32) as u32).into();
            sqe.cdw12 = request.blocks.wrapping_sub(1).into();
            Ok(sqe)
        })?;
        Ok(())
    }

    /// The queue of this CPU, among those that exist.
    fn pick_queue(&self) -> Result<&Queue> {
        // A stale CPU number costs locality, nothing else.
        let index = CpuId::current()
            .as_u32()
            .checked_rem(self.live.load(Relaxed))
            .ok_or(EBUSY)?;
        self.io
            .get(index as usize)
            .map(|queue| &**queue)
            .ok_or(ENODEV)
    }
}
