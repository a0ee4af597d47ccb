// SPDX-License-Identifier: GPL-2.0

//! Meshes: drives whose memories hold each other's rings.
//!
//! Owns a mesh from its creation to its end: who is in it, where its rings are, what becomes of it
//! when a drive leaves. Never moves pipeline data (`proxy/` does, as the drives' stand-in) and never
//! decides where rings go (`idc::mesh` does).
//!
//! # Locks, outermost first
//!
//! 1. `Registry::changing`: creation, destruction and loss of members, one at a time. Sleeps long.
//! 2. `Registry` lists (drives, meshes, pipelines): taken to look something up, then dropped.
//! 3. `Mesh::holdings`, `Mesh::book`: as 2.
//! 4. `Proxy::body`: one member's firmware, for one bounded turn. Never two of them.
//! 5. `Host::end`, `Pipeline::state`, `Slot::state`, `Inbox::queue`: leaves.
//! 6. `Events::queue`, then the spinlocks of `sys/` and the NVMe layer.
//!
//! None of 2 to 6 is held across a copy to or from user space, an NVMe command or the end of a
//! thread. Whatever a turn of a firmware means to others is done after its lock was dropped
//! ([`Settle`]).

pub(crate) mod bus;
mod create;
mod end;
mod host;
pub(crate) mod inbox;
mod info;
mod message;
pub(crate) mod registry;
pub(crate) mod slot;

use crate::{
    events::{
        Event,
        Events, //
    },
    idc::{
        member::MemberId,
        mesh::MeshTable,
        range::RangeAllocator,
        ring::PeerFault,
        status::Failure,
        superblock::{
            Superblock,
            SUPERBLOCK_BYTES, //
        }, //
    },
    pipeline::Book,
    proxy::{
        Effects,
        Proxy,
        Settle, //
    },
    sys::{
        kthread::KThread,
        ratelimit::RateLimit,
        region::{
            MemoryKind,
            Region, //
        }, //
    },
    uapi, //
};
use bus::Bus;
use host::Host;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic, //
        },
        Arc,
        Mutex, //
    }, //
};
use slot::{
    Claim,
    Lease,
    Slot, //
};

/// Places for pipelines' cells and reports in the host's memory of a mesh.
const HOST_AREAS: usize = 64;

/// One drive in a mesh.
pub(crate) struct Member {
    /// Its id, 1 and up.
    pub(crate) id: MemberId,
    pub(crate) slot: Arc<Slot>,
    pub(crate) proxy: Arc<Proxy>,
    /// Which of the drive's memories it lends.
    pub(crate) kind: MemoryKind,
    lost: Atomic<bool>,
}

impl Member {
    /// Whether the drive has left.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// The number of its drive.
    pub(crate) fn drive(&self) -> u32 {
        self.slot.drive.index()
    }
}

/// What a mesh holds of one drive. The thread goes first, the drive is free last.
struct Holding {
    thread: Option<KThread>,
    block: Lease,
    _claim: Claim,
}

/// A mesh.
#[pin_data]
pub(crate) struct Mesh {
    /// Its number.
    pub(crate) number: u32,
    pub(crate) table: KBox<MeshTable>,
    /// How long its creation took.
    create_ns: Atomic<u64>,
    /// Drives in the order of their ids.
    pub(crate) members: KVec<Member>,
    pub(crate) bus: Arc<Bus>,
    #[pin]
    host: Host,
    /// By drive, in the order of `members`; `None` once it is lost or the mesh is destroyed.
    #[pin]
    holdings: Mutex<KVec<Option<Holding>>>,
    #[pin]
    pub(crate) book: Book,
    /// Which parts of the host's memory pipelines use.
    #[pin]
    pub(crate) host_space: Mutex<KBox<RangeAllocator<HOST_AREAS>>>,
    pub(crate) events: Arc<Events>,
    complaints: RateLimit,
}

impl Mesh {
    /// The drive with id `id`.
    pub(crate) fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(id.index().checked_sub(1)?)
    }

    /// The member that drive `drive` is, or the host for `CSD_MEMBER_HOST`.
    ///
    /// # Errors
    ///
    /// - ENXIO if the drive is not in the mesh, ENODEV if it is lost.
    pub(crate) fn find(&self, drive: u32) -> Result<MemberId> {
        if drive == uapi::CSD_MEMBER_HOST {
            return Ok(MemberId::HOST);
        }
        let member = self
            .members
            .iter()
            .find(|member| member.drive() == drive)
            .ok_or(ENXIO)?;
        if member.is_lost() {
            return Err(ENODEV);
        }
        Ok(member.id)
    }

    /// The number of a member's drive as users know it.
    pub(crate) fn drive_of(&self, id: MemberId) -> u32 {
        self.member(id).map_or(uapi::CSD_MEMBER_HOST, Member::drive)
    }

    /// The host's memory of this mesh.
    pub(crate) fn host_region(&self) -> Result<&Region> {
        self.bus
            .region(crate::idc::member::MemoryId::of(MemberId::HOST))
            .map_err(|_| EIO)
    }

    /// An event about this mesh.
    pub(crate) fn event(&self, kind: u32) -> Event {
        Event::new(kind).mesh(self.number)
    }

    /// Gives back what ended pipelines do not need any more.
    pub(crate) fn reap(&self) {
        self.book.reap(self);
    }

    /// Tells the operator why a pipeline failed.
    pub(crate) fn complain(&self, pipeline: u64, failure: &Failure) {
        if self.complaints.allow() {
            pr_warn!(
                "mesh {}: pipeline {} failed at {}, {}: {} (code {:#x}, offset {})\n",
                self.number,
                pipeline,
                Name(self.drive_of(failure.member)),
                Shown(&failure.stage),
                Shown(&failure.status),
                failure.code,
                failure.offset
            );
        }
    }

    /// A ring broke the protocol: `at` saw it, `from` sent it.
    fn ring_fault(&self, at: MemberId, from: MemberId, fault: PeerFault) {
        let (at, from) = (self.drive_of(at), self.drive_of(from));
        if self.complaints.allow() {
            pr_warn!(
                "mesh {}: ring from {} to {} fenced: {}\n",
                self.number,
                Name(from),
                Name(at),
                Shown(&fault)
            );
        }
        self.events.post(
            self.event(uapi::CSD_EVENT_RING_FAULT)
                .drive(at)
                .peer(from)
                .status(EPROTO.to_errno().unsigned_abs())
                .detail(fault_code(fault)),
        );
    }
}

/// Whether a drive's memory carries the superblock of this protocol.
pub(crate) fn signed(region: &Region) -> bool {
    let mut block = [0u8; SUPERBLOCK_BYTES];
    region.read(0, &mut block).is_ok() && Superblock::parse(&block).is_ok()
}

/// The reason of a ring fault as `CSD_EVENT_RING_FAULT` carries it.
fn fault_code(fault: PeerFault) -> u64 {
    match fault {
        PeerFault::Credit => 1,
        PeerFault::Sequence => 2,
        PeerFault::Entry => 3,
        PeerFault::Memory(_) => 4,
        PeerFault::TooManyRequests => 5,
        PeerFault::Fenced => 6,
        PeerFault::Unmatched => 7,
        PeerFault::Link => 8,
        PeerFault::Silent => 9,
    }
}

/// Something of IDC's in logs: the kernel's format trait is not core's.
pub(crate) struct Shown<'a>(pub(crate) &'a dyn ::core::fmt::Display);

impl kernel::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        ::core::fmt::Display::fmt(self.0, f)
    }
}

/// A member's name in logs.
pub(crate) struct Name(pub(crate) u32);

impl kernel::fmt::Display for Name {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        if self.0 == uapi::CSD_MEMBER_HOST {
            f.write_str("host")
        } else {
            write!(f, "csd{}", self.0)
        }
    }
}

impl Settle for Mesh {
    fn settle(&self, from: MemberId, effects: Effects) {
        if effects.host_rung {
            if let Some(fault) = self.host.serve(&self.bus, from) {
                self.ring_fault(MemberId::HOST, from, fault);
            }
            self.book.wake_readers(from);
        }
        for ended in effects.ended.into_iter().flatten() {
            self.book.ended(self, ended.command, &ended.completion);
        }
        for (peer, fault) in effects.faults {
            self.ring_fault(from, peer, fault);
        }
    }
}
