// SPDX-License-Identifier: GPL-2.0

//! What users may know of a mesh: `CSD_IOC_MESH_INFO` and `CSD_IOC_RING_INFO`.
//!
//! Owns the translation of counters into the ABI. Never gives away an address.

use super::Mesh;
use crate::{
    idc::{
        member::MemberId,
        ring::RingCounters, //
    },
    sys::{
        region::MemoryKind,
        uaccess, //
    },
    uapi::{
        self,
        csd_mesh_info,
        csd_mesh_member,
        csd_ring_info,
        csd_ring_reset, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use zerocopy::IntoBytes;

/// A memory as the ABI names it.
pub(crate) fn memory_bit(kind: MemoryKind) -> u32 {
    match kind {
        MemoryKind::Cmb => uapi::CSD_MEMORY_CMB,
        MemoryKind::Pmr => uapi::CSD_MEMORY_PMR,
    }
}

impl Mesh {
    /// Bytes of a member's memory that rings and cells take.
    fn ring_bytes(&self) -> u64 {
        self.table.shape().block_bytes()
    }

    /// Carries out `CSD_IOC_MESH_INFO`.
    ///
    /// # Errors
    ///
    /// - As `uapi/csd.h` says.
    pub(crate) fn info(&self, info: &mut csd_mesh_info) -> Result {
        let shape = self.table.shape();
        let members = info.members;
        let room = info.member_count as usize;
        info.entries = shape.entries;
        info.entry_bytes = shape.entry_bytes;
        info.placement = uapi::CSD_PLACE_RECEIVER;
        info.publish = uapi::CSD_PUBLISH_ENTRY;
        info.peer_rings = shape.peer_rings();
        info.host_rings = shape.host_rings();
        info.pipelines = self.book.running();
        info.member_count = u32::from(shape.drives).saturating_add(1);
        info.host_bytes = self
            .host_region()?
            .len()
            .saturating_add(self.host.bytes())
            .saturating_add(size_of::<Self>() as u64);
        info.create_ns = self.create_ns.load(Relaxed);
        info.place_drive = uapi::CSD_MEMBER_HOST;
        info.establish_drive = uapi::CSD_MEMBER_HOST;
        info.buffers = info.peer_rings.saturating_add(info.host_rings);
        if members == 0 {
            return Ok(());
        }
        let mut list = KVec::with_capacity(self.members.len().saturating_add(1), GFP_KERNEL)?;
        list.push(
            csd_mesh_member {
                drive: uapi::CSD_MEMBER_HOST,
                member: 0,
                state: uapi::CSD_MEMBER_ATTACHED,
                memory: 0,
                ring_bytes: self.ring_bytes(),
            },
            GFP_KERNEL,
        )?;
        for member in self.members.iter() {
            let state = if member.is_lost() {
                uapi::CSD_MEMBER_LOST
            } else {
                uapi::CSD_MEMBER_ATTACHED
            };
            list.push(
                csd_mesh_member {
                    drive: member.drive(),
                    member: u32::from(member.id.get()),
                    state,
                    memory: memory_bit(member.kind),
                    ring_bytes: self.ring_bytes(),
                },
                GFP_KERNEL,
            )?;
        }
        list.truncate(room);
        uaccess::write_bytes(members, list.as_slice().as_bytes())
    }

    /// A member by drive number, lost ones too.
    fn any(&self, drive: u32) -> Result<MemberId> {
        if drive == uapi::CSD_MEMBER_HOST {
            return Ok(MemberId::HOST);
        }
        self.members
            .iter()
            .find(|member| member.drive() == drive)
            .map(|member| member.id)
            .ok_or(ENXIO)
    }

    /// Runs `f` on `me`'s counters of the rings to and from `peer`.
    fn with_rings<R>(
        &self,
        me: MemberId,
        peer: MemberId,
        f: impl FnOnce(&RingCounters, &RingCounters, bool) -> R,
    ) -> Option<R> {
        match self.member(me) {
            None => self.host.with_rings(peer, f),
            Some(member) => member.proxy.inspect(|firmware| {
                let ipc = firmware.ipc();
                let (outgoing, incoming) = ipc.counters(peer)?;
                Some(f(outgoing, incoming, ipc.is_fenced(peer)))
            }),
        }
    }

    /// Carries out `CSD_IOC_RING_INFO`.
    ///
    /// # Errors
    ///
    /// - As `uapi/csd.h` says.
    pub(crate) fn ring_info(&self, info: &mut csd_ring_info) -> Result {
        let from = self.any(info.from)?;
        let to = self.any(info.to)?;
        let layout = self.table.ring(from, to).map_err(|_| ENXIO)?;
        info.where_ = info.to;
        info.memory = self.member(to).map_or(0, |member| memory_bit(member.kind));
        info.epoch = layout.epoch;
        info.state = uapi::CSD_RING_ATTACHED;
        // The entries, and a line for the credit cell.
        info.bytes = layout.bytes().saturating_add(crate::idc::mesh::CELL_BYTES);

        let sender = self.with_rings(from, to, |out, _, fenced| {
            (out.entries, out.stalls, out.faults, fenced)
        });
        let receiver = self.with_rings(to, from, |_, inc, fenced| {
            (
                [inc.entries, inc.bytes, inc.credits, inc.stale, inc.faults],
                fenced,
            )
        });
        let (sent, stalls, sender_faults, fenced_out) = sender.unwrap_or_default();
        let ([taken, bytes, credits, stale, faults], fenced_in) = receiver.unwrap_or_default();
        // Indices run freely modulo 2^32 from 0 on attach, as the counts do.
        info.tail = sent as u32;
        info.head = taken as u32;
        info.messages = taken;
        info.message_bytes = bytes;
        info.credit_writes = credits;
        info.stalls = stalls;
        info.stale = stale;
        info.faults = faults.saturating_add(sender_faults);
        info.establisher = uapi::CSD_MEMBER_HOST;
        info.arbiter = uapi::CSD_MEMBER_HOST;
        info.entries = layout.entries;
        info.entry_bytes = layout.entry_bytes;
        info.sent = sent;
        let lost = [from, to]
            .into_iter()
            .any(|id| !id.is_host() && !self.is_here(id));
        if lost || sender.is_none() || receiver.is_none() {
            info.state = uapi::CSD_RING_DETACHED;
        } else if fenced_out || fenced_in {
            info.state = uapi::CSD_RING_FENCED;
        }
        Ok(())
    }

    /// Carries out `CSD_IOC_RING_RESET`.
    ///
    /// # Errors
    ///
    /// - As `uapi/csd.h` says.
    pub(crate) fn reset(&self, reset: &mut csd_ring_reset) -> Result {
        self.find(reset.from)?;
        self.find(reset.to)?;
        Err(EOPNOTSUPP)
    }

    /// Host memory of one member, in bytes; 0 once it is lost.
    pub(crate) fn member_bytes(&self, drive: u32) -> u64 {
        self.members
            .iter()
            .find(|member| member.drive() == drive && !member.is_lost())
            .map_or(0, |member| member.proxy.bytes())
    }

    /// Entries that a member sent and received in this mesh.
    pub(crate) fn member_messages(&self, drive: u32) -> (u64, u64) {
        self.members
            .iter()
            .find(|member| member.drive() == drive && !member.is_lost())
            .map_or((0, 0), super::Member::messages)
    }
}
