// SPDX-License-Identifier: GPL-2.0

//! Creation of a mesh.
//!
//! Owns the order of its steps: claim the drives, find an epoch that no ring ever had, take the
//! memory, clear it, attach every end, start the threads. Whatever fails, all of it is undone by
//! dropping what there is. Never starts traffic.

use super::{
    bus::{
        Bus,
        Stop, //
    },
    host::Host,
    registry::Registry,
    slot::{
        Claim,
        Lease,
        Slot, //
    },
    Holding,
    Member,
    Mesh, //
};
use crate::{
    drive::State,
    idc::{
        member::{
            Location,
            MemberId, //
        },
        mesh::{
            MeshShape,
            MeshTable,
            BLOCK_ALIGN, //
        },
        range::Range,
        superblock::{
            self,
            Superblock,
            SUPERBLOCK_BYTES, //
        }, //
    },
    pipeline::Book,
    proxy::{
        Proxy,
        FUNCTIONS, //
    },
    sys::{
        boxes::zeroed_box,
        kthread::{
            KThread,
            Kick, //
        },
        ratelimit::RateLimit,
        region::{
            MemoryKind,
            Region, //
        },
        time::now_ns, //
    },
    uapi::{
        self,
        csd_mesh_create, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Entries and their size where the caller leaves it to us.
const DEFAULT_ENTRIES: u32 = 64;
const DEFAULT_ENTRY_BYTES: u32 = 64;
/// Host memory for the cells and reports of pipelines.
const HOST_AREA_BYTES: u64 = 64 * 1024;

/// A drive on its way into the mesh.
struct Recruit {
    claim: Claim,
    kind: MemoryKind,
    region: Region,
}

impl Recruit {
    fn slot(&self) -> &Arc<Slot> {
        self.claim.slot()
    }

    /// Claims `slot` for mesh `number`.
    ///
    /// # Errors
    ///
    /// - ENODEV if the drive is not ready, EBUSY, EOPNOTSUPP without a usable memory of that kind.
    fn new(slot: &Arc<Slot>, number: u32, memory: u32) -> Result<Self> {
        let claim = slot.claim(number)?;
        let drive = &slot.drive;
        if drive.state() != State::Ready {
            return Err(ENODEV);
        }
        let choices: &[MemoryKind] = match memory {
            uapi::CSD_MESH_MEMORY_PMR => &[MemoryKind::Pmr],
            uapi::CSD_MESH_MEMORY_CMB => &[MemoryKind::Cmb],
            _ => &[MemoryKind::Pmr, MemoryKind::Cmb],
        };
        // A PMR without consent is no region at all.
        let (kind, region) = choices
            .iter()
            .find_map(|kind| Some((*kind, drive.region(*kind)?)))
            .ok_or(EOPNOTSUPP)?;
        Ok(Self {
            claim,
            kind,
            region,
        })
    }

    /// What identifies the drive in its memory's superblock.
    fn nqn_hash(&self) -> u64 {
        self.slot().drive.with_info(|info| {
            info.map_or(0, |info| {
                superblock::nqn_hash(info.subnqn.as_str().as_bytes())
            })
        })
    }

    /// The newest epoch that the memory can have seen; 0 if it is not ours yet.
    ///
    /// # Errors
    ///
    /// - EOPNOTSUPP if its superblock is one that only later versions know.
    fn last_epoch(&self) -> Result<u32> {
        let mut block = [0u8; SUPERBLOCK_BYTES];
        self.region.read(0, &mut block)?;
        superblock::newest_epoch(&block).map_err(|_| {
            dev_warn!(
                self.slot().drive.device(),
                "its memory belongs to a later version of the protocol\n"
            );
            EOPNOTSUPP
        })
    }

    /// Writes down that `epoch` is taken, before anybody uses it.
    fn store_epoch(&self, epoch: u32) -> Result {
        let mut block = [0u8; SUPERBLOCK_BYTES];
        Superblock {
            nqn_hash: self.nqn_hash(),
            last_epoch: epoch,
        }
        .encode(&mut block);
        self.region.write(0, &block)?;
        self.region.write_barrier();
        // Reading back pushes the write out to the memory.
        self.region.read_u64(0).map(|_| ())
    }
}

/// The drives that the request names, by number.
fn candidates(registry: &Registry, request: &csd_mesh_create) -> Result<KVec<Arc<Slot>>> {
    let mut slots = registry.slots()?;
    if request.drives == 0 {
        slots.retain(|slot| slot.mesh().is_none() && slot.drive.state() == State::Ready);
        if slots.is_empty() {
            return Err(ENODEV);
        }
    } else {
        let bit = |slot: &Arc<Slot>| 1u64.checked_shl(slot.drive.index()).unwrap_or(0);
        let bound = slots.iter().fold(0, |bits, slot| bits | bit(slot));
        if request.drives & !bound != 0 {
            return Err(ENXIO);
        }
        slots.retain(|slot| request.drives & bit(slot) != 0);
    }
    if slots.len() > uapi::CSD_MAX_MEMBERS as usize {
        return Err(EINVAL);
    }
    Ok(slots)
}

/// Checks what does not depend on drives, and fills in the defaults.
fn shape(request: &csd_mesh_create) -> Result<MeshShape> {
    if request.flags != 0
        || request.reserved != 0
        || request.placement != uapi::CSD_PLACE_RECEIVER
        || request.publish != uapi::CSD_PUBLISH_ENTRY
        || request.memory > uapi::CSD_MESH_MEMORY_CMB
        || request.place_drive != 0
        || request.form != uapi::CSD_FORM_RING
        || request.share != uapi::CSD_SHARE_NONE
        || request.ring_flags != 0
        || request.establish != uapi::CSD_ESTABLISH_HOST
        || request.establish_drive != 0
        || request.notify != uapi::CSD_NOTIFY_HOST
        || request.select != uapi::CSD_SELECT_ROUND_ROBIN
        || request.pair_count != 0
        || request.reserved2 != 0
    {
        return Err(EOPNOTSUPP);
    }
    let or = |value, default| if value == 0 { default } else { value };
    let shape = MeshShape {
        drives: 1,
        entries: or(request.entries, DEFAULT_ENTRIES),
        entry_bytes: or(request.entry_bytes, DEFAULT_ENTRY_BYTES),
    };
    shape.check().map_err(|_| EINVAL)?;
    Ok(shape)
}

impl Registry {
    /// Carries out `CSD_IOC_MESH_CREATE`.
    ///
    /// # Errors
    ///
    /// - As `uapi/csd.h` says.
    pub(crate) fn create_mesh(&self, request: &mut csd_mesh_create) -> Result<Arc<Mesh>> {
        let started = now_ns();
        let mut shape = shape(request)?;
        let _changing = self.changing.lock();
        let number = self.free_number()?;

        let slots = candidates(self, request)?;
        shape.drives = u16::try_from(slots.len())?;
        let mut recruits = KVec::with_capacity(slots.len(), GFP_KERNEL)?;
        for slot in slots.iter() {
            let recruit = Recruit::new(slot, number, request.memory).inspect_err(|error| {
                if *error == EBUSY {
                    request.busy_drive = slot.drive.index();
                }
            })?;
            recruits.push(recruit, GFP_KERNEL)?;
        }

        let epoch = self.take_epoch(&recruits)?;
        let mesh = build(self, number, &shape, epoch, recruits)?;
        let took = now_ns().saturating_sub(started);
        mesh.create_ns.store(took, Relaxed);
        self.set_mesh(number, Some(mesh.clone()));

        request.mesh = number;
        request.entries = shape.entries;
        request.entry_bytes = shape.entry_bytes;
        request.peer_rings = shape.peer_rings();
        request.host_rings = shape.host_rings();
        request.buffers = shape.peer_rings().saturating_add(shape.host_rings());
        request.create_ns = took;
        self.post(mesh.event(uapi::CSD_EVENT_MESH_CREATED));
        Ok(mesh)
    }

    /// An epoch that none of the memories has seen, written down in all of them.
    fn take_epoch(&self, recruits: &[Recruit]) -> Result<u32> {
        let mut newest = 0;
        for recruit in recruits {
            newest = recruit.last_epoch()?.max(newest);
        }
        let epoch =
            superblock::next_epoch(::core::iter::once(newest), self.last_epoch.load(Relaxed))
                .map_err(|_| EOVERFLOW)?;
        for recruit in recruits {
            recruit.store_epoch(epoch)?;
        }
        self.last_epoch.store(epoch, Relaxed);
        Ok(epoch)
    }
}

/// Puts the mesh together and starts it.
fn build(
    registry: &Registry,
    number: u32,
    shape: &MeshShape,
    epoch: u32,
    recruits: KVec<Recruit>,
) -> Result<Arc<Mesh>> {
    let mut table = zeroed_box::<MeshTable>()?;
    table.init(shape, epoch).map_err(|_| EINVAL)?;

    // Memory, all or none: a lease goes back when it is dropped.
    let block = shape.block_bytes();
    let host_len = block.checked_add(HOST_AREA_BYTES).ok_or(EOVERFLOW)?;
    let mut stops = KVec::with_capacity(recruits.len().saturating_add(1), GFP_KERNEL)?;
    stops.push(
        Stop {
            region: Region::host(usize::try_from(host_len)?)?,
            kick: None,
        },
        GFP_KERNEL,
    )?;
    table
        .place(MemberId::HOST, Location::of(MemberId::HOST, 0))
        .map_err(|_| EINVAL)?;
    let mut blocks: KVec<Lease> = KVec::with_capacity(recruits.len(), GFP_KERNEL)?;
    let mut kicks: KVec<Arc<Kick>> = KVec::with_capacity(recruits.len(), GFP_KERNEL)?;
    for (index, recruit) in recruits.iter().enumerate() {
        let id = MemberId::drive(index).ok_or(EINVAL)?;
        let lease = recruit.slot().alloc(recruit.kind, block)?;
        table
            .place(id, Location::of(id, lease.start()))
            .map_err(|_| EINVAL)?;
        table.set_functions(id, FUNCTIONS);
        let kick = Kick::new()?;
        stops.push(
            Stop {
                region: recruit.region.clone(),
                kick: Some(kick.clone()),
            },
            GFP_KERNEL,
        )?;
        blocks.push(lease, GFP_KERNEL)?;
        kicks.push(kick, GFP_KERNEL)?;
    }
    let bus = Bus::new(stops)?;
    for id in MemberId::all(shape.drives) {
        table.clear(id, &mut bus.access()).map_err(|_| ENODEV)?;
    }

    let mut members = KVec::with_capacity(recruits.len(), GFP_KERNEL)?;
    for ((index, recruit), kick) in recruits.iter().enumerate().zip(kicks.iter()) {
        let id = MemberId::drive(index).ok_or(EINVAL)?;
        let member = Member {
            id,
            slot: recruit.slot().clone(),
            proxy: Proxy::new(id, &table, &bus, recruit.slot(), recruit.kind, kick)?,
            kind: recruit.kind,
            lost: Atomic::new(false),
        };
        members.push(member, GFP_KERNEL)?;
    }

    let mut host_space = zeroed_box()?;
    crate::idc::range::RangeAllocator::init(
        &mut *host_space,
        Range {
            start: block.next_multiple_of(BLOCK_ALIGN),
            len: HOST_AREA_BYTES,
        },
    )
    .map_err(|_| EINVAL)?;
    let host = Host::new(&table)?;
    let mesh = Arc::pin_init(
        try_pin_init!(Mesh {
            number,
            table,
            create_ns: Atomic::new(0),
            members,
            bus,
            host <- host,
            holdings <- new_mutex!(KVec::new(), "csd_holdings"),
            book <- Book::new(),
            host_space <- new_mutex!(host_space, "csd_host_space"),
            events: registry.events.clone(),
            complaints: RateLimit::new(),
        }),
        GFP_KERNEL,
    )?;

    // From here on threads hold the mesh; should one not start, the others are stopped.
    let mut holdings = KVec::with_capacity(recruits.len(), GFP_KERNEL)?;
    let all = recruits.into_iter().zip(blocks).zip(kicks).enumerate();
    for (index, ((recruit, block), kick)) in all {
        let name = CString::try_from_fmt(fmt!("csd{}", recruit.slot().drive.index()))?;
        let body = mesh.clone();
        let thread = KThread::spawn(&name, kick, move |kick| {
            if let Some(member) = body.members.get(index) {
                member.proxy.run(kick, &*body, || body.reap());
            }
        })?;
        let holding = Holding {
            thread: Some(thread),
            block,
            _claim: recruit.claim,
        };
        holdings.push(Some(holding), GFP_KERNEL)?;
    }
    *mesh.holdings.lock() = holdings;
    Ok(mesh)
}
