// SPDX-License-Identifier: GPL-2.0

//! The end of a mesh, and of one member's part in it.
//!
//! Owns the order of the steps: nobody new, traffic ended, threads stopped, rings scrubbed, drive
//! free. Never fails half way: a drive that is gone already needs none of it.

use super::{
    registry::Registry,
    Holding,
    Member,
    Mesh, //
};
use crate::{
    idc::{
        ring::RingCounters,
        status::Status, //
    },
    uapi::{
        self,
        csd_mesh_destroy, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};

impl Registry {
    /// Carries out `CSD_IOC_MESH_DESTROY`.
    ///
    /// # Errors
    ///
    /// - As `uapi/csd.h` says.
    pub(crate) fn destroy_mesh(&self, request: &csd_mesh_destroy) -> Result {
        if request.flags & !uapi::CSD_MESH_DESTROY_FORCE != 0 || request.reserved != 0 {
            return Err(EOPNOTSUPP);
        }
        let mesh = self.mesh(request.mesh)?;
        let force = request.flags & uapi::CSD_MESH_DESTROY_FORCE != 0;
        self.destroy(&mesh, force)
    }

    /// Destroys `mesh`, which cancels its pipelines if `force` is given.
    ///
    /// # Errors
    ///
    /// - EBUSY if it has pipelines, without `force`; ENXIO if somebody else was faster; EINTR.
    pub(crate) fn destroy(&self, mesh: &Arc<Mesh>, force: bool) -> Result {
        // May wait long, for storage commands; nobody else has to.
        mesh.book.close(mesh, force)?;
        let _changing = self.changing.lock();
        if !Arc::ptr_eq(&self.mesh(mesh.number)?, mesh) {
            return Err(ENXIO);
        }
        mesh.dissolve();
        self.set_mesh(mesh.number, None);
        self.post(mesh.event(uapi::CSD_EVENT_MESH_DESTROYED));
        Ok(())
    }
}

impl Mesh {
    /// Ends everything: calls with ECANCELED, threads, rings. `Registry::changing` is held, and
    /// no pipeline runs unless the module goes.
    pub(super) fn dissolve(&self) {
        self.host.close(ECANCELED);
        for member in self.members.iter() {
            if let Some(holding) = self.take_holding(member) {
                member.proxy.inbox.close(ECANCELED);
                self.give_up(member, holding);
            }
        }
    }

    fn take_holding(&self, member: &Member) -> Option<Holding> {
        let index = member.id.index().checked_sub(1)?;
        self.holdings.lock().get_mut(index)?.take()
    }

    /// Stops the member's thread, keeps its counters, scrubs its rings and frees its drive.
    fn give_up(&self, member: &Member, mut holding: Holding) {
        drop(holding.thread.take());
        let (sent, received) = member.messages();
        member.slot.totals.sent.fetch_add(sent, Relaxed);
        member.slot.totals.received.fetch_add(received, Relaxed);
        holding.block.scrub(u64::MAX);
    }

    /// A drive has left: its rings are detached, what it took part in fails with ENODEV, the other
    /// members go on. `Registry::changing` is held.
    pub(super) fn lose(&self, member: &Member) {
        if member.lost.xchg(true, Full) {
            return;
        }
        let Some(holding) = self.take_holding(member) else {
            return;
        };
        pr_warn!("mesh {}: csd{} is lost\n", self.number, member.drive());
        member.proxy.inbox.close(ENODEV);
        self.host.detach(member.id);
        for other in self.members.iter().filter(|other| !other.is_lost()) {
            other
                .proxy
                .turn(self, |firmware, _| firmware.detach_peer(member.id));
            other.proxy.kick();
        }
        self.book.fail_member(self, member, Status::PEER_LOST);
        self.give_up(member, holding);
        self.events.post(
            self.event(uapi::CSD_EVENT_PEER_LOST)
                .drive(member.drive())
                .status(ENODEV.to_errno().unsigned_abs()),
        );
        self.reap();
    }
}

impl Member {
    /// Entries that the member sent and received in this mesh.
    pub(super) fn messages(&self) -> (u64, u64) {
        self.proxy.inspect(|firmware| {
            let ipc = firmware.ipc();
            let mut totals = (0u64, 0u64);
            let mut add = |outgoing: &RingCounters, incoming: &RingCounters| {
                totals.0 = totals.0.wrapping_add(outgoing.entries);
                totals.1 = totals.1.wrapping_add(incoming.entries);
            };
            for peer in crate::idc::member::MemberId::all(uapi::CSD_MAX_MEMBERS as u16) {
                if let Some((outgoing, incoming)) = ipc.counters(peer) {
                    add(outgoing, incoming);
                }
            }
            totals
        })
    }
}
