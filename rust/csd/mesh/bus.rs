// SPDX-License-Identifier: GPL-2.0

//! How the host's processor reaches the memories of a mesh: memory id to region, member to bell.
//!
//! Owns the translation of IDC's [`Location`]s into accesses and of their errors into [`Fault`]s.
//! Never looks at what is read or written.

use crate::{
    idc::{
        member::{
            Location,
            MemberId,
            MemoryId, //
        },
        memory::{
            Fabric,
            Fault,
            Memory, //
        }, //
    },
    sys::{
        kthread::Kick,
        region::Region, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Where one member can be reached.
pub(crate) struct Stop {
    /// The memory that it lends.
    pub(crate) region: Region,
    /// Wakes whoever polls for it; the host has none, see [`BusAccess::host_rung`].
    pub(crate) kick: Option<Arc<Kick>>,
}

/// All members of a mesh, by member id.
pub(crate) struct Bus {
    stops: KVec<Stop>,
}

fn fault(error: Error) -> Fault {
    if error == ENODEV {
        Fault::Gone
    } else {
        Fault::OutOfRange
    }
}

impl Bus {
    /// `stops` are in the order of member ids, the host first.
    pub(crate) fn new(stops: KVec<Stop>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { stops }, GFP_KERNEL)?)
    }

    /// The memory `memory`.
    pub(crate) fn region(&self, memory: MemoryId) -> Result<&Region, Fault> {
        // A member lends one memory, whose id is the member's.
        self.stops
            .get(memory.index())
            .map(|stop| &stop.region)
            .ok_or(Fault::NoMemory)
    }

    /// Wakes whoever polls for a drive.
    pub(crate) fn kick(&self, member: MemberId) {
        if let Some(kick) = self
            .stops
            .get(member.index())
            .and_then(|stop| stop.kick.as_ref())
        {
            kick.kick();
        }
    }

    /// [`Memory::read`].
    pub(crate) fn read(&self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        self.region(at.memory)?.read(at.offset, buf).map_err(fault)
    }

    /// [`Memory::write`].
    pub(crate) fn write(&self, at: Location, data: &[u8]) -> Result<(), Fault> {
        self.region(at.memory)?
            .write(at.offset, data)
            .map_err(fault)
    }

    /// [`Memory::load_u64`].
    pub(crate) fn load_u64(&self, at: Location) -> Result<u64, Fault> {
        let region = self.region(at.memory)?;
        let value = region.read_u64(at.offset).map_err(fault)?;
        region.read_barrier();
        Ok(value)
    }

    /// [`Memory::store_release_u64`].
    pub(crate) fn store_release_u64(&self, at: Location, value: u64) -> Result<(), Fault> {
        let region = self.region(at.memory)?;
        region.write_barrier();
        region.write_u64(at.offset, value).map_err(fault)
    }

    /// [`Memory::flush`]: reading back from a memory pushes earlier posted writes ahead of it.
    pub(crate) fn flush(&self, memory: MemoryId) -> Result<(), Fault> {
        let region = self.region(memory)?;
        region.write_barrier();
        region.read_u64(0).map_err(fault)?;
        region.read_barrier();
        Ok(())
    }

    /// The bus as a [`Fabric`] for one piece of work.
    pub(crate) fn access(&self) -> BusAccess<'_> {
        BusAccess {
            bus: self,
            host_rung: false,
        }
    }
}

/// The bus in use.
pub(crate) struct BusAccess<'a> {
    bus: &'a Bus,
    /// Something was stored for the host: the caller looks after it when it is done.
    pub(crate) host_rung: bool,
}

impl Memory for BusAccess<'_> {
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        self.bus.read(at, buf)
    }

    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
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

impl Fabric for BusAccess<'_> {
    fn notify(&mut self, member: MemberId) {
        if member.is_host() {
            self.host_rung = true;
        } else {
            self.bus.kick(member);
        }
    }
}
