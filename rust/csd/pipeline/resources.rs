// SPDX-License-Identifier: GPL-2.0

//! What a pipeline takes: buffers in drives, windows, keys, a piece of host memory.
//!
//! Owns all of it and how it goes back. All or none: what was taken goes back when the rest cannot
//! be had.

use super::{
    arguments::Order,
    book::{
        Book,
        Seats, //
    }, //
};
use crate::{
    idc::{
        member::{
            Location,
            MemberId,
            MemberSet, //
        },
        pipeline::{
            descriptor::Sink,
            report::{
                self,
                Report,
                REPORT_BYTES, //
            },
            MIN_BUFFERS, //
        },
        range::Range,
        window::{
            Rights,
            Window,
            WindowRef, //
        }, //
    },
    mesh::{
        slot::Lease,
        Mesh, //
    },
    sys::{
        crypto::Cipher,
        region::Region, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    }, //
};

/// Buffers of a hop where memory allows.
const BUFFERS: u16 = 4;
/// A cell has a line for itself.
const LINE: u64 = 64;
/// Bytes after a result ring for the cell that the host writes.
const CELL_BYTES: u64 = 4096;

/// A piece of the mesh's host memory, given back on drop.
struct HostArea {
    mesh: Arc<Mesh>,
    region: Region,
    range: Range,
}

impl HostArea {
    fn new(mesh: &Arc<Mesh>, len: u64) -> Result<Self> {
        let region = mesh.host_region()?.clone();
        let range = mesh
            .host_space
            .lock()
            .alloc(len, LINE)
            .map_err(|_| ENOSPC)?;
        let area = Self {
            mesh: mesh.clone(),
            region,
            range,
        };
        area.region.fill(range.start, range.len, 0)?;
        Ok(area)
    }
}

impl Drop for HostArea {
    fn drop(&mut self) {
        let freed = self.mesh.host_space.lock().free(self.range);
        if freed.is_err() {
            pr_err!("host memory at {:#x} was not allocated\n", self.range.start);
        }
    }
}

/// The ring of bytes from which the host takes the result, and the cell where it says how far.
pub(super) struct ResultRing {
    lease: Lease,
    /// Bytes of the ring; the cell follows.
    pub(super) len: u64,
    /// Bytes that may have been written into it.
    dirty: u64,
}

impl ResultRing {
    /// The memory that it is in.
    pub(super) fn region(&self) -> &Region {
        self.lease.region()
    }

    /// Where the ring starts in it.
    pub(super) fn start(&self) -> u64 {
        self.lease.start()
    }

    /// Where the host's cell is.
    pub(super) fn consumed_cell(&self) -> u64 {
        self.lease.start().saturating_add(self.len)
    }
}

impl Drop for ResultRing {
    fn drop(&mut self) {
        self.lease.scrub(self.dirty);
    }
}

/// A key in a key slot, zeroed on drop.
struct KeySlot {
    mesh: Arc<Mesh>,
    member: MemberId,
    slot: u16,
}

impl KeySlot {
    fn new(mesh: &Arc<Mesh>, id: MemberId, cipher: Cipher) -> Result<Self> {
        let member = mesh.member(id).ok_or(ENODEV)?;
        let slot = member
            .proxy
            .turn(&**mesh, |_, hands| hands.set_key(cipher))?;
        Ok(Self {
            mesh: mesh.clone(),
            member: id,
            slot,
        })
    }
}

impl Drop for KeySlot {
    fn drop(&mut self) {
        if let Some(member) = self.mesh.member(self.member) {
            member
                .proxy
                .turn(&*self.mesh, |_, hands| hands.clear_key(self.slot));
        }
    }
}

/// Everything but the result's ring. The last reference gives it back; until then windows may have
/// to be revoked ([`Resources::revoke`]).
pub(crate) struct Resources {
    /// By hop.
    inputs: KVec<Lease>,
    sink_buffers: Option<Lease>,
    host: HostArea,
    windows: KVec<Window>,
    _keys: KVec<KeySlot>,
    _seats: Seats,
}

/// The descriptor's view of what was taken.
pub(super) struct Places {
    /// By hop.
    pub(super) inputs: KVec<WindowRef>,
    /// Input buffers of each hop.
    pub(super) buffers: u16,
    /// By stage; 0 where there is no key.
    pub(super) key_slots: KVec<u16>,
    pub(super) sink: Sink,
    pub(super) report: WindowRef,
}

/// What [`Resources::take`] gives.
pub(super) struct Taken {
    pub(super) resources: Arc<Resources>,
    pub(super) result: Option<Arc<ResultRing>>,
    pub(super) places: Places,
}

impl Resources {
    /// Takes the memory and the key slots for `order` and names its windows. Nothing is granted yet.
    ///
    /// # Errors
    ///
    /// - ENOSPC if a drive's memory is too full, EBUSY without a free stream or key slot, ENOMEM,
    /// - ENODEV if a drive is lost, ECANCELED while the mesh is being destroyed.
    pub(super) fn take(mesh: &Arc<Mesh>, order: &mut Order) -> Result<Taken> {
        let slots = report::slots(order.stages.len()) as u64;
        let reports = slots.saturating_mul(REPORT_BYTES as u64);
        let host = HostArea::new(mesh, LINE.saturating_add(reports))?;
        let seats = Book::reserve(mesh, order.hops().iter().map(|hop| hop.member))?;
        let memory = Memory::take(mesh, order, BUFFERS).or_else(|error| {
            // Two buffers of a page could not hold a descriptor.
            if error == ENOSPC && order.chunk_bytes > 4096 {
                Memory::take(mesh, order, MIN_BUFFERS)
            } else {
                Err(error)
            }
        })?;
        let mut keys = KVec::new();
        let mut key_slots = KVec::new();
        for stage in order.stages.iter_mut() {
            let mut slot = 0;
            if let Some(cipher) = stage.cipher.take() {
                let key = KeySlot::new(mesh, stage.member, cipher)?;
                slot = key.slot;
                keys.push(key, GFP_KERNEL)?;
            }
            key_slots.push(slot, GFP_KERNEL)?;
        }
        let (windows, places) = Self::name(mesh, order, &memory, &host, key_slots)?;
        let resources = Resources {
            inputs: memory.inputs,
            sink_buffers: memory.sink,
            host,
            windows,
            _keys: keys,
            _seats: seats,
        };
        Ok(Taken {
            resources: Arc::new(resources, GFP_KERNEL)?,
            result: memory.result,
            places,
        })
    }

    /// Gives every piece of memory a window.
    fn name(
        mesh: &Mesh,
        order: &Order,
        memory: &Memory,
        host: &HostArea,
        key_slots: KVec<u16>,
    ) -> Result<(KVec<Window>, Places)> {
        let last = order.hops().last().ok_or(EINVAL)?.member;
        let mut windows = KVec::new();
        let mut inputs = KVec::new();
        let mut everybody = MemberSet::NONE;
        let mut before = order.source.member;
        let mut window = |owner, start, length, grantees, rights| -> Result<u32> {
            let id = mesh.book.window();
            windows.push(
                Window {
                    id,
                    rights,
                    owner,
                    base: Location::of(owner, start),
                    length,
                    grantees,
                },
                GFP_KERNEL,
            )?;
            Ok(id)
        };
        for (hop, lease) in order.hops().iter().zip(memory.inputs.iter()) {
            let id = window(
                hop.member,
                lease.start(),
                lease.len(),
                MemberSet::of(before),
                Rights::WRITE,
            )?;
            inputs.push(
                WindowRef {
                    window: id,
                    offset: 0,
                },
                GFP_KERNEL,
            )?;
            before = hop.member;
            everybody = everybody.with(hop.member);
        }
        let area = window(
            MemberId::HOST,
            host.range.start,
            host.range.len,
            everybody,
            Rights::READ_WRITE,
        )?;
        let at = |window, offset| WindowRef { window, offset };
        let sink = match (&memory.result, &memory.sink, order.sink) {
            (Some(result), _, _) => {
                let id = window(
                    last,
                    result.lease.start(),
                    result.lease.len(),
                    MemberSet::of(last).with(MemberId::HOST),
                    Rights::READ_WRITE,
                )?;
                Sink::HostWindow {
                    ring: at(id, 0),
                    length: result.len,
                    produced: at(area, 0),
                    consumed: at(id, result.len),
                }
            }
            (None, Some(buffers), Some(sink)) => {
                let id = window(
                    last,
                    buffers.start(),
                    buffers.len(),
                    MemberSet::of(last),
                    Rights::READ_WRITE,
                )?;
                Sink::Namespace {
                    nsid: sink.nsid,
                    offset: sink.offset,
                    limit: sink.length,
                    buffers: at(id, 0),
                    count: memory.buffers,
                }
            }
            _ => return Err(EINVAL),
        };
        let places = Places {
            inputs,
            buffers: memory.buffers,
            key_slots,
            sink,
            report: at(area, LINE),
        };
        Ok((windows, places))
    }

    /// Grants every window to its owner and its grantees, and counts their data for the pipeline.
    ///
    /// # Errors
    ///
    /// - ENODEV if a member is lost, EBUSY if its window table is full, ENOMEM.
    pub(super) fn grant(&self, mesh: &Mesh, touched: &Arc<Atomic<u64>>) -> Result {
        for window in self.windows.iter() {
            for id in window.grantees.with(window.owner).iter() {
                if id.is_host() {
                    continue;
                }
                let member = mesh.member(id).ok_or(ENODEV)?;
                member.proxy.turn(mesh, |firmware, hands| -> Result {
                    firmware.grant(window).map_err(|_| EBUSY)?;
                    if !window.owner.is_host() {
                        hands.open_account(
                            window.id,
                            window.base,
                            window.length,
                            touched.clone(),
                        )?;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Takes every window back, after which no drive can begin anything in them. May be repeated.
    pub(super) fn revoke(&self, mesh: &Mesh) {
        for window in self.windows.iter() {
            for id in window.grantees.with(window.owner).iter() {
                if let Some(member) = mesh.member(id) {
                    member.proxy.turn(mesh, |firmware, hands| {
                        firmware.revoke(window.id);
                        hands.close_account(window.id);
                    });
                }
            }
        }
    }

    /// The report in slot `slot`.
    pub(super) fn report(&self, slot: usize) -> Option<Report> {
        let mut copy = [0u8; REPORT_BYTES];
        let offset = (slot as u64)
            .checked_mul(REPORT_BYTES as u64)?
            .checked_add(LINE)?;
        if offset.checked_add(REPORT_BYTES as u64)? > self.host.range.len {
            return None;
        }
        let at = self.host.range.start.checked_add(offset)?;
        self.host.region.read(at, &mut copy).ok()?;
        Report::parse(&copy)
    }

    /// Bytes of the result that the last hop says it has written.
    pub(super) fn produced(&self) -> u64 {
        let value = self.host.region.read_u64(self.host.range.start);
        self.host.region.read_barrier();
        value.unwrap_or(0)
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        // Buffers are used in turn, so that even a little data may lie in any of them.
        for lease in self.inputs.iter() {
            lease.scrub(u64::MAX);
        }
        if let Some(buffers) = &self.sink_buffers {
            buffers.scrub(u64::MAX);
        }
    }
}

/// The leases of one try.
struct Memory {
    inputs: KVec<Lease>,
    sink: Option<Lease>,
    result: Option<Arc<ResultRing>>,
    buffers: u16,
}

impl Memory {
    fn take(mesh: &Mesh, order: &Order, buffers: u16) -> Result<Self> {
        let alloc = |id: MemberId, len: u64| -> Result<Lease> {
            let member = mesh
                .member(id)
                .filter(|member| !member.is_lost())
                .ok_or(ENODEV)?;
            member.slot.alloc(member.kind, len)
        };
        let bytes = u64::from(order.chunk_bytes).saturating_mul(u64::from(buffers));
        let mut inputs = KVec::new();
        for hop in order.hops().iter() {
            inputs.push(alloc(hop.member, bytes)?, GFP_KERNEL)?;
        }
        let last = order.hops().last().ok_or(EINVAL)?.member;
        let (sink, result) = if order.sink.is_some() {
            (Some(alloc(last, bytes)?), None)
        } else {
            let len = u64::from(order.window_bytes);
            let lease = alloc(last, len.saturating_add(CELL_BYTES))?;
            lease
                .region()
                .fill(lease.start().saturating_add(len), CELL_BYTES, 0)?;
            // The ring is written from its start on, and no function of ours adds more than a byte.
            let dirty = order
                .source
                .length
                .saturating_add(order.stages.len() as u64);
            let ring = ResultRing { lease, len, dirty };
            (None, Some(Arc::new(ring, GFP_KERNEL)?))
        };
        Ok(Self {
            inputs,
            sink,
            result,
            buffers,
        })
    }
}
