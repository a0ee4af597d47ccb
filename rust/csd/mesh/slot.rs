// SPDX-License-Identifier: GPL-2.0

//! What the module keeps for one bound drive besides NVMe: who uses it and which parts of its
//! memory are taken.
//!
//! Owns the allocators of the drive's CMB and PMR and the mark of the mesh that the drive is in.
//! Never touches the memory's contents.

use crate::{
    drive::Drive,
    idc::range::{
        Range,
        RangeAllocator, //
    },
    idc::superblock::RESERVED_BYTES,
    sys::{
        boxes::zeroed_box,
        region::{
            MemoryKind,
            Region, //
        }, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        Mutex, //
    }, //
};

/// Live allocations in one memory; enough for the rings, every stream slot's buffers and a probe.
const MAX_LEASES: usize = 128;
/// Everything in a drive's memory is aligned to this.
pub(crate) const ALIGN: u64 = 4096;

type Allocator = RangeAllocator<MAX_LEASES>;

/// Why a drive may not be taken or changed now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Nobody has it.
    Free,
    /// A mesh has it.
    Mesh(u32),
    /// Its memory is being switched on, off or probed.
    Changing,
    /// It is being unbound.
    Gone,
}

struct State {
    user: Use,
    cmb: KBox<Allocator>,
    pmr: KBox<Allocator>,
}

impl State {
    fn allocator(&mut self, kind: MemoryKind) -> &mut Allocator {
        match kind {
            MemoryKind::Cmb => &mut self.cmb,
            MemoryKind::Pmr => &mut self.pmr,
        }
    }
}

/// Messages and bytes since the drive was bound.
pub(crate) struct Totals {
    /// IDC entries that it sent in meshes that are gone.
    pub(crate) sent: Atomic<u64>,
    /// IDC entries that it received in meshes that are gone.
    pub(crate) received: Atomic<u64>,
    /// Data bytes that the host's CPU touched for it.
    pub(crate) touched: Atomic<u64>,
}

/// One bound drive.
#[pin_data]
pub(crate) struct Slot {
    pub(crate) drive: Arc<Drive>,
    pub(crate) totals: Totals,
    /// Its PMR was usable at bind without anybody's consent: it carried our signature.
    pub(crate) was_signed: bool,
    /// The SMART critical warnings as last read.
    pub(crate) critical_warning: Atomic<u32>,
    #[pin]
    state: Mutex<State>,
}

impl Slot {
    /// A slot for a drive that was just bound.
    ///
    /// # Errors
    ///
    /// - ENOMEM.
    pub(crate) fn new(drive: Arc<Drive>) -> Result<Arc<Self>> {
        let state = State {
            user: Use::Free,
            cmb: zeroed_box()?,
            pmr: zeroed_box()?,
        };
        let was_signed = drive.region(MemoryKind::Pmr).is_some();
        // Only shown; a drive that does not tell has none.
        let warning = drive.smart().map_or(0, |health| health.critical_warning);
        Arc::pin_init(
            pin_init!(Self {
                drive,
                was_signed,
                critical_warning: Atomic::new(u32::from(warning)),
                totals: Totals {
                    sent: Atomic::new(0),
                    received: Atomic::new(0),
                    touched: Atomic::new(0),
                },
                state <- new_mutex!(state, "csd_slot"),
            }),
            GFP_KERNEL,
        )
    }

    /// The mesh that the drive is in.
    pub(crate) fn mesh(&self) -> Option<u32> {
        match self.state.lock().user {
            Use::Mesh(mesh) => Some(mesh),
            _ => None,
        }
    }

    fn take(&self, user: Use) -> Result {
        let mut state = self.state.lock();
        match state.user {
            Use::Free => {
                state.user = user;
                Ok(())
            }
            Use::Gone => Err(ENODEV),
            Use::Mesh(_) | Use::Changing => Err(EBUSY),
        }
    }

    /// Takes the drive for mesh `mesh`.
    ///
    /// # Errors
    ///
    /// - EBUSY if another mesh has it or its memory is being changed, ENODEV if it is going away.
    pub(crate) fn claim(self: &Arc<Self>, mesh: u32) -> Result<Claim> {
        self.take(Use::Mesh(mesh))?;
        Ok(Claim(self.clone()))
    }

    /// Takes the drive for as long as its memory is switched or probed.
    ///
    /// # Errors
    ///
    /// - As [`Slot::claim`].
    pub(crate) fn change(self: &Arc<Self>) -> Result<Claim> {
        self.take(Use::Changing)?;
        Ok(Claim(self.clone()))
    }

    /// From now on nobody can take the drive.
    pub(crate) fn retire(&self) {
        self.state.lock().user = Use::Gone;
    }

    /// Takes `len` bytes of the drive's memory, aligned to [`ALIGN`].
    ///
    /// # Errors
    ///
    /// - EOPNOTSUPP if that memory is not there or not usable, ENOSPC if it is too full.
    pub(crate) fn alloc(self: &Arc<Self>, kind: MemoryKind, len: u64) -> Result<Lease> {
        let region = self.drive.region(kind).ok_or(EOPNOTSUPP)?;
        let mut state = self.state.lock();
        let allocator = state.allocator(kind);
        let space = Range {
            start: RESERVED_BYTES,
            len: region.len().saturating_sub(RESERVED_BYTES),
        };
        if allocator.is_empty() && allocator.space() != space {
            allocator.init(space).map_err(|_| ENOSPC)?;
        }
        let range = allocator.alloc(len, ALIGN).map_err(|_| ENOSPC)?;
        drop(state);
        Ok(Lease {
            slot: self.clone(),
            kind,
            region,
            range,
        })
    }

    /// Bytes of the drive's memory in use.
    pub(crate) fn used(&self) -> u64 {
        let state = self.state.lock();
        let used =
            |allocator: &Allocator| allocator.space().len.saturating_sub(allocator.free_bytes());
        used(&state.cmb).saturating_add(used(&state.pmr))
    }

    /// Host memory of the slot itself.
    pub(crate) fn host_memory(&self) -> u64 {
        const BYTES: usize = size_of::<Slot>() + 2 * size_of::<Allocator>();
        BYTES as u64
    }
}

/// The drive is taken until this is dropped.
pub(crate) struct Claim(Arc<Slot>);

impl Claim {
    /// Which drive.
    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if state.user != Use::Gone {
            state.user = Use::Free;
        }
    }
}

/// A part of a drive's memory, given back on drop.
pub(crate) struct Lease {
    slot: Arc<Slot>,
    kind: MemoryKind,
    region: Region,
    range: Range,
}

impl Lease {
    /// Where it starts in its region.
    pub(crate) fn start(&self) -> u64 {
        self.range.start
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.range.len
    }

    /// The region that it is a part of.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Zeroes its first `dirty` bytes, or all of it if it is shorter, so that nothing of its contents
    /// stays behind. A memory that is gone needs none.
    pub(crate) fn scrub(&self, dirty: u64) {
        let _ = self
            .region
            .fill(self.range.start, self.range.len.min(dirty), 0);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Writes are posted: a late one must not land in what the next owner keeps there. Reading
        // back from the same memory pushes them out; a memory that is gone has none under way.
        self.region.write_barrier();
        let _ = self.region.read_u64(self.range.start);
        let mut state = self.slot.state.lock();
        if state.allocator(self.kind).free(self.range).is_err() {
            pr_err!(
                "csd{}: memory at {:#x} was not allocated\n",
                self.slot.drive.index(),
                self.range.start
            );
        }
    }
}
