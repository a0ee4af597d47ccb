// SPDX-License-Identifier: GPL-2.0

//! Storage commands of one proxied drive: `idc`'s requests cut to what the controller moves at once.
//!
//! Owns the requests under way and the place where interrupt handlers leave their results. Never
//! waits: a full queue is tried again on the next turn.

use crate::{
    drive::{
        self,
        Drive, //
    },
    idc::{
        firmware::StorageRequest,
        status::Status, //
    },
    sys::{
        kthread::Kick,
        region::MemoryKind, //
    }, //
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    }, //
};

/// Requests of one member under way at once.
const SLOTS: usize = 64;

/// Results that the interrupt handler left, by slot.
#[pin_data]
struct Results {
    #[pin]
    done: SpinLockIrq<[Option<Result>; SLOTS]>,
    kick: Arc<Kick>,
}

impl drive::Complete for Results {
    fn complete(&self, tag: u64, result: Result) {
        let index = usize::try_from(tag).unwrap_or(usize::MAX);
        if let Some(slot) = self.done.lock().get_mut(index) {
            *slot = Some(result);
        }
        self.kick.kick();
    }
}

/// One request of the firmware.
#[derive(Clone, Copy)]
struct Transfer {
    request: StorageRequest,
    /// Blocks that are through.
    done: u32,
    /// Blocks of the command under way; 0 while the queue had no room for the next one.
    flying: u32,
}

/// The requests of one member.
pub(crate) struct Storage {
    transfers: KVec<Option<Transfer>>,
    results: Arc<Results>,
    /// The same, as the drive layer wants it.
    sink: Arc<dyn drive::Complete>,
    drive: Arc<Drive>,
    kind: MemoryKind,
    /// Commands that wait for room in the queue.
    stalled: usize,
}

/// Why a request was not taken.
pub(crate) enum Refused {
    /// Too many are under way.
    Busy,
    /// It cannot work.
    Failed(Status),
}

impl Storage {
    /// No requests yet; `kick` wakes the worker, `kind` is the memory that the drive lends.
    pub(crate) fn new(drive: Arc<Drive>, kind: MemoryKind, kick: Arc<Kick>) -> Result<Self> {
        let results = Arc::pin_init(
            pin_init!(Results {
                done <- new_spinlock_irq!([None; SLOTS], "csd_storage"),
                kick,
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            transfers: KVec::from_elem(None, SLOTS, GFP_KERNEL)?,
            sink: results.clone(),
            results,
            drive,
            kind,
            stalled: 0,
        })
    }

    /// Takes a request; [`Storage::finished`] hands its tag back later.
    pub(crate) fn start(&mut self, request: &StorageRequest) -> Result<(), Refused> {
        let Some(index) = self.transfers.iter().position(Option::is_none) else {
            return Err(Refused::Busy);
        };
        let mut transfer = Transfer {
            request: *request,
            done: 0,
            flying: 0,
        };
        match self.submit(index, &mut transfer) {
            Ok(()) if transfer.flying == 0 => Err(Refused::Busy),
            Ok(()) => {
                if let Some(slot) = self.transfers.get_mut(index) {
                    *slot = Some(transfer);
                }
                Ok(())
            }
            Err(error) => Err(Refused::Failed(status_of(error))),
        }
    }

    /// Submits the next command of a transfer. A full queue is no error: `flying` stays 0.
    fn submit(&self, index: usize, transfer: &mut Transfer) -> Result {
        let request = &transfer.request;
        let block = request.block_bytes;
        let most = self
            .drive
            .max_transfer()
            .checked_div(block)
            .ok_or(EINVAL)?
            .max(1);
        let blocks = request.blocks.saturating_sub(transfer.done).min(most);
        let passed = u64::from(transfer.done);
        let offset = passed
            .checked_mul(u64::from(block))
            .and_then(|bytes| request.at.offset.checked_add(bytes))
            .ok_or(ERANGE)?;
        let submitted = self.drive.submit(drive::StorageRequest {
            op: if request.write {
                drive::StorageOp::Write
            } else {
                drive::StorageOp::Read
            },
            nsid: request.nsid,
            lba: request.lba.checked_add(passed).ok_or(ERANGE)?,
            blocks,
            block_size: block,
            memory: self.kind,
            offset,
            tag: index as u64,
            done: self.sink.clone(),
        });
        match submitted {
            Ok(()) => {
                transfer.flying = blocks;
                Ok(())
            }
            Err(error) if error == EAGAIN => {
                transfer.flying = 0;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Looks at one slot and drives it on; the tag and result of a request that has ended.
    fn turn(&mut self, index: usize) -> Option<(u32, Result<(), u16>)> {
        let mut transfer = (*self.transfers.get(index)?)?;
        if transfer.flying != 0 {
            let result = self.results.done.lock().get_mut(index)?.take()?;
            if let Err(error) = result {
                return self.end(index, Err(error));
            }
            transfer.done = transfer.done.saturating_add(transfer.flying);
            transfer.flying = 0;
            if transfer.done >= transfer.request.blocks {
                return self.end(index, Ok(()));
            }
        }
        if let Err(error) = self.submit(index, &mut transfer) {
            return self.end(index, Err(error));
        }
        if transfer.flying == 0 {
            self.stalled = self.stalled.saturating_add(1);
        }
        *self.transfers.get_mut(index)? = Some(transfer);
        None
    }

    fn end(&mut self, index: usize, result: Result) -> Option<(u32, Result<(), u16>)> {
        let transfer = self.transfers.get_mut(index)?.take()?;
        Some((
            transfer.request.tag,
            result.map_err(|error| status_of(error).to_wire()),
        ))
    }

    /// Calls `ended` for each request that has ended since the last time.
    pub(crate) fn finished(&mut self, mut ended: impl FnMut(u32, Result<(), u16>)) {
        self.stalled = 0;
        for index in 0..self.transfers.len() {
            if let Some((tag, result)) = self.turn(index) {
                ended(tag, result);
            }
        }
    }

    /// Whether a request waits for room in the queue; then the worker looks again soon.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled != 0
    }
}

/// The NVMe status that stands for an error of the drive layer.
fn status_of(error: Error) -> Status {
    if error == ENODEV {
        Status::PEER_LOST
    } else if error == ERANGE || error == ENOENT || error == EINVAL {
        Status::RANGE
    } else {
        Status::STORAGE_ERROR
    }
}
