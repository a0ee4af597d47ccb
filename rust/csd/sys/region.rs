// SPDX-License-Identifier: GPL-2.0

//! Memory that members of a mesh share: a drive's CMB or PMR, or host memory in its place.
//!
//! Owns the mapping and every access to it. A device or another CPU may change this memory at any
//! time, so nothing ever refers into it: bytes are copied out, and the copy is what gets parsed.
//! Never interprets the contents and never programs a controller.
//!
//! # Cacheability
//!
//! PMR is mapped write combining: peers write it by DMA, and memory behind a PCIe device is not
//! coherent with this CPU's caches on real hardware, so a cached mapping would show a receiver old
//! bytes for ever. Write combining still lets stores merge into 64-byte bursts; [`Region::write_barrier`]
//! drains them. CMB is mapped uncached, as controllers may treat it as registers.

use super::pci::IoMapping;
use kernel::{
    new_mutex,
    prelude::*,
    revocable::Revocable,
    sync::{
        barrier,
        Arc,
        Mutex, //
    }, //
};

/// Which of a drive's memories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryKind {
    /// Controller Memory Buffer of a drive.
    Cmb,
    /// Persistent Memory Region of a drive.
    Pmr,
}

/// What backs a region.
enum Backing {
    Device(IoMapping),
    Host(HostMemory),
}

impl Backing {
    fn base(&self) -> *mut u8 {
        match self {
            Backing::Device(map) => map.base(),
            Backing::Host(memory) => memory.base,
        }
    }
}

/// Host memory that only volatile accesses through `base` reach.
///
/// # Invariants
///
/// `base` is the first byte of what `_words` owns.
struct HostMemory {
    base: *mut u8,
    _words: VVec<u64>,
}

// SAFETY: Plain memory, freed from any thread.
unsafe impl Send for HostMemory {}
// SAFETY: As above; no reference into it exists, and accesses are volatile.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    fn new(mut words: VVec<u64>) -> Self {
        // INVARIANT: Moving the vector does not move what it owns.
        Self {
            base: words.as_mut_ptr().cast(),
            _words: words,
        }
    }
}

#[pin_data]
struct Inner {
    len: u64,
    bus: Option<u64>,
    #[pin]
    backing: Revocable<Backing>,
    /// Serialises revocation, so that who returns from it knows that the mapping is gone.
    #[pin]
    revoking: Mutex<()>,
}

/// A handle to shared memory; clones refer to the same memory.
///
/// After [`Region::revoke`] (the drive is gone, or its memory was disabled) every access fails with
/// `ENODEV`. Values are little endian.
#[derive(Clone)]
pub(crate) struct Region(Arc<Inner>);

/// Most bytes copied without giving other revokers and the scheduler a chance.
const PIECE: usize = 32 * 1024;

impl Region {
    fn new(len: u64, bus: Option<u64>, backing: Backing) -> Result<Self> {
        let inner = Arc::pin_init(
            pin_init!(Inner {
                len,
                bus,
                backing <- Revocable::new(backing),
                revoking <- new_mutex!((), "csd::Region"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(inner))
    }

    /// Takes over mapped device memory. `bus` is its address for the owning controller's PRPs.
    pub(crate) fn device(map: IoMapping, bus: u64) -> Result<Self> {
        let len = map.len() as u64;
        Self::new(len, Some(bus), Backing::Device(map))
    }

    /// Allocates zeroed host memory that no device knows of.
    ///
    /// # Errors
    ///
    /// - `EINVAL` for a length of zero; `ENOMEM`.
    pub(crate) fn host(len: usize) -> Result<Self> {
        if len == 0 {
            return Err(EINVAL);
        }
        let words = VVec::zeroed(len.div_ceil(8), GFP_KERNEL)?;
        let memory = Backing::Host(HostMemory::new(words));
        Self::new(len as u64, None, memory)
    }

    /// Bytes in the region. Stays valid after revocation.
    pub(crate) fn len(&self) -> u64 {
        self.0.len
    }

    /// The address of the first byte in PRPs of the drive that owns the memory; `None` for the host.
    pub(crate) fn bus_address(&self) -> Option<u64> {
        self.0.bus
    }

    /// Ends all access and unmaps the memory. Sleeps until running accesses are over.
    pub(crate) fn revoke(&self) {
        let _guard = self.0.revoking.lock();
        self.0.backing.revoke();
    }

    /// Runs `f` on the address of byte `offset` if `len` bytes from there are inside.
    fn with<R>(&self, offset: u64, len: usize, f: impl FnOnce(*mut u8) -> R) -> Result<R> {
        let end = offset.checked_add(len as u64).ok_or(ERANGE)?;
        if end > self.0.len {
            return Err(ERANGE);
        }
        let backing = self.0.backing.try_access().ok_or(ENODEV)?;
        // Wrapping pointer arithmetic: the range was checked, and the pointer is to I/O memory.
        Ok(f(backing.base().wrapping_add(usize::try_from(offset)?)))
    }

    /// Copies bytes out. Any offset and length; no order among the bytes is promised.
    ///
    /// # Errors
    ///
    /// - `ERANGE` outside the region; `ENODEV` after revocation, `out` may then be half filled.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result {
        self.with(offset, out.len(), |_| ())?;
        let mut at = offset;
        for piece in out.chunks_mut(PIECE) {
            // SAFETY: `with` checked that `piece.len()` bytes from its argument are mapped.
            self.with(at, piece.len(), |from| unsafe { copy_from(from, piece) })?;
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Copies bytes in, in ascending order of addresses. Any offset and length.
    ///
    /// # Errors
    ///
    /// - `ERANGE` outside the region; `ENODEV` after revocation.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result {
        self.with(offset, data.len(), |_| ())?;
        let mut at = offset;
        for piece in data.chunks(PIECE) {
            // SAFETY: `with` checked that `piece.len()` bytes from its argument are mapped.
            self.with(at, piece.len(), |to| unsafe { copy_to(to, piece) })?;
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Sets `len` bytes to `byte`.
    ///
    /// # Errors
    ///
    /// - `ERANGE` outside the region; `ENODEV` after revocation.
    pub(crate) fn fill(&self, offset: u64, len: u64, byte: u8) -> Result {
        self.with(offset, usize::try_from(len)?, |_| ())?;
        let pattern = [byte; 256];
        let mut done = 0u64;
        while done < len {
            let step = (len.wrapping_sub(done)).min(pattern.len() as u64);
            let piece = pattern.get(..usize::try_from(step)?).ok_or(ERANGE)?;
            self.write(offset.wrapping_add(done), piece)?;
            done = done.wrapping_add(step);
        }
        Ok(())
    }

    /// Reads eight bytes in one access.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if `offset` is not a multiple of 8; `ERANGE`; `ENODEV`.
    pub(crate) fn read_u64(&self, offset: u64) -> Result<u64> {
        if offset % 8 != 0 {
            return Err(EINVAL);
        }
        // SAFETY: Eight mapped bytes, aligned because mappings start on a page.
        let raw = self.with(offset, 8, |at| unsafe { load64(at) })?;
        Ok(u64::from_le(raw))
    }

    /// Writes eight bytes in one access.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if `offset` is not a multiple of 8; `ERANGE`; `ENODEV`.
    pub(crate) fn write_u64(&self, offset: u64, value: u64) -> Result {
        if offset % 8 != 0 {
            return Err(EINVAL);
        }
        // SAFETY: Eight mapped bytes, aligned because mappings start on a page.
        self.with(offset, 8, |at| unsafe { store64(at, value.to_le()) })
    }

    /// Makes every write before it visible to devices and peers before any write after it.
    pub(crate) fn write_barrier(&self) {
        barrier::mb(barrier::Write);
    }

    /// Keeps reads after it from being served by anything older than the reads before it.
    pub(crate) fn read_barrier(&self) {
        barrier::mb(barrier::Read);
    }
}

// Device memory on x86 is reached by plain loads and stores, and a volatile access of a naturally
// aligned word is one such instruction. Other architectures need their own accessors here.
const _: () = assert!(cfg!(target_arch = "x86_64"), "see the comment on load64");

/// # Safety
///
/// `at` must be a mapped, aligned word.
unsafe fn load64(at: *const u8) -> u64 {
    // SAFETY: By the caller's promise.
    unsafe { at.cast::<u64>().read_volatile() }
}

/// # Safety
///
/// `at` must be a mapped, aligned word.
unsafe fn store64(at: *mut u8, value: u64) {
    // SAFETY: By the caller's promise.
    unsafe { at.cast::<u64>().write_volatile(value) }
}

/// Bytes from `at` to the next multiple of 8, at most `len`.
fn head(at: *const u8, len: usize) -> usize {
    (at.addr().wrapping_neg() & 7).min(len)
}

/// Copies to `out` by aligned words where possible: no access is wider than 8 bytes, as CMBs demand.
///
/// # Safety
///
/// `out.len()` bytes from `from` must be mapped.
unsafe fn copy_from(from: *const u8, out: &mut [u8]) {
    let (first, rest) = out.split_at_mut(head(from, out.len()));
    let mut at = from;
    for byte in first {
        // SAFETY: Inside the range that the caller promised.
        *byte = unsafe { at.read_volatile() };
        at = at.wrapping_add(1);
    }
    let mut words = rest.chunks_exact_mut(8);
    for word in &mut words {
        // SAFETY: Inside the range, and aligned since `head` bytes were taken.
        word.copy_from_slice(&unsafe { load64(at) }.to_ne_bytes());
        at = at.wrapping_add(8);
    }
    for byte in words.into_remainder() {
        // SAFETY: Inside the range that the caller promised.
        *byte = unsafe { at.read_volatile() };
        at = at.wrapping_add(1);
    }
}

/// Copies `data` by aligned words where possible, in ascending order.
///
/// # Safety
///
/// `data.len()` bytes from `to` must be mapped.
unsafe fn copy_to(to: *mut u8, data: &[u8]) {
    let (first, rest) = data.split_at(head(to, data.len()));
    let mut at = to;
    for byte in first {
        // SAFETY: Inside the range that the caller promised.
        unsafe { at.write_volatile(*byte) };
        at = at.wrapping_add(1);
    }
    let words = rest.chunks_exact(8);
    let last = words.remainder();
    for word in words {
        let mut value = [0; 8];
        value.copy_from_slice(word);
        // SAFETY: Inside the range, and aligned since `head` bytes were taken.
        unsafe { store64(at, u64::from_ne_bytes(value)) };
        at = at.wrapping_add(8);
    }
    for byte in last {
        // SAFETY: Inside the range that the caller promised.
        unsafe { at.write_volatile(*byte) };
        at = at.wrapping_add(1);
    }
}
